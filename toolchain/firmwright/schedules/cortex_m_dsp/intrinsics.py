"""Intrinsics for DSP instructions: numpy meaning, portable C and inline assembly.

Semantics: instruction descriptions of the Armv7-M architecture reference manual.
Registers with two int16 lanes are uint32.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import INT32, Array
from firmwright.ir.tir.intrinsic import Intrinsic, Meaning, read_intrinsics
from firmwright.kernels.instruction_intrinsics import instruction_intrinsic
from firmwright.kernels.isa.dsp import (
    pkhbt,
    smlabb,
    smlabt,
    smlad,
    smlatt,
    smuad,
    sxtb16,
    sxtb16_ror8,
)
from firmwright.ops.intrinsics import leading_zeros


def _wrap(value: Array) -> Array:
    return np.asarray(value, np.int64).astype(np.uint32).astype(np.int32)


def _lanes(word: Array) -> tuple[Array, Array]:
    """Return the two signed halves of a uint32 as int64."""
    bits = np.asarray(word, np.uint32)
    low = (bits & 0xFFFF).astype(np.uint16).astype(np.int16).astype(np.int64)
    high = (bits >> 16).astype(np.uint16).astype(np.int16).astype(np.int64)
    return low, high


def _join(low: Array, high: Array) -> Array:
    low16 = np.asarray(low, np.int64).astype(np.uint32) & np.uint32(0xFFFF)
    high16 = np.asarray(high, np.int64).astype(np.uint32) & np.uint32(0xFFFF)
    return low16 | (high16 << np.uint32(16))


def _byte(word: Array, index: int) -> Array:
    shifted = np.asarray(word, np.uint32) >> np.uint32(8 * index)
    return (shifted & 0xFF).astype(np.uint8).astype(np.int8).astype(np.int64)


def _smlad(a: Array, b: Array, acc: Array) -> Array:
    (a0, a1), (b0, b1) = _lanes(a), _lanes(b)
    return _wrap(np.asarray(acc, np.int64) + a0 * b0 + a1 * b1)


def _smmla(x: Array, y: Array, acc: Array) -> Array:
    product = np.asarray(x, np.int64) * np.asarray(y, np.int64)
    return _wrap(np.asarray(acc, np.int64) + (product >> 32))


def _multiply_halves(first: int, second: int) -> Meaning:
    def meaning(a: Array, b: Array, acc: Array) -> Array:
        product = _lanes(a)[first] * _lanes(b)[second]
        return _wrap(np.asarray(acc, np.int64) + product)

    return meaning


def _extend_bytes(place: int) -> Meaning:
    return lambda x: _join(_byte(x, place), _byte(x, place + 2))


def _add_bytes(place: int) -> Meaning:
    def meaning(a: Array, x: Array) -> Array:
        low, high = _lanes(a)
        return _join(low + _byte(x, place), high + _byte(x, place + 2))

    return meaning


def _combine_halves(combine: Meaning) -> Meaning:
    return lambda a, b: _join(*map(combine, _lanes(a), _lanes(b)))


def _smax8(a: Array, b: Array) -> Array:
    greatest: list[Array] = []
    for i in range(4):
        byte = np.maximum(_byte(a, i), _byte(b, i))
        greatest.append(byte.astype(np.uint32) & 0xFF)
    low = greatest[0] | greatest[1] << 8
    high = greatest[2] | greatest[3] << 8
    return _join(low, high)


def _with_instruction(item: Intrinsic) -> Intrinsic:
    """Return the intrinsic with the instruction of its name, unless it has a text."""
    assert item.result is not None
    variable = "sum" if item.result == INT32 else "halves"
    places = ", ".join(f"%{place}" for place in range(len(item.operands) + 1))
    inputs = ", ".join(f'"r"({operand.name})' for operand in item.operands)
    name, _, rotation = item.name.partition("_")
    suffix = ", ror #8" if rotation else ""
    if name == "pkhbt":
        suffix = ", lsl #16"
    assembly = f"""\
{item.result.c_type} {variable};
__asm__("{name} {places}{suffix}" : "=r"({variable}) : {inputs});
return {variable};"""
    return replace(item, text=item.text or {"gnu": assembly})


def _half_unit(multiplier: Array) -> Array:
    return (0x80 >> leading_zeros(multiplier)).astype(np.int32)


_MEANINGS: Mapping[str, Meaning] = {
    "smmla": _smmla,
    "sxtab16": _add_bytes(0),
    "sxtab16_ror8": _add_bytes(1),
    "sadd16": _combine_halves(np.add),
    "ssub16": _combine_halves(np.subtract),
    "smax8": _smax8,
    "half_unit": _half_unit,
}
_READ = read_intrinsics(__file__, _MEANINGS, "dsp")
_INSTRUCTIONS = (smlad, smuad, smlabb, smlabt, smlatt, sxtb16, sxtb16_ror8, pkhbt)
INTRINSICS = (
    *(instruction_intrinsic(instr, "dsp") for instr in _INSTRUCTIONS),
    *(_with_instruction(item) for item in _READ.values()),
)
