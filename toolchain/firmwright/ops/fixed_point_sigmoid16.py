"""Logistic and tanh in 16-bit fixed point, as an intrinsic.

The argument is an int16 with `integer_bits` integer bits; the result has none. The steps are those
of fixed_point_exp.py with 16-bit products and constants: e^-|x| is a Taylor polynomial around -1/8
for the part below 1/4, times a factor for each higher bit; 2 / (1 + e^-|x|) uses Newton's method.
Products are the rounded high halves of doubled products.
Semantics: gemmlowp's fixed-point functions as used by TFLite's integer LSTM.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firmwright.base.dtypes import INT16, INT32, Array
from firmwright.base.quant import IntArray, rounding_divide_by_pot
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.ops.fixed_point_exp import FACTORS

_ONE = INT16.max


def _to_16_bits(value: int) -> int:
    return int(rounding_divide_by_pot(value, 16))


_EXP_EIGHTH, _THIRD = _to_16_bits(1895147668), _to_16_bits(715827883)
_TWELVE_17THS, _EIGHT_17THS = _to_16_bits(1515870810), _to_16_bits(-1010580540)
_MOST_FACTORS = 5
"""Factors extend to e^-16; below -32 the exponential is 0."""
_STEPS = tuple((exponent, _to_16_bits(factor)) for exponent, factor in FACTORS)


def _high_mul(a: Array, b: Any) -> Array:
    return np.asarray((a * b + (1 << 14)) >> 15)


def _saturated(x: Array) -> Array:
    return np.asarray(np.clip(x, INT16.min, INT16.max))


def _exp_on_negative(a: IntArray, integer_bits: int) -> Array:
    quarter = 1 << (13 - integer_bits)
    part = (a & (quarter - 1)) - quarter
    x = (part << integer_bits) + (1 << 12)
    square = _high_mul(x, x)
    cube, fourth = _high_mul(square, x), _high_mul(square, square)
    series = _high_mul(rounding_divide_by_pot(fourth, 2) + cube, _THIRD) + square
    result = _saturated(_EXP_EIGHTH + _high_mul(x + rounding_divide_by_pot(series, 1), _EXP_EIGHTH))
    for exponent, factor in _STEPS:
        if exponent < integer_bits:
            bit = (part - a) >> (15 - integer_bits + exponent) & 1
            result = np.where(bit, _high_mul(result, factor), result)
    if integer_bits > _MOST_FACTORS:
        result = np.where(a < -(1 << (15 - integer_bits + _MOST_FACTORS)), 0, result)
    return np.where(a == 0, _ONE, result)


def sigmoid16(x: Any, integer_bits: Any, is_tanh: Any) -> Array:
    """Return the logistic of x, or its tanh with `is_tanh`."""
    value, bits, tanh = np.asarray(x, np.int64), int(np.max(integer_bits)), bool(np.max(is_tanh))
    power = _exp_on_negative(-np.abs(value), bits + tanh)
    half = (power + _ONE + 1) >> 1
    y = _TWELVE_17THS + _high_mul(half, _EIGHT_17THS)
    for _ in range(3):
        y = y + (_high_mul(y, (1 << 13) - _high_mul(half, y)) << 2)
    positive = _saturated((y - (1 << 13)) << 2 if tanh else y << 1)
    below = -positive if tanh else _ONE - positive
    center = 0 if tanh else 1 << 14
    return np.asarray(np.where(value == 0, center, np.where(value > 0, positive, below)), np.int32)


def _product(a: str, b: str) -> str:
    return f"(({a} * {b} + (1 << 14)) >> 15)"


_FACTOR_LINES = "\n".join(
    f"if (bits > {exponent} && ((rest >> (15 - bits + ({exponent}))) & 1) != 0) {{\n"
    f"    power = {_product('power', str(factor))};\n}}"
    for exponent, factor in _STEPS
)

SIGMOID16 = Intrinsic(
    name="sigmoid16",
    operands=(
        Operand("x", "in", INT32),
        Operand("integer_bits", "in", INT32),
        Operand("is_tanh", "in", INT32),
    ),
    result=INT32,
    meaning=sigmoid16,
    portable=f"""\
if (x == 0) {{
    return is_tanh != 0 ? 0 : 1 << 14;
}}
const int32_t below = x < 0 ? x : -x;
const int32_t bits = integer_bits + is_tanh;
const int32_t quarter = 1 << (13 - bits);
const int32_t part = (below & (quarter - 1)) - quarter;
const int32_t rest = part - below;
const int32_t a = part * (1 << bits) + (1 << 12);
const int32_t square = {_product("a", "a")};
const int32_t cube = {_product("square", "a")};
const int32_t fourth = {_product("square", "square")};
const int32_t third = ((fourth + 2) >> 2) + cube;
const int32_t series = {_product("third", str(_THIRD))} + square;
const int32_t sum = a + ((series + (series < 0 ? 0 : 1)) >> 1);
int32_t power = {_EXP_EIGHTH} + {_product("sum", str(_EXP_EIGHTH))};
power = power > INT16_MAX ? INT16_MAX : power;
{_FACTOR_LINES}
if (bits > {_MOST_FACTORS} && below < -(1 << (15 - bits + {_MOST_FACTORS}))) {{
    power = 0;
}}
const int32_t half = (power + 32768) >> 1;
int32_t y = {_TWELVE_17THS} + {_product("half", f"({_EIGHT_17THS})")};
for (int32_t step = 0; step < 3; ++step) {{
    const int32_t error = (1 << 13) - {_product("half", "y")};
    y += {_product("y", "error")} * 4;
}}
const int32_t wide = is_tanh != 0 ? (y - (1 << 13)) * 4 : y * 2;
const int32_t positive = wide > INT16_MAX ? INT16_MAX : wide;
return x > 0 ? positive : is_tanh != 0 ? -positive : INT16_MAX - positive;""",
    doc="The logistic of a 16-bit x, or its tanh, with no integer bits.",
    instructions=110,
)
