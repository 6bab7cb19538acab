"""RV32IM: the integer instructions of RISC-V with multiplication and division.

Semantics: The RISC-V Instruction Set Manual, volume I, chapters RV32I and M.
"""

from typing import Annotated

from firmwright.base.dtypes import INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32
from firmwright.ir.tir.builder import select
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
    high_product,
    shift_left,
    shift_right,
    wrap_difference,
    wrap_product,
    wrap_sum,
)
from firmwright.kernels.isa.words import (
    bit_not,
    bit_xor,
    divide,
    high_word,
    low_five_bits,
    product_bits,
    remainder,
    unsigned_immediate,
)

RV32 = InstructionSet("rv32", frozenset({"rvm"}))

_OFFSETS = range(-2048, 2048)
_FORM = AddressForm.PARENTHESES
WordInMemory = Annotated[Lanes, Memory(UINT32, 1, _OFFSETS, form=_FORM)]
HalfInMemory = Annotated[Lanes, Memory(INT16, 1, _OFFSETS, form=_FORM)]
ByteInMemory = Annotated[Lanes, Memory(INT8, 1, _OFFSETS, form=_FORM)]
UnsignedHalfInMemory = Annotated[Lanes, Memory(UINT16, 1, _OFFSETS, form=_FORM)]
UnsignedByteInMemory = Annotated[Lanes, Memory(UINT8, 1, _OFFSETS, form=_FORM)]

Twelve = Annotated[int, Immediate(range(-2048, 2048))]
Upper = Annotated[int, Immediate(range(1 << 20))]
Shift = Annotated[int, Immediate(range(32))]


# ---- Loads and stores ----------------------------------------------------------------


@RV32.instruction("lw {d}, {address}")
def lw(address: WordInMemory) -> Word:
    """Return a word."""
    return address[0]


@RV32.instruction("lh {d}, {address}")
def lh(address: HalfInMemory) -> Int:
    """Return a half word, sign-extended."""
    return address[0].cast(INT32)


@RV32.instruction("lhu {d}, {address}")
def lhu(address: UnsignedHalfInMemory) -> Word:
    """Return a half word, zero-extended."""
    return address[0].cast(UINT32)


@RV32.instruction("lb {d}, {address}")
def lb(address: ByteInMemory) -> Int:
    """Return a byte, sign-extended."""
    return address[0].cast(INT32)


@RV32.instruction("lbu {d}, {address}")
def lbu(address: UnsignedByteInMemory) -> Word:
    """Return a byte, zero-extended."""
    return address[0].cast(UINT32)


@RV32.instruction("sw {a}, {address}")
def sw(a: Word) -> WordInMemory:
    """Write a word."""
    return (a,)


@RV32.instruction("sh {a}, {address}")
def sh(a: Word) -> UnsignedHalfInMemory:
    """Write the low half."""
    return (a.cast(UINT16),)


@RV32.instruction("sb {a}, {address}")
def sb(a: Word) -> UnsignedByteInMemory:
    """Write the lowest byte."""
    return (a.cast(UINT8),)


# ---- Moves and sums ------------------------------------------------------------------


@RV32.instruction("mv {d}, {a}")
def mv(a: Int) -> Int:
    """Return a copy."""
    return a


@RV32.instruction("li {d}, {value}")
def load_immediate(value: Twelve) -> Int:
    """Return a number of 12 bits."""
    return constant(value, INT32)


@RV32.instruction("lui {d}, {value}")
def lui(value: Upper) -> Word:
    """Return a number of 20 bits in the upper bits."""
    return constant(value << 12, UINT32)


@RV32.instruction("add {d}, {a}, {b}")
def add(a: Int, b: Int) -> Int:
    """Return a + b modulo 2^32."""
    return wrap_sum(a, b)


@RV32.instruction("addi {d}, {a}, {value}")
def addi(a: Int, value: Twelve) -> Int:
    """Return a + value modulo 2^32."""
    return wrap_sum(a, constant(value, INT32))


@RV32.instruction("sub {d}, {a}, {b}")
def sub(a: Int, b: Int) -> Int:
    """Return a - b modulo 2^32."""
    return wrap_difference(a, b)


@RV32.instruction("neg {d}, {a}")
def neg(a: Int) -> Int:
    """Return -a modulo 2^32."""
    return wrap_difference(constant(0, INT32), a)


# ---- Products and quotients ----------------------------------------------------------


@RV32.instruction("mul {d}, {a}, {b}")
def mul(a: Int, b: Int) -> Int:
    """Return a * b modulo 2^32."""
    return wrap_product(a, b)


@RV32.instruction("mulh {d}, {a}, {b}")
def mulh(a: Int, b: Int) -> Int:
    """Return the high 32 bits of a * b."""
    return high_product(a, b)


@RV32.instruction("mulhu {d}, {a}, {b}")
def mulhu(a: Word, b: Word) -> Word:
    """Return the high 32 bits of a * b, both unsigned."""
    return product_bits(a, b, 32)


@RV32.instruction("mulhsu {d}, {a}, {b}")
def mulhsu(a: Int, b: Word) -> Int:
    """Return the high 32 bits of a * b, where b is unsigned."""
    return high_word(a.cast(INT64) * b.cast(INT64)).cast(INT32)


@RV32.instruction("div {d}, {a}, {b}")
def div(a: Int, b: Int) -> Int:
    """Return a / b, truncated; -1 if b is 0."""
    return divide(a, b, by_zero=-1)


@RV32.instruction("divu {d}, {a}, {b}")
def divu(a: Word, b: Word) -> Word:
    """Return a / b, truncated; the greatest number if b is 0."""
    return divide(a, b, by_zero=0xFFFFFFFF)


@RV32.instruction("rem {d}, {a}, {b}")
def rem(a: Int, b: Int) -> Int:
    """Return the remainder of a / b, with the sign of a; a if b is 0."""
    return remainder(a, b)


@RV32.instruction("remu {d}, {a}, {b}")
def remu(a: Word, b: Word) -> Word:
    """Return the remainder of a / b; a if b is 0."""
    return remainder(a, b)


# ---- Bits and shifts -----------------------------------------------------------------


@RV32.instruction("and {d}, {a}, {b}")
def and_register(a: Word, b: Word) -> Word:
    """Return the bits that are set in both."""
    return a & b


@RV32.instruction("andi {d}, {a}, {mask}")
def andi(a: Word, mask: Twelve) -> Word:
    """Return the bits of a that are set in `mask`, sign-extended."""
    return a & unsigned_immediate(mask)


@RV32.instruction("or {d}, {a}, {b}")
def or_register(a: Word, b: Word) -> Word:
    """Return the bits that are set in either."""
    return bit_or(a, b)


@RV32.instruction("ori {d}, {a}, {mask}")
def ori(a: Word, mask: Twelve) -> Word:
    """Return the bits that are set in a or `mask`, sign-extended."""
    return bit_or(a, unsigned_immediate(mask))


@RV32.instruction("xor {d}, {a}, {b}")
def xor_register(a: Word, b: Word) -> Word:
    """Return the bits that differ."""
    return bit_xor(a, b)


@RV32.instruction("xori {d}, {a}, {mask}")
def xori(a: Word, mask: Twelve) -> Word:
    """Return a with the bits of `mask`, sign-extended, inverted."""
    return bit_xor(a, unsigned_immediate(mask))


@RV32.instruction("not {d}, {a}")
def not_register(a: Word) -> Word:
    """Return the inverted bits."""
    return bit_not(a)


@RV32.instruction("slli {d}, {a}, {n}")
def slli(a: Word, n: Shift) -> Word:
    """Return a << n."""
    return shift_left(a, n)


@RV32.instruction("srli {d}, {a}, {n}")
def srli(a: Word, n: Shift) -> Word:
    """Return a >> n, unsigned."""
    return shift_right(a, n)


@RV32.instruction("srai {d}, {a}, {n}")
def srai(a: Int, n: Shift) -> Int:
    """Return a >> n."""
    return shift_right(a, n)


@RV32.instruction("sll {d}, {a}, {b}")
def sll(a: Word, b: Word) -> Word:
    """Return a << n for the five low bits n of b."""
    return a << low_five_bits(b)


@RV32.instruction("srl {d}, {a}, {b}")
def srl(a: Word, b: Word) -> Word:
    """Return a >> n, unsigned, for the five low bits n of b."""
    return a >> low_five_bits(b)


@RV32.instruction("sra {d}, {a}, {b}")
def sra(a: Int, b: Int) -> Int:
    """Return a >> n for the five low bits n of b."""
    return a >> low_five_bits(b)


# ---- Comparisons ---------------------------------------------------------------------

_ONE, _ZERO = constant(1, INT32), constant(0, INT32)


@RV32.instruction("slt {d}, {a}, {b}")
def slt(a: Int, b: Int) -> Int:
    """Return 1 if a < b, else 0."""
    return select(a < b, _ONE, _ZERO)


@RV32.instruction("slti {d}, {a}, {value}")
def slti(a: Int, value: Twelve) -> Int:
    """Return 1 if a < value, else 0."""
    return select(a < value, _ONE, _ZERO)


@RV32.instruction("sltu {d}, {a}, {b}")
def sltu(a: Word, b: Word) -> Int:
    """Return 1 if a < b, both unsigned, else 0."""
    return select(a < b, _ONE, _ZERO)


@RV32.instruction("seqz {d}, {a}")
def seqz(a: Int) -> Int:
    """Return 1 if a is 0, else 0."""
    return select(a.equal(0), _ONE, _ZERO)
