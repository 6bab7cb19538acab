"""Natural logarithm of a sum in 32-bit fixed point, as an intrinsic.

The argument is at least 1 and has 12 integer bits; the result has 5. The argument is written as
r 2^p with r in [1/2, 1), or as sqrt(1/2) r 2^p; the smaller r is used, which is near
s = (1/2)^(1/4). Then ln(value) = p ln 2 + ln r, with p in quarters and ln r a rational function of
q = 2 (r - s). Products are rounded high words of doubled products.
Semantics: TFLite's log_x_for_x_greater_than_or_equal_to_1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT32
from firmwright.base.quant import (
    INT32_MAX,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.ops.fixed_point_exp import two_over_one_plus

IN_BITS = 12
OUT_BITS = 5
_BITS = OUT_BITS + 1
"""Integer bits of sums: one more than the result, so that no sum saturates early."""


def _fixed(value: float) -> int:
    return round(value * 2**31)


_FOURTH = 2**0.25
_LOG_2, _ROOT_HALF, _S = _fixed(math.log(2)), _fixed(0.5**0.5), _fixed(0.5**0.25)
_N, _D = _fixed(11 / 240 * _FOURTH), _fixed(1 / 20 * _FOURTH)
_I, _F = _fixed(2 / _FOURTH - _FOURTH), _fixed(1 / 4 * _FOURTH)
_QUARTER = 1 << (29 - _BITS)
_UNIT = 1 << (31 - _BITS)


def _clz(x: Any) -> Any:
    return 32 - np.frexp(np.asarray(x, np.float64))[1].astype(np.int64)


def _logarithm(x: Any) -> Any:
    high_mul = saturating_rounding_doubling_high_mul
    z = np.asarray(x, np.int64)
    lead = _clz(z)
    first = high_mul(z << (lead - 1), _ROOT_HALF) << 1
    first_power = (IN_BITS - lead) * _UNIT + _QUARTER
    headroom = _clz(high_mul(z, _ROOT_HALF)) - 1
    second = np.minimum(z << headroom, INT32_MAX)
    second_power = (IN_BITS - headroom) * _UNIT - _QUARTER
    r, power = np.minimum(first, second), np.maximum(first_power, second_power)
    total = r + _S
    p = (total + np.where(total >= 0, 1, -1)) // 2
    q = 2 * (r - _S)
    square = high_mul(q, q)
    above = high_mul(q, r) + high_mul(high_mul(q, square), _N)
    below = high_mul(p, _I + q + high_mul(_D, square)) + high_mul(_F, q)
    scaled = rounding_divide_by_pot(above, _BITS)
    inverse = np.minimum(two_over_one_plus(below) << 1, INT32_MAX)
    result = high_mul(power, _LOG_2) + high_mul(scaled, inverse)
    return np.clip(result << 1, -INT32_MAX - 1, INT32_MAX).astype(np.int32)


def _high_mul(a: str, b: str) -> str:
    return f"(int32_t)(((int64_t){a} * {b} + (1 << 30)) >> 31)"


LOGARITHM = Intrinsic(
    name="logarithm",
    operands=(Operand("x", "in", INT32),),
    result=INT32,
    meaning=_logarithm,
    portable=f"""\
const int32_t product = {_high_mul("x", str(_ROOT_HALF))};
int32_t lead = 0;
for (uint32_t bits = (uint32_t)x; bits < 0x80000000u; bits <<= 1) {{
    ++lead;
}}
int32_t headroom = -1;
for (uint32_t bits = (uint32_t)product; bits < 0x80000000u; bits <<= 1) {{
    ++headroom;
}}
const int32_t normal = (int32_t)((uint32_t)x << (lead - 1));
const int64_t first = (int64_t){_high_mul("normal", str(_ROOT_HALF))} * 2;
const int64_t wide = (int64_t)x << headroom;
const int64_t second = wide > INT32_MAX ? INT32_MAX : wide;
const int32_t first_power = ({IN_BITS} - lead) * {_UNIT} + {_QUARTER};
const int32_t second_power = ({IN_BITS} - headroom) * {_UNIT} - {_QUARTER};
const int32_t r = (int32_t)(first < second ? first : second);
const int32_t power = first_power > second_power ? first_power : second_power;
const int32_t p = (int32_t)(((int64_t)r + {_S} + 1) >> 1);
const int32_t q = (r - {_S}) * 2;
const int32_t square = {_high_mul("q", "q")};
const int32_t cube = {_high_mul("q", "square")};
const int32_t above = {_high_mul("q", "r")} + {_high_mul("cube", str(_N))};
const int32_t factor = {_I} + q + {_high_mul("square", str(_D))};
const int32_t below = {_high_mul("p", "factor")} + {_high_mul("q", str(_F))};
const int32_t half = (int32_t)(((int64_t)below + 0x80000000) >> 1);
int32_t y = 1515870810 + {_high_mul("half", "-1010580540")};
for (int32_t step = 0; step < 3; ++step) {{
    const int32_t error = (1 << 29) - {_high_mul("half", "y")};
    y += {_high_mul("y", "error")} * 4;
}}
const int32_t inverse = y >= (1 << 30) ? INT32_MAX : y * 2;
const int32_t scaled = (above + {1 << (_BITS - 1)} - (above < 0 ? 1 : 0)) >> {_BITS};
return ({_high_mul("power", str(_LOG_2))} + {_high_mul("scaled", "inverse")}) * 2;""",
    doc="The natural logarithm (5 integer bits) of x >= 1 (12 integer bits).",
    instructions=260,
)
