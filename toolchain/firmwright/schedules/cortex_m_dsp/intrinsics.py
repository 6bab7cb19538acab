"""Instructions of the DSP extension as intrinsics: numpy meaning, portable C, inline assembly.

Semantics: instruction descriptions of the Armv7-M architecture reference manual. Registers with two
int16 lanes are uint32.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT32, UINT32, DType
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, inputs


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


_A, _B, _X = inputs(UINT32, "a", "b", "x")
(_ACC,) = inputs(INT32, "acc")


def _instruction(
    name: str, operands: tuple[Operand, ...], result: DType, meaning: Callable[..., Any],
    doc: str, portable: str, suffix: str = "",
) -> Intrinsic:  # fmt: skip
    """Build the intrinsic of one instruction; `suffix` follows its operands."""
    variable = "sum" if result == INT32 else "halves"
    places = ", ".join(f"%{place}" for place in range(len(operands) + 1))
    inputs = ", ".join(f'"r"({operand.name})' for operand in operands)
    assembly = f"""\
{result.c_type} {variable};
__asm__("{name.removesuffix("_ror8")} {places}{suffix}" : "=r"({variable}) : {inputs});
return {variable};"""
    return Intrinsic(
        name, operands, meaning, portable, doc, result, requires="dsp", text={"gnu": assembly}
    )


_HALVES = (("b", "low", "{0} & 0xffffu"), ("t", "high", "{0} >> 16"))


def _multiply_halves(first: int, second: int) -> Intrinsic:
    """Build SMLA<x><y>, which multiplies half `first` of a by half `second` of b."""
    (x, half_a, text_a), (y, half_b, text_b) = _HALVES[first], _HALVES[second]
    return _instruction(
        f"smla{x}{y}", (_A, _B, _ACC), INT32,
        lambda a, b, acc: _wrap(np.asarray(acc, np.int64) + _lanes(a)[first] * _lanes(b)[second]),
        f"acc + a.{half_a} * b.{half_b}, on int16 halves.",
        f"""\
const int32_t product = (int32_t)(int16_t)({text_a.format("a")}) * (int16_t)({text_b.format("b")});
return (int32_t)((uint32_t)acc + (uint32_t)product);""",
    )  # fmt: skip


def _extend_bytes(place: int) -> tuple[Intrinsic, Intrinsic]:
    """Build SXTB16 and SXTAB16 of bytes `place` and `place` + 2; place 1 requires rotation."""
    low, high = (("x & 0xffu", "(x >> 16) & 0xffu"), ("(x >> 8) & 0xffu", "x >> 24"))[place]
    name, suffix = ("_ror8", ", ror #8") if place else ("", "")
    pair = f"{place} and {place + 2}"
    return _instruction(
        f"sxtb16{name}", (_X,), UINT32, lambda x: _join(_byte(x, place), _byte(x, place + 2)),
        f"Bytes {pair}, sign-extended to int16 halves.",
        f"""\
const uint32_t low = (uint32_t)(int32_t)(int8_t)({low}) & 0xffffu;
const uint32_t high = (uint32_t)(int32_t)(int8_t)({high});
return low | (high << 16);""",
        suffix,
    ), _instruction(
        f"sxtab16{name}", (_A, _X), UINT32,
        lambda a, x: _join(_lanes(a)[0] + _byte(x, place), _lanes(a)[1] + _byte(x, place + 2)),
        f"The int16 halves of a plus bytes {pair} of x, modulo 2^16.",
        f"""\
const int32_t first = (int8_t)({low});
const int32_t second = (int8_t)({high});
return ((a + (uint32_t)first) & 0xffffu) | (((a >> 16) + (uint32_t)second) << 16);""",
        suffix,
    )  # fmt: skip


def _combine_halves(name: str, sign: str, doc: str, combine: Callable[..., Any]) -> Intrinsic:
    return _instruction(
        name, (_A, _B), UINT32,
        lambda a, b: _join(*(combine(x, y) for x, y in zip(_lanes(a), _lanes(b), strict=True))),
        f"{doc} of the int16 halves, modulo 2^16.",
        f"return ((a {sign} b) & 0xffffu) | ((a & 0xffff0000u) {sign} (b & 0xffff0000u));",
    )  # fmt: skip


def _smax8(a: Any, b: Any) -> Any:
    greatest = [np.maximum(_byte(a, i), _byte(b, i)).astype(np.uint32) & 0xFF for i in range(4)]
    return greatest[0] | greatest[1] << 8 | greatest[2] << 16 | greatest[3] << 24


INTRINSICS = (
    _instruction(
        "smlad", (_A, _B, _ACC), INT32, _smlad,
        "acc + a.low * b.low + a.high * b.high, on int16 halves.",
        """\
const int32_t low = (int32_t)(int16_t)(a & 0xffffu) * (int16_t)(b & 0xffffu);
const int32_t high = (int32_t)(int16_t)(a >> 16) * (int16_t)(b >> 16);
return (int32_t)((uint32_t)acc + (uint32_t)low + (uint32_t)high);""",
    ),
    _multiply_halves(0, 0), _multiply_halves(0, 1), _multiply_halves(1, 1),
    _instruction(
        "smmla", inputs(INT32, "x", "y", "acc"), INT32, _smmla,
        "acc + the high 32 bits of x * y.",
        """\
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
    ),
    *_extend_bytes(0), *_extend_bytes(1),
    _instruction(
        "pkhbt", inputs(INT32, "low", "high"), UINT32, _join,
        "The low halves of two registers side by side.",
        "return ((uint32_t)low & 0xffffu) | ((uint32_t)high << 16);",
        ", lsl #16",
    ),
    _combine_halves("sadd16", "+", "Sums", np.add),
    _combine_halves("ssub16", "-", "Differences", np.subtract),
    Intrinsic(
        "smax8", (_A, _B), _smax8, result=UINT32,
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
    ),
)  # fmt: skip
