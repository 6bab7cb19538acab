"""constant: attribute `values` in C order; fill: input 0, or 0, in every element.

The importer folds most of these calls, except model outputs and large results.
Semantics: TFLite's Shape, Rank, Range and BroadcastArgs, Where and SparseToDense of
constants; Fill and ZerosLike.
"""

import math
from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, INT64, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.movement import ConstantAttrs, ShapeAttrs
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.strided_copy import DTYPES, lower_fill


def _constant_infer(call: OpCall) -> tuple[TensorType, ...]:
    dtype, shape = call.output.dtype, call.attributes(ConstantAttrs).shape
    count = len(_numbers(call))
    if dtype not in (INT32, INT64, FLOAT32) or count != math.prod(shape):
        raise NotSupportedError(f"{count} values as {dtype.name} {list(shape)}")
    return (TensorType(shape, dtype),)


def _numbers(call: OpCall) -> tuple[int | float, ...]:
    return call.attributes(ConstantAttrs).values


def _constant_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.array(_numbers(call), call.output.dtype.np).reshape(call.output.shape),)


def _constant_lower(call: OpCall, b: Kernel) -> None:
    (values,) = _constant_reference(call, ())
    table = b.constant("values", values.reshape(-1), call.output.dtype)
    y = b.view("whole", b.y, 0, (values.size,), access="w")
    with b.for_("i", values.size) as i:
        b.store(y, [i], b.load(table, [i]))


def _fill_infer(call: OpCall) -> tuple[TensorType, ...]:
    y = call.output
    if y.dtype not in DTYPES:
        raise NotSupportedError(f"a fill of {y.dtype.name}")
    if call.inputs and (call.input(0).dtype != y.dtype or call.input(0).elements != 1):
        raise NotSupportedError(
            f"a fill of {y.dtype.name} with {call.input(0).dtype.name}"
        )
    return (TensorType(call.attributes(ShapeAttrs).shape, y.dtype, y.quantization),)


def _fill_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    value = arrays[0].reshape(-1)[0] if arrays else 0
    return (np.full(call.output.shape, value, call.output.dtype.np),)


def _fill_lower(call: OpCall, b: Kernel) -> None:
    if not call.inputs:
        lower_fill(b, b.y, 0)
        return
    x = b.view("from", b.input(0), 0, (1,))
    lower_fill(b, b.y, b.let("value", b.load(x, [0])))


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "constant",
        _constant_infer,
        _constant_reference,
        _constant_lower,
    ),
    OpDef(
        "fill",
        _fill_infer,
        _fill_reference,
        _fill_lower,
    ),
)
