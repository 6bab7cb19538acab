"""conv2d and depthwise_conv2d: activation(bias + sum of x * w over window taps).

conv2d also sums over the input channels; depthwise_conv2d convolves input channel ic
with `multiplier` filters, for output channels from ic * multiplier. Layouts: x NHWC, w
OHWI (depthwise 1HWO), bias O. Attributes: `stride` and `dilation` (vertical,
horizontal), `padding` (top, bottom, left, right; filled with the real value 0),
`activation`. int8 requantization rounds twice in both profiles; int16x8.py describes
int16. Semantics: TFLite's reference convolutions and quantization specification.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Rounding
from firmwright.base.rounding import divide_up
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.tir.builder import ArithExpr, Register, minimum
from firmwright.ops import conv_window, int16x8, requantize
from firmwright.ops.conv_window import OutputPosition
from firmwright.ops.double_requantize import requantization_in_float32
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef, RowWindow
from firmwright.ops.row_windows import sliding_row_window

Tap: TypeAlias = tuple[ArithExpr, ArithExpr, ArithExpr, ArithExpr]
"""Position in the kernel and in the input: (ky, kx, iy, ix)."""
OpenTaps: TypeAlias = Callable[
    [OpCall, Kernel, OutputPosition], AbstractContextManager[Tap]
]


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, w = call.input(0), call.input(1)
    if len(x.shape) != 4 or len(w.shape) != 4:
        raise NotSupportedError("conv2d without four-dimensional input and weights")
    if w.shape[3] != x.shape[3]:
        raise NotSupportedError(
            f"grouped convolution ({x.shape[3]} input channels, {w.shape[3]} in the "
            "weights)"
        )
    requantize.check_weights_and_bias(call, 0)
    shape = output_shape(call, w.shape[0])
    return (TensorType(shape, x.dtype, call.output.quantization),)


def output_shape(call: OpCall, channels: int) -> tuple[int, ...]:
    """Return the output shape after checking the window."""
    x = call.input(0)
    window = conv_window.window_of(call, call.input(1).shape[1:3])
    conv_window.check_window(window)
    return (x.shape[0], *window.output_size(*x.shape[1:3]), channels)


def requantization_of(call: OpCall) -> requantize.Requantization:
    """Return the per-channel requantization by x scale * w scale / y scale.

    The factor is computed in double, that of the profile onnx in float32.
    """
    if call.numerics == "onnx" and not int16x8.is_int16x8(call):
        return onnx_requantization(call, 3 if call.op == "depthwise_conv2d" else 0)
    factors = requantize.scale_factors(call)
    if len(factors) == 1:
        factors *= call.output.shape[-1]
    activation = call.attributes(ActivationAttrs).activation
    if int16x8.has_int64_sum(call):
        return int16x8.requant_with_16_bit_multiplier(factors, call.output, activation)
    return requantize.make_requantization(
        factors, Rounding.TWICE, call.output, activation
    )


def onnx_requantization(call: OpCall, axis: int) -> requantize.Requantization:
    """Return ONNX Runtime's requantization of an int8 layer with channels on `axis`."""
    attrs = call.attributes(ActivationAttrs)
    factors = requantize.float32_factors(call)
    bounds = requantize.sum_bounds(call, axis)
    return requantization_in_float32(factors, *bounds, call.output, attrs.activation)


def bias_of(call: OpCall, dtype: str) -> Array:
    """Return the bias of each channel; zeros if the model has none."""
    bias = call.constant(2)
    if bias is None:
        return np.zeros(call.output.shape[-1], dtype)
    return np.asarray(bias.array()).reshape(-1)


def weights_of(call: OpCall) -> Array:
    """Return the weights as stored; `weight_offsets` subtract their zero point."""
    return np.asarray(call.constant_array(1))


def weight_offsets(call: OpCall) -> Array:
    zero_point = requantize.weight_zero_point(call)
    weights = weights_of(call)
    return weights.astype(np.int16) - zero_point if zero_point else weights


def channel_weights(call: OpCall) -> Array:
    """Return the weights less their zero point, [channel, tap]."""
    weights = weight_offsets(call)
    if call.op == "depthwise_conv2d":
        return np.ascontiguousarray(weights.reshape(-1, weights.shape[3]).T)
    return weights.reshape(len(weights), -1)


def row_window(call: OpCall) -> RowWindow | None:
    """Return the row window; padding rows hold the zero point."""
    window = conv_window.window_of(call, call.input(1).shape[1:3])
    return sliding_row_window(call, window, _zero_point(call))


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x = arrays[0].astype(np.float64) - _zero_point(call)
    w = arrays[1].astype(np.float64) - requantize.weight_zero_point(call)
    return (reference_epilogue(call, window_sums(call, x, w)),)


def window_sums(call: OpCall, x: Array, w: Array) -> Array:
    patches = conv_window.im2col(x, conv_window.window_of(call, w.shape[1:3]))
    if not call.op.endswith("depthwise_conv2d"):
        return np.asarray(patches @ w.reshape(len(w), -1).T)
    patches = patches.reshape(*patches.shape[:3], -1, x.shape[3])
    repeated = np.repeat(patches, channel_multiplier_of(call), axis=-1)
    return np.asarray((repeated * w.reshape(-1, w.shape[3])).sum(axis=-2))


def reference_epilogue(call: OpCall, total: Array) -> Array:
    """Add the bias to sums in double, then requantize integers or clamp floats."""
    if call.input(0).dtype != FLOAT32:
        acc = total.astype(np.int64) + bias_of(call, "int32")
        if call.numerics == "onnx" and not int16x8.is_int16x8(call):
            return requantize.apply_float32(call, acc)
        return int16x8.requantize_sums(requantization_of(call), acc, call.output.dtype)
    activation = call.attributes(ActivationAttrs).activation
    return requantize.apply_activation(total + bias_of(call, "float32"), activation)


def _zero_point(call: OpCall) -> int:
    x = call.input(0)
    return 0 if x.dtype == FLOAT32 else requantize.per_tensor_quant(x).zero_point


def window_taps(
    call: OpCall, b: Kernel, at: OutputPosition
) -> AbstractContextManager[Tap]:
    return conv_window.window_of(call, call.input(1).shape[1:3]).taps(b, at)


def lower_convolution(
    call: OpCall,
    b: Kernel,
    channel_axis: int = 0,
    taps: OpenTaps = window_taps,
    lanes: int = 1,
) -> None:
    """Emit direct loops, `lanes` channels at a time, that skip taps outside the input.

    The output channels are axis `channel_axis` of the weights. The last lanes overlap
    others.
    """
    attrs = call.attributes(ActivationAttrs)
    is_float = call.input(0).dtype == FLOAT32
    dtype = FLOAT32 if is_float else int16x8.accumulator_dtype(call, channel_axis)
    zero_point = _zero_point(call)
    weight_zero = requantize.weight_zero_point(call)
    weights = b.input(1)
    bias = b.constant("bias", bias_of(call, "float32" if is_float else "int32"), dtype)

    def finish_float(total: ArithExpr, oc: ArithExpr) -> ArithExpr:
        return requantize.apply_activation(total + b.load(bias, [oc]), attrs.activation)

    finish: Callable[[ArithExpr, ArithExpr], ArithExpr] = finish_float
    if not is_float:
        params = requantization_of(call)
        finish = int16x8.requantize_epilogue(b, params, dtype, call.output.dtype)
    with (
        conv_window.output_positions(b, call.output.shape) as at,
        output_channels(call, b, channel_axis, lanes) as (first, ic),
    ):
        # Add floats in the reference kernel's order: subsequent hybrid layers round the
        # sum.
        places = [first, *(first + lane for lane in range(1, lanes))]
        acc: list[Register] = []
        for oc in places:
            start = 0.0 if is_float else b.load(bias, [oc])
            acc.append(b.register("acc", dtype, start))
        with taps(call, b, at) as (ky, kx, iy, ix), ExitStack() as loops:
            if ic is None:
                ic = loops.enter_context(b.for_("ic", call.input(0).shape[3]))
            x = b.load(b.input(0), [at.n, iy, ix, ic])
            x = x if is_float else x.cast(INT32) - zero_point
            x = b.let("x", x) if lanes > 1 else x
            for oc, register in zip(places, acc, strict=True):
                place: list[ArithExpr | int] = [0, ky, kx, oc]
                if channel_axis == 0:
                    place = [oc, ky, kx, ic]
                w = b.load(weights, place)
                w = w if is_float else w.cast(INT32) - weight_zero
                register.add((x * w).cast(dtype))
        for oc, register in zip(places, acc, strict=True):
            b.store(b.y, [at.n, at.oy, at.ox, oc], finish(register.value, oc))


@contextmanager
def output_channels(
    call: OpCall, b: Kernel, channel_axis: int, lanes: int = 1
) -> Iterator[tuple[ArithExpr, ArithExpr | None]]:
    """Open loops over output channels; yield the channel and its input channel.

    The input channel is None unless the convolution is depthwise.
    """
    if channel_axis == 0:
        count = call.input(1).shape[0]
        with b.for_("oc", divide_up(count, lanes)) as oc:
            if lanes > 1:
                oc = b.let("first", minimum(oc * lanes, count - lanes))
            yield oc, None
        return
    count = channel_multiplier_of(call)
    with b.for_("ic", call.input(0).shape[3]) as ic:
        if count == 1:
            yield ic, ic
        else:
            with b.for_("m", count) as m:
                yield ic * count + m, ic


def count_macs(call: OpCall) -> int:
    _, kh, kw, ic = call.input(1).shape
    return call.output.elements * kh * kw * ic


def channel_multiplier_of(call: OpCall) -> int:
    return call.input(1).shape[3] // call.input(0).shape[3]


def infer_depthwise(call: OpCall) -> tuple[TensorType, ...]:
    x, w = call.input(0), call.input(1)
    if len(x.shape) != 4 or len(w.shape) != 4 or w.shape[0] != 1:
        raise NotSupportedError(
            "depthwise_conv2d without a four-dimensional input and weights of shape "
            "[1, h, w, c]"
        )
    if w.shape[3] % x.shape[3]:
        raise NotSupportedError(f"{w.shape[3]} filters for {x.shape[3]} input channels")
    requantize.check_weights_and_bias(call, 3)
    if int16x8.is_int16x8(call) and not int16x8.has_int64_sum(call):
        raise NotSupportedError("an int16 depthwise convolution with a 32-bit bias")
    shape = output_shape(call, w.shape[3])
    return (TensorType(shape, x.dtype, call.output.quantization),)


def count_depthwise_macs(call: OpCall) -> int:
    return call.output.elements * call.input(1).shape[1] * call.input(1).shape[2]


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "conv2d",
        infer,
        reference,
        lower_convolution,
        row_access=row_window,
        macs=count_macs,
    ),
    OpDef(
        "depthwise_conv2d",
        infer_depthwise,
        reference,
        partial(lower_convolution, channel_axis=3),
        row_access=row_window,
        macs=count_depthwise_macs,
    ),
)
