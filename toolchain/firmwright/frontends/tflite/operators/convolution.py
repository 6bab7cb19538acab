"""Convolutions and pools: SAME and VALID padding become explicit."""

from collections.abc import Mapping

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.image_window import ImageWindow
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    ImportedCall,
    Importer,
    check_bias_type,
    checked_int_option,
    constant_ints,
    fused_activation,
    input_type,
    is_unsigned,
    plain_importer,
    require_tensors,
)
from firmwright.frontends.tflite.volume_convolutions import CHANNELS_FIRST
from firmwright.ir.graph.attributes.layers import (
    AveragePoolAttrs,
    ConvNdAttrs,
    PoolAttrs,
    TransposeConvAttrs,
)
from firmwright.ops.conv_window import same_padding


def _window(context: ImportContext, size: tuple[int, int]) -> ImageWindow:
    options, x = context.node.options, context.inputs[0]
    if x is None or len(x.shape) != 4:
        raise NotSupportedError("an input without four dimensions")
    stride = (
        checked_int_option(options["stride_h"]),
        checked_int_option(options["stride_w"]),
    )
    dilation = (
        checked_int_option(options.get("dilation_h_factor", 1)),
        checked_int_option(options.get("dilation_w_factor", 1)),
    )
    padding = (0, 0, 0, 0)
    if min(*stride, *dilation) > 0 and options["padding"] == "SAME":
        rows = same_padding(x.shape[1], size[0], stride[0], dilation[0])
        padding = (*rows, *same_padding(x.shape[2], size[1], stride[1], dilation[1]))
    return ImageWindow(stride, dilation, padding)


def _convolution(context: ImportContext) -> ImportedCall:
    require_tensors(context, 2)
    x, kernel = input_type(context), input_type(context, 1)
    if len(kernel.shape) != 4:
        raise NotSupportedError("weights without four dimensions")
    activation = fused_activation(context)
    window = _window(context, (kernel.shape[1], kernel.shape[2]))
    attrs = window.conv2d_attrs(activation, unsigned=is_unsigned(context))
    op = "conv2d" if context.node.op == "CONV_2D" else "depthwise_conv2d"
    if op == "conv2d":
        check_bias_type(context, x, 2)
    if (x.dtype, kernel.dtype) == (FLOAT32, INT8):
        op = f"hybrid_{op}"
    return ImportedCall(op, attrs, tuple(range(len(context.inputs))))


def _transposed_convolution(context: ImportContext) -> ImportedCall:
    require_tensors(context, 3)
    options, shape = context.node.options, context.constants[0]
    w, x = input_type(context, 1), input_type(context, 2)
    if shape is not None and tuple(shape.reshape(-1)) != context.outputs[0].shape:
        raise NotSupportedError(
            f"an output of shape {list(shape.reshape(-1))}, declared otherwise"
        )
    if not len(w.shape) == len(x.shape) == len(context.outputs[0].shape) == 4:
        raise NotSupportedError("a transposed convolution of tensors that are not 4-D")
    check_bias_type(context, x, 3)
    stride = (
        checked_int_option(options["stride_h"]),
        checked_int_option(options["stride_w"]),
    )
    before = (0, 0)
    if options["padding"] == "SAME":
        # The full result is wider than the declared one; half is cropped before it.
        over: list[int] = []
        for axis in (1, 2):
            full = (x.shape[axis] - 1) * stride[axis - 1] + w.shape[axis]
            over.append(max(full - context.outputs[0].shape[axis], 0))
        before = (over[0] // 2, over[1] // 2)
    attrs = TransposeConvAttrs(
        stride=stride,
        before=before,
        activation=fused_activation(context),
        unsigned=is_unsigned(context),
    )
    return ImportedCall("transpose_conv", attrs, (2, 1, *range(3, len(context.inputs))))


def _volume_convolution(context: ImportContext) -> ImportedCall:
    """Import a convolution of [n, c, d, h, w], as volume_convolutions.py writes it."""
    require_tensors(context, 2)
    _check_is_volume(context)
    stride, dilation = _volume_steps(context)
    size = input_type(context, 1).shape[2:]
    before: list[int] = []
    outputs: list[int] = []
    for axis, length in enumerate(input_type(context).shape[2:]):
        margins = (0, 0)
        if context.node.options["padding"] == "SAME":
            margins = same_padding(length, size[axis], stride[axis], dilation[axis])
        before.append(margins[0])
        reach = (size[axis] - 1) * dilation[axis]
        outputs.append((length + sum(margins) - reach - 1) // stride[axis] + 1)
    attrs = ConvNdAttrs(
        stride=stride,
        dilation=dilation,
        before=tuple(before),
        outputs=tuple(outputs),
        groups=1,
    )
    return ImportedCall("conv_nd", attrs, tuple(range(len(context.inputs))))


def _transposed_volume_convolution(context: ImportContext) -> ImportedCall:
    """Import a convolution whose result has the shape [n, d, h, w, c] of input 0."""
    require_tensors(context, 3)
    _check_is_volume(context)
    stride, dilation = _volume_steps(context)
    shape = constant_ints(context, 0, "shapes")
    if len(shape) != 5 or max(dilation) > 1:
        raise NotSupportedError(f"a result {list(shape)}, dilations {list(dilation)}")
    x, filters = input_type(context, 2).shape, input_type(context, 1).shape
    is_same = context.node.options["padding"] == "SAME"
    opposite = [shape[0]]
    for axis, step in enumerate(stride, 1):
        reach = 0 if is_same else filters[axis + 1] - 1
        opposite.append((shape[axis] - reach + step - 1) // step)
    if opposite != [x[0], *x[2:]]:
        raise NotSupportedError(f"a result {list(shape)} of volumes {list(x[2:])}")
    before = (0, 0, 0)
    if is_same:
        # The full result is cropped by the padding of the opposite convolution.
        sizes = zip(shape[1:4], filters[2:], stride, strict=True)
        first, second, third = (same_padding(*axis, 1)[0] for axis in sizes)
        before = (first, second, third)
    attrs = ConvNdAttrs(
        stride=stride, dilation=dilation, before=before, outputs=shape[1:4], groups=1
    )
    positions = (2, 1, *range(3, len(context.inputs)))
    return ImportedCall("conv_transpose_nd", attrs, positions)


def _check_is_volume(context: ImportContext) -> None:
    if not context.node.options.get(CHANNELS_FIRST):
        raise NotSupportedError("a convolution of tensors that are not 5-D")


def _volume_steps(
    context: ImportContext,
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return the strides and dilations of depth, height and width."""
    stride = _by_axis(context, "stride_{}")
    dilation = _by_axis(context, "dilation_{}_factor")
    if min(*stride, *dilation) < 1:
        raise NotSupportedError(f"strides {list(stride)}, dilations {list(dilation)}")
    return stride, dilation


def _by_axis(context: ImportContext, name: str) -> tuple[int, int, int]:
    """Return the options that `name` becomes with the letter of each axis."""
    depth, height, width = (name.format(axis) for axis in "dhw")
    options = context.node.options
    return (
        checked_int_option(options[depth]),
        checked_int_option(options[height]),
        checked_int_option(options[width]),
    )


def _pool_size(context: ImportContext) -> tuple[int, int]:
    options = context.node.options
    height = options["filter_height"]
    width = options["filter_width"]
    return checked_int_option(height), checked_int_option(width)


def _pool_attrs(context: ImportContext) -> PoolAttrs:
    size = _pool_size(context)
    activation = fused_activation(context)
    return _window(context, size).pool_attrs(size, activation)


def _average_pool_attrs(context: ImportContext) -> AveragePoolAttrs:
    size = _pool_size(context)
    activation = fused_activation(context)
    window = _window(context, size)
    return window.average_pool_attrs(size, activation, unsigned=is_unsigned(context))


IMPORTERS: Mapping[str, Importer] = {
    "AVERAGE_POOL_2D": plain_importer("average_pool2d", 1, _average_pool_attrs),
    "CONV_2D": Importer("conv2d", _convolution),
    "CONV_3D": Importer("conv_nd", _volume_convolution),
    "CONV_3D_TRANSPOSE": Importer("conv_transpose_nd", _transposed_volume_convolution),
    "DEPTHWISE_CONV_2D": Importer("depthwise_conv2d", _convolution),
    "L2_POOL_2D": plain_importer("l2_pool2d", 1, _pool_attrs),
    "MAX_POOL_2D": plain_importer("max_pool2d", 1, _pool_attrs),
    "TRANSPOSE_CONV": Importer("transpose_conv", _transposed_convolution),
}
