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
    fused_activation,
    input_type,
    is_unsigned,
    plain_importer,
    require_tensors,
)
from firmwright.ir.graph.attributes.layers import (
    AveragePoolAttrs,
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
    "DEPTHWISE_CONV_2D": Importer("depthwise_conv2d", _convolution),
    "L2_POOL_2D": plain_importer("l2_pool2d", 1, _pool_attrs),
    "MAX_POOL_2D": plain_importer("max_pool2d", 1, _pool_attrs),
    "TRANSPOSE_CONV": Importer("transpose_conv", _transposed_convolution),
}
