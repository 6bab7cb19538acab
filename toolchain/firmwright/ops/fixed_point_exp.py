"""Exponential, logistic and tanh in 32-bit fixed point, as defined by gemmlowp.

Arguments are int64 arrays of int32 values with `integer_bits` integer bits. Results have no integer
bits, so 1 is represented by the maximum int32. The functions are bit-exact and generate tables.
"""

from __future__ import annotations

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.quant import (
    INT32_MAX,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)

_NEWTON_STEPS = 3
FACTORS = (
    (-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308),
    (2, 39332535), (3, 720401), (4, 242),
)  # fmt: skip
"""(k, e^-(2^k) with no integer bits)."""


def exp_on_negative_values(a: Array, integer_bits: int) -> Array:
    """Return e^a for a <= 0 with at most 5 integer bits."""
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
    positive = np.clip((two_over_one_plus(power) - (1 << 29)) << 2, -INT32_MAX - 1, INT32_MAX)
    return np.where(a == 0, 0, np.where(a > 0, positive, -positive))


def two_over_one_plus(x: Array) -> Array:
    """Return 2 / (1 + x) with 2 integer bits for x in [0, 1], computed by Newton's method."""
    high_mul = saturating_rounding_doubling_high_mul
    half = (x + INT32_MAX + 1) >> 1
    y = 1515870810 + high_mul(half, -1010580540)
    for _ in range(_NEWTON_STEPS):
        error = (1 << 29) - high_mul(half, y)
        y = y + (high_mul(y, error) << 2)
    return np.asarray(y)
