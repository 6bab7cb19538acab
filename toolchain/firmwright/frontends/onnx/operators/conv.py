"""Conv and ConvTranspose: image operators for constant weights, else N-d ones.

ONNX has channels first, so calls are enclosed by transposes, which the layout passes
cancel. A single spatial axis becomes an image of one row. Source: ONNX's Conv,
ConvTranspose, ConvInteger.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization
from firmwright.base.rounding import divide_up
from firmwright.frontends.image_window import ImageWindow
from firmwright.frontends.onnx.node_context import (
    CallEmitter,
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
)
from firmwright.ir.graph.attributes.layers import (
    Activation,
    ConvNdAttrs,
    TransposeConvAttrs,
)
from firmwright.ir.graph.nodes import TensorType, Value


@dataclass(frozen=True, slots=True)
class Window:
    """A convolution or pooling window: one element per spatial axis in each field."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def axes(self, inputs: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield (input, size, stride, dilation, before, after) of each axis."""
        return zip(
            inputs,
            self.size,
            self.stride,
            self.dilation,
            self.before,
            self.after,
            strict=True,
        )

    def outputs(self, inputs: Sequence[int]) -> tuple[int, ...]:
        extents: list[int] = []
        for length, size, stride, dilation, before, after in self.axes(inputs):
            reach = (size - 1) * dilation + 1
            extents.append((length + before + after - reach) // stride + 1)
        return tuple(extents)

    @property
    def of_image(self) -> ImageWindow:
        """Return the window of an image; that of a single axis has one row."""
        top, left = rows_and_columns(self.before, 0)
        bottom, right = rows_and_columns(self.after, 0)
        return ImageWindow(
            rows_and_columns(self.stride, 1),
            rows_and_columns(self.dilation, 1),
            (top, bottom, left, right),
        )


def rows_and_columns(numbers: tuple[int, ...], of_row: int) -> tuple[int, int]:
    """Return the numbers of an image's axes; a single one is of columns in one row."""
    return (of_row, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def window_geometry(
    c: NodeContext,
    size: Sequence[int],
    inputs: Sequence[int],
    *,
    is_transposed: bool = False,
) -> Window:
    """Return the node's window; `auto_pad` SAME pads as for a forward window."""
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
    elif auto.startswith("SAME") and not is_transposed:
        rows = zip(inputs, size, stride, dilation, strict=True)
        totals = [_same_padding(c, *row) for row in rows]
        before, after = _halves(totals, smaller_first=auto == "SAME_UPPER")
    if min(*before, *after) < 0:
        raise NotSupportedError("negative padding")
    return Window(tuple(size), stride, dilation, before, after)


def _same_padding(c: NodeContext, n: int, size: int, stride: int, dilation: int) -> int:
    """Return the padding of one axis for ceil(n / stride) outputs.

    ONNX Runtime pads a pool as if it were not dilated, which gives fewer outputs. Where
    a stride passes over elements at the end, it passes over some at the beginning
    instead, or refuses the node (MaxPool).
    """
    is_pool = c.node.op_type.endswith("Pool")
    reach = size if is_pool else (size - 1) * dilation + 1
    total = (divide_up(n, stride) - 1) * stride + reach - n
    auto = (
        f"auto_pad {c.attr('auto_pad')} with a stride of {stride} for windows of "
        f"{reach} elements"
    )
    if total < 0 and c.node.op_type == "MaxPool":
        raise NotSupportedError(f"{auto}, which ONNX Runtime refuses; state pads")
    is_shifted = total < -1 or (total < 0 and dilation > 1)
    if total < -2 or (is_pool and is_shifted):
        what = f"{auto}, which ONNX Runtime places otherwise than ONNX; state pads"
        raise NotSupportedError(what)
    return max(total, 0)


def _halves(
    totals: Sequence[int], smaller_first: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    small = tuple(n // 2 for n in totals)
    large = tuple(n - n // 2 for n in totals)
    return (small, large) if smaller_first else (large, small)


def to_nhwc(emit: CallEmitter, x: OnnxValue) -> OnnxValue:
    """Transpose [n, c, w] or [n, c, h, w] to an image [n, h, w, c]."""
    shape = x.shape
    if len(shape) == 4:
        return emit.transpose(x, (0, 2, 3, 1))
    row = emit.transpose(x, (0, 2, 1))
    return emit.reshape(row, (shape[0], 1, shape[2], shape[1]))


def to_nchw(emit: CallEmitter, y: OnnxValue, rank: int) -> OnnxValue:
    """Transpose an image to channels first, with `rank` dimensions."""
    if rank == 4:
        return emit.transpose(y, (0, 3, 1, 2))
    n, _, width, channels = y.shape
    return emit.transpose(emit.reshape(y, (n, width, channels)), (0, 2, 1))


def _filters_to_ohwi(array: Array) -> Array:
    if array.ndim == 3:
        array = array[:, :, None, :]
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1))


@dataclass(frozen=True, slots=True)
class ConstantFilters:
    """Constant weights and bias of a convolution."""

    w: ConstantValue
    bias: ConstantValue | None

    def operands(
        self, image: OnnxValue, filters: Array, axis: int = 0, rows: slice = slice(None)
    ) -> list[OnnxValue]:
        """Return an image operator's operands; outputs are on `axis` of `filters`."""
        w = ConstantValue(filters, self.w.name, _rows(self.w, rows, axis))
        operands = [image, w]
        if self.bias is not None:
            array = self.bias.array.reshape(-1)[rows]
            quantization = _rows(self.bias, rows, 0)
            operands.append(ConstantValue(array, self.bias.name, quantization))
        return operands


def _rows(constant: ConstantValue, rows: slice, axis: int) -> Quantization | None:
    quant = constant.quantization
    if quant is None or quant.axis is None:
        return quant
    return Quantization(quant.scales[rows], quant.zero_points[rows], axis)


def _constant_filters(c: NodeContext) -> ConstantFilters | None:
    """Return weights and bias, or None if float image operators do not support them."""
    w, bias = c.input(1), c.optional(2)
    if c.dtype(0) != FLOAT32 or not isinstance(w, ConstantValue):
        return None
    return None if isinstance(bias, Value) else ConstantFilters(w, bias)


def _conv(c: NodeContext) -> OnnxValue:
    shape = c.shape(0)
    w_shape = c.shape(1)
    groups = int(c.attr("group", 1))
    if len(shape) != len(w_shape) or len(shape) < 3:
        raise NotSupportedError(f"weights {list(w_shape)} for an input {list(shape)}")
    if shape[1] != w_shape[1] * groups or w_shape[0] % groups:
        raise NotSupportedError(
            f"{groups} groups of {shape[1]} channels, weights {list(w_shape)}"
        )
    window = window_geometry(c, w_shape[2:], shape[2:])
    if min(window.outputs(shape[2:])) < 1:
        raise NotSupportedError("a kernel larger than the padded input")
    filters = _constant_filters(c)
    if filters is not None and len(shape) <= 4:
        return emit_conv2d(c, c.input(0), filters, window)
    bias = [c.input(2)] if c.has(2) else []
    return emit_conv_nd(c, window, c.input(0), c.input(1), *bias)


def emit_conv_nd(c: NodeContext, window: Window, *inputs: OnnxValue) -> OnnxValue:
    outputs = window.outputs(inputs[0].shape[2:])
    attrs = _conv_nd_attrs(c, window, outputs)
    return c.emit.call("conv_nd", *inputs, attrs=attrs)


def _conv_nd_attrs(
    c: NodeContext, window: Window, outputs: tuple[int, ...]
) -> ConvNdAttrs:
    return ConvNdAttrs(
        stride=window.stride,
        dilation=window.dilation,
        before=window.before,
        groups=int(c.attr("group", 1)),
        outputs=outputs,
    )


def emit_conv2d(
    c: NodeContext,
    x: OnnxValue,
    constants: ConstantFilters,
    window: Window,
    result: TensorType | None = None,
    activation: Activation = "none",
) -> OnnxValue:
    """Emit conv2d or depthwise_conv2d calls; `result` is a quantized result's type."""
    emit, groups = c.emit, int(c.attr("group", 1))
    image = to_nhwc(emit, x)
    filters = _filters_to_ohwi(constants.w.array)
    attrs = window.of_image.conv2d_attrs(activation)
    if groups == 1:
        operands = constants.operands(image, filters)
        y = emit.call("conv2d", *operands, attrs=attrs, result=result)
    elif filters.shape[3] == 1:
        # One or more filters per channel: the weights are [1, h, w, m].
        depthwise = np.ascontiguousarray(filters.transpose(3, 1, 2, 0))
        operands = constants.operands(image, depthwise, 3)
        y = emit.call("depthwise_conv2d", *operands, attrs=attrs, result=result)
    else:
        channels = image.shape[3] // groups
        count = filters.shape[0] // groups
        part = replace(emit.value(image).type, shape=(*image.shape[:3], channels))
        images = emit.split(image, 3, (channels,) * groups, (part,) * groups)
        results = []
        for group, source in enumerate(images):
            rows = slice(group * count, (group + 1) * count)
            operands = constants.operands(source, filters[rows], 0, rows)
            results.append(emit.call("conv2d", *operands, attrs=attrs, result=result))
        y = emit.concat(results, 3)
    return to_nchw(emit, y, len(x.shape))


def _conv_integer(c: NodeContext) -> OnnxValue:
    window = window_geometry(c, c.shape(1)[2:], c.shape(0)[2:])
    x = subtract_zero_point(c, c.input(0), c.optional(2), c.rank)
    w = subtract_zero_point(c, c.input(1), c.optional(3), len(c.shape(1)))
    return emit_conv_nd(c, window, x, w)


def subtract_zero_point(
    c: NodeContext, x: OnnxValue, zero_point: OnnxValue | None, rank: int
) -> OnnxValue:
    """Return x - zero point as int32; a vector applies along axis -`rank`."""
    if zero_point is None:
        return c.emit.cast(x, INT32)
    count = math.prod(zero_point.shape)
    spread = (count, *(1,) * (rank - 1)) if count > 1 else ()
    points = c.emit.reshape(zero_point, spread)
    return c.emit.expression("int32(a) - int32(b)", x, points)


def _conv_transpose(c: NodeContext) -> OnnxValue:
    constants = _constant_filters(c)
    if constants is not None:
        kind = TensorType((), FLOAT32)
        result = emit_transpose_conv2d(c, c.input(0), constants, kind)
        if result is not None:
            return result
    window, outputs = _transposed_geometry(c, c.shape(1)[2:], c.shape(0)[2:])
    bias = [c.input(2)] if c.has(2) else []
    inputs = (c.input(0), c.input(1), *bias)
    attrs = _conv_nd_attrs(c, window, outputs)
    return c.emit.call("conv_transpose_nd", *inputs, attrs=attrs)


def emit_transpose_conv2d(
    c: NodeContext,
    x: OnnxValue,
    constants: ConstantFilters,
    result: TensorType,
    activation: Activation = "none",
) -> OnnxValue | None:
    """Emit transpose_conv; return None if it does not have the node's form."""
    w, inputs = constants.w, x.shape[2:]
    window, outputs = _transposed_geometry(c, w.shape[2:], inputs)
    is_plain = int(c.attr("group", 1)) == 1 and set(window.dilation) == {1}
    if not is_plain or len(inputs) > 2:
        return None
    # Outputs past the last window, as output_padding adds them, are not of this form.
    for count, axis in zip(outputs, window.axes(inputs), strict=True):
        length, size, stride, _, before, _ = axis
        if count > (length - 1) * stride + size - before:
            return None
    rows = (1,) if len(outputs) == 1 else ()
    quant = w.quantization
    if quant is not None and quant.axis is not None:
        quant = replace(quant, axis=0)
    filters = _filters_to_ohwi(w.array.swapaxes(0, 1))
    first = replace(constants, w=replace(w, quantization=quant))
    operands = first.operands(to_nhwc(c.emit, x), filters)
    extents = (x.shape[0], *rows, *outputs, filters.shape[0])
    kind = replace(result, shape=extents)
    attrs = TransposeConvAttrs(
        stride=rows_and_columns(window.stride, 1),
        before=rows_and_columns(window.before, 0),
        activation=activation,
    )
    y = c.emit.call("transpose_conv", *operands, result=kind, attrs=attrs)
    return to_nchw(c.emit, y, len(x.shape))


def _transposed_geometry(
    c: NodeContext, size: Sequence[int], inputs: Sequence[int]
) -> tuple[Window, tuple[int, ...]]:
    """Return window and output extents; `before` is cropped from the full result."""
    rank = len(inputs)
    plain = window_geometry(c, size, inputs, is_transposed=True)
    extra = tuple(c.attr("output_padding") or (0,) * rank)
    axes = zip(inputs, plain.stride, size, plain.dilation, extra, strict=True)
    full = [(n - 1) * s + (k - 1) * d + 1 + e for n, s, k, d, e in axes]
    auto = c.attr("auto_pad", "NOTSET")
    output_shape = c.attr("output_shape")
    if not output_shape and not auto.startswith("SAME"):
        rows = zip(full, plain.before, plain.after, strict=True)
        return plain, tuple(n - p - q for n, p, q in rows)
    if output_shape:
        outputs = tuple(output_shape[-rank:])
        for n, reached, stride in zip(outputs, full, plain.stride, strict=True):
            if n >= reached + stride:
                raise NotSupportedError(
                    f"an output_shape of {n} elements, where the input has at most "
                    f"{reached + stride - 1}"
                )
    else:
        # Where the stride exceeds the kernel, there are fewer than ONNX's n * stride.
        limits = zip(inputs, plain.stride, full, strict=True)
        outputs = tuple(min(n * stride, reached) for n, stride, reached in limits)
    totals = [max(n - m, 0) for n, m in zip(full, outputs, strict=True)]
    before, after = _halves(totals, smaller_first=auto == "SAME_UPPER")
    return replace(plain, before=before, after=after), outputs


IMPORTERS: Mapping[str, Importer] = {
    "Conv": _conv,
    "ConvInteger": _conv_integer,
    "ConvTranspose": _conv_transpose,
}
