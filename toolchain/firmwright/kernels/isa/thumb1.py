"""Thumb of Armv6-M: most instructions reach r0 to r7 only, and update an operand.

Semantics: instruction descriptions of the Armv6-M architecture reference manual.
"""

from typing import Annotated

from firmwright.base.dtypes import INT8, INT16, INT32, UINT8, UINT16, UINT32
from firmwright.kernels.isa.instruction import (
    AddressForm,
    Immediate,
    InstructionSet,
    Int,
    Lanes,
    LowInt,
    LowWord,
    Memory,
    RegisterClass,
)
from firmwright.kernels.isa.lanes import (
    bit_or,
    constant,
    shift_left,
    shift_right,
    wrap_difference,
    wrap_product,
    wrap_sum,
)
from firmwright.kernels.isa.words import (
    bit_not,
    bit_xor,
    high_word,
    join_words,
    low_word,
    reverse_bytes,
    shift_by_register,
    sign_extend,
    zero_extend,
)

THUMB1 = InstructionSet("thumb1", frozenset({"thumb1"}))

_LOW = RegisterClass.LOW
_INDEX = AddressForm.INDEX
_MULTIPLE = AddressForm.MULTIPLE
_NONE = range(1)
WordInMemory = Annotated[Lanes, Memory(UINT32, 1, range(0, 128, 4), base=_LOW)]
HalfInMemory = Annotated[Lanes, Memory(UINT16, 1, range(0, 64, 2), base=_LOW)]
ByteInMemory = Annotated[Lanes, Memory(UINT8, 1, range(32), base=_LOW)]
IndexedWord = Annotated[Lanes, Memory(UINT32, 1, _NONE, form=_INDEX, base=_LOW)]
IndexedHalf = Annotated[Lanes, Memory(UINT16, 1, _NONE, form=_INDEX, base=_LOW)]
IndexedByte = Annotated[Lanes, Memory(UINT8, 1, _NONE, form=_INDEX, base=_LOW)]
IndexedSignedHalf = Annotated[Lanes, Memory(INT16, 1, _NONE, form=_INDEX, base=_LOW)]
IndexedSignedByte = Annotated[Lanes, Memory(INT8, 1, _NONE, form=_INDEX, base=_LOW)]
OneWord = Annotated[
    Lanes, Memory(UINT32, 1, range(0), can_advance=True, form=_MULTIPLE, base=_LOW)
]
TwoWords = Annotated[
    Lanes, Memory(UINT32, 2, range(0), can_advance=True, form=_MULTIPLE, base=_LOW)
]
FourWords = Annotated[
    Lanes, Memory(UINT32, 4, range(0), can_advance=True, form=_MULTIPLE, base=_LOW)
]

Byte = Annotated[int, Immediate(range(256))]
Small = Annotated[int, Immediate(range(8))]
LeftShift = Annotated[int, Immediate(range(1, 32))]
RightShift = Annotated[int, Immediate(range(1, 32))]


# ---- Loads and stores ----------------------------------------------------------------


@THUMB1.instruction("ldr {d}, {address}")
def ldr(address: WordInMemory) -> LowWord:
    """Return a word; the address must be a multiple of four."""
    return address[0]


@THUMB1.instruction("ldr {d}, {address}")
def ldr_indexed(address: IndexedWord) -> LowWord:
    """Return a word; the address must be a multiple of four."""
    return address[0]


@THUMB1.instruction("ldrh {d}, {address}")
def ldrh(address: HalfInMemory) -> LowWord:
    """Return a half word, zero-extended; its address is even."""
    return address[0].cast(UINT32)


@THUMB1.instruction("ldrh {d}, {address}")
def ldrh_indexed(address: IndexedHalf) -> LowWord:
    """Return a half word, zero-extended; its address is even."""
    return address[0].cast(UINT32)


@THUMB1.instruction("ldrsh {d}, {address}")
def ldrsh_indexed(address: IndexedSignedHalf) -> LowInt:
    """Return a half word, sign-extended; its address is even."""
    return address[0].cast(INT32)


@THUMB1.instruction("ldrb {d}, {address}")
def ldrb(address: ByteInMemory) -> LowWord:
    """Return a byte, zero-extended."""
    return address[0].cast(UINT32)


@THUMB1.instruction("ldrb {d}, {address}")
def ldrb_indexed(address: IndexedByte) -> LowWord:
    """Return a byte, zero-extended."""
    return address[0].cast(UINT32)


@THUMB1.instruction("ldrsb {d}, {address}")
def ldrsb_indexed(address: IndexedSignedByte) -> LowInt:
    """Return a byte, sign-extended."""
    return address[0].cast(INT32)


@THUMB1.instruction("ldmia {address}, {{{d}}}")
def load_next(address: OneWord) -> LowWord:
    """Return a word, and move to the next one."""
    return address[0]


@THUMB1.instruction("ldmia {address}, {{{d0}, {d1}}}")
def load_two(address: TwoWords) -> tuple[LowWord, LowWord]:
    """Return two words, and move past them."""
    return address[0], address[1]


@THUMB1.instruction("ldmia {address}, {{{d0}, {d1}, {d2}, {d3}}}")
def load_four(address: FourWords) -> tuple[LowWord, LowWord, LowWord, LowWord]:
    """Return four words, and move past them."""
    return address[0], address[1], address[2], address[3]


@THUMB1.instruction("str {a}, {address}")
def store_word(a: LowWord) -> WordInMemory:
    """Write a word; the address must be a multiple of four."""
    return (a,)


@THUMB1.instruction("str {a}, {address}")
def store_word_indexed(a: LowWord) -> IndexedWord:
    """Write a word; the address must be a multiple of four."""
    return (a,)


@THUMB1.instruction("strh {a}, {address}")
def store_half(a: LowWord) -> HalfInMemory:
    """Write the low half; the address is even."""
    return (a.cast(UINT16),)


@THUMB1.instruction("strh {a}, {address}")
def store_half_indexed(a: LowWord) -> IndexedHalf:
    """Write the low half; the address is even."""
    return (a.cast(UINT16),)


@THUMB1.instruction("strb {a}, {address}")
def store_byte(a: LowWord) -> ByteInMemory:
    """Write the lowest byte."""
    return (a.cast(UINT8),)


@THUMB1.instruction("strb {a}, {address}")
def store_byte_indexed(a: LowWord) -> IndexedByte:
    """Write the lowest byte."""
    return (a.cast(UINT8),)


@THUMB1.instruction("stmia {address}, {{{a}}}")
def store_next(a: LowWord) -> OneWord:
    """Write a word, and move to the next one."""
    return (a,)


@THUMB1.instruction("stmia {address}, {{{a}, {b}}}")
def store_two(a: LowWord, b: LowWord) -> TwoWords:
    """Write two words, and move past them."""
    return (a, b)


@THUMB1.instruction("stmia {address}, {{{a}, {b}, {c}, {e}}}")
def store_four(a: LowWord, b: LowWord, c: LowWord, e: LowWord) -> FourWords:
    """Write four words, and move past them."""
    return (a, b, c, e)


# ---- Moves and sums, which reach high registers too ----------------------------------


@THUMB1.instruction("mov {d}, {a}")
def mov(a: Int) -> Int:
    """Return a copy."""
    return a


@THUMB1.instruction("add {d}, {a}")
def add(d: Int, a: Int) -> Int:
    """Return d + a modulo 2^32."""
    return wrap_sum(d, a)


# ---- Sums ----------------------------------------------------------------------------


@THUMB1.instruction("movs {d}, #{value}")
def mov_immediate(value: Byte) -> LowWord:
    """Return a number."""
    return constant(value, UINT32)


@THUMB1.instruction("movs {d}, {a}")
def mov_low(a: LowInt) -> LowInt:
    """Return a copy."""
    return a


@THUMB1.instruction("adds {d}, {a}, {b}")
def add_low(a: LowInt, b: LowInt) -> LowInt:
    """Return a + b modulo 2^32."""
    return wrap_sum(a, b)


@THUMB1.instruction("adds {d}, {a}, #{value}")
def add_small(a: LowInt, value: Small) -> LowInt:
    """Return a + value modulo 2^32."""
    return wrap_sum(a, constant(value, INT32))


@THUMB1.instruction("adds {d}, #{value}")
def add_immediate(d: LowInt, value: Byte) -> LowInt:
    """Return d + value modulo 2^32."""
    return wrap_sum(d, constant(value, INT32))


@THUMB1.instruction("subs {d}, {a}, {b}")
def sub_low(a: LowInt, b: LowInt) -> LowInt:
    """Return a - b modulo 2^32."""
    return wrap_difference(a, b)


@THUMB1.instruction("subs {d}, {a}, #{value}")
def sub_small(a: LowInt, value: Small) -> LowInt:
    """Return a - value modulo 2^32."""
    return wrap_difference(a, constant(value, INT32))


@THUMB1.instruction("subs {d}, #{value}")
def sub_immediate(d: LowInt, value: Byte) -> LowInt:
    """Return d - value modulo 2^32."""
    return wrap_difference(d, constant(value, INT32))


@THUMB1.instruction("rsbs {d}, {a}, #0")
def negate(a: LowInt) -> LowInt:
    """Return -a modulo 2^32."""
    return wrap_difference(constant(0, INT32), a)


@THUMB1.instruction("adds {d0}, {d0}, {a0}\n\tadcs {d1}, {a1}")
def add_wide(
    d0: LowWord, d1: LowWord, a0: LowWord, a1: LowWord
) -> tuple[LowWord, LowWord]:
    """Add two words a0 (low) and a1 to the words d0 and d1, modulo 2^64."""
    total = join_words(d0, d1) + join_words(a0, a1)
    return low_word(total), high_word(total)


@THUMB1.instruction("muls {d}, {a}")
def muls(d: LowInt, a: LowInt) -> LowInt:
    """Return d * a modulo 2^32."""
    return wrap_product(d, a)


# ---- Bits ----------------------------------------------------------------------------


@THUMB1.instruction("ands {d}, {a}")
def ands(d: LowWord, a: LowWord) -> LowWord:
    """Return the bits that are set in both."""
    return d & a


@THUMB1.instruction("bics {d}, {a}")
def bics(d: LowWord, a: LowWord) -> LowWord:
    """Return the bits of d that are not set in a."""
    return d & bit_not(a)


@THUMB1.instruction("orrs {d}, {a}")
def orrs(d: LowWord, a: LowWord) -> LowWord:
    """Return the bits that are set in either."""
    return bit_or(d, a)


@THUMB1.instruction("eors {d}, {a}")
def eors(d: LowWord, a: LowWord) -> LowWord:
    """Return the bits that differ."""
    return bit_xor(d, a)


@THUMB1.instruction("mvns {d}, {a}")
def mvns(a: LowWord) -> LowWord:
    """Return the inverted bits."""
    return bit_not(a)


@THUMB1.instruction("rev {d}, {a}")
def rev(a: LowWord) -> LowWord:
    """Return the bytes in reverse order."""
    return reverse_bytes(a)


@THUMB1.instruction("lsls {d}, {a}, #{n}")
def lsl_immediate(a: LowWord, n: LeftShift) -> LowWord:
    """Return a << n."""
    return shift_left(a, n)


@THUMB1.instruction("lsrs {d}, {a}, #{n}")
def lsr_immediate(a: LowWord, n: RightShift) -> LowWord:
    """Return a >> n, unsigned."""
    return shift_right(a, n)


@THUMB1.instruction("asrs {d}, {a}, #{n}")
def asr_immediate(a: LowInt, n: RightShift) -> LowInt:
    """Return a >> n."""
    return shift_right(a, n)


@THUMB1.instruction("lsls {d}, {a}")
def lsl(d: LowWord, a: LowWord) -> LowWord:
    """Return d << n for the lowest byte n of a; 0 from 32 bits on."""
    return shift_by_register("shl", d, a)


@THUMB1.instruction("lsrs {d}, {a}")
def lsr(d: LowWord, a: LowWord) -> LowWord:
    """Return d >> n, unsigned, for the lowest byte n of a; 0 from 32 bits on."""
    return shift_by_register("shr", d, a)


@THUMB1.instruction("asrs {d}, {a}")
def asr(d: LowInt, a: LowWord) -> LowInt:
    """Return d >> n for the lowest byte n of a; the sign from 32 bits on."""
    return shift_by_register("shr", d, a)


@THUMB1.instruction("sxtb {d}, {a}")
def sxtb(a: LowWord) -> LowInt:
    """Return the lowest byte, sign-extended."""
    return sign_extend(a, INT8)


@THUMB1.instruction("sxth {d}, {a}")
def sxth(a: LowWord) -> LowInt:
    """Return the low half, sign-extended."""
    return sign_extend(a, INT16)


@THUMB1.instruction("uxtb {d}, {a}")
def uxtb(a: LowWord) -> LowWord:
    """Return the lowest byte, zero-extended."""
    return zero_extend(a, UINT8)


@THUMB1.instruction("uxth {d}, {a}")
def uxth(a: LowWord) -> LowWord:
    """Return the low half, zero-extended."""
    return zero_extend(a, UINT16)
