"""RV32IM: the integer instructions of RISC-V with multiplication and division.

Semantics: The RISC-V Instruction Set Manual, volume I, chapters RV32I and M.
"""

import operator
from functools import partial
from typing import Annotated

from firmwright.base.dtypes import INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32
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
    high_product,
    shift_left,
    shift_right,
    wrap_difference,
    wrap_product,
    wrap_sum,
)
from firmwright.kernels.isa.operations import (
    add_number,
    and_number,
    copy,
    int_number,
    is_less,
    load_row,
    negative,
    or_number,
    shift_left_by_five_bits,
    shift_right_by_five_bits,
    store_row,
    xor_number,
)
from firmwright.kernels.isa.words import (
    bit_not,
    bit_xor,
    divide,
    high_word,
    product_bits,
    remainder,
)
from firmwright.targets.disassembly import AssemblySyntax

RV32 = InstructionSet("rv32", frozenset({"rvm"}), syntax=AssemblySyntax.RISCV)
_store = partial(store_row, RV32)
_load = partial(load_row, RV32)

_OFFSETS = range(-2048, 2048)
_FORM = AddressForm.PARENTHESES
WordInMemory = Memory(UINT32, 1, _OFFSETS, form=_FORM)
HalfInMemory = Memory(INT16, 1, _OFFSETS, form=_FORM)
ByteInMemory = Memory(INT8, 1, _OFFSETS, form=_FORM)
UnsignedHalfInMemory = Memory(UINT16, 1, _OFFSETS, form=_FORM)
UnsignedByteInMemory = Memory(UINT8, 1, _OFFSETS, form=_FORM)

Twelve = Annotated[int, Immediate(range(-2048, 2048))]
Upper = Annotated[int, Immediate(range(1 << 20))]
Shift = Annotated[int, Immediate(range(32))]

_INT_AND_NUMBER = signature(Int, a=Int, value=Twelve)
_WORD_AND_MASK = signature(Word, a=Word, mask=Twelve)
_SHIFTED_WORD = signature(Word, a=Word, n=Shift)


# ---- Loads and stores ----------------------------------------------------------------

lw = _load("lw", WordInMemory, Word)
lh = _load("lh", HalfInMemory, Int)
lhu = _load("lhu", UnsignedHalfInMemory, Word)
lb = _load("lb", ByteInMemory, Int)
lbu = _load("lbu", UnsignedByteInMemory, Word)
sw = _store("sw", Word, WordInMemory)
sh = _store("sh", Word, UnsignedHalfInMemory)
sb = _store("sb", Word, UnsignedByteInMemory)


# ---- Moves and sums ------------------------------------------------------------------

mv = RV32.row("mv {d}, {a}", UNARY_INT, copy)
load_immediate = RV32.row(
    "li {d}, {value}", signature(Int, value=Twelve), int_number, "load_immediate"
)


@RV32.instruction("lui {d}, {value}")
def lui(value: Upper) -> Word:
    """Return a number of 20 bits in the upper bits."""
    return constant(value << 12, UINT32)


add = RV32.row("add {d}, {a}, {b}", BINARY_INT, wrap_sum)
addi = RV32.row("addi {d}, {a}, {value}", _INT_AND_NUMBER, add_number)
sub = RV32.row("sub {d}, {a}, {b}", BINARY_INT, wrap_difference)
neg = RV32.row("neg {d}, {a}", UNARY_INT, negative)


# ---- Products and quotients ----------------------------------------------------------

mul = RV32.row("mul {d}, {a}, {b}", BINARY_INT, wrap_product)
mulh = RV32.row("mulh {d}, {a}, {b}", BINARY_INT, high_product)


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


rem = RV32.row("rem {d}, {a}, {b}", BINARY_INT, remainder)
remu = RV32.row("remu {d}, {a}, {b}", BINARY_WORD, remainder)


# ---- Bits and shifts -----------------------------------------------------------------

and_register = RV32.row("and {d}, {a}, {b}", BINARY_WORD, operator.and_, "and_register")
andi = RV32.row("andi {d}, {a}, {mask}", _WORD_AND_MASK, and_number)
or_register = RV32.row("or {d}, {a}, {b}", BINARY_WORD, bit_or, "or_register")
ori = RV32.row("ori {d}, {a}, {mask}", _WORD_AND_MASK, or_number)
xor_register = RV32.row("xor {d}, {a}, {b}", BINARY_WORD, bit_xor, "xor_register")
xori = RV32.row("xori {d}, {a}, {mask}", _WORD_AND_MASK, xor_number)
not_register = RV32.row("not {d}, {a}", UNARY_WORD, bit_not, "not_register")
slli = RV32.row("slli {d}, {a}, {n}", _SHIFTED_WORD, shift_left)
srli = RV32.row("srli {d}, {a}, {n}", _SHIFTED_WORD, shift_right)
srai = RV32.row("srai {d}, {a}, {n}", signature(Int, a=Int, n=Shift), shift_right)
sll = RV32.row("sll {d}, {a}, {b}", BINARY_WORD, shift_left_by_five_bits)
srl = RV32.row("srl {d}, {a}, {b}", BINARY_WORD, shift_right_by_five_bits)
sra = RV32.row("sra {d}, {a}, {b}", BINARY_INT, shift_right_by_five_bits)


# ---- Comparisons ---------------------------------------------------------------------

_ONE, _ZERO = constant(1, INT32), constant(0, INT32)


slt = RV32.row("slt {d}, {a}, {b}", BINARY_INT, is_less)
slti = RV32.row("slti {d}, {a}, {value}", _INT_AND_NUMBER, is_less)
sltu = RV32.row("sltu {d}, {a}, {b}", signature(Int, a=Word, b=Word), is_less)


@RV32.instruction("seqz {d}, {a}")
def seqz(a: Int) -> Int:
    """Return 1 if a is 0, else 0."""
    return select(a.equal(0), _ONE, _ZERO)
