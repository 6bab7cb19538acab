"""Xtensa, as the LX106 has it: no extension of the sign of bytes, and no high product.

The core has the options for 16-bit and 32-bit multiplication and for normalization, but
no minimum, maximum and sign extension. Loads and stores must be aligned. Shifts by a
register take their amount from the register SAR, so they are two instructions.

Semantics: Xtensa Instruction Set Architecture Reference Manual, chapter 6.
"""

from typing import Annotated

from firmwright.base.dtypes import INT16, INT32, UINT8, UINT16, UINT32
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
    low,
    shift_left,
    shift_right,
    wrap_difference,
    wrap_product,
    wrap_sum,
)
from firmwright.kernels.isa.words import (
    bit_field,
    bit_xor,
    leading_zeros,
    low_five_bits,
    unsigned_low,
)

XTENSA = InstructionSet("xtensa", frozenset({"xtensa"}))

_FORM = AddressForm.COMMA
WordInMemory = Annotated[Lanes, Memory(UINT32, 1, range(0, 1024, 4), form=_FORM)]
HalfInMemory = Annotated[Lanes, Memory(INT16, 1, range(0, 512, 2), form=_FORM)]
UnsignedHalfInMemory = Annotated[Lanes, Memory(UINT16, 1, range(0, 512, 2), form=_FORM)]
ByteInMemory = Annotated[Lanes, Memory(UINT8, 1, range(256), form=_FORM)]

Eight = Annotated[int, Immediate(range(-128, 128))]
Twelve = Annotated[int, Immediate(range(-2048, 2048))]
Multiple = Annotated[int, Immediate(range(-32768, 32768, 256))]
LeftShift = Annotated[int, Immediate(range(1, 32))]
LogicalShift = Annotated[int, Immediate(range(16))]
Shift = Annotated[int, Immediate(range(32))]
ByteShift = Annotated[int, Immediate(range(25))]
Scale = Annotated[int, Immediate((2, 4, 8))]


# ---- Loads and stores ----------------------------------------------------------------


@XTENSA.instruction("l32i {d}, {address}")
def l32i(address: WordInMemory) -> Word:
    """Return a word; the address must be a multiple of four."""
    return address[0]


@XTENSA.instruction("l16si {d}, {address}")
def l16si(address: HalfInMemory) -> Int:
    """Return a half word, sign-extended; its address is even."""
    return address[0].cast(INT32)


@XTENSA.instruction("l16ui {d}, {address}")
def l16ui(address: UnsignedHalfInMemory) -> Word:
    """Return a half word, zero-extended; its address is even."""
    return address[0].cast(UINT32)


@XTENSA.instruction("l8ui {d}, {address}")
def l8ui(address: ByteInMemory) -> Word:
    """Return a byte, zero-extended."""
    return address[0].cast(UINT32)


@XTENSA.instruction("s32i {a}, {address}")
def s32i(a: Word) -> WordInMemory:
    """Write a word; the address must be a multiple of four."""
    return (a,)


@XTENSA.instruction("s16i {a}, {address}")
def s16i(a: Word) -> UnsignedHalfInMemory:
    """Write the low half; the address is even."""
    return (a.cast(UINT16),)


@XTENSA.instruction("s8i {a}, {address}")
def s8i(a: Word) -> ByteInMemory:
    """Write the lowest byte."""
    return (a.cast(UINT8),)


# ---- Moves, sums and products --------------------------------------------------------


@XTENSA.instruction("mov {d}, {a}")
def mov(a: Int) -> Int:
    """Return a copy."""
    return a


@XTENSA.instruction("movi {d}, {value}")
def movi(value: Twelve) -> Int:
    """Return a number of 12 bits."""
    return constant(value, INT32)


@XTENSA.instruction("add {d}, {a}, {b}")
def add(a: Int, b: Int) -> Int:
    """Return a + b modulo 2^32."""
    return wrap_sum(a, b)


@XTENSA.instruction("addi {d}, {a}, {value}")
def addi(a: Int, value: Eight) -> Int:
    """Return a + value modulo 2^32."""
    return wrap_sum(a, constant(value, INT32))


@XTENSA.instruction("addmi {d}, {a}, {value}")
def addmi(a: Int, value: Multiple) -> Int:
    """Return a + value modulo 2^32, for a multiple of 256."""
    return wrap_sum(a, constant(value, INT32))


@XTENSA.instruction("sub {d}, {a}, {b}")
def sub(a: Int, b: Int) -> Int:
    """Return a - b modulo 2^32."""
    return wrap_difference(a, b)


@XTENSA.instruction("neg {d}, {a}")
def neg(a: Int) -> Int:
    """Return -a modulo 2^32."""
    return wrap_difference(constant(0, INT32), a)


@XTENSA.instruction("abs {d}, {a}")
def absolute(a: Int) -> Int:
    """Return the absolute value; that of the least number is itself."""
    return select(a < 0, wrap_difference(constant(0, INT32), a), a)


@XTENSA.instruction("mull {d}, {a}, {b}")
def mull(a: Int, b: Int) -> Int:
    """Return a * b modulo 2^32."""
    return wrap_product(a, b)


@XTENSA.instruction("mul16s {d}, {a}, {b}")
def mul16s(a: Int, b: Int) -> Int:
    """Return the product of the low halves, signed."""
    return low(a) * low(b)


@XTENSA.instruction("mul16u {d}, {a}, {b}")
def mul16u(a: Word, b: Word) -> Word:
    """Return the product of the low halves, unsigned."""
    return unsigned_low(a) * unsigned_low(b)


@XTENSA.instruction("addx{scale} {d}, {a}, {b}")
def addx(a: Word, b: Word, scale: Scale) -> Word:
    """Return a * scale + b modulo 2^32."""
    return shift_left(a, scale.bit_length() - 1) + b


@XTENSA.instruction("subx{scale} {d}, {a}, {b}")
def subx(a: Word, b: Word, scale: Scale) -> Word:
    """Return a * scale - b modulo 2^32."""
    return shift_left(a, scale.bit_length() - 1) - b


# ---- Bits and shifts -----------------------------------------------------------------


@XTENSA.instruction("and {d}, {a}, {b}")
def and_register(a: Word, b: Word) -> Word:
    """Return the bits that are set in both."""
    return a & b


@XTENSA.instruction("or {d}, {a}, {b}")
def or_register(a: Word, b: Word) -> Word:
    """Return the bits that are set in either."""
    return bit_or(a, b)


@XTENSA.instruction("xor {d}, {a}, {b}")
def xor_register(a: Word, b: Word) -> Word:
    """Return the bits that differ."""
    return bit_xor(a, b)


@XTENSA.instruction("slli {d}, {a}, {n}")
def slli(a: Word, n: LeftShift) -> Word:
    """Return a << n."""
    return shift_left(a, n)


@XTENSA.instruction("srli {d}, {a}, {n}")
def srli(a: Word, n: LogicalShift) -> Word:
    """Return a >> n, unsigned; `extui` shifts further."""
    return shift_right(a, n)


@XTENSA.instruction("srai {d}, {a}, {n}")
def srai(a: Int, n: Shift) -> Int:
    """Return a >> n."""
    return shift_right(a, n)


@XTENSA.instruction("extui {d}, {a}, {n}, 16")
def extui(a: Word, n: LogicalShift) -> Word:
    """Return the 16 bits from bit n on."""
    return bit_field(a, n, 16)


@XTENSA.instruction("extui {d}, {a}, {n}, 8")
def extui_byte(a: Word, n: ByteShift) -> Word:
    """Return the byte from bit n on."""
    return bit_field(a, n, 8)


@XTENSA.instruction("ssl {b}\n\tsll {d}, {a}")
def sll(a: Word, b: Word) -> Word:
    """Return a << n for the five low bits n of b."""
    return a << low_five_bits(b)


@XTENSA.instruction("ssr {b}\n\tsrl {d}, {a}")
def srl(a: Word, b: Word) -> Word:
    """Return a >> n, unsigned, for the five low bits n of b."""
    return a >> low_five_bits(b)


@XTENSA.instruction("ssr {b}\n\tsra {d}, {a}")
def sra(a: Int, b: Int) -> Int:
    """Return a >> n for the five low bits n of b."""
    return a >> low_five_bits(b)


@XTENSA.instruction("nsau {d}, {a}")
def nsau(a: Word) -> Word:
    """Return the leading zeros, 32 of zero."""
    return leading_zeros(a)


# ---- Conditional moves ---------------------------------------------------------------


@XTENSA.instruction("moveqz {d}, {a}, {b}")
def moveqz(d: Int, a: Int, b: Int) -> Int:
    """Return a if b is 0, else d."""
    return select(b.equal(0), a, d)


@XTENSA.instruction("movnez {d}, {a}, {b}")
def movnez(d: Int, a: Int, b: Int) -> Int:
    """Return a if b is not 0, else d."""
    return select(b.equal(0), d, a)


@XTENSA.instruction("movltz {d}, {a}, {b}")
def movltz(d: Int, a: Int, b: Int) -> Int:
    """Return a if b is negative, else d."""
    return select(b < 0, a, d)


@XTENSA.instruction("movgez {d}, {a}, {b}")
def movgez(d: Int, a: Int, b: Int) -> Int:
    """Return a if b is not negative, else d."""
    return select(b < 0, d, a)
