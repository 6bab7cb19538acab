"""pad: the input with a constant margin; `paddings` has (before, after) per axis.

The margin holds the stored value of input 1 if present, otherwise the output's zero
point, or 0 for floats. Stored values are copied unchanged. Semantics: TFLite's
reference Pad and PadV2.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.movement import PadAttrs
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.strided_copy import DTYPES, lower_fill


def padding_pairs(call: OpCall) -> tuple[tuple[int, int], ...]:
    flat = call.attributes(PadAttrs).paddings
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def pad_value(call: OpCall) -> float:
    if call.has_input(1):
        value = call.constant_array(1).reshape(-1)[0]
        return value.item()  # type: ignore[no-any-return]  # numpy: Array
    quant = call.output.quantization
    return 0 if quant is None else quant.zero_point


def infer(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(PadAttrs)
    x, y = call.input(0), call.output
    if x.dtype not in DTYPES or y.dtype != x.dtype:
        raise NotSupportedError(f"{x.dtype.name} input with {y.dtype.name} output")
    if len(attrs.paddings) != 2 * len(x.shape):
        raise NotSupportedError(f"paddings that do not match {len(x.shape)} axes")
    if min(attrs.paddings, default=0) < 0:
        raise NotSupportedError("negative paddings")
    if call.has_input(1):
        constant = call.constant(1)
        if constant is None or constant.dtype != x.dtype or constant.array().size != 1:
            raise NotSupportedError(
                f"a pad value that is not one constant {x.dtype.name}"
            )
    if y.quantization is not None and len(y.quantization.scales) != 1:
        raise NotSupportedError("an output quantized per channel")
    shape: list[int] = []
    for size, (before, after) in zip(x.shape, padding_pairs(call), strict=True):
        shape.append(before + size + after)
    return (TensorType(tuple(shape), x.dtype, y.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.pad(arrays[0], padding_pairs(call), constant_values=pad_value(call)),)


def lower(call: OpCall, b: Kernel) -> None:
    """Fill the whole output, then copy the input; compilers optimize both loops."""
    x_shape, y_shape, before = merged_axes(call)
    lower_fill(b, b.y, pad_value(call))
    x = b.view("in", b.input(0), 0, x_shape)
    y = b.view("out", b.y, 0, y_shape, access="w")
    with b.loops("i", x.shape) as index:
        y_index = [i + margin for i, margin in zip(index, before, strict=True)]
        b.store(y, y_index, b.load(x, index))


def merged_axes(call: OpCall) -> tuple[list[int], list[int], list[int]]:
    """Merge axes with following ones without a margin; return shapes and margins.

    The margins are those before the elements.
    """
    x_shape: list[int] = []
    y_shape: list[int] = []
    before: list[int] = []
    inner = 1
    rows = list(zip(call.input(0).shape, padding_pairs(call), strict=True))
    for size, (first, last) in reversed(rows):
        if first == last == 0:
            inner *= size
            continue
        x_shape.insert(0, size * inner)
        y_shape.insert(0, (first + size + last) * inner)
        before.insert(0, first * inner)
        inner = 1
    if inner > 1 or not x_shape:
        x_shape.insert(0, inner)
        y_shape.insert(0, inner)
        before.insert(0, 0)
    return x_shape, y_shape, before


OPDEF = OpDef("pad", infer, reference, lower)
