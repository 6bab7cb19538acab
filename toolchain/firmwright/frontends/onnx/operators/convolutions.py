"""Conv and ConvTranspose as image operators if weights are constant, else as N-d convolution.

ONNX has channels first, so calls are enclosed by transposes, which the layout passes cancel. A
single spatial axis becomes an image of one row. Source: ONNX's Conv, ConvTranspose, ConvInteger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization
from firmwright.frontends.onnx.call_emitter import (
    CallEmitter,
    ConstantValue,
    OnnxValue,
    dtype_of,
    shape_of,
)
from firmwright.frontends.onnx.node_context import Importer, NodeContext
from firmwright.ir.core import Attr
from firmwright.ir.graph.nodes import TensorType


@dataclass(frozen=True, slots=True)
class WindowGeometry:
    """A convolution or pooling window: one element per spatial axis in each field."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def outputs(self, inputs: Sequence[int]) -> tuple[int, ...]:
        rows = zip(
            inputs, self.size, self.stride, self.dilation, self.before, self.after, strict=True
        )
        return tuple((n + p + q - (k - 1) * d - 1) // s + 1 for n, k, s, d, p, q in rows)


def window_geometry(c: NodeContext, size: Sequence[int], inputs: Sequence[int]) -> WindowGeometry:
    rank = len(inputs)
    stride = tuple(c.attr("strides") or (1,) * rank)
    dilation = tuple(c.attr("dilations") or (1,) * rank)
    pads = tuple(c.attr("pads") or (0,) * (2 * rank))
    if not len(size) == len(stride) == len(dilation) == rank or len(pads) != 2 * rank:
        raise NotSupportedError(f"window attributes that do not fit {rank} axes")
    if min(*size, *stride, *dilation) < 1:
        raise NotSupportedError("a window, stride or dilation below 1")
    before, after = pads[:rank], pads[rank:]
    auto = c.attr("auto_pad", "NOTSET")
    if auto == "VALID":
        before = after = (0,) * rank
    elif auto.startswith("SAME"):
        totals = [
            max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            for n, k, s, d in zip(inputs, size, stride, dilation, strict=True)
        ]
        small, large = (tuple(half(n) for n in totals) for half in (_smaller, _larger))
        before, after = (small, large) if auto == "SAME_UPPER" else (large, small)
    if min(*before, *after) < 0:
        raise NotSupportedError("negative padding")
    return WindowGeometry(tuple(size), stride, dilation, tuple(before), tuple(after))


def _smaller(total: int) -> int:
    return total // 2


def _larger(total: int) -> int:
    return total - total // 2


def to_nhwc(emit: CallEmitter, x: OnnxValue) -> OnnxValue:
    """Transpose [n, c, w] or [n, c, h, w] to an image [n, h, w, c]."""
    shape = shape_of(x)
    if len(shape) == 4:
        return emit.transpose(x, (0, 2, 3, 1))
    moved = emit.transpose(x, (0, 2, 1))
    return emit.reshape(moved, (shape[0], 1, shape[2], shape[1]))


def to_nchw(emit: CallEmitter, y: OnnxValue, rank: int) -> OnnxValue:
    """Transpose an image to channels first, with `rank` dimensions."""
    if rank == 4:
        return emit.transpose(y, (0, 3, 1, 2))
    n, _, width, channels = shape_of(y)
    return emit.transpose(emit.reshape(y, (n, width, channels)), (0, 2, 1))


def window_attrs(window: WindowGeometry) -> dict[str, Attr]:
    rows = (1,) if len(window.size) == 1 else ()
    none = (0, 0) if rows else (window.before[0], window.after[0])
    return {
        "stride": (*rows, *window.stride),
        "dilation": (*rows, *window.dilation),
        "padding": (*none, window.before[-1], window.after[-1]),
    }


def filters_to_ohwi(array: Array) -> Array:
    """Transpose [m, c, w] or [m, c, h, w] to [m, h, w, c]."""
    if array.ndim == 3:
        array = array[:, :, None, :]
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1))


def _conv(c: NodeContext) -> OnnxValue:
    x, w, bias = c.input(0), c.input(1), c.optional(2)
    shape, w_shape, groups = c.shape(0), c.shape(1), int(c.attr("group", 1))
    if len(shape) != len(w_shape) or len(shape) < 3:
        raise NotSupportedError(f"weights {list(w_shape)} for an input {list(shape)}")
    if shape[1] != w_shape[1] * groups or w_shape[0] % groups:
        raise NotSupportedError(f"{groups} groups of {shape[1]} channels, weights {list(w_shape)}")
    window = window_geometry(c, w_shape[2:], shape[2:])
    if min(window.outputs(shape[2:])) < 1:
        raise NotSupportedError("a kernel larger than the padded input")
    is_constant = isinstance(w, ConstantValue) and (bias is None or isinstance(bias, ConstantValue))
    if dtype_of(x) == FLOAT32 and is_constant and len(shape) <= 4:
        assert isinstance(w, ConstantValue)
        assert bias is None or isinstance(bias, ConstantValue)
        return emit_conv2d(c, x, w, bias, window, groups)
    return emit_conv_nd(c.emit, x, w, bias, window, groups)


def emit_conv_nd(
    emit: CallEmitter,
    x: OnnxValue,
    w: OnnxValue,
    bias: OnnxValue | None,
    window: WindowGeometry,
    groups: int,
) -> OnnxValue:
    attrs: dict[str, Attr] = {
        "stride": window.stride, "dilation": window.dilation, "before": window.before,
        "groups": groups, "outputs": window.outputs(shape_of(x)[2:]),
    }  # fmt: skip
    inputs = [x, w] if bias is None else [x, w, bias]
    return emit.call("conv_nd", inputs, attrs)


def emit_conv2d(
    c: NodeContext,
    x: OnnxValue,
    w: ConstantValue,
    bias: ConstantValue | None,
    window: WindowGeometry,
    groups: int,
    like: TensorType | None = None,
    activation: str = "none",
) -> OnnxValue:
    """Emit conv2d or depthwise_conv2d calls; `like` is the type of a quantized result."""
    emit, rank = c.emit, len(shape_of(x))
    image = to_nhwc(emit, x)
    attrs = {**window_attrs(window), "activation": activation}
    filters = filters_to_ohwi(w.array)
    if groups == 1:
        operands = _operands(emit, image, filters, w, bias, 0)
        y = emit.call("conv2d", operands, attrs, like=like)
    elif filters.shape[3] == 1:
        # One or more filters per channel: the weights are [1, h, w, m].
        depthwise = np.ascontiguousarray(filters.transpose(3, 1, 2, 0))
        operands = _operands(emit, image, depthwise, w, bias, 3)
        y = emit.call("depthwise_conv2d", operands, attrs, like=like)
    else:
        y = _emit_grouped_conv2d(c, image, filters, w, bias, attrs, groups, like)
    return to_nchw(emit, y, rank)


def _operands(
    emit: CallEmitter,
    image: OnnxValue,
    filters: Array,
    w: ConstantValue,
    bias: ConstantValue | None,
    axis: int,
) -> list[OnnxValue]:
    quant = w.quantization
    if quant is not None and quant.axis is not None:
        quant = replace(quant, axis=axis)
    operands: list[OnnxValue] = [image, ConstantValue(filters, w.name, quant)]
    if bias is not None:
        operands.append(ConstantValue(bias.array.reshape(-1), bias.name, bias.quantization))
    return operands


def _emit_grouped_conv2d(
    c: NodeContext,
    image: OnnxValue,
    filters: Array,
    w: ConstantValue,
    bias: ConstantValue | None,
    attrs: Mapping[str, Attr],
    groups: int,
    like: TensorType | None,
) -> OnnxValue:
    n, height, width, channels = shape_of(image)
    whole = c.emit.value(image).type
    part = replace(whole, shape=(n, height, width, channels // groups))
    sizes = (channels // groups,) * groups
    images = c.emit.multi_result_call(
        "split", [image], {"axis": 3, "sizes": sizes}, (part,) * groups
    )
    count = filters.shape[0] // groups
    results = []
    for group, source in enumerate(images):
        rows = slice(group * count, (group + 1) * count)
        own = None if bias is None else _slice_rows(bias, rows)
        operands = _operands(c.emit, source, filters[rows], _slice_rows(w, rows), own, 0)
        results.append(c.emit.call("conv2d", operands, attrs, like=like))
    return c.emit.concat(results, 3)


def _slice_rows(constant: ConstantValue, rows: slice) -> ConstantValue:
    quant = constant.quantization
    if quant is not None and quant.axis is not None:
        quant = Quantization(quant.scales[rows], quant.zero_points[rows], quant.axis)
    return ConstantValue(constant.array[rows], constant.name, quant)


def _conv_integer(c: NodeContext) -> OnnxValue:
    x, w, groups = c.input(0), c.input(1), int(c.attr("group", 1))
    window = window_geometry(c, c.shape(1)[2:], c.shape(0)[2:])
    wide = subtract_zero_point(c, x, c.optional(2), len(c.shape(0)))
    filters = subtract_zero_point(c, w, c.optional(3), len(c.shape(1)))
    return emit_conv_nd(c.emit, wide, filters, None, window, groups)


def subtract_zero_point(
    c: NodeContext, x: OnnxValue, zero_point: OnnxValue | None, rank: int
) -> OnnxValue:
    """Return x - zero point as int32; a vector of zero points applies along axis 0."""
    if zero_point is None:
        return c.emit.cast(x, INT32)
    count = math.prod(shape_of(zero_point))
    spread = (count, *(1,) * (rank - 1)) if count > 1 else ()
    return c.emit.expression("int32(a) - int32(b)", x, c.emit.reshape(zero_point, spread))


def _conv_transpose(c: NodeContext) -> OnnxValue:
    x, w, bias = c.input(0), c.input(1), c.optional(2)
    inputs, size = c.shape(0)[2:], c.shape(1)[2:]
    groups = int(c.attr("group", 1))
    window, outputs = _transposed_geometry(c, size, inputs)
    is_constant = isinstance(w, ConstantValue) and (bias is None or isinstance(bias, ConstantValue))
    plain = groups == 1 and set(window.dilation) == {1} and len(inputs) <= 2
    fits = all(n <= (i - 1) * s + k - p for n, i, s, k, p in zip(
        outputs, inputs, window.stride, size, window.before, strict=True))  # fmt: skip
    if is_constant and plain and fits and dtype_of(x) == FLOAT32:
        assert isinstance(w, ConstantValue)
        assert bias is None or isinstance(bias, ConstantValue)
        return _emit_transpose_conv2d(c, x, w, bias, window, outputs)
    attrs: dict[str, Attr] = {
        "stride": window.stride, "dilation": window.dilation, "before": window.before,
        "groups": groups, "outputs": outputs,
    }  # fmt: skip
    operands = [x, w] if bias is None else [x, w, bias]
    return c.emit.call("conv_transpose_nd", operands, attrs)


def _emit_transpose_conv2d(
    c: NodeContext,
    x: OnnxValue,
    w: ConstantValue,
    bias: ConstantValue | None,
    window: WindowGeometry,
    outputs: tuple[int, ...],
) -> OnnxValue:
    image = to_nhwc(c.emit, x)
    rows = (1,) if len(outputs) == 1 else ()
    filters = filters_to_ohwi(w.array.swapaxes(0, 1))
    shape = (c.shape(0)[0], *rows, *outputs, filters.shape[0])
    attrs: dict[str, Attr] = {
        "stride": (*rows, *window.stride),
        "before": (*((0,) * len(rows)), *window.before),
        "activation": "none",
    }
    operands = _operands(c.emit, image, filters, w, bias, 0)
    y = c.emit.call("transpose_conv", operands, attrs, shape=shape)
    return to_nchw(c.emit, y, len(c.shape(0)))


def _transposed_geometry(
    c: NodeContext, size: Sequence[int], inputs: Sequence[int]
) -> tuple[WindowGeometry, tuple[int, ...]]:
    """Return the window and output extents; `before` is cropped from the full result."""
    rank = len(inputs)
    plain = window_geometry(c, size, inputs)
    extra = tuple(c.attr("output_padding") or (0,) * rank)
    full = [
        (n - 1) * s + (k - 1) * d + 1 + e
        for n, s, k, d, e in zip(inputs, plain.stride, size, plain.dilation, extra, strict=True)
    ]
    auto, output_shape = c.attr("auto_pad", "NOTSET"), c.attr("output_shape")
    if not output_shape and not auto.startswith("SAME"):
        rows = zip(full, plain.before, plain.after, strict=True)
        return plain, tuple(n - p - q for n, p, q in rows)
    outputs = (
        tuple(output_shape[-rank:])
        if output_shape
        else tuple(n * s for n, s in zip(inputs, plain.stride, strict=True))
    )
    totals = [max(n - m, 0) for n, m in zip(full, outputs, strict=True)]
    half: Callable[[int], int] = _smaller if auto == "SAME_UPPER" or not output_shape else _larger
    if auto == "NOTSET":
        half = _larger
    before = tuple(half(n) for n in totals)
    after = tuple(n - p for n, p in zip(totals, before, strict=True))
    return WindowGeometry(plain.size, plain.stride, plain.dilation, before, after), outputs


IMPORTERS: Mapping[str, Importer] = {
    "Conv": _conv,
    "ConvInteger": _conv_integer,
    "ConvTranspose": _conv_transpose,
}
