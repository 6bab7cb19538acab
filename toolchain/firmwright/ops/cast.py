"""cast: numbers in another element type, and logical_not.

Whole numbers keep their low bits where the type is narrower; floats are cut towards zero to int32,
other integers of floats are refused, for TFLite leaves open what lies outside of them. Bools are 0
and 1; any number but 0 is true. Quantisations play no part.
Source of the semantics: TFLite's Cast and LogicalNot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from firmwright.base.dtypes import BOOL, FLOAT32, INT8, INT16, INT32, UINT8
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    CaseTensor,
    ConformanceCase,
    ImportContext,
    ImportedCall,
    NotSupportedError,
    NumericsSpec,
    OpCall,
    OpDef,
)
from firmwright.ir.tir.builder import logical_not
from firmwright.ops.elementwise import lower_elementwise
from firmwright.ops.elementwise_unary import both_profiles, compute_elements, float_case, unary_op
from firmwright.ops.importing import require_tensors
from firmwright.ops.kernel import Kernel
from firmwright.ops.row_windows import elementwise_row_window

_DTYPES = (BOOL, FLOAT32, INT8, INT16, INT32, UINT8)
_CELL = both_profiles(NumericsSpec(None, "exact", "Cast, LogicalNot"))


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    narrow = x.dtype == FLOAT32 and y.dtype not in (FLOAT32, INT32, BOOL)
    if x.dtype not in _DTYPES or y.dtype not in _DTYPES or narrow:
        raise NotSupportedError(f"a cast of {x.dtype.name} to {y.dtype.name}")
    return (TensorType(x.shape, y.dtype, y.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (arrays[0].astype(call.output.dtype.np),)


def lower(call: OpCall, b: Kernel) -> None:
    lower_elementwise(call, b, lambda x: x[0].cast(call.output.dtype))


def import_tflite(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    return ImportedCall("cast", {}, (0,))


def cases() -> Iterator[ConformanceCase]:
    for before, after in (
        ("float32", "int32"), ("int32", "float32"), ("int8", "float32"), ("int32", "int8"),
        ("int16", "int32"), ("int32", "bool"), ("bool", "float32"), ("float32", "bool"),
    ):  # fmt: skip
        x, y = CaseTensor((3, 7), before), CaseTensor((3, 7), after)
        yield ConformanceCase(f"{before}_{after}", "CAST", (x,), (y,))


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        name="cast",
        infer=infer,
        reference=reference,
        lower=lower,
        row_access=elementwise_row_window,
        imports={"tflite:CAST": import_tflite},
        cases=cases,
        dtypes=tuple(kind.name for kind in _DTYPES),
        numerics=_CELL,
    ),
    unary_op(
        "logical_not",
        {
            BOOL: compute_elements(
                lambda call, x: np.logical_not(x), lambda call, b, x: logical_not(x)
            )
        },
        lambda: iter([float_case("LOGICAL_NOT", dtype="bool")]),
        _CELL,
    ),
)
