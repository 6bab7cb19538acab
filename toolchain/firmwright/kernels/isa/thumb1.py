"""Thumb of Armv6-M: most instructions reach r0 to r7 only, and update an operand.

Semantics: instruction descriptions of the Armv6-M architecture reference manual.
"""

import operator
from functools import partial
from typing import Annotated

from firmwright.base.dtypes import INT8, INT16, UINT8, UINT16, UINT32
from firmwright.kernels.isa.instruction import (
    UNARY_INT,
    AddressForm,
    Immediate,
    InstructionSet,
    Int,
    LowInt,
    LowWord,
    Memory,
    RegisterClass,
    signature,
)
from firmwright.kernels.isa.lanes import (
    bit_or,
    shift_left,
    shift_right,
    wrap_difference,
    wrap_product,
    wrap_sum,
)
from firmwright.kernels.isa.operations import (
    add_number,
    bit_clear,
    copy,
    load_row,
    multiple_load_row,
    multiple_store_row,
    negative,
    shift_left_by_byte,
    shift_right_by_byte,
    sign_extend_byte,
    sign_extend_half,
    store_row,
    subtract_number,
    wide_sum,
    word_number,
    zero_extend_byte,
    zero_extend_half,
)
from firmwright.kernels.isa.words import (
    bit_not,
    bit_xor,
    reverse_bytes,
)

THUMB1 = InstructionSet("thumb1", frozenset({"thumb1"}))
_store = partial(store_row, THUMB1)
_load_multiple = partial(multiple_load_row, THUMB1)
_store_multiple = partial(multiple_store_row, THUMB1)
_load = partial(load_row, THUMB1)

_LOW = RegisterClass.LOW
_INDEX = AddressForm.INDEX
_MULTIPLE = AddressForm.MULTIPLE
_NONE = range(1)
WordInMemory = Memory(UINT32, 1, range(0, 128, 4), base=_LOW)
HalfInMemory = Memory(UINT16, 1, range(0, 64, 2), base=_LOW)
ByteInMemory = Memory(UINT8, 1, range(32), base=_LOW)
IndexedWord = Memory(UINT32, 1, _NONE, form=_INDEX, base=_LOW)
IndexedHalf = Memory(UINT16, 1, _NONE, form=_INDEX, base=_LOW)
IndexedByte = Memory(UINT8, 1, _NONE, form=_INDEX, base=_LOW)
IndexedSignedHalf = Memory(INT16, 1, _NONE, form=_INDEX, base=_LOW)
IndexedSignedByte = Memory(INT8, 1, _NONE, form=_INDEX, base=_LOW)
OneWord = Memory(UINT32, 1, range(0), can_advance=True, form=_MULTIPLE, base=_LOW)
TwoWords = Memory(UINT32, 2, range(0), can_advance=True, form=_MULTIPLE, base=_LOW)
FourWords = Memory(UINT32, 4, range(0), can_advance=True, form=_MULTIPLE, base=_LOW)

Byte = Annotated[int, Immediate(range(256))]
Small = Annotated[int, Immediate(range(8))]
LeftShift = Annotated[int, Immediate(range(1, 32))]
RightShift = Annotated[int, Immediate(range(1, 32))]

_INT = signature(LowInt, a=LowInt)
_INTS = signature(LowInt, a=LowInt, b=LowInt)
_INT_AND_SMALL = signature(LowInt, a=LowInt, value=Small)
_UPDATED_INT = signature(LowInt, d=LowInt, a=LowInt)
_UPDATED_BY_BYTE = signature(LowInt, d=LowInt, value=Byte)
_WORD = signature(LowWord, a=LowWord)
_UPDATED_WORD = signature(LowWord, d=LowWord, a=LowWord)
_EXTENDED = signature(LowInt, a=LowWord)


# ---- Loads and stores ----------------------------------------------------------------

ldr = _load("ldr", WordInMemory, LowWord)
ldr_indexed = _load("ldr", IndexedWord, LowWord, "ldr_indexed")
ldrh = _load("ldrh", HalfInMemory, LowWord)
ldrh_indexed = _load("ldrh", IndexedHalf, LowWord, "ldrh_indexed")
ldrsh_indexed = _load("ldrsh", IndexedSignedHalf, LowInt, "ldrsh_indexed")
ldrb = _load("ldrb", ByteInMemory, LowWord)
ldrb_indexed = _load("ldrb", IndexedByte, LowWord, "ldrb_indexed")
ldrsb_indexed = _load("ldrsb", IndexedSignedByte, LowInt, "ldrsb_indexed")
load_next = _load_multiple("ldmia", OneWord, LowWord, "load_next")
load_two = _load_multiple("ldmia", TwoWords, LowWord, "load_two")
load_four = _load_multiple("ldmia", FourWords, LowWord, "load_four")
store_word = _store("str", LowWord, WordInMemory, "store_word")
store_word_indexed = _store("str", LowWord, IndexedWord, "store_word_indexed")
store_half = _store("strh", LowWord, HalfInMemory, "store_half")
store_half_indexed = _store("strh", LowWord, IndexedHalf, "store_half_indexed")
store_byte = _store("strb", LowWord, ByteInMemory, "store_byte")
store_byte_indexed = _store("strb", LowWord, IndexedByte, "store_byte_indexed")
store_next = _store_multiple("stmia", OneWord, LowWord, "store_next")
store_two = _store_multiple("stmia", TwoWords, LowWord, "store_two")
store_four = _store_multiple("stmia", FourWords, LowWord, "store_four")

# ---- Moves and sums, which reach high registers too ----------------------------------

mov = THUMB1.row("mov {d}, {a}", UNARY_INT, copy)
add = THUMB1.row("add {d}, {a}", signature(Int, d=Int, a=Int), wrap_sum)


# ---- Sums ----------------------------------------------------------------------------

mov_immediate = THUMB1.row(
    "movs {d}, #{value}", signature(LowWord, value=Byte), word_number, "mov_immediate"
)
mov_low = THUMB1.row("movs {d}, {a}", _INT, copy, "mov_low")
add_low = THUMB1.row("adds {d}, {a}, {b}", _INTS, wrap_sum, "add_low")
add_small = THUMB1.row(
    "adds {d}, {a}, #{value}", _INT_AND_SMALL, add_number, "add_small"
)
add_immediate = THUMB1.row(
    "adds {d}, #{value}", _UPDATED_BY_BYTE, add_number, "add_immediate"
)
sub_low = THUMB1.row("subs {d}, {a}, {b}", _INTS, wrap_difference, "sub_low")
sub_small = THUMB1.row(
    "subs {d}, {a}, #{value}", _INT_AND_SMALL, subtract_number, "sub_small"
)
sub_immediate = THUMB1.row(
    "subs {d}, #{value}", _UPDATED_BY_BYTE, subtract_number, "sub_immediate"
)
negate = THUMB1.row("rsbs {d}, {a}, #0", _INT, negative, "negate")
add_wide = THUMB1.row(
    "adds {d0}, {d0}, {a0}\n\tadcs {d1}, {a1}",
    signature(tuple[LowWord, LowWord], d0=LowWord, d1=LowWord, a0=LowWord, a1=LowWord),
    wide_sum,
    "add_wide",
)
muls = THUMB1.row("muls {d}, {a}", _UPDATED_INT, wrap_product)


# ---- Bits ----------------------------------------------------------------------------

ands = THUMB1.row("ands {d}, {a}", _UPDATED_WORD, operator.and_)
bics = THUMB1.row("bics {d}, {a}", _UPDATED_WORD, bit_clear)
orrs = THUMB1.row("orrs {d}, {a}", _UPDATED_WORD, bit_or)
eors = THUMB1.row("eors {d}, {a}", _UPDATED_WORD, bit_xor)
mvns = THUMB1.row("mvns {d}, {a}", _WORD, bit_not)
rev = THUMB1.row("rev {d}, {a}", _WORD, reverse_bytes)
lsl_immediate = THUMB1.row(
    "lsls {d}, {a}, #{n}",
    signature(LowWord, a=LowWord, n=LeftShift),
    shift_left,
    "lsl_immediate",
)
lsr_immediate = THUMB1.row(
    "lsrs {d}, {a}, #{n}",
    signature(LowWord, a=LowWord, n=RightShift),
    shift_right,
    "lsr_immediate",
)
asr_immediate = THUMB1.row(
    "asrs {d}, {a}, #{n}",
    signature(LowInt, a=LowInt, n=RightShift),
    shift_right,
    "asr_immediate",
)
lsl = THUMB1.row("lsls {d}, {a}", _UPDATED_WORD, shift_left_by_byte, "lsl")
lsr = THUMB1.row("lsrs {d}, {a}", _UPDATED_WORD, shift_right_by_byte, "lsr")
asr = THUMB1.row(
    "asrs {d}, {a}", signature(LowInt, d=LowInt, a=LowWord), shift_right_by_byte, "asr"
)
sxtb = THUMB1.row("sxtb {d}, {a}", _EXTENDED, sign_extend_byte)
sxth = THUMB1.row("sxth {d}, {a}", _EXTENDED, sign_extend_half)
uxtb = THUMB1.row("uxtb {d}, {a}", _WORD, zero_extend_byte)
uxth = THUMB1.row("uxth {d}, {a}", _WORD, zero_extend_half)
