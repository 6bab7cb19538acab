"""Thumb-2: the instructions of Armv7-M, without the DSP extension.

Semantics: instruction descriptions of the Armv7-M architecture reference manual.
"""

from typing import Annotated

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32
from firmwright.kernels.isa.instruction import (
    Immediate,
    InstructionSet,
    Int,
    Lanes,
    Memory,
    Word,
)
from firmwright.kernels.isa.lanes import constant, wrap_product, wrap_sum

THUMB2 = InstructionSet("thumb2", frozenset({"thumb2"}))

_OFFSETS = range(4096)
_PAIR_OFFSETS = range(-1020, 1021, 4)
WordInMemory = Annotated[Lanes, Memory(UINT32, 1, _OFFSETS, can_advance=True)]
WordsInMemory = Annotated[Lanes, Memory(UINT32, 2, _PAIR_OFFSETS, can_advance=True)]
ByteInMemory = Annotated[Lanes, Memory(INT8, 1, _OFFSETS, can_advance=True)]
HalfInMemory = Annotated[Lanes, Memory(INT16, 1, _OFFSETS, can_advance=True)]


@THUMB2.instruction("ldr {d}, {address}")
def ldr(address: WordInMemory) -> Word:
    """Return a word."""
    return address[0]


@THUMB2.instruction("ldrd {d0}, {d1}, {address}")
def ldrd(address: WordsInMemory) -> tuple[Word, Word]:
    """Return two words; the address must be a multiple of four."""
    return address[0], address[1]


@THUMB2.instruction("ldrsb {d}, {address}")
def ldrsb(address: ByteInMemory) -> Int:
    """Return a byte, sign-extended."""
    return address[0].cast(INT32)


@THUMB2.instruction("ldrsh {d}, {address}")
def ldrsh(address: HalfInMemory) -> Int:
    """Return a half word, sign-extended."""
    return address[0].cast(INT32)


@THUMB2.instruction("str {a}, {address}")
def store_word(a: Word) -> WordInMemory:
    """Write a word."""
    return (a,)


@THUMB2.instruction("mov {d}, {a}")
def mov(a: Int) -> Int:
    """Return a copy."""
    return a


@THUMB2.instruction("mla {d}, {a}, {b}, {acc}")
def mla(a: Int, b: Int, acc: Int) -> Int:
    """Return acc + a * b modulo 2^32."""
    return wrap_sum(acc, wrap_product(a, b))


@THUMB2.instruction("and {d}, {a}, #{mask}")
def and_immediate(
    a: Word, mask: Annotated[int, Immediate(range(0x000F000F, 0x000F0010))]
) -> Word:
    """Return the bits of a that are set in `mask`."""
    return a & constant(mask, UINT32)
