"""Xtensa, as the LX106 has it: no extension of the sign of bytes, and no high product.

The core has the options for 16-bit and 32-bit multiplication and for normalization, but
no minimum, maximum and sign extension. Loads and stores must be aligned. Shifts by a
register take their amount from the register SAR, so they are two instructions.

Semantics: Xtensa Instruction Set Architecture Reference Manual, chapter 6.
"""

import operator
from functools import partial
from typing import Annotated

from firmwright.base.dtypes import INT16, INT32, UINT8, UINT16, UINT32
from firmwright.ir.tir.builder import select
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
    low,
    shift_left,
    shift_right,
    wrap_difference,
    wrap_product,
    wrap_sum,
)
from firmwright.kernels.isa.operations import (
    add_number,
    copy,
    int_number,
    load_row,
    negative,
    shift_left_by_five_bits,
    shift_right_by_five_bits,
    store_row,
)
from firmwright.kernels.isa.words import (
    bit_field,
    bit_xor,
    leading_zeros,
    unsigned_low,
)
from firmwright.targets.disassembly import AssemblySyntax

XTENSA = InstructionSet("xtensa", frozenset({"xtensa"}), syntax=AssemblySyntax.XTENSA)
_store = partial(store_row, XTENSA)
_load = partial(load_row, XTENSA)

_FORM = AddressForm.COMMA
WordInMemory = Memory(UINT32, 1, range(0, 1024, 4), form=_FORM)
HalfInMemory = Memory(INT16, 1, range(0, 512, 2), form=_FORM)
UnsignedHalfInMemory = Memory(UINT16, 1, range(0, 512, 2), form=_FORM)
ByteInMemory = Memory(UINT8, 1, range(256), form=_FORM)

Eight = Annotated[int, Immediate(range(-128, 128))]
Twelve = Annotated[int, Immediate(range(-2048, 2048))]
Multiple = Annotated[int, Immediate(range(-32768, 32768, 256))]
LeftShift = Annotated[int, Immediate(range(1, 32))]
LogicalShift = Annotated[int, Immediate(range(16))]
Shift = Annotated[int, Immediate(range(32))]
ByteShift = Annotated[int, Immediate(range(25))]
Scale = Annotated[int, Immediate((2, 4, 8))]


# ---- Loads and stores ----------------------------------------------------------------

l32i = _load("l32i", WordInMemory, Word)
l16si = _load("l16si", HalfInMemory, Int)
l16ui = _load("l16ui", UnsignedHalfInMemory, Word)
l8ui = _load("l8ui", ByteInMemory, Word)
s32i = _store("s32i", Word, WordInMemory)
s16i = _store("s16i", Word, UnsignedHalfInMemory)
s8i = _store("s8i", Word, ByteInMemory)


# ---- Moves, sums and products --------------------------------------------------------

mov = XTENSA.row("mov {d}, {a}", UNARY_INT, copy)
movi = XTENSA.row("movi {d}, {value}", signature(Int, value=Twelve), int_number)
add = XTENSA.row("add {d}, {a}, {b}", BINARY_INT, wrap_sum)
addi = XTENSA.row(
    "addi {d}, {a}, {value}", signature(Int, a=Int, value=Eight), add_number
)
addmi = XTENSA.row(
    "addmi {d}, {a}, {value}", signature(Int, a=Int, value=Multiple), add_number
)
sub = XTENSA.row("sub {d}, {a}, {b}", BINARY_INT, wrap_difference)
neg = XTENSA.row("neg {d}, {a}", UNARY_INT, negative)


@XTENSA.instruction("abs {d}, {a}")
def absolute(a: Int) -> Int:
    """Return the absolute value; that of the least number is itself."""
    return select(a < 0, wrap_difference(constant(0, INT32), a), a)


mull = XTENSA.row("mull {d}, {a}, {b}", BINARY_INT, wrap_product)


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

and_register = XTENSA.row(
    "and {d}, {a}, {b}", BINARY_WORD, operator.and_, "and_register"
)
or_register = XTENSA.row("or {d}, {a}, {b}", BINARY_WORD, bit_or, "or_register")
xor_register = XTENSA.row("xor {d}, {a}, {b}", BINARY_WORD, bit_xor, "xor_register")
slli = XTENSA.row(
    "slli {d}, {a}, {n}", signature(Word, a=Word, n=LeftShift), shift_left
)
srli = XTENSA.row(
    "srli {d}, {a}, {n}", signature(Word, a=Word, n=LogicalShift), shift_right
)
srai = XTENSA.row("srai {d}, {a}, {n}", signature(Int, a=Int, n=Shift), shift_right)


@XTENSA.instruction("extui {d}, {a}, {n}, 16")
def extui(a: Word, n: LogicalShift) -> Word:
    """Return the 16 bits from bit n on."""
    return bit_field(a, n, 16)


@XTENSA.instruction("extui {d}, {a}, {n}, 8")
def extui_byte(a: Word, n: ByteShift) -> Word:
    """Return the byte from bit n on."""
    return bit_field(a, n, 8)


sll = XTENSA.row("ssl {b}\n\tsll {d}, {a}", BINARY_WORD, shift_left_by_five_bits, "sll")
srl = XTENSA.row(
    "ssr {b}\n\tsrl {d}, {a}", BINARY_WORD, shift_right_by_five_bits, "srl"
)
sra = XTENSA.row("ssr {b}\n\tsra {d}, {a}", BINARY_INT, shift_right_by_five_bits, "sra")
nsau = XTENSA.row("nsau {d}, {a}", UNARY_WORD, leading_zeros)


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
