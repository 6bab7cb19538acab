"""reduce_max, reduce_min, reduce_any and reduce_all over some axes.

Attributes as in mean_and_sum.py. All are exact. Input and output of minima and maxima share their
quantization; any and all take bools. Semantics: TFLite's reference Reduce.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from firmwright.base.dtypes import BOOL, FLOAT32, INT8, INT16, INT32, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_import import ImportContext, ImportedCall
from firmwright.ir.graph.opdef import NumericsProfile, OpCall, OpDef, both_profiles
from firmwright.ir.tir.builder import ArithExpr, binary_expr, immediate, maximum, minimum
from firmwright.ops import mean_and_sum
from firmwright.ops.axis_reduction import lower_reduction, reduced_shape
from firmwright.ops.elementwise_unary import BOTH_PROFILES
from firmwright.ops.kernel import Kernel

_LITERT: tuple[NumericsProfile, ...] = ("litert",)
_NUMERICS = both_profiles(None, "exact", "reference_ops Reduce")


def _lowest(kind: DType) -> float:
    return float(np.finfo(np.float32).min) if kind == FLOAT32 else kind.min


def _greatest(kind: DType) -> float:
    return float(np.finfo(np.float32).max) if kind == FLOAT32 else kind.max


def reduction_op(
    name: str,
    dtypes: Sequence[DType],
    meaning: Any,
    start: Callable[[DType], float],
    step: Callable[[ArithExpr, ArithExpr], ArithExpr],
    in_tflm: Sequence[DType] = (INT8, FLOAT32),
) -> OpDef:
    """Build an operator that folds elements into `start`; TFLM supports the types `in_tflm`."""

    def infer(call: OpCall) -> tuple[TensorType, ...]:
        x, axes, keep = call.input(0), call.ints_attr("axes"), bool(call.int_attr("keep_dims"))
        if x.dtype not in dtypes or x.quantization != call.output.quantization:
            raise NotSupportedError(f"a {name} of {x.dtype.name} or with requantization")
        shape = reduced_shape(x.shape, axes, keep)
        return (TensorType(shape, x.dtype, call.output.quantization),)

    def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
        reduced = arrays[0].astype(np.float64 if arrays[0].dtype == np.float32 else np.int64)
        for axis in call.ints_attr("axes"):
            reduced = np.asarray(meaning(reduced, axis=axis, keepdims=True))
        return (reduced.astype(call.output.dtype.np).reshape(call.output.shape),)

    def lower(call: OpCall, b: Kernel) -> None:
        kind = call.input(0).dtype
        lower_reduction(call, b, ArithExpr(immediate(start(kind), kind)), step, lambda acc: acc)

    def import_reduction(context: ImportContext) -> ImportedCall:
        return replace(mean_and_sum.import_tflite(context), op=name)

    names = tuple(kind.name for kind in dtypes)
    imports = {f"tflite:{name.upper()}": import_reduction}
    numerics = {
        str(profile): _NUMERICS[profile] for profile in (BOTH_PROFILES if in_tflm else _LITERT)
    }
    return OpDef(name, infer, reference, lower, imports, names, numerics)


_ALL = (INT8, INT16, INT32, FLOAT32)

OPDEFS: tuple[OpDef, ...] = (
    reduction_op("reduce_max", _ALL, np.max, _lowest, maximum),
    reduction_op("reduce_min", _ALL, np.min, _greatest, minimum),
    reduction_op("reduce_any", (BOOL,), np.any, lambda kind: 0, partial(binary_expr, "or"), ()),
    reduction_op(
        "reduce_all", (BOOL,), np.all, lambda kind: 1, partial(binary_expr, "and"), (BOOL,)
    ),
)
