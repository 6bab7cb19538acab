"""RV32 with packed SIMD: products of bytes and halves, as Nuclei's and Andes' cores.

This is the draft "P" that such cores have (0.9), not the later Zpn of RISC-V. Only
their compilers know its mnemonics, so the text is the encoding, by `.insn`. What later
drafts encode in another way is left out (PKBB16, PKTT16).

Semantics: RISC-V "P" Extension Proposal, version 0.9.11, detailed descriptions.
"""

from collections.abc import Callable
from typing import Annotated

from firmwright.base.dtypes import INT32, INT64
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum
from firmwright.kernels.isa.instruction import (
    BINARY_WORD,
    UNARY_WORD,
    Immediate,
    Instr,
    InstructionSet,
    Int,
    Semantics,
    Signature,
    Word,
    signature,
)
from firmwright.kernels.isa.lanes import (
    byte,
    high,
    join_halves,
    low,
    unsigned_byte,
    wrap_sum,
)
from firmwright.kernels.isa.operations import on_bytes, product_of, two_bytes
from firmwright.kernels.isa.rv32 import RV32
from firmwright.kernels.isa.words import (
    saturate_to_bits,
    signed_bytes,
    unsigned_bytes,
    unsigned_high,
    unsigned_low,
)
from firmwright.targets.disassembly import AssemblySyntax

RV32_PACKED = InstructionSet(
    "rv32_packed", frozenset({"rvp"}), RV32, syntax=AssemblySyntax.RISCV
)

Bits = Annotated[int, Immediate(range(32))]


def _text(name: str, function: int, second: str = "{b}", minor: int = 0) -> str:
    """Return the text of an instruction of OP-P, by the fields of its encoding."""
    return f".insn r 0x77, {minor}, {function:#x}, {{d}}, {{a}}, {second} # {name}"


def _row(
    name: str, function: int, semantics: Semantics, operands: Signature, minor: int = 0
) -> Instr:
    return RV32_PACKED.row(
        _text(name, function, minor=minor), operands, semantics, name
    )


_OF_HALVES = signature(Int, a=Word, b=Word)


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


smbb16 = _row("smbb16", 0x04, product_of(low, low), _OF_HALVES, minor=1)
smbt16 = _row("smbt16", 0x0C, product_of(low, high), _OF_HALVES, minor=1)
smtt16 = _row("smtt16", 0x14, product_of(high, high), _OF_HALVES, minor=1)


# ---- Packing and extension -----------------------------------------------------------


def _unpack(
    name: str,
    code: int,
    part: Callable[[ArithExpr, int], ArithExpr],
    lower: int,
    upper: int,
) -> Instr:
    """Add an operation whose second register field says which bytes it extends."""
    text = _text(name, 0x56, f"x{code}")
    return RV32_PACKED.row(text, UNARY_WORD, two_bytes(part, lower, upper), name)


sunpkd810 = _unpack("sunpkd810", 8, byte, 0, 1)
sunpkd820 = _unpack("sunpkd820", 9, byte, 0, 2)
sunpkd831 = _unpack("sunpkd831", 11, byte, 1, 3)
sunpkd832 = _unpack("sunpkd832", 19, byte, 2, 3)
zunpkd820 = _unpack("zunpkd820", 13, unsigned_byte, 0, 2)
zunpkd831 = _unpack("zunpkd831", 15, unsigned_byte, 1, 3)


@RV32_PACKED.instruction(_text("pkbt16", 0x0F, minor=1))
def pkbt16(a: Word, b: Word) -> Word:
    """Return the low half of a above the high half of b."""
    return join_halves(unsigned_high(b), unsigned_low(a))


@RV32_PACKED.instruction(_text("pktb16", 0x1F, minor=1))
def pktb16(a: Word, b: Word) -> Word:
    """Return the high half of a above the low half of b."""
    return join_halves(unsigned_low(b), unsigned_high(a))


# ---- Extremes and limits -------------------------------------------------------------


smax8 = _row("smax8", 0x45, on_bytes(maximum), BINARY_WORD)
smin8 = _row("smin8", 0x44, on_bytes(minimum), BINARY_WORD)


@RV32_PACKED.instruction(_text("sclip32", 0x72, "x{bits}"))
def sclip32(a: Int, bits: Bits) -> Int:
    """Return a, limited to numbers of `bits` and a sign."""
    return saturate_to_bits(a, bits + 1, signed=True)


@RV32_PACKED.instruction(_text("uclip32", 0x7A, "x{bits}"))
def uclip32(a: Int, bits: Bits) -> Int:
    """Return a, limited to unsigned numbers of `bits`."""
    return saturate_to_bits(a, bits, signed=False)
