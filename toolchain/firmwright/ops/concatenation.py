"""concatenation: join the inputs along `axis`.

Raw values are copied, so inputs and output must have the same quantization: LiteRT
rejects int8 tensors that differ, and TFLM would change their values. Semantics:
TFLite's reference Concatenation.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.movement import AxisAttrs
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef, RowWindow, Subviews
from firmwright.ops.row_windows import elementwise_row_window
from firmwright.ops.strided_copy import (
    DTYPES,
    CopyAxis,
    StridedCopy,
    checked_axis,
    lower_copies,
)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    first = call.input(0)
    y = call.output
    if first.dtype not in DTYPES:
        raise NotSupportedError(f"{first.dtype.name} inputs")
    axis = checked_axis(call.attributes(AxisAttrs).axis, len(first.shape))
    total = 0
    for index in range(len(call.inputs)):
        x = call.input(index)
        fits = _without_axis(x.shape, axis) == _without_axis(first.shape, axis)
        if x.dtype != y.dtype or not fits:
            raise NotSupportedError(
                f"{x.dtype.name} {list(x.shape)} joined with {first.dtype.name} "
                f"{list(first.shape)}"
            )
        if x.quantization != y.quantization:
            raise NotSupportedError("inputs and output with different quantization")
        total += x.shape[axis]
    shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
    return (TensorType(shape, first.dtype, y.quantization),)


def subviews(call: OpCall) -> Subviews | None:
    """Return subviews if each input is a contiguous part of the output, else None."""
    axis = call.attributes(AxisAttrs).axis
    if math.prod(call.output.shape[:axis]) > 1:
        return None
    sizes = [call.input(index).elements for index in range(len(call.inputs))]
    return Subviews("output", tuple(accumulate(sizes[:-1], initial=0)))


def _without_axis(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return (len(shape), *shape[:axis], -1, *shape[axis + 1 :])


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.concatenate(arrays, axis=call.attributes(AxisAttrs).axis),)


def lower(call: OpCall, b: Kernel) -> None:
    axis = call.attributes(AxisAttrs).axis
    shape = call.output.shape
    rows = math.prod(shape[:axis])
    row = math.prod(shape[axis:])
    begin = 0
    for index in range(len(call.inputs)):
        part = math.prod(call.input(index).shape[axis:])
        axes = CopyAxis(rows, part, row), CopyAxis(part, 1, 1)
        lower_copies(b, StridedCopy(axes, 0, begin, index))
        begin += part


def _row_window(call: OpCall) -> RowWindow | None:
    """Return the row window if the axis is one within rows."""
    return elementwise_row_window(call) if call.attributes(AxisAttrs).axis > 1 else None


OPDEF = OpDef(
    "concatenation",
    infer,
    reference,
    lower,
    subviews=subviews,
    row_access=_row_window,
)
