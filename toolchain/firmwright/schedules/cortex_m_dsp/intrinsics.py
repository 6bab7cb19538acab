"""Instructions of the DSP extension as intrinsics: numpy meaning, portable C, inline assembly.

Semantics: instruction descriptions of the Armv7-M architecture reference manual. Registers with two
int16 lanes are uint32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT32, UINT32
from firmwright.ir.tir.intrinsic import Intrinsic, Operand


def _wrap(value: Any) -> Any:
    return np.asarray(value, np.int64).astype(np.uint32).astype(np.int32)


def _lanes(word: Any) -> tuple[Any, Any]:
    """Return the two signed halves of a uint32 as int64."""
    bits = np.asarray(word, np.uint32)
    low = (bits & 0xFFFF).astype(np.uint16).astype(np.int16).astype(np.int64)
    high = (bits >> 16).astype(np.uint16).astype(np.int16).astype(np.int64)
    return low, high


def _join(low: Any, high: Any) -> Any:
    low16 = np.asarray(low, np.int64).astype(np.uint32) & np.uint32(0xFFFF)
    high16 = np.asarray(high, np.int64).astype(np.uint32) & np.uint32(0xFFFF)
    return low16 | (high16 << np.uint32(16))


def _byte(word: Any, index: int) -> Any:
    shifted = np.asarray(word, np.uint32) >> np.uint32(8 * index)
    return (shifted & 0xFF).astype(np.uint8).astype(np.int8).astype(np.int64)


def _smlad(a: Any, b: Any, acc: Any) -> Any:
    (a0, a1), (b0, b1) = _lanes(a), _lanes(b)
    return _wrap(np.asarray(acc, np.int64) + a0 * b0 + a1 * b1)


def _smmla(x: Any, y: Any, acc: Any) -> Any:
    product = np.asarray(x, np.int64) * np.asarray(y, np.int64)
    return _wrap(np.asarray(acc, np.int64) + (product >> 32))


_A, _B = Operand("a", "in", UINT32), Operand("b", "in", UINT32)
_ACC = Operand("acc", "in", INT32)

SMLAD = Intrinsic(
    "smlad", (_A, _B, _ACC), INT32, _smlad,
    portable="""\
const int32_t low = (int32_t)(int16_t)(a & 0xffffu) * (int16_t)(b & 0xffffu);
const int32_t high = (int32_t)(int16_t)(a >> 16) * (int16_t)(b >> 16);
return (int32_t)((uint32_t)acc + (uint32_t)low + (uint32_t)high);""",
    doc="acc + a.low * b.low + a.high * b.high, on int16 halves.",
    requires="dsp",
    text={"gnu": """\
int32_t sum;
__asm__("smlad %0, %1, %2, %3" : "=r"(sum) : "r"(a), "r"(b), "r"(acc));
return sum;"""},
)  # fmt: skip

_HALF = {"b": ("low", "{0} & 0xffffu"), "t": ("high", "{0} >> 16")}


def _of_halves(first: str, second: str) -> Intrinsic:
    """Build SMLA<x><y>: `b` selects the low half of an operand, `t` the high half."""
    name = f"smla{first}{second}"
    (a, low_a), (b, low_b) = _HALF[first], _HALF[second]

    def meaning(x: Any, y: Any, acc: Any) -> Any:
        product = _lanes(x)["bt".index(first)] * _lanes(y)["bt".index(second)]
        return _wrap(np.asarray(acc, np.int64) + product)

    return Intrinsic(
        name, (_A, _B, _ACC), INT32, meaning,
        portable=f"""\
const int32_t product = (int32_t)(int16_t)({low_a.format("a")}) * (int16_t)({low_b.format("b")});
return (int32_t)((uint32_t)acc + (uint32_t)product);""",
        doc=f"acc + a.{a} * b.{b}, on int16 halves.",
        requires="dsp",
        text={"gnu": f"""\
int32_t sum;
__asm__("{name} %0, %1, %2, %3" : "=r"(sum) : "r"(a), "r"(b), "r"(acc));
return sum;"""},
    )  # fmt: skip


SMLABB, SMLABT, SMLATT = _of_halves("b", "b"), _of_halves("b", "t"), _of_halves("t", "t")

SMMLA = Intrinsic(
    "smmla",
    (Operand("x", "in", INT32), Operand("y", "in", INT32), _ACC),
    INT32,
    _smmla,
    portable="""\
#if defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB == 1 /* no 64-bit product */
const int32_t x_low = x & 0xffff;
const int32_t y_low = y & 0xffff;
const uint32_t low = (uint32_t)x_low * (uint32_t)y_low;
const int32_t middle = (x >> 16) * y_low + (int32_t)(low >> 16);
const int32_t other = x_low * (y >> 16) + (middle & 0xffff);
const int32_t high = (x >> 16) * (y >> 16) + (middle >> 16) + (other >> 16);
#else
const int32_t high = (int32_t)(((int64_t)x * y) >> 32);
#endif
return (int32_t)((uint32_t)acc + (uint32_t)high);""",
    doc="acc + the high 32 bits of x * y.",
    requires="dsp",
    text={"gnu": """\
int32_t sum;
__asm__("smmla %0, %1, %2, %3" : "=r"(sum) : "r"(x), "r"(y), "r"(acc));
return sum;"""},
)  # fmt: skip

SXTB16 = Intrinsic(
    "sxtb16", (Operand("x", "in", UINT32),), UINT32,
    lambda x: _join(_byte(x, 0), _byte(x, 2)),
    portable="""\
const uint32_t low = (uint32_t)(int32_t)(int8_t)(x & 0xffu) & 0xffffu;
const uint32_t high = (uint32_t)(int32_t)(int8_t)((x >> 16) & 0xffu);
return low | (high << 16);""",
    doc="Bytes 0 and 2, sign-extended to int16 halves.",
    requires="dsp",
    text={"gnu": """\
uint32_t halves;
__asm__("sxtb16 %0, %1" : "=r"(halves) : "r"(x));
return halves;"""},
)  # fmt: skip

SXTB16_ROR8 = Intrinsic(
    "sxtb16_ror8", (Operand("x", "in", UINT32),), UINT32,
    lambda x: _join(_byte(x, 1), _byte(x, 3)),
    portable="""\
const uint32_t low = (uint32_t)(int32_t)(int8_t)((x >> 8) & 0xffu) & 0xffffu;
const uint32_t high = (uint32_t)(int32_t)(int8_t)(x >> 24);
return low | (high << 16);""",
    doc="Bytes 1 and 3, sign-extended to int16 halves.",
    requires="dsp",
    text={"gnu": """\
uint32_t halves;
__asm__("sxtb16 %0, %1, ror #8" : "=r"(halves) : "r"(x));
return halves;"""},
)  # fmt: skip

PKHBT = Intrinsic(
    "pkhbt",
    (Operand("low", "in", INT32), Operand("high", "in", INT32)),
    UINT32,
    _join,
    portable="return ((uint32_t)low & 0xffffu) | ((uint32_t)high << 16);",
    doc="The low halves of two registers side by side.",
    requires="dsp",
    text={"gnu": """\
uint32_t halves;
__asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(halves) : "r"(low), "r"(high));
return halves;"""},
)  # fmt: skip


def _sadd16(a: Any, b: Any) -> Any:
    (a0, a1), (b0, b1) = _lanes(a), _lanes(b)
    return _join(a0 + b0, a1 + b1)


def _ssub16(a: Any, b: Any) -> Any:
    (a0, a1), (b0, b1) = _lanes(a), _lanes(b)
    return _join(a0 - b0, a1 - b1)


SADD16 = Intrinsic(
    "sadd16", (_A, _B), UINT32, _sadd16,
    portable="return ((a + b) & 0xffffu) | ((a & 0xffff0000u) + (b & 0xffff0000u));",
    doc="Sums of the int16 halves, modulo 2^16.",
    requires="dsp",
    text={"gnu": """\
uint32_t halves;
__asm__("sadd16 %0, %1, %2" : "=r"(halves) : "r"(a), "r"(b));
return halves;"""},
)  # fmt: skip

SSUB16 = Intrinsic(
    "ssub16", (_A, _B), UINT32, _ssub16,
    portable="return ((a - b) & 0xffffu) | ((a & 0xffff0000u) - (b & 0xffff0000u));",
    doc="Differences of the int16 halves, modulo 2^16.",
    requires="dsp",
    text={"gnu": """\
uint32_t halves;
__asm__("ssub16 %0, %1, %2" : "=r"(halves) : "r"(a), "r"(b));
return halves;"""},
)  # fmt: skip

SXTAB16 = Intrinsic(
    "sxtab16", (_A, Operand("x", "in", UINT32)), UINT32,
    lambda a, x: _join(_lanes(a)[0] + _byte(x, 0), _lanes(a)[1] + _byte(x, 2)),
    portable="""\
const int32_t first = (int8_t)(x & 0xffu);
const int32_t second = (int8_t)((x >> 16) & 0xffu);
return ((a + (uint32_t)first) & 0xffffu) | (((a >> 16) + (uint32_t)second) << 16);""",
    doc="The int16 halves of a plus bytes 0 and 2 of x, modulo 2^16.",
    requires="dsp",
    text={"gnu": """\
uint32_t halves;
__asm__("sxtab16 %0, %1, %2" : "=r"(halves) : "r"(a), "r"(x));
return halves;"""},
)  # fmt: skip

SXTAB16_ROR8 = Intrinsic(
    "sxtab16_ror8", (_A, Operand("x", "in", UINT32)), UINT32,
    lambda a, x: _join(_lanes(a)[0] + _byte(x, 1), _lanes(a)[1] + _byte(x, 3)),
    portable="""\
const int32_t first = (int8_t)((x >> 8) & 0xffu);
const int32_t second = (int8_t)(x >> 24);
return ((a + (uint32_t)first) & 0xffffu) | (((a >> 16) + (uint32_t)second) << 16);""",
    doc="The int16 halves of a plus bytes 1 and 3 of x, modulo 2^16.",
    requires="dsp",
    text={"gnu": """\
uint32_t halves;
__asm__("sxtab16 %0, %1, %2, ror #8" : "=r"(halves) : "r"(a), "r"(x));
return halves;"""},
)  # fmt: skip


def _smax8(a: Any, b: Any) -> Any:
    greatest = [np.maximum(_byte(a, i), _byte(b, i)).astype(np.uint32) & 0xFF for i in range(4)]
    return greatest[0] | greatest[1] << 8 | greatest[2] << 16 | greatest[3] << 24


SMAX8 = Intrinsic(
    "smax8", (_A, _B), UINT32, _smax8,
    portable="""\
uint32_t greatest = 0;
for (int32_t shift = 0; shift < 32; shift += 8) {
    const uint32_t left = (a >> shift) & 0xffu;
    const uint32_t right = (b >> shift) & 0xffu;
    greatest |= ((int8_t)left > (int8_t)right ? left : right) << shift;
}
return greatest;""",
    doc="The greater of each pair of int8.",
    requires="dsp",
    text={"gnu": """\
uint32_t greatest;
__asm__("ssub8 %0, %1, %2\\n\\tsel %0, %1, %2" : "=&r"(greatest) : "r"(a), "r"(b) : "cc");
return greatest;"""},
    instructions=2,
)  # fmt: skip

DSP_INTRINSICS: Mapping[str, Intrinsic] = {
    item.name: item
    for item in (
        SMLAD,
        SMLABB,
        SMLABT,
        SMLATT,
        SMMLA,
        SXTB16,
        SXTB16_ROR8,
        SXTAB16,
        SXTAB16_ROR8,
        SMAX8,
        PKHBT,
        SADD16,
        SSUB16,
    )
}
