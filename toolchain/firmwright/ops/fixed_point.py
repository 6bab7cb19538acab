"""Functions in fixed point by gemmlowp and TFLite, for tables and as intrinsics.

Arguments of the numpy functions are int64 arrays. Results without integer bits
represent 1 by the maximum. Multiplication keeps the rounded high word of the doubled
product.
"""

import math

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.quant import (
    INT32_MAX,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from firmwright.ir.tir.intrinsic import read_intrinsics

NEWTON_STEPS = 3
FACTORS = (
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)
"""Pairs of k and e^-(2^k), the latter without integer bits."""


def exp_on_negative_values(a: Array, integer_bits: int) -> Array:
    """Return e^a for a <= 0; `a` has at most 5 integer bits."""
    fraction_bits = 31 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    part = (a & (quarter - 1)) - quarter
    result = _exp_in_quarter(part << integer_bits)
    remainder = part - a
    for exponent, multiplier in FACTORS:
        if exponent < integer_bits:
            bit = 1 << (fraction_bits + exponent)
            scaled = saturating_rounding_doubling_high_mul(result, multiplier)
            result = np.where(remainder & bit, scaled, result)
    return np.where(a == 0, INT32_MAX, result)


def _exp_in_quarter(a: Array) -> Array:
    """Return e^a for a in [-1/4, 0) by the 4th-order Taylor series around -1/8."""
    high_mul = saturating_rounding_doubling_high_mul
    constant, third = 1895147668, 715827883
    x = a + (1 << 28)
    x2 = high_mul(x, x)
    x3 = high_mul(x2, x)
    x4 = high_mul(x2, x2)
    x4_over_4 = rounding_divide_by_pot(x4, 2)
    series = rounding_divide_by_pot(high_mul(x4_over_4 + x3, third) + x2, 1)
    return np.asarray(constant + high_mul(constant, x + series))


def logistic(a: Array, integer_bits: int) -> Array:
    power = exp_on_negative_values(-np.abs(a), integer_bits)
    positive = np.minimum(two_over_one_plus(power) << 1, INT32_MAX)
    return np.where(a == 0, 1 << 30, np.where(a > 0, positive, INT32_MAX - positive))


def tanh(a: Array, integer_bits: int) -> Array:
    power = exp_on_negative_values(-np.abs(a), integer_bits + 1)
    quotient = two_over_one_plus(power) - (1 << 29)
    positive = np.clip(quotient << 2, -INT32_MAX - 1, INT32_MAX)
    return np.where(a == 0, 0, np.where(a > 0, positive, -positive))


def two_over_one_plus(x: Array) -> Array:
    """Return 2 / (1 + x) with 2 integer bits for x in [0, 1], by Newton's method."""
    high_mul = saturating_rounding_doubling_high_mul
    half = (x + INT32_MAX + 1) >> 1
    y = 1515870810 + high_mul(half, -1010580540)
    for _ in range(NEWTON_STEPS):
        error = (1 << 29) - high_mul(half, y)
        y = y + (high_mul(y, error) << 2)
    return np.asarray(y)


# ---- logarithm of x >= 1 with 12 integer bits; the result has 5 ----------------------

IN_BITS = 12
OUT_BITS = 5
_BITS = OUT_BITS + 1
"""Integer bits of sums: one more than the result, so that no sum saturates early."""


def _fixed(value: float) -> int:
    return round(value * 2**31)


_FOURTH = 2**0.25
_LOG_2 = _fixed(math.log(2))
_ROOT_HALF = _fixed(0.5**0.5)
_S = _fixed(0.5**0.25)
_N = _fixed(11 / 240 * _FOURTH)
_D = _fixed(1 / 20 * _FOURTH)
_I = _fixed(2 / _FOURTH - _FOURTH)
_F = _fixed(1 / 4 * _FOURTH)
_QUARTER = 1 << (29 - _BITS)
_UNIT = 1 << (31 - _BITS)


def _clz(x: Array) -> Array:
    return 32 - np.frexp(np.asarray(x, np.float64))[1].astype(np.int64)


def logarithm(x: Array) -> Array:
    """Return ln(x) as TFLite's log_x_for_x_greater_than_or_equal_to_1 computes it."""
    # x is written as r 2^p with r in [1/2, 1), or as sqrt(1/2) r 2^p; the smaller r is
    # used, which is near s = (1/2)^(1/4). Then ln(x) = p ln 2 + ln r with ln r = ln(r /
    # s) - (ln 2) / 4, and ln(r / s) is a rational function of q = 2 (r - s).
    high_mul = saturating_rounding_doubling_high_mul
    z = np.asarray(x, np.int64)
    lead = _clz(z)
    first = high_mul(z << (lead - 1), _ROOT_HALF) << 1
    first_power = (IN_BITS - lead) * _UNIT + _QUARTER
    headroom = _clz(high_mul(z, _ROOT_HALF)) - 1
    second = np.minimum(z << headroom, INT32_MAX)
    second_power = (IN_BITS - headroom) * _UNIT - _QUARTER
    r = np.minimum(first, second)
    power = np.maximum(first_power, second_power)
    total = r + _S
    p = (total + np.where(total >= 0, 1, -1)) // 2
    q = 2 * (r - _S)
    square = high_mul(q, q)
    above = high_mul(q, r) + high_mul(high_mul(q, square), _N)
    below = high_mul(p, _I + q + high_mul(_D, square)) + high_mul(_F, q)
    scaled = rounding_divide_by_pot(above, _BITS)
    inverse = np.minimum(two_over_one_plus(below) << 1, INT32_MAX)
    result = high_mul(power, _LOG_2) + high_mul(scaled, inverse)
    in_range: Array = np.clip(result << 1, -INT32_MAX - 1, INT32_MAX).astype(np.int32)
    return in_range


# ---- inverse square root of an integer -----------------------------------------------

_RSQRT_STEPS = 5
_RSQRT_ONE = 1 << 28


def _normalize_for_rsqrt(x: Array) -> tuple[Array, Array]:
    """Return max(x, 2), shifted by pairs of bits into [2^27, 2^29), and a right shift.

    Half the value is a in [1/4, 1) with 28 fraction bits; the caller shifts 1 /
    sqrt(a).
    """
    value = np.maximum(np.asarray(x, np.int64), 2)
    large = value >= 1 << 29
    value = np.where(large, value >> 2, value)
    pairs = (_clz(value) - 1) // 2 - 1
    return value << (2 * pairs), 11 + large - pairs


def inverse_root(x: Array) -> Array:
    """Return TFLite's GetInvSqrtQuantizedMultiplierExp multiplier; 0 counts as 1."""
    # 1 / sqrt(x) is about multiplier * 2^(shift - 31). Five Newton steps y = (3/2) y -
    # (a / 2) y^3 from y = 1 give 1 / sqrt(a); the multiplier is sqrt(1/2) times that.
    high_mul = saturating_rounding_doubling_high_mul
    value, right = _normalize_for_rsqrt(x)
    half = rounding_divide_by_pot(value >> 1, 1)
    y = np.full(np.shape(value), _RSQRT_ONE, np.int64)
    for _ in range(_RSQRT_STEPS):
        cube = _saturate32(high_mul(high_mul(y, y), y) << 6)
        scaled = high_mul(_RSQRT_ONE + _RSQRT_ONE // 2, y)
        y = _saturate32((scaled - high_mul(half, cube)) << 3)
    multiplier = high_mul(y, _ROOT_HALF) << np.maximum(-right, 0)
    return np.where(np.asarray(x) <= 1, INT32_MAX, multiplier).astype(np.int32)


def _saturate32(x: Array) -> Array:
    return np.clip(x, -INT32_MAX - 1, INT32_MAX)


def inverse_root_shift(x: Array) -> Array:
    _, right = _normalize_for_rsqrt(x)
    return np.where(np.asarray(x) <= 1, 0, -np.maximum(right, 0)).astype(np.int32)


FIXED_POINT_INTRINSICS = read_intrinsics(
    __file__,
    {
        "inverse_root": inverse_root,
        "inverse_root_shift": inverse_root_shift,
        "logarithm": logarithm,
    },
)
