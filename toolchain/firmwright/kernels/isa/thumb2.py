"""Thumb-2: the instructions of Armv7-M, without the DSP extension.

Semantics: instruction descriptions of the Armv7-M architecture reference manual.
"""

import operator
from functools import partial
from typing import Annotated

from firmwright.base.dtypes import (
    INT8,
    INT16,
    UINT8,
    UINT16,
    UINT32,
)
from firmwright.ir.tir.builder import maximum, minimum
from firmwright.kernels.isa.instruction import (
    BINARY_INT,
    BINARY_WORD,
    UNARY_INT,
    UNARY_WORD,
    AddressForm,
    Immediate,
    InstructionSet,
    Int,
    Memory,
    Word,
    signature,
)
from firmwright.kernels.isa.lanes import (
    bit_or,
    constant,
    wrap_difference,
    wrap_product,
    wrap_sum,
)
from firmwright.kernels.isa.operations import (
    add_number,
    add_wide_product,
    and_number,
    copy,
    divide_or_zero,
    load_row,
    multiple_load_row,
    multiple_store_row,
    or_number,
    read_all,
    store_row,
    subtract_number,
    wide_difference,
    wide_product,
    wide_sum,
    word_number,
    write_all,
    xor_number,
)
from firmwright.kernels.isa.words import (
    bit_not,
    bit_xor,
)

THUMB2 = InstructionSet("thumb2", frozenset({"thumb2"}))
_store = partial(store_row, THUMB2)
_load_multiple = partial(multiple_load_row, THUMB2)
_store_multiple = partial(multiple_store_row, THUMB2)
_load = partial(load_row, THUMB2)

_OFFSETS = range(-255, 4096)
_ADVANCES = range(-255, 256)
_PAIR_OFFSETS = range(-1020, 1021, 4)
_SHIFTS = range(4)
_NONE = range(1)
_INDEX = AddressForm.INDEX
_MULTIPLE = AddressForm.MULTIPLE
WordInMemory = Memory(UINT32, 1, _OFFSETS, True, _ADVANCES)
WordsInMemory = Memory(UINT32, 2, _PAIR_OFFSETS, True, _PAIR_OFFSETS)
ByteInMemory = Memory(INT8, 1, _OFFSETS, True, _ADVANCES)
HalfInMemory = Memory(INT16, 1, _OFFSETS, True, _ADVANCES)
UnsignedByteInMemory = Memory(UINT8, 1, _OFFSETS, True, _ADVANCES)
UnsignedHalfInMemory = Memory(UINT16, 1, _OFFSETS, True, _ADVANCES)
IndexedWord = Memory(UINT32, 1, _NONE, form=_INDEX, shifts=_SHIFTS)
IndexedByte = Memory(INT8, 1, _NONE, form=_INDEX, shifts=_SHIFTS)
IndexedHalf = Memory(INT16, 1, _NONE, form=_INDEX, shifts=_SHIFTS)
IndexedUnsignedByte = Memory(UINT8, 1, _NONE, form=_INDEX, shifts=_SHIFTS)
IndexedUnsignedHalf = Memory(UINT16, 1, _NONE, form=_INDEX, shifts=_SHIFTS)
TwoWords = Memory(UINT32, 2, _NONE, can_advance=True, form=_MULTIPLE)
FourWords = Memory(UINT32, 4, _NONE, can_advance=True, form=_MULTIPLE)
EightWords = Memory(UINT32, 8, _NONE, can_advance=True, form=_MULTIPLE)


def _modified_immediates() -> tuple[int, ...]:
    """Return the numbers that the second operand of most instructions can state.

    These are a byte, one that is repeated, and one that is shifted.
    """
    values = set(range(256))
    for byte in range(1, 256):
        values |= {byte << shift for shift in range(25)}
        values |= {byte * 0x00010001, byte * 0x01000100, byte * 0x01010101}
    return tuple(sorted(values))


TwoResults = tuple[Word, Word]
Modified = Annotated[int, Immediate(_modified_immediates())]
Half = Annotated[int, Immediate(range(1 << 16))]
Twelve = Annotated[int, Immediate(range(1 << 12))]

_WIDE_OPERANDS = signature(TwoResults, a0=Word, a1=Word, b0=Word, b1=Word)
_INT_AND_NUMBER = signature(Int, a=Int, value=Twelve)
_WORD_AND_MASK = signature(Word, a=Word, mask=Modified)


# ---- Loads and stores ----------------------------------------------------------------

ldr = _load("ldr", WordInMemory, Word)
ldr_indexed = _load("ldr", IndexedWord, Word, "ldr_indexed")
ldrd = THUMB2.row(
    "ldrd {d0}, {d1}, {address}", signature(TwoResults, address=WordsInMemory), read_all
)
ldrsb = _load("ldrsb", ByteInMemory, Int)
ldrsb_indexed = _load("ldrsb", IndexedByte, Int, "ldrsb_indexed")
ldrb = _load("ldrb", UnsignedByteInMemory, Word)
ldrb_indexed = _load("ldrb", IndexedUnsignedByte, Word, "ldrb_indexed")
ldrsh = _load("ldrsh", HalfInMemory, Int)
ldrsh_indexed = _load("ldrsh", IndexedHalf, Int, "ldrsh_indexed")
ldrh = _load("ldrh", UnsignedHalfInMemory, Word)
ldrh_indexed = _load("ldrh", IndexedUnsignedHalf, Word, "ldrh_indexed")
load_two = _load_multiple("ldm", TwoWords, Word, "load_two")
load_four = _load_multiple("ldm", FourWords, Word, "load_four")
load_eight = _load_multiple("ldm", EightWords, Word, "load_eight")
store_word = _store("str", Word, WordInMemory, "store_word")
store_word_indexed = _store("str", Word, IndexedWord, "store_word_indexed")
store_half = _store("strh", Word, UnsignedHalfInMemory, "store_half")
store_half_indexed = _store("strh", Word, IndexedUnsignedHalf, "store_half_indexed")
store_byte = _store("strb", Word, UnsignedByteInMemory, "store_byte")
store_byte_indexed = _store("strb", Word, IndexedUnsignedByte, "store_byte_indexed")
store_pair = THUMB2.row(
    "strd {a}, {b}, {address}",
    signature(WordsInMemory, a=Word, b=Word),
    write_all,
    "store_pair",
)
store_two = _store_multiple("stm", TwoWords, Word, "store_two")
store_four = _store_multiple("stm", FourWords, Word, "store_four")
store_eight = _store_multiple("stm", EightWords, Word, "store_eight")

# ---- Moves and constants -------------------------------------------------------------

mov = THUMB2.row("mov {d}, {a}", UNARY_INT, copy)
mov_immediate = THUMB2.row(
    "mov {d}, #{value}", signature(Word, value=Modified), word_number, "mov_immediate"
)
movw = THUMB2.row("movw {d}, #{value}", signature(Word, value=Half), word_number)
mvn = THUMB2.row("mvn {d}, {a}", UNARY_WORD, bit_not)


# ---- Sums ----------------------------------------------------------------------------

add = THUMB2.row("add {d}, {a}, {b}", BINARY_INT, wrap_sum)
add_immediate = THUMB2.row(
    "add {d}, {a}, #{value}", _INT_AND_NUMBER, add_number, "add_immediate"
)
sub = THUMB2.row("sub {d}, {a}, {b}", BINARY_INT, wrap_difference)
sub_immediate = THUMB2.row(
    "sub {d}, {a}, #{value}", _INT_AND_NUMBER, subtract_number, "sub_immediate"
)


@THUMB2.instruction("rsb {d}, {a}, #{value}")
def rsb_immediate(a: Int, value: Modified) -> Int:
    """Return value - a modulo 2^32."""
    return wrap_difference(constant(value, UINT32), a)


add_wide = THUMB2.row(
    "adds {d0}, {a0}, {b0}\n\tadc {d1}, {a1}, {b1}",
    _WIDE_OPERANDS,
    wide_sum,
    "add_wide",
)


sub_wide = THUMB2.row(
    "subs {d0}, {a0}, {b0}\n\tsbc {d1}, {a1}, {b1}",
    _WIDE_OPERANDS,
    wide_difference,
    "sub_wide",
)
greater = THUMB2.row(
    "cmp {a}, {b}\n\tite ge\n\tmovge {d}, {a}\n\tmovlt {d}, {b}",
    BINARY_INT,
    maximum,
    "greater",
)
lesser = THUMB2.row(
    "cmp {a}, {b}\n\tite le\n\tmovle {d}, {a}\n\tmovgt {d}, {b}",
    BINARY_INT,
    minimum,
    "lesser",
)

# ---- Multiplications -----------------------------------------------------------------

mul = THUMB2.row("mul {d}, {a}, {b}", BINARY_INT, wrap_product)


@THUMB2.instruction("mla {d}, {a}, {b}, {acc}")
def mla(a: Int, b: Int, acc: Int) -> Int:
    """Return acc + a * b modulo 2^32."""
    return wrap_sum(acc, wrap_product(a, b))


@THUMB2.instruction("mls {d}, {a}, {b}, {acc}")
def mls(a: Int, b: Int, acc: Int) -> Int:
    """Return acc - a * b modulo 2^32."""
    return wrap_difference(acc, wrap_product(a, b))


smull = THUMB2.row(
    "smull {d0}, {d1}, {a}, {b}", signature(TwoResults, a=Int, b=Int), wide_product
)
umull = THUMB2.row(
    "umull {d0}, {d1}, {a}, {b}", signature(TwoResults, a=Word, b=Word), wide_product
)
smlal = THUMB2.row(
    "smlal {d0}, {d1}, {a}, {b}",
    signature(TwoResults, d0=Word, d1=Word, a=Int, b=Int),
    add_wide_product,
)
umlal = THUMB2.row(
    "umlal {d0}, {d1}, {a}, {b}",
    signature(TwoResults, d0=Word, d1=Word, a=Word, b=Word),
    add_wide_product,
)
sdiv = THUMB2.row("sdiv {d}, {a}, {b}", BINARY_INT, divide_or_zero)
udiv = THUMB2.row("udiv {d}, {a}, {b}", BINARY_WORD, divide_or_zero)


# ---- Bits ----------------------------------------------------------------------------

and_register = THUMB2.row(
    "and {d}, {a}, {b}", BINARY_WORD, operator.and_, "and_register"
)
and_immediate = THUMB2.row(
    "and {d}, {a}, #{mask}", _WORD_AND_MASK, and_number, "and_immediate"
)
orr = THUMB2.row("orr {d}, {a}, {b}", BINARY_WORD, bit_or)
orr_immediate = THUMB2.row(
    "orr {d}, {a}, #{mask}", _WORD_AND_MASK, or_number, "orr_immediate"
)
eor = THUMB2.row("eor {d}, {a}, {b}", BINARY_WORD, bit_xor)
eor_immediate = THUMB2.row(
    "eor {d}, {a}, #{mask}", _WORD_AND_MASK, xor_number, "eor_immediate"
)
