"""RV32 with packed SIMD: products of bytes and halves, as Nuclei's and Andes' cores.

This is the draft "P" that such cores have (0.9), not the later Zpn of RISC-V. Only
their compilers know its mnemonics, so the text is the encoding, by `.insn`. What later
drafts encode in another way is left out (PKBB16, PKTT16).

Semantics: RISC-V "P" Extension Proposal, version 0.9.11, detailed descriptions.
"""

from typing import Annotated

from firmwright.base.dtypes import INT32, INT64
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum
from firmwright.kernels.isa.instruction import Immediate, InstructionSet, Int, Word
from firmwright.kernels.isa.lanes import (
    byte,
    high,
    join_halves,
    low,
    unsigned_byte,
    wrap_sum,
)
from firmwright.kernels.isa.rv32 import RV32
from firmwright.kernels.isa.words import (
    join_bytes,
    saturate_to_bits,
    signed_bytes,
    unsigned_bytes,
    unsigned_high,
    unsigned_low,
)

RV32_PACKED = InstructionSet("rv32_packed", frozenset({"rvp"}), RV32, is_arm=False)

Bits = Annotated[int, Immediate(range(32))]


def _text(name: str, function: int, second: str = "{b}", minor: int = 0) -> str:
    """Return the text of an instruction of OP-P, by the fields of its encoding."""
    return f".insn r 0x77, {minor}, {function:#x}, {{d}}, {{a}}, {second} # {name}"


# ---- Products of bytes, added to a sum -----------------------------------------------


@RV32_PACKED.instruction(_text("smaqa", 0x64))
def smaqa(d: Int, a: Word, b: Word) -> Int:
    """Return d plus the products of the four int8, modulo 2^32."""
    return wrap_sum(d, *(byte(a, i) * byte(b, i) for i in range(4)))


@RV32_PACKED.instruction(_text("smaqa.su", 0x65))
def smaqa_su(d: Int, a: Word, b: Word) -> Int:
    """Return d plus the products of the four int8 of a and uint8 of b, modulo 2^32."""
    factors = zip(signed_bytes(a), unsigned_bytes(b), strict=True)
    return wrap_sum(d, *(x * y.cast(INT32) for x, y in factors))


@RV32_PACKED.instruction(_text("umaqa", 0x66))
def umaqa(d: Word, a: Word, b: Word) -> Word:
    """Return d plus the products of the four uint8, modulo 2^32."""
    total = d
    for x, y in zip(unsigned_bytes(a), unsigned_bytes(b), strict=True):
        total = total + x * y
    return total


# ---- Products of halves --------------------------------------------------------------


@RV32_PACKED.instruction(_text("kmada", 0x24, minor=1))
def kmada(d: Int, a: Word, b: Word) -> Int:
    """Return d plus the products of both int16, saturated."""
    products = low(a) * low(b), high(a) * high(b)
    total = d.cast(INT64) + products[0].cast(INT64) + products[1].cast(INT64)
    return saturate_to_bits(total, 32, signed=True).cast(INT32)


@RV32_PACKED.instruction(_text("smbb16", 0x04, minor=1))
def smbb16(a: Word, b: Word) -> Int:
    """Return the product of the low int16."""
    return low(a) * low(b)


@RV32_PACKED.instruction(_text("smbt16", 0x0C, minor=1))
def smbt16(a: Word, b: Word) -> Int:
    """Return the product of the low int16 of a and the high one of b."""
    return low(a) * high(b)


@RV32_PACKED.instruction(_text("smtt16", 0x14, minor=1))
def smtt16(a: Word, b: Word) -> Int:
    """Return the product of the high int16."""
    return high(a) * high(b)


# ---- Packing and extension -----------------------------------------------------------


def _unpacking(name: str, code: int) -> str:
    """Return the text of an operation whose second register field says which."""
    return _text(name, 0x56, f"x{code}")


@RV32_PACKED.instruction(_unpacking("sunpkd810", 8))
def sunpkd810(a: Word) -> Word:
    """Return bytes 1 and 0, sign-extended to halves."""
    return join_halves(byte(a, 0), byte(a, 1))


@RV32_PACKED.instruction(_unpacking("sunpkd820", 9))
def sunpkd820(a: Word) -> Word:
    """Return bytes 2 and 0, sign-extended to halves."""
    return join_halves(byte(a, 0), byte(a, 2))


@RV32_PACKED.instruction(_unpacking("sunpkd831", 11))
def sunpkd831(a: Word) -> Word:
    """Return bytes 3 and 1, sign-extended to halves."""
    return join_halves(byte(a, 1), byte(a, 3))


@RV32_PACKED.instruction(_unpacking("sunpkd832", 19))
def sunpkd832(a: Word) -> Word:
    """Return bytes 3 and 2, sign-extended to halves."""
    return join_halves(byte(a, 2), byte(a, 3))


@RV32_PACKED.instruction(_unpacking("zunpkd820", 13))
def zunpkd820(a: Word) -> Word:
    """Return bytes 2 and 0, zero-extended to halves."""
    return join_halves(unsigned_byte(a, 0), unsigned_byte(a, 2))


@RV32_PACKED.instruction(_unpacking("zunpkd831", 15))
def zunpkd831(a: Word) -> Word:
    """Return bytes 3 and 1, zero-extended to halves."""
    return join_halves(unsigned_byte(a, 1), unsigned_byte(a, 3))


@RV32_PACKED.instruction(_text("pkbt16", 0x0F, minor=1))
def pkbt16(a: Word, b: Word) -> Word:
    """Return the low half of a above the high half of b."""
    return join_halves(unsigned_high(b), unsigned_low(a))


@RV32_PACKED.instruction(_text("pktb16", 0x1F, minor=1))
def pktb16(a: Word, b: Word) -> Word:
    """Return the high half of a above the low half of b."""
    return join_halves(unsigned_low(b), unsigned_high(a))


# ---- Extremes and limits -------------------------------------------------------------


def _pairs_of_bytes(a: Word, b: Word) -> list[tuple[ArithExpr, ArithExpr]]:
    return list(zip(signed_bytes(a), signed_bytes(b), strict=True))


@RV32_PACKED.instruction(_text("smax8", 0x45))
def smax8(a: Word, b: Word) -> Word:
    """Return the greater of each pair of int8."""
    return join_bytes(*(maximum(x, y) for x, y in _pairs_of_bytes(a, b)))


@RV32_PACKED.instruction(_text("smin8", 0x44))
def smin8(a: Word, b: Word) -> Word:
    """Return the lesser of each pair of int8."""
    return join_bytes(*(minimum(x, y) for x, y in _pairs_of_bytes(a, b)))


@RV32_PACKED.instruction(_text("sclip32", 0x72, "x{bits}"))
def sclip32(a: Int, bits: Bits) -> Int:
    """Return a, limited to numbers of `bits` and a sign."""
    return saturate_to_bits(a, bits + 1, signed=True)


@RV32_PACKED.instruction(_text("uclip32", 0x7A, "x{bits}"))
def uclip32(a: Int, bits: Bits) -> Int:
    """Return a, limited to unsigned numbers of `bits`."""
    return saturate_to_bits(a, bits, signed=False)
