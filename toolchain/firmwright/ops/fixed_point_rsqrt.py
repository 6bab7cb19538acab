"""Inverse square root of an integer in 32-bit fixed point, as intrinsics.

1 / sqrt(x) ~ multiplier * 2^(shift - 31). An even shift normalizes x to [2^27, 2^29), interpreted
as a in [1/4, 1) with 3 integer bits. Five Newton steps y = (3/2) y - (a / 2) y^3 from y = 1 give
1 / sqrt(a); the multiplier is sqrt(1/2) times that. 0 is treated as 1. Products are rounded high
words of doubled products, as in requantization.
Semantics: TFLite's GetInvSqrtQuantizedMultiplierExp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firmwright.base.dtypes import INT32
from firmwright.base.quant import (
    INT32_MAX,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from firmwright.ir.tir.intrinsic import Intrinsic, Operand

_STEPS = 5
_ONE = 1 << 28
_ROOT_HALF = round(0.5**0.5 * 2**31)
_X = Operand("x", "in", INT32)


def _normalize(x: Any) -> tuple[Any, Any]:
    """Return x >= 2 normalized to [2^27, 2^29), and the right shift of the result."""
    value = np.maximum(np.asarray(x, np.int64), 2)
    large = value >= 1 << 29
    value = np.where(large, value >> 2, value)
    headroom = 32 - np.frexp(value.astype(np.float64))[1].astype(np.int64)
    pairs = (headroom - 1) // 2 - 1
    return value << (2 * pairs), 11 + large - pairs


def _multiplier(x: Any) -> Any:
    high_mul = saturating_rounding_doubling_high_mul
    value, right = _normalize(x)
    half = rounding_divide_by_pot(value >> 1, 1)
    y = np.full(np.shape(value), _ONE, np.int64)
    for _ in range(_STEPS):
        cube = _saturated(high_mul(high_mul(y, y), y) << 6)
        y = _saturated((high_mul(_ONE + _ONE // 2, y) - high_mul(half, cube)) << 3)
    multiplier = high_mul(y, _ROOT_HALF) << np.maximum(-right, 0)
    return np.where(np.asarray(x) <= 1, INT32_MAX, multiplier).astype(np.int32)


def _saturated(x: Any) -> Any:
    return np.clip(x, -INT32_MAX - 1, INT32_MAX)


def _shift(x: Any) -> Any:
    _, right = _normalize(x)
    return np.where(np.asarray(x) <= 1, 0, -np.maximum(right, 0)).astype(np.int32)


_NORMAL = """\
uint32_t value = (uint32_t)x;
int32_t right = 11;
if (value >= 0x20000000u) {
    value >>= 2;
    right = 12;
}
for (; value < 0x08000000u; value <<= 2) {
    --right;
}"""

INVERSE_ROOT = Intrinsic(
    name="inverse_root",
    operands=(_X,),
    result=INT32,
    meaning=_multiplier,
    portable=f"""\
if (x <= 1) {{
    return INT32_MAX;
}}
{_NORMAL}
const int32_t fixed = (int32_t)(value >> 1);
const int32_t half = (fixed + 1) >> 1;
int32_t y = {_ONE};
for (int32_t step = 0; step < {_STEPS}; ++step) {{
    const int32_t square = (int32_t)(((int64_t)y * y + (1 << 30)) >> 31);
    const int32_t cube = (int32_t)(((int64_t)square * y + (1 << 30)) >> 31);
    const int64_t cube64 = (int64_t)cube * 64;
    const int64_t saturated = cube64 > INT32_MAX ? INT32_MAX : cube64;
    const int32_t more = (int32_t)((3 * (int64_t)y * {_ONE // 2} + (1 << 30)) >> 31);
    const int32_t less = (int32_t)((half * saturated + (1 << 30)) >> 31);
    const int64_t next = (int64_t)(more - less) * 8;
    y = next > INT32_MAX ? INT32_MAX : (int32_t)next;
}}
const int32_t root = (int32_t)(((int64_t)y * {_ROOT_HALF} + (1 << 30)) >> 31);
return right < 0 ? (int32_t)((uint32_t)root << -right) : root;""",
    doc="The fixed-point multiplier of 1 / sqrt(x).",
    instructions=160,
)

INVERSE_ROOT_SHIFT = Intrinsic(
    name="inverse_root_shift",
    operands=(_X,),
    result=INT32,
    meaning=_shift,
    portable=f"""\
if (x <= 1) {{
    return 0;
}}
{_NORMAL}
return right < 0 ? 0 : -right;""",
    doc="The shift of the fixed-point multiplier of 1 / sqrt(x).",
    instructions=40,
)
