"""Affine quantization and the integer requantize step with both rounding modes.

This is the bit-exact reference for generated C, after TFLite's quantization
specification. Results are int64 arrays with int32 values.
"""

import enum
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmwright.base.errors import InternalError, ModelError

IntArray = NDArray[np.int64]
IntLike = ArrayLike

INT32_MIN = -(1 << 31)
INT32_MAX = (1 << 31) - 1
MIN_SHIFT = -31
MAX_SHIFT = 30


class Rounding(enum.Enum):
    """How often a requantize step rounds, as the operator's definition prescribes."""

    ONCE = "once"
    TWICE = "twice"
    FLOAT32 = "in float32"


@dataclass(frozen=True, slots=True)
class Quantization:
    """The mapping real = scale * (q - zero_point), of a tensor or along `axis`.

    `scales` are Python floats that hold the model's float32 values exactly.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None

    def __post_init__(self) -> None:
        if not self.scales or len(self.scales) != len(self.zero_points):
            zero_points = f"{len(self.zero_points)} zero points"
            what = f"a quantization has {len(self.scales)} scales and {zero_points}"
            raise ModelError(f"{what}; both counts must be equal and at least 1.")
        if self.axis is None and len(self.scales) != 1:
            what = f"a quantization has {len(self.scales)} scales but names no axis."
            raise ModelError(what)
        if self.axis is not None and self.axis < 0:
            raise ModelError(f"a quantization has the negative axis {self.axis}.")
        for scale in self.scales:
            if not (math.isfinite(scale) and scale > 0.0):
                what = f"a quantization has the scale {scale!r}; it must be positive."
                raise ModelError(what)

    @property
    def per_channel(self) -> bool:
        return self.axis is not None

    @property
    def scale(self) -> float:
        """The scale of a per-tensor quantization."""
        if len(self.scales) != 1:
            raise InternalError("the scale was read from a per-channel quantization")
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """The zero point of a per-tensor quantization."""
        if len(self.zero_points) != 1:
            what = "the zero point was read from a per-channel quantization"
            raise InternalError(what)
        return self.zero_points[0]


def round_half_away(value: float) -> int:
    """Return the nearest integer; halves round away from zero as in C's round()."""
    whole = math.floor(abs(value))
    whole += abs(value) - whole >= 0.5
    return whole if value >= 0 else -whole


def quantize_multiplier(real: float) -> tuple[int, int]:
    """Return (multiplier, shift) with real ~ multiplier * 2^(shift - 31).

    Definition (TFLite, QuantizeMultiplier): real = q * 2^shift with q in [0.5, 1);
    multiplier is q * 2^31 rounded half away from zero; if that is 2^31, it is halved
    and the shift incremented. A shift below -31 yields (0, 0); a `real` of 2^30 or more
    is a ModelError.
    """
    if not math.isfinite(real) or real < 0.0:
        raise ModelError(
            f"a requantize factor is {real!r}; it must be finite and not negative."
        )
    if real == 0.0:
        return 0, 0
    fraction, shift = math.frexp(real)
    multiplier = round_half_away(fraction * (1 << 31))
    if multiplier == 1 << 31:
        multiplier //= 2
        shift += 1
    if shift < MIN_SHIFT:
        return 0, 0
    if shift > MAX_SHIFT:
        raise ModelError(
            f"a requantize factor is {real!r}; it must be below 2^{MAX_SHIFT}."
        )
    return multiplier, shift


def multiply_by_quantized_multiplier(
    x: IntLike, multiplier: IntLike, shift: IntLike, rounding: Rounding
) -> IntArray:
    """Return x * multiplier * 2^(shift - 31) on int32 values, with broadcasting.

    ONCE: floor((x * multiplier + 2^(30 - shift)) / 2^(31 - shift)) with a 64-bit
    product.

    TWICE: rounding_divide_by_pot(saturating_rounding_doubling_high_mul(x * 2^max(shift,
    0), multiplier), max(-shift, 0)).

    FLOAT32: float32(x) * factor in float32, halves rounded to even, saturated; the
    factor is that of the multiplier without its 7 low bits. Even multipliers round
    ONCE.

    Where 32 bits overflow (the left shift of TWICE, the result of ONCE) the value
    wraps. Shifts are in [-31, 30].
    """
    x64, m64 = _int32(x, "x"), _int32(multiplier, "multiplier")
    s64 = np.asarray(shift, np.int64)
    if s64.size and (s64.min() < MIN_SHIFT or s64.max() > MAX_SHIFT):
        raise InternalError("a requantize shift is outside [-31, 30]")
    if rounding is Rounding.FLOAT32:
        factor = np.ldexp((m64 & -128).astype(np.float32), s64 - 31).astype(np.float32)
        product = np.rint(x64.astype(np.float32) * factor).astype(np.float64)
        exact = np.clip(product, INT32_MIN, INT32_MAX).astype(np.int64)
        even = multiply_by_quantized_multiplier(x64, m64, s64, Rounding.ONCE)
        return np.where(m64 & 1, exact, even)
    if rounding is Rounding.ONCE:
        total = 31 - s64
        return _wrap_int32((x64 * m64 + (np.int64(1) << (total - 1))) >> total)
    shifted = _wrap_int32(x64 << np.maximum(s64, 0))
    high = saturating_rounding_doubling_high_mul(shifted, m64)
    return rounding_divide_by_pot(high, np.maximum(-s64, 0))


def saturating_rounding_doubling_high_mul(a: IntLike, b: IntLike) -> IntArray:
    """Return the high 32 bits of 2ab, trunc((ab + nudge) / 2^31), on int32 values.

    nudge is 2^30 for ab >= 0, else 1 - 2^30. INT32_MIN squared saturates to INT32_MAX.
    Definition: gemmlowp's fixed point.
    """
    product = _int32(a, "a") * _int32(b, "b")
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    magnitude = np.abs(nudged) >> 31
    signed = np.where(nudged >= 0, magnitude, -magnitude)
    return np.asarray(np.minimum(signed, INT32_MAX), np.int64)


def rounding_divide_by_pot(x: IntLike, exponent: IntLike) -> IntArray:
    """Return x / 2^exponent, halves rounded away from zero; exponent is in [0, 31]."""
    x64, e64 = _int32(x, "x"), np.asarray(exponent, np.int64)
    # The shift rounds down. A remainder above half rounds up; so does a half of x >= 0.
    mask = (np.int64(1) << e64) - 1
    threshold = (mask >> 1) + (x64 < 0)
    return np.asarray((x64 >> e64) + ((x64 & mask) > threshold), np.int64)


def _int32(values: IntLike, name: str) -> IntArray:
    wide = np.asarray(values, np.int64)
    if wide.size and (wide.min() < INT32_MIN or wide.max() > INT32_MAX):
        raise InternalError(f"{name} leaves the int32 range in a requantize")
    return wide


def _wrap_int32(values: IntArray) -> IntArray:
    return np.asarray(((values - INT32_MIN) & 0xFFFFFFFF) + INT32_MIN, np.int64)
