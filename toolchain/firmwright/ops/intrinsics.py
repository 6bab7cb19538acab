"""Intrinsics that every target has: the requantise step in both roundings.

The numpy meaning is `base/quant.py`, the C meaning is written here from the same definition; a
test holds them against each other over the edge set of docs/numerics.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier
from firmwright.ir.tir.intrinsic import Intrinsic, Operand

_X = Operand("x", "in", INT32)
_MULTIPLIER = Operand("multiplier", "in", INT32)
_SHIFT = Operand("shift", "in", INT32)


def _once(x: Any, multiplier: Any, shift: Any) -> Any:
    return multiply_by_quantized_multiplier(x, multiplier, shift, Rounding.ONCE).astype(np.int32)


def _twice(x: Any, multiplier: Any, shift: Any) -> Any:
    return multiply_by_quantized_multiplier(x, multiplier, shift, Rounding.TWICE).astype(np.int32)


REQUANTIZE_ONCE = Intrinsic(
    name="requantize_once",
    operands=(_X, _MULTIPLIER, _SHIFT),
    result=INT32,
    meaning=_once,
    portable="""\
const int32_t right = 31 - shift;
const int64_t half = (int64_t)1 << (right - 1);
return (int32_t)(((int64_t)x * multiplier + half) >> right);""",
    doc="x * multiplier * 2^(shift - 31), rounded once.",
    instructions=8,
)

REQUANTIZE_TWICE = Intrinsic(
    name="requantize_twice",
    operands=(_X, _MULTIPLIER, _SHIFT),
    result=INT32,
    meaning=_twice,
    portable="""\
const int32_t left = shift > 0 ? shift : 0;
const int32_t right = shift > 0 ? 0 : -shift;
const int64_t product = (int64_t)(int32_t)((uint32_t)x << left) * multiplier;
const int32_t high = (int32_t)((product + ((int64_t)1 << 30)) >> 31);
const int32_t mask = (int32_t)(((uint32_t)1 << right) - 1u);
const int32_t threshold = (mask >> 1) + (high < 0 ? 1 : 0);
return (high >> right) + ((high & mask) > threshold ? 1 : 0);""",
    doc="x * multiplier * 2^(shift - 31): doubling high multiply, then rounding shift.",
    instructions=12,
)


def _float_intrinsic(name: str, meaning: Any, portable: str, doc: str) -> Intrinsic:
    return Intrinsic(
        name=name,
        operands=(Operand("x", "in", FLOAT32),),
        result=FLOAT32,
        meaning=meaning,
        portable=portable,
        doc=doc,
        instructions=40,
    )


EXP_F32 = _float_intrinsic(
    "exp_f32", lambda x: np.exp(x, dtype=np.float32), "return expf(x);", "e to the power of x."
)
ROUND_F32 = _float_intrinsic(
    "round_f32",
    lambda x: (np.sign(x) * np.floor(np.abs(x) + np.float32(0.5))).astype(np.float32),
    "return roundf(x);",
    "The nearest whole number, halves away from zero.",
)

BASE_INTRINSICS: Mapping[str, Intrinsic] = {
    item.name: item for item in (REQUANTIZE_ONCE, REQUANTIZE_TWICE, EXP_F32, ROUND_F32)
}
