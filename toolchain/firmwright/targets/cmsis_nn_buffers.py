"""Bytes of workspace that CMSIS-NN's int8 functions ask for, core by core.

In: a call, the features of the core. Out: what the library's `arm_*_s8_get_buffer_size` of that
core returns when gcc or upstream clang compiled it. Source: those functions' contract in
arm_nnfunctions.h.
"""

from __future__ import annotations

from firmwright.ir.graph.opdef import OpCall

_MVE_LANES = 16
_MVE_CHANNELS = 124
"""Channels that the depthwise function for MVE works on at once."""
_ONE_CHANNEL_OUTPUTS = 1
"""More outputs than this of a single input channel are a plain convolution with MVE."""


def conv_bytes(call: OpCall, features: frozenset[str]) -> int:
    """Of arm_convolve_wrapper_s8."""
    outputs, height, width, depth = call.input(1).shape
    return _conv_bytes(call, (outputs, height, width, depth), features)


def _conv_bytes(call: OpCall, kernel: tuple[int, int, int, int], features: frozenset[str]) -> int:
    _, height, width, depth = kernel
    padding, stride = call.ints_attr("padding"), call.ints_attr("stride")
    no_dilation = call.ints_attr("dilation") == (1, 1)
    is_point = (height, width) == (1, 1) and no_dilation and padding[0] == padding[2] == 0
    if is_point and depth == call.input(0).shape[3]:
        return 0
    columns = height * width * call.input(0).shape[3]
    if "mve" not in features:
        return 4 * (-(-columns // 4) * 4)
    whole = 4 * (-(-columns // _MVE_LANES) * _MVE_LANES)
    is_row = call.input(0).shape[1] == 1 and height == 1 and no_dilation
    if is_row and stride[1] * call.input(0).shape[3] % 4 == 0:
        return max(_row_bytes(call, width), whole)
    return whole


def _row_bytes(call: OpCall, width: int) -> int:
    """Of the function for one row, which copies its padded ends."""
    depth = call.input(0).shape[3]
    left = call.ints_attr("padding")[2]
    return (width + max(left, call.ints_attr("padding")[3])) * depth


def depthwise_bytes(call: OpCall, features: frozenset[str]) -> int:
    """Of arm_depthwise_conv_wrapper_s8."""
    batch, _, _, depth = call.input(0).shape
    _, height, width, outputs = call.input(1).shape
    if "mve" in features and depth == 1 and outputs > _ONE_CHANNEL_OUTPUTS:
        plain = _conv_bytes(call, (outputs, height, width, 1), features)
        return plain + outputs * height * width
    if depth != outputs or batch != 1 or call.ints_attr("dilation") != (1, 1):
        return 0
    if "mve" in features:
        return 4 * _MVE_CHANNELS * width * height
    padding = call.ints_attr("padding")
    if (height, width) == (3, 3) and padding[0] <= 1 and padding[2] <= 1:
        return 0
    return 2 * depth * width * height if "dsp" in features else 0


def average_pool_bytes(call: OpCall, features: frozenset[str]) -> int:
    """Of arm_avgpool_s8."""
    return 4 * call.input(0).shape[3] if "dsp" in features and "mve" not in features else 0
