"""Thumb-2: the instructions of Armv7-M, without the DSP extension.

Semantics: instruction descriptions of the Armv7-M architecture reference manual.
"""

from typing import Annotated

from firmwright.base.dtypes import (
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
)
from firmwright.ir.tir.builder import maximum, minimum
from firmwright.kernels.isa.instruction import (
    AddressForm,
    Immediate,
    InstructionSet,
    Int,
    Lanes,
    Memory,
    Word,
)
from firmwright.kernels.isa.lanes import (
    bit_or,
    constant,
    wrap_difference,
    wrap_product,
    wrap_sum,
)
from firmwright.kernels.isa.words import (
    bit_not,
    bit_xor,
    divide,
    high_word,
    join_words,
    low_word,
)

THUMB2 = InstructionSet("thumb2", frozenset({"thumb2"}))

_OFFSETS = range(-255, 4096)
_ADVANCES = range(-255, 256)
_PAIR_OFFSETS = range(-1020, 1021, 4)
_SHIFTS = range(4)
_NONE = range(1)
WordInMemory = Annotated[Lanes, Memory(UINT32, 1, _OFFSETS, True, _ADVANCES)]
WordsInMemory = Annotated[Lanes, Memory(UINT32, 2, _PAIR_OFFSETS, True, _PAIR_OFFSETS)]
ByteInMemory = Annotated[Lanes, Memory(INT8, 1, _OFFSETS, True, _ADVANCES)]
HalfInMemory = Annotated[Lanes, Memory(INT16, 1, _OFFSETS, True, _ADVANCES)]
UnsignedByteInMemory = Annotated[Lanes, Memory(UINT8, 1, _OFFSETS, True, _ADVANCES)]
UnsignedHalfInMemory = Annotated[Lanes, Memory(UINT16, 1, _OFFSETS, True, _ADVANCES)]
IndexedWord = Annotated[
    Lanes, Memory(UINT32, 1, _NONE, form=AddressForm.INDEX, shifts=_SHIFTS)
]
IndexedByte = Annotated[
    Lanes, Memory(INT8, 1, _NONE, form=AddressForm.INDEX, shifts=_SHIFTS)
]
IndexedHalf = Annotated[
    Lanes, Memory(INT16, 1, _NONE, form=AddressForm.INDEX, shifts=_SHIFTS)
]
IndexedUnsignedByte = Annotated[
    Lanes, Memory(UINT8, 1, _NONE, form=AddressForm.INDEX, shifts=_SHIFTS)
]
IndexedUnsignedHalf = Annotated[
    Lanes, Memory(UINT16, 1, _NONE, form=AddressForm.INDEX, shifts=_SHIFTS)
]
TwoWords = Annotated[
    Lanes, Memory(UINT32, 2, _NONE, can_advance=True, form=AddressForm.MULTIPLE)
]
FourWords = Annotated[
    Lanes, Memory(UINT32, 4, _NONE, can_advance=True, form=AddressForm.MULTIPLE)
]
EightWords = Annotated[
    Lanes, Memory(UINT32, 8, _NONE, can_advance=True, form=AddressForm.MULTIPLE)
]


def _modified_immediates() -> tuple[int, ...]:
    """Return the numbers that the second operand of most instructions can state.

    These are a byte, one that is repeated, and one that is shifted.
    """
    values = set(range(256))
    for byte in range(1, 256):
        values |= {byte << shift for shift in range(25)}
        values |= {byte * 0x00010001, byte * 0x01000100, byte * 0x01010101}
    return tuple(sorted(values))


Modified = Annotated[int, Immediate(_modified_immediates())]
Half = Annotated[int, Immediate(range(1 << 16))]
Twelve = Annotated[int, Immediate(range(1 << 12))]


# ---- Loads and stores ----------------------------------------------------------------


@THUMB2.instruction("ldr {d}, {address}")
def ldr(address: WordInMemory) -> Word:
    """Return a word."""
    return address[0]


@THUMB2.instruction("ldr {d}, {address}")
def ldr_indexed(address: IndexedWord) -> Word:
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


@THUMB2.instruction("ldrsb {d}, {address}")
def ldrsb_indexed(address: IndexedByte) -> Int:
    """Return a byte, sign-extended."""
    return address[0].cast(INT32)


@THUMB2.instruction("ldrb {d}, {address}")
def ldrb(address: UnsignedByteInMemory) -> Word:
    """Return a byte, zero-extended."""
    return address[0].cast(UINT32)


@THUMB2.instruction("ldrb {d}, {address}")
def ldrb_indexed(address: IndexedUnsignedByte) -> Word:
    """Return a byte, zero-extended."""
    return address[0].cast(UINT32)


@THUMB2.instruction("ldrsh {d}, {address}")
def ldrsh(address: HalfInMemory) -> Int:
    """Return a half word, sign-extended."""
    return address[0].cast(INT32)


@THUMB2.instruction("ldrsh {d}, {address}")
def ldrsh_indexed(address: IndexedHalf) -> Int:
    """Return a half word, sign-extended."""
    return address[0].cast(INT32)


@THUMB2.instruction("ldrh {d}, {address}")
def ldrh(address: UnsignedHalfInMemory) -> Word:
    """Return a half word, zero-extended."""
    return address[0].cast(UINT32)


@THUMB2.instruction("ldrh {d}, {address}")
def ldrh_indexed(address: IndexedUnsignedHalf) -> Word:
    """Return a half word, zero-extended."""
    return address[0].cast(UINT32)


@THUMB2.instruction("ldm {address}, {{{d0}, {d1}}}")
def load_two(address: TwoWords) -> tuple[Word, Word]:
    """Return two words; the address must be a multiple of four."""
    return address[0], address[1]


@THUMB2.instruction("ldm {address}, {{{d0}, {d1}, {d2}, {d3}}}")
def load_four(address: FourWords) -> tuple[Word, Word, Word, Word]:
    """Return four words; the address must be a multiple of four."""
    return address[0], address[1], address[2], address[3]


@THUMB2.instruction("ldm {address}, {{{d0}, {d1}, {d2}, {d3}, {d4}, {d5}, {d6}, {d7}}}")
def load_eight(
    address: EightWords,
) -> tuple[Word, Word, Word, Word, Word, Word, Word, Word]:
    """Return eight words; the address must be a multiple of four."""
    a, b, c, d, e, f, g, h = address
    return a, b, c, d, e, f, g, h


@THUMB2.instruction("str {a}, {address}")
def store_word(a: Word) -> WordInMemory:
    """Write a word."""
    return (a,)


@THUMB2.instruction("str {a}, {address}")
def store_word_indexed(a: Word) -> IndexedWord:
    """Write a word."""
    return (a,)


@THUMB2.instruction("strh {a}, {address}")
def store_half(a: Word) -> UnsignedHalfInMemory:
    """Write the low half."""
    return (a.cast(UINT16),)


@THUMB2.instruction("strh {a}, {address}")
def store_half_indexed(a: Word) -> IndexedUnsignedHalf:
    """Write the low half."""
    return (a.cast(UINT16),)


@THUMB2.instruction("strb {a}, {address}")
def store_byte(a: Word) -> UnsignedByteInMemory:
    """Write the lowest byte."""
    return (a.cast(UINT8),)


@THUMB2.instruction("strb {a}, {address}")
def store_byte_indexed(a: Word) -> IndexedUnsignedByte:
    """Write the lowest byte."""
    return (a.cast(UINT8),)


@THUMB2.instruction("strd {a}, {b}, {address}")
def store_pair(a: Word, b: Word) -> WordsInMemory:
    """Write two words; the address must be a multiple of four."""
    return (a, b)


@THUMB2.instruction("stm {address}, {{{a}, {b}}}")
def store_two(a: Word, b: Word) -> TwoWords:
    """Write two words; the address must be a multiple of four."""
    return (a, b)


@THUMB2.instruction("stm {address}, {{{a}, {b}, {c}, {e}}}")
def store_four(a: Word, b: Word, c: Word, e: Word) -> FourWords:
    """Write four words; the address must be a multiple of four."""
    return (a, b, c, e)


@THUMB2.instruction("stm {address}, {{{a}, {b}, {c}, {e}, {f}, {g}, {h}, {i}}}")
def store_eight(
    a: Word, b: Word, c: Word, e: Word, f: Word, g: Word, h: Word, i: Word
) -> EightWords:
    """Write eight words; the address must be a multiple of four."""
    return (a, b, c, e, f, g, h, i)


# ---- Moves and constants -------------------------------------------------------------


@THUMB2.instruction("mov {d}, {a}")
def mov(a: Int) -> Int:
    """Return a copy."""
    return a


@THUMB2.instruction("mov {d}, #{value}")
def mov_immediate(value: Modified) -> Word:
    """Return a number."""
    return constant(value, UINT32)


@THUMB2.instruction("movw {d}, #{value}")
def movw(value: Half) -> Word:
    """Return a number of 16 bits."""
    return constant(value, UINT32)


@THUMB2.instruction("mvn {d}, {a}")
def mvn(a: Word) -> Word:
    """Return the inverted bits."""
    return bit_not(a)


# ---- Sums ----------------------------------------------------------------------------


@THUMB2.instruction("add {d}, {a}, {b}")
def add(a: Int, b: Int) -> Int:
    """Return a + b modulo 2^32."""
    return wrap_sum(a, b)


@THUMB2.instruction("add {d}, {a}, #{value}")
def add_immediate(a: Int, value: Twelve) -> Int:
    """Return a + value modulo 2^32."""
    return wrap_sum(a, constant(value, INT32))


@THUMB2.instruction("sub {d}, {a}, {b}")
def sub(a: Int, b: Int) -> Int:
    """Return a - b modulo 2^32."""
    return wrap_difference(a, b)


@THUMB2.instruction("sub {d}, {a}, #{value}")
def sub_immediate(a: Int, value: Twelve) -> Int:
    """Return a - value modulo 2^32."""
    return wrap_difference(a, constant(value, INT32))


@THUMB2.instruction("rsb {d}, {a}, #{value}")
def rsb_immediate(a: Int, value: Modified) -> Int:
    """Return value - a modulo 2^32."""
    return wrap_difference(constant(value, UINT32), a)


@THUMB2.instruction("adds {d0}, {a0}, {b0}\n\tadc {d1}, {a1}, {b1}")
def add_wide(a0: Word, a1: Word, b0: Word, b1: Word) -> tuple[Word, Word]:
    """Return the sum of two numbers of 64 bits, each its low and its high word."""
    total = join_words(a0, a1) + join_words(b0, b1)
    return low_word(total), high_word(total)


@THUMB2.instruction("subs {d0}, {a0}, {b0}\n\tsbc {d1}, {a1}, {b1}")
def sub_wide(a0: Word, a1: Word, b0: Word, b1: Word) -> tuple[Word, Word]:
    """Return the difference of two numbers of 64 bits, each its low and high word."""
    total = join_words(a0, a1) - join_words(b0, b1)
    return low_word(total), high_word(total)


@THUMB2.instruction("cmp {a}, {b}\n\tite ge\n\tmovge {d}, {a}\n\tmovlt {d}, {b}")
def greater(a: Int, b: Int) -> Int:
    """Return the greater of two signed numbers."""
    return maximum(a, b)


@THUMB2.instruction("cmp {a}, {b}\n\tite le\n\tmovle {d}, {a}\n\tmovgt {d}, {b}")
def lesser(a: Int, b: Int) -> Int:
    """Return the lesser of two signed numbers."""
    return minimum(a, b)


# ---- Multiplications -----------------------------------------------------------------


@THUMB2.instruction("mul {d}, {a}, {b}")
def mul(a: Int, b: Int) -> Int:
    """Return a * b modulo 2^32."""
    return wrap_product(a, b)


@THUMB2.instruction("mla {d}, {a}, {b}, {acc}")
def mla(a: Int, b: Int, acc: Int) -> Int:
    """Return acc + a * b modulo 2^32."""
    return wrap_sum(acc, wrap_product(a, b))


@THUMB2.instruction("mls {d}, {a}, {b}, {acc}")
def mls(a: Int, b: Int, acc: Int) -> Int:
    """Return acc - a * b modulo 2^32."""
    return wrap_difference(acc, wrap_product(a, b))


@THUMB2.instruction("smull {d0}, {d1}, {a}, {b}")
def smull(a: Int, b: Int) -> tuple[Word, Word]:
    """Return the low and the high word of a * b."""
    product = a.cast(INT64) * b.cast(INT64)
    return low_word(product), high_word(product)


@THUMB2.instruction("umull {d0}, {d1}, {a}, {b}")
def umull(a: Word, b: Word) -> tuple[Word, Word]:
    """Return the low and the high word of a * b."""
    product = a.cast(UINT64) * b.cast(UINT64)
    return low_word(product), high_word(product)


@THUMB2.instruction("smlal {d0}, {d1}, {a}, {b}")
def smlal(d0: Word, d1: Word, a: Int, b: Int) -> tuple[Word, Word]:
    """Add a * b to the number of the words d0 (low) and d1, modulo 2^64."""
    product = a.cast(INT64) * b.cast(INT64)
    total = join_words(d0, d1) + product.cast(UINT64)
    return low_word(total), high_word(total)


@THUMB2.instruction("umlal {d0}, {d1}, {a}, {b}")
def umlal(d0: Word, d1: Word, a: Word, b: Word) -> tuple[Word, Word]:
    """Add a * b to the number of the words d0 (low) and d1, modulo 2^64."""
    total = join_words(d0, d1) + a.cast(UINT64) * b.cast(UINT64)
    return low_word(total), high_word(total)


@THUMB2.instruction("sdiv {d}, {a}, {b}")
def sdiv(a: Int, b: Int) -> Int:
    """Return a / b, truncated; 0 if b is 0."""
    return divide(a, b, by_zero=0)


@THUMB2.instruction("udiv {d}, {a}, {b}")
def udiv(a: Word, b: Word) -> Word:
    """Return a / b, truncated; 0 if b is 0."""
    return divide(a, b, by_zero=0)


# ---- Bits ----------------------------------------------------------------------------


@THUMB2.instruction("and {d}, {a}, {b}")
def and_register(a: Word, b: Word) -> Word:
    """Return the bits that are set in both."""
    return a & b


@THUMB2.instruction("and {d}, {a}, #{mask}")
def and_immediate(a: Word, mask: Modified) -> Word:
    """Return the bits of a that are set in `mask`."""
    return a & constant(mask, UINT32)


@THUMB2.instruction("orr {d}, {a}, {b}")
def orr(a: Word, b: Word) -> Word:
    """Return the bits that are set in either."""
    return bit_or(a, b)


@THUMB2.instruction("orr {d}, {a}, #{mask}")
def orr_immediate(a: Word, mask: Modified) -> Word:
    """Return the bits that are set in a or `mask`."""
    return bit_or(a, constant(mask, UINT32))


@THUMB2.instruction("eor {d}, {a}, {b}")
def eor(a: Word, b: Word) -> Word:
    """Return the bits that differ."""
    return bit_xor(a, b)


@THUMB2.instruction("eor {d}, {a}, #{mask}")
def eor_immediate(a: Word, mask: Modified) -> Word:
    """Return a with the bits of `mask` inverted."""
    return bit_xor(a, mask)
