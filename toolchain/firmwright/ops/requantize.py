"""Requantization of quantized operators: ranges, parameters and the TIR epilogue.

Semantics: TFLite's int8 quantization specification and the parameter computation of its
reference kernels, with the same float widths, which determine the last bit of a
multiplier.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, INT64, Array, DType
from firmwright.base.errors import ModelError, NotSupportedError
from firmwright.base.quant import (
    Quantization,
    Rounding,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
)
from firmwright.ir.attribute_kinds import ACTIVATIONS
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.layers import (
    ActivationAttrs,
    Conv2DAttrs,
    TransposeConvAttrs,
)
from firmwright.ir.tir.builder import (
    ArithExpr,
    ExprLike,
    call_intrinsic,
    maximum,
    minimum,
)
from firmwright.ir.tir.intrinsic import Meaning

ArrayOrExpr = TypeVar("ArrayOrExpr", ArithExpr, Array)
"""An array of the reference, or an expression of the kernel: one formula is both."""


def quantization_of(kind: TensorType) -> Quantization:
    """Return the quantization of a tensor; NotSupportedError if it has none."""
    if kind.quantization is None:
        raise NotSupportedError(f"an {kind.dtype.name} tensor without quantization")
    return kind.quantization


def per_tensor_quant(kind: TensorType) -> Quantization:
    """Return a tensor's quantization; NotSupportedError unless it has one scale."""
    quantization = quantization_of(kind)
    if len(quantization.scales) != 1:
        raise NotSupportedError("an activation tensor with per-channel quantization")
    return quantization


def _activation_range(activation: str) -> tuple[float | None, float | None]:
    if activation not in ACTIVATIONS:
        what = f"the activation {activation!r} is unknown."
        raise ModelError(what, hint=f"one of {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[activation]


def float_activation_range(activation: str) -> tuple[float, float]:
    """Return the lower and upper bound of a float result; infinite where unbounded."""
    low, high = _activation_range(activation)
    return (-np.inf if low is None else low, np.inf if high is None else high)


def apply_activation(value: ArrayOrExpr, activation: str) -> ArrayOrExpr:
    """Clamp a float expression, or an array, which becomes float32; NaN stays."""
    low, high = float_activation_range(activation)
    if not isinstance(value, ArithExpr):
        return np.asarray(np.clip(value, low, high), np.float32)
    if low > -np.inf:
        value = maximum(low, value)
    if high < np.inf:
        value = minimum(high, value)
    return value


def quantized_activation_range(activation: str, kind: TensorType) -> tuple[int, int]:
    """Return the lower and upper bound of a quantized result, computed in float32."""
    low, high = _activation_range(activation)
    quant = per_tensor_quant(kind)
    scale = np.float32(quant.scale)

    lowest = kind.dtype.min
    highest = kind.dtype.max

    def to_quantized(real: float) -> int:
        with np.errstate(over="ignore"):
            steps = float(np.float32(real) / scale)
        if math.isinf(steps):
            return highest if steps > 0 else lowest
        return quant.zero_point + round_half_away(steps)

    if low is not None:
        lowest = max(lowest, to_quantized(low))
    if high is not None:
        highest = min(highest, to_quantized(high))
    return lowest, highest


@dataclass(frozen=True, slots=True)
class Requantization:
    """The parameters of requantization: one multiplier and shift, or one per channel.

    If the rounding is FLOAT32, channels with an even multiplier round once, with the
    same result.
    """

    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]
    rounding: Rounding
    zero_point: int
    clamp_min: int
    clamp_max: int

    @property
    def per_channel(self) -> bool:
        return len(self.multipliers) > 1

    def apply(self, acc: Array, dtype: DType) -> Array:
        """Requantize int32 accumulators (channel last) to `dtype` in numpy."""
        steps = np.array((self.multipliers, self.shifts))
        # One factor for all channels is a scalar, so that the result has the shape of
        # `acc`.
        multipliers, shifts = steps if steps.shape[1] > 1 else steps[:, 0]
        rounding = self.rounding
        scaled = multiply_by_quantized_multiplier(acc, multipliers, shifts, rounding)
        shifted = np.clip(scaled + self.zero_point, self.clamp_min, self.clamp_max)
        return shifted.astype(dtype.np)

    def lower(self, acc: ArithExpr, dtype: DType) -> ArithExpr:
        """Emit the requantization by one multiplier for the whole tensor."""
        return requantize_value(acc, self.multipliers[0], self.shifts[0], self, dtype)


def make_requantization(
    factors: Sequence[float], rounding: Rounding, output: TensorType, activation: str
) -> Requantization:
    """Return the parameters for factors input scale * weight scale / output scale."""
    pairs = [quantize_multiplier(factor) for factor in factors]
    if rounding is Rounding.FLOAT32:
        pairs = [(multiplier | 1, shift) for multiplier, shift in pairs]
    clamp_min, clamp_max = quantized_activation_range(activation, output)
    if len(set(pairs)) == 1:
        pairs = pairs[:1]
    multipliers: list[int] = []
    shifts: list[int] = []
    for multiplier, shift in pairs:
        multipliers.append(multiplier)
        shifts.append(shift)
    return Requantization(
        tuple(multipliers),
        tuple(shifts),
        rounding,
        per_tensor_quant(output).zero_point,
        clamp_min,
        clamp_max,
    )


def output_bounds(
    params: Requantization, low: Array, high: Array
) -> tuple[Array, Array]:
    """Return each channel's least and greatest int8 output for sums in [low, high].

    Requantization is monotonic, as multipliers are not negative. Channels whose sums
    may overflow 32 bits on the way have the bounds of the activation.
    """
    shifts = np.broadcast_to(np.array(params.shifts, np.int64), len(low))
    reach = np.maximum(np.abs(low), np.abs(high)).tolist()
    channels_fit: list[bool] = []
    for value, shift in zip(reach, shifts.tolist(), strict=True):
        channels_fit.append(value << max(shift, 0) < _SUM_LIMIT << (shift < 0))
    fits = np.array(channels_fit)
    least = params.apply(np.where(fits, low, 0), INT64)
    most = params.apply(np.where(fits, high, 0), INT64)
    return (
        np.where(fits, least, params.clamp_min),
        np.where(fits, most, params.clamp_max),
    )


_SUM_LIMIT = 1 << 30
"""Bound that leaves room to add the output zero point after a left shift."""


def tensor_scales(call: OpCall) -> list[float]:
    inputs = [call.input(index) for index in range(len(call.inputs))]
    return [per_tensor_quant(kind).scale for kind in (*inputs, call.output)]


def requant_by_scales(call: OpCall, factor: Meaning, activation: str) -> Requantization:
    """Return the requantization by factor(*input scales, output scale), rounding twice.

    LiteRT computes the factor in float32, TFLM in double.
    """
    scales = tensor_scales(call)
    if call.numerics != "tflm":
        # make_requantization rejects an infinite factor.
        with np.errstate(over="ignore"):
            real = float(factor(*map(np.float32, scales)))
    else:
        real = factor(*scales)
    return make_requantization([real], Rounding.TWICE, call.output, activation)


def clamp(value: ArrayOrExpr, low: int, high: int, dtype: DType) -> ArrayOrExpr:
    """Clamp an expression or an array and convert it to `dtype`."""
    if isinstance(value, ArithExpr):
        return minimum(maximum(value, low), high).cast(dtype)
    return np.asarray(np.clip(value, low, high), dtype.np)


def requantize_twice(x: ArrayOrExpr, multiplier: int, shift: int) -> ArrayOrExpr:
    """Requantize an expression or an array of int32, rounding twice."""
    if isinstance(x, ArithExpr):
        return call_intrinsic("requantize_twice", [x, multiplier, shift], INT32)
    return multiply_by_quantized_multiplier(x, multiplier, shift, Rounding.TWICE)


_STEPS_BY_ROUNDING = {
    Rounding.ONCE: "requantize_once",
    Rounding.TWICE: "requantize_twice",
    Rounding.FLOAT32: "requantize_float32",
}


def requantize_value(
    acc: ArithExpr,
    multiplier: ExprLike,
    shift: ExprLike,
    params: Requantization,
    dtype: DType,
) -> ArithExpr:
    """Emit the epilogue: requantize, add the zero point, clamp and narrow."""
    name = _STEPS_BY_ROUNDING[params.rounding]
    scaled = call_intrinsic(name, [acc, multiplier, shift], INT32)
    return clamp(scaled + params.zero_point, params.clamp_min, params.clamp_max, dtype)


def check_zero_points(*kinds: TensorType) -> None:
    """Raise NotSupportedError unless each has one scale and, if int16, zero point 0."""
    zero_points = [per_tensor_quant(kind).zero_point for kind in kinds]
    if kinds[0].dtype == INT16 and any(zero_points):
        raise NotSupportedError("int16 with a zero point other than 0")


def check_weights_and_bias(call: OpCall, axis: int) -> None:
    """Check the weights (input 1) and bias (input 2) of a layer.

    Both must be constant; input x weights are int8 x int8, int16 x int8 or float32 x
    float32. The bias has one element per output channel, which is `axis` of the
    weights. Integer layers need per-tensor input and output, symmetric weights with one
    scale or one per channel, and accumulators that provably fit 32 bits. int16 tensors
    are symmetric; their bias and accumulators may have 64 bits.
    """
    x, w = call.input(0), call.input(1)
    weights = call.constant(1)
    bias = call.constant(2)
    if weights is None or (call.has_input(2) and bias is None):
        raise NotSupportedError("variable weights or bias")
    if (x.dtype, w.dtype) not in ((INT8, INT8), (INT16, INT8), (FLOAT32, FLOAT32)):
        raise NotSupportedError(f"{x.dtype.name} input with {w.dtype.name} weights")
    channels = w.shape[axis]
    wide = {INT8: (INT32,), INT16: (INT32, INT64), FLOAT32: (FLOAT32,)}[x.dtype]
    if bias is not None:
        elements = math.prod(bias.shape)
        if bias.dtype not in wide or elements != channels:
            raise NotSupportedError(
                f"a bias with {elements} {bias.dtype.name} for {channels} channels"
            )
    if x.dtype == FLOAT32:
        return
    check_zero_points(x, call.output)
    quant = quantization_of(w)
    points = set(quant.zero_points)
    if len(points) > 1 or (x.dtype == INT16 and any(points)):
        raise NotSupportedError(
            "weights whose zero points differ, or are not 0 for int16"
        )
    if len(quant.scales) not in (1, channels) or quant.axis not in (None, axis):
        raise NotSupportedError(
            f"{len(quant.scales)} weight scales for {channels} channels"
        )
    is_wide = x.dtype == INT16 and (bias is None or bias.dtype == INT64)
    if accumulator_bounds(call, axis).max() > (_WIDEST if is_wide else INT32.max):
        bits = _WIDEST.bit_length() if is_wide else 32
        raise NotSupportedError(f"weights and bias that may overflow a {bits}-bit sum")


def sum_bounds(call: OpCall, axis: int) -> tuple[Array, Array]:
    """Return each output channel's least and greatest int32 sum in an int8 layer."""
    if call.any_weights:
        return any_sum_bounds(call.input(1).shape[axis])
    bias = call.constant(2)
    zero_point = per_tensor_quant(call.input(0)).zero_point
    positive, negative = _signed_weight_sums(call, axis)
    low = INT8.min - zero_point
    high = INT8.max - zero_point
    least = positive * low + negative * high
    most = positive * high + negative * low
    if bias is None:
        return least, most
    added = bias.array().astype(np.int64).reshape(-1)
    return least + added, most + added


def any_sum_bounds(channels: int) -> tuple[Array, Array]:
    """Return bounds of the int32 sums of channels with any weights and biases."""
    most = np.full(channels, INT32.max, np.int64)
    return -most, most


FACTOR_MAX = 512.0
"""Above the number of int8 values; scaled sums below 2^22 still fit int32."""


def float32_factors(call: OpCall) -> list[float]:
    """Return x scale * weight scale / y scale in float32, one value or one per channel.

    A factor is at most FACTOR_MAX, beyond which every sum other than 0 saturates, too.
    """
    x = np.float32(per_tensor_quant(call.input(0)).scale)
    y = np.float32(per_tensor_quant(call.output).scale)
    weights = np.array(quantization_of(call.input(1)).scales, np.float32)
    with np.errstate(over="ignore"):
        factors = (x * weights) / y
    return [min(float(factor), FACTOR_MAX) for factor in factors]


def float32_requantization(call: OpCall) -> Requantization:
    """Return ONNX Runtime's requantization of an int8 layer, as it is defined."""
    factors = float32_factors(call)
    activation = call.attributes(ActivationAttrs).activation
    return make_requantization(factors, Rounding.FLOAT32, call.output, activation)


def apply_float32(call: OpCall, acc: Array) -> Array:
    """Requantize an int8 layer's sums in numpy as ONNX Runtime does."""
    return float32_requantization(call).apply(acc, INT8)


_WIDEST = (1 << 36) - 1
_STEPS = {INT8: 256, INT16: 1 << 15}
"""Bounds |x - zero point| and |x| + |zero point|: biases may contain zero points."""


def accumulator_bounds(call: OpCall, axis: int) -> Array:
    """Return a bound of |accumulator| per output channel, `axis` of the weights."""
    bias = call.constant(2)
    positive, negative = _signed_weight_sums(call, axis)
    reach: Array = (positive - negative) * _STEPS[call.input(0).dtype]
    if bias is not None:
        reach = reach + np.abs(bias.array().astype(np.int64)).reshape(-1)
    return reach


def _signed_weight_sums(call: OpCall, axis: int) -> tuple[Array, Array]:
    offsets = call.constant_array(1)
    zero_point = weight_zero_point(call)
    if zero_point:
        offsets = offsets.astype(np.int64) - zero_point
    return signed_sums(np.moveaxis(offsets, axis, 0))


def signed_sums(weights: Array) -> tuple[Array, Array]:
    """Return the sums of each channel's positive and negative weights (axis 0)."""
    others = tuple(range(1, weights.ndim))
    positive = np.maximum(weights, 0).sum(axis=others, dtype=np.int64)
    return positive, np.minimum(weights, 0).sum(axis=others, dtype=np.int64)


def weight_zero_point(call: OpCall) -> int:
    """Return the zero point of a layer's weights: not 0 only in models of uint8."""
    quant = call.input(1).quantization
    return 0 if quant is None else quant.zero_points[0]


def multiply_quantized(
    left: ArithExpr, right: ArithExpr, zero_points: Sequence[int], wide: DType
) -> ArithExpr:
    """Return the product of two values less their zero points; floats have none."""
    if wide == FLOAT32:
        return left * right
    left_zero, right_zero = zero_points
    product = (left.cast(INT32) - left_zero) * (right.cast(INT32) - right_zero)
    return product.cast(wide)


def has_weight_zero_point(call: OpCall) -> bool:
    return call.op in _WEIGHTED_OPS and weight_zero_point(call) != 0


_WEIGHTED_OPS = ("conv2d", "depthwise_conv2d", "fully_connected", "transpose_conv")


def scale_factors(call: OpCall) -> list[float]:
    """Return x scale * w scale / y scale in double for each weight scale.

    With `unsigned`, the product of the scales is rounded to float32, as TFLite does for
    uint8.
    """
    x = per_tensor_quant(call.input(0)).scale
    y = per_tensor_quant(call.output).scale
    products = [x * scale for scale in quantization_of(call.input(1)).scales]
    match call.attrs:
        case Conv2DAttrs(unsigned=True) | TransposeConvAttrs(unsigned=True):
            products = [float(np.float32(product)) for product in products]
    return [product / y for product in products]
