"""Requantization of ONNX Runtime by integers: float32(x) * factor in float32, halves to even.

Sum and product are rounded to 24 bits, the product then to an integer. Results below 512 are those
of one exact rounding, unless the product is within 2^-14 of a tie; only then are the roundings to
24 bits computed, once in thousands of elements. Results above are beyond any clamp.
"""

from typing import Any

import numpy as np

from firmwright.base.dtypes import INT32
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates

_X = Operand("x", "in", INT32)
_MULTIPLIER = Operand("multiplier", "in", INT32)

_NEAR_TIE = """\
uint64_t size = x < 0 ? 0u - (uint32_t)x : (uint32_t)x;
for (int32_t pass = 0; pass < 2; ++pass) {
    int32_t drop = 0;
    while (size >> drop > 0xFFFFFFu) {
        ++drop;
    }
    if (drop > 0) {
        const uint64_t half = ((uint64_t)1 << (drop - 1)) - 1u;
        size = (size + half + (size >> drop & 1u)) >> drop << drop;
    }
    size = pass == 0 ? size * (uint32_t)(multiplier >> 7) : size;
}
if (right > 7) {
    const uint64_t half = ((uint64_t)1 << (right - 8)) - 1u;
    size = (size + half + (size >> (right - 7) & 1u)) >> (right - 7);
} else {
    size = size << (7 - right);
}
const int32_t scaled = size > INT32_MAX ? INT32_MAX : (int32_t)size;
"""
"""C text from x, multiplier and right to `scaled`, the magnitude of the result."""


def _requantized(x: Any, multiplier: Any, shift: Any) -> Any:
    return multiply_by_quantized_multiplier(x, multiplier, shift, Rounding.FLOAT32).astype(np.int32)


REQUANTIZE_FLOAT32 = Intrinsic(
    name="requantize_float32",
    operands=(_X, _MULTIPLIER, Operand("shift", "in", INT32)),
    result=INT32,
    meaning=_requantized,
    portable="""\
const int32_t right = 31 - shift;
const int64_t raised = (int64_t)x * multiplier + ((int64_t)1 << (right - 1));
const uint64_t fraction = ((uint64_t)raised << (64 - right)) + ((uint64_t)1 << 50);
const int64_t nearest = raised >> right;
if (multiplier % 2 == 0
    || (fraction > (uint64_t)1 << 51 && nearest > -512 && nearest < 512)) {
    return (int32_t)nearest;
}""",
    rare=f"const int32_t right = 31 - shift;\n{_NEAR_TIE}return x < 0 ? -scaled : scaled;",
    doc="x * multiplier * 2^(shift - 31), rounded once; if multiplier is odd, in float32.",
    instructions=20,
)


def _folded(raised: Any, x: Any, multiplier: Any, shift: Any, zero_point: Any) -> Any:
    margin = 1 << max(int(shift) - 13, 0)
    is_near = ((np.asarray(raised, np.int64) + margin) & ((1 << int(shift)) - 1)) < 2 * margin
    exact = _requantized(x, multiplier, -1 - int(shift)) + zero_point
    is_float32 = is_near & (np.asarray(multiplier) % 2 == 1)
    return np.where(is_float32, exact, np.asarray(raised) >> shift).astype(np.int32)


REQUANTIZE_FOLDED_FLOAT32 = Intrinsic(
    name="requantize_folded_float32",
    operands=(
        Operand("raised", "in", INT32), _X, _MULTIPLIER, *immediates("folded_shift", "zero_point"),
    ),
    result=INT32,
    meaning=_folded,
    portable="""\
const uint32_t margin = (uint32_t)1 << (folded_shift > 13 ? folded_shift - 13 : 0);
const uint32_t mask = ((uint32_t)1 << folded_shift) - 1u;
if (multiplier % 2 == 0 || (((uint32_t)raised + margin) & mask) >= 2u * margin) {
    return raised >> folded_shift;
}""",
    rare=f"""\
(void)raised;
const int32_t right = folded_shift + 32;
{_NEAR_TIE}return (x < 0 ? -scaled : scaled) + zero_point;""",
    requires="fpu",
    text={"gnu": """\
if (multiplier % 2 == 0) {
    return raised >> folded_shift;
}
const float step = 1.0f / 4294967296.0f / (float)((uint32_t)1 << folded_shift);
float product = (float)x * ((float)(multiplier & ~127) * step);
int32_t nearest;
__asm__("vcvtr.s32.f32 %1, %1\\n\\tvmov %0, %1" : "=r"(nearest), "+t"(product));
return nearest + zero_point;"""},
    doc="raised >> folded_shift; if multiplier is odd, in float32 near a tie.",
    instructions=5,
)  # fmt: skip
