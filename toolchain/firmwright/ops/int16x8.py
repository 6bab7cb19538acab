"""Accumulators and requantization of layers with int16 activations and int8 weights.

Sums have 64 bits, or 32 where the weights prove that they suffice. A sum is converted
to the output in one of three ways:

- 32-bit bias: as for int8;
- 64-bit bias or none: the multiplier is reduced to 16 bits (rounded half up, at most
  2^15 - 1), with one rounding. `Requantization` holds it as a 31-bit multiplier with 16
  low zeros;
- LiteRT's fully_connected: the factor is applied in double, halves away from zero
  (`ExactScale`). Its 53 bits are split in two so that 64-bit products suffice. int8
  layers without an equivalent 31-bit multiplier use it as well.

Semantics: TFLite's 64-bit MultiplyByQuantizedMultiplier; LiteRT's fully connected
kernel, measured.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import INT16, INT32, INT64, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Rounding
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, immediate
from firmwright.ops import requantize
from firmwright.ops.intrinsics import FACTOR_LOW_BITS, requantize_exact
from firmwright.ops.kernel import Kernel

_MANTISSA_BITS = 53
_MOST_SHIFT = 7


def is_int16x8(call: OpCall) -> bool:
    return call.input(0).dtype == INT16


def has_int64_sum(call: OpCall) -> bool:
    """Whether the reference kernel sums in 64 bits.

    It does for int16 without a 32-bit bias, and for weights of int16.
    """
    if not is_int16x8(call):
        return False
    has_short_bias = call.has_input(2) and call.input(2).dtype == INT32
    return not has_short_bias or call.input(1).dtype == INT16


def requant_with_16_bit_multiplier(
    factors: Sequence[float], output: TensorType, activation: str
) -> requantize.Requantization:
    """Return the requantization of 64-bit sums; multipliers are multiples of 2^16."""
    params = requantize.make_requantization(factors, Rounding.ONCE, output, activation)
    pairs = zip(params.multipliers, params.shifts, strict=True)
    multipliers = tuple(reduce_multiplier(*pair)[0] << 16 for pair in pairs)
    return replace(params, multipliers=multipliers)


def reduce_multiplier(multiplier: int, shift: int) -> tuple[int, int]:
    """Reduce a 31-bit multiplier to 16 bits; return (multiplier, right shift)."""
    if shift > _MOST_SHIFT:
        raise NotSupportedError(
            f"an int16 layer with a scale factor above 2^{_MOST_SHIFT}"
        )
    return min((multiplier + (1 << 15)) >> 16, INT16.max), 15 - shift


def accumulator_dtype(call: OpCall, axis: int) -> DType:
    """Return int32 if the weights prove that no sum exceeds it, else int64."""
    if call.any_weights:
        return INT64 if has_int64_sum(call) else INT32
    greatest = int(requantize.accumulator_bounds(call, axis).max())
    return INT32 if greatest <= INT32.max else INT64


def requantize_sums(
    params: requantize.Requantization, acc: Array, dtype: DType
) -> Array:
    """Requantize in numpy; sums for int16 that are rounded once may have 64 bits."""
    if dtype != INT16 or params.rounding is Rounding.TWICE:
        return params.apply(acc, dtype)
    multiplier = np.array(params.multipliers, np.int64) >> 16
    shift = 15 - np.array(params.shifts, np.int64)
    scaled = requantize_int64_array(acc, multiplier, shift)
    return np.asarray(np.clip(scaled, params.clamp_min, params.clamp_max), dtype.np)


def requantize_int64_array(
    acc: Array, multiplier: Array | int, right: Array | int
) -> Array:
    """Return acc * multiplier / 2^right, halves up, of which 32 bits remain."""
    product: Array = acc * multiplier
    scaled = (product + (np.int64(1) << (np.int64(right) - 1))) >> right
    return np.asarray(scaled.astype(np.int32).astype(np.int64))


@dataclass(frozen=True, slots=True)
class ExactScale:
    """Factors that are applied with all 53 bits; halves round away from zero."""

    factors: tuple[float, ...]
    zero_point: int
    clamp_min: int
    clamp_max: int

    def parts(self) -> tuple[Array, Array, Array]:
        """Return (high, low, right) of factors (high * 2^27 + low) / 2^(right + 27)."""
        mantissas, exponents = np.frexp(np.array(self.factors))
        whole = (mantissas * 2.0**_MANTISSA_BITS).astype(np.int64)
        right = _MANTISSA_BITS - FACTOR_LOW_BITS - exponents.astype(np.int64)
        return whole >> FACTOR_LOW_BITS, whole & ((1 << FACTOR_LOW_BITS) - 1), right

    def apply(self, acc: Array, dtype: DType) -> Array:
        high, low, right = self.parts()
        scaled = requantize_exact(acc, high, low, right) + self.zero_point
        return np.asarray(np.clip(scaled, self.clamp_min, self.clamp_max), dtype.np)


def exact_scale(
    factors: Sequence[float], output: TensorType, activation: str
) -> ExactScale:
    """Build an `ExactScale`; factors must be strictly between 2^-31 and 2^25."""
    for factor in factors:
        if not (math.isfinite(factor) and 2.0**-31 < factor < 2.0**25):
            raise NotSupportedError("a layer with a scale factor outside [2^-31, 2^25]")
    same = tuple(factors) if len(set(factors)) > 1 else (factors[0],)
    zero_point = requantize.per_tensor_quant(output).zero_point
    low, high = requantize.quantized_activation_range(activation, output)
    return ExactScale(same, zero_point, low, high)


def requantize_epilogue(
    b: Kernel, params: requantize.Requantization | ExactScale, wide: DType, dtype: DType
) -> Callable[[ArithExpr, ArithExpr], ArithExpr]:
    """Declare the parameters; return a function from (sum, channel) to output."""
    if isinstance(params, ExactScale):
        return _exact_epilogue(b, params, dtype)
    if wide == INT64:
        return _int64_epilogue(b, params, dtype)
    multiplier = b.constant("multiplier", np.array(params.multipliers), INT32)
    shift = b.constant("shift", np.array(params.shifts), INT32)

    def finish(acc: ArithExpr, channel: ArithExpr) -> ArithExpr:
        index = channel if params.per_channel else 0
        return requantize.requantize_value(
            acc, b.load(multiplier, [index]), b.load(shift, [index]), params, dtype
        )

    return finish


def _int64_epilogue(
    b: Kernel, params: requantize.Requantization, dtype: DType
) -> Callable[[ArithExpr, ArithExpr], ArithExpr]:
    multiplier = b.constant("multiplier", np.array(params.multipliers) >> 16, INT32)
    right = b.constant("right", 15 - np.array(params.shifts), INT32)

    def finish(acc: ArithExpr, channel: ArithExpr) -> ArithExpr:
        index = channel if params.per_channel else 0
        factor = b.load(multiplier, [index])
        places = b.load(right, [index])
        scaled = requantize_int64(acc, factor, places)
        return requantize.clamp(scaled, params.clamp_min, params.clamp_max, dtype)

    return finish


def _exact_epilogue(
    b: Kernel, scale: ExactScale, dtype: DType
) -> Callable[[ArithExpr, ArithExpr], ArithExpr]:
    high, low, right = scale.parts()
    tables = [
        b.constant("factor_high", high, INT32),
        b.constant("factor_low", low, INT32),
        b.constant("right", right, INT32),
    ]
    per_channel = len(scale.factors) > 1

    def finish(acc: ArithExpr, channel: ArithExpr) -> ArithExpr:
        index = channel if per_channel else 0
        factor = [b.load(table, [index]) for table in tables]
        scaled = call_intrinsic("requantize_exact", [acc.cast(INT64), *factor], INT32)
        if scale.zero_point:
            scaled = scaled + scale.zero_point
        return requantize.clamp(scaled, scale.clamp_min, scale.clamp_max, dtype)

    return finish


def requantize_int64(
    acc: ArithExpr, multiplier: ArithExpr, right: ArithExpr
) -> ArithExpr:
    """Return acc * multiplier / 2^right, in 64 bits, halves up, as an int32."""
    product = acc.cast(INT64) * multiplier.cast(INT64)
    shift = right.cast(INT64)
    half = ArithExpr(immediate(1, INT64)) << (shift - 1)
    return ((product + half) >> shift).cast(INT32)
