"""RISC-V bit manipulation: Zba (addresses) and Zbb (basic).

Semantics: The RISC-V Instruction Set Manual, volume I, chapter B.
"""

from typing import Annotated

from firmwright.ir.tir.builder import maximum, minimum
from firmwright.kernels.isa.instruction import (
    BINARY_INT,
    BINARY_WORD,
    UNARY_WORD,
    Immediate,
    InstructionSet,
    Int,
    Word,
    signature,
)
from firmwright.kernels.isa.lanes import bit_or, shift_left, wrap_sum
from firmwright.kernels.isa.operations import (
    bit_clear,
    sign_extend_byte,
    sign_extend_half,
    zero_extend_half,
)
from firmwright.kernels.isa.rv32 import RV32
from firmwright.kernels.isa.words import (
    bit_not,
    bit_xor,
    leading_zeros,
    reverse_bytes,
    rotate_right,
    set_bits,
    trailing_zeros,
)
from firmwright.targets.disassembly import AssemblySyntax

RV32_ZBA = InstructionSet(
    "rv32_zba", frozenset({"zba"}), RV32, syntax=AssemblySyntax.RISCV
)
RV32_ZBB = InstructionSet(
    "rv32_zbb", frozenset({"zbb"}), RV32, syntax=AssemblySyntax.RISCV
)

Rotation = Annotated[int, Immediate(range(1, 32))]

_EXTENDED = signature(Int, a=Word)


# ---- Zba -----------------------------------------------------------------------------


@RV32_ZBA.instruction("sh1add {d}, {a}, {b}")
def sh1add(a: Word, b: Int) -> Int:
    """Return b + 2 * a modulo 2^32."""
    return wrap_sum(b, shift_left(a, 1))


@RV32_ZBA.instruction("sh2add {d}, {a}, {b}")
def sh2add(a: Word, b: Int) -> Int:
    """Return b + 4 * a modulo 2^32."""
    return wrap_sum(b, shift_left(a, 2))


@RV32_ZBA.instruction("sh3add {d}, {a}, {b}")
def sh3add(a: Word, b: Int) -> Int:
    """Return b + 8 * a modulo 2^32."""
    return wrap_sum(b, shift_left(a, 3))


# ---- Zbb -----------------------------------------------------------------------------

greater = RV32_ZBB.row("max {d}, {a}, {b}", BINARY_INT, maximum, "greater")
lesser = RV32_ZBB.row("min {d}, {a}, {b}", BINARY_INT, minimum, "lesser")
greater_unsigned = RV32_ZBB.row(
    "maxu {d}, {a}, {b}", BINARY_WORD, maximum, "greater_unsigned"
)
lesser_unsigned = RV32_ZBB.row(
    "minu {d}, {a}, {b}", BINARY_WORD, minimum, "lesser_unsigned"
)
sext_b = RV32_ZBB.row("sext.b {d}, {a}", _EXTENDED, sign_extend_byte)
sext_h = RV32_ZBB.row("sext.h {d}, {a}", _EXTENDED, sign_extend_half)
zext_h = RV32_ZBB.row("zext.h {d}, {a}", UNARY_WORD, zero_extend_half)
clz = RV32_ZBB.row("clz {d}, {a}", UNARY_WORD, leading_zeros)
ctz = RV32_ZBB.row("ctz {d}, {a}", UNARY_WORD, trailing_zeros)
cpop = RV32_ZBB.row("cpop {d}, {a}", UNARY_WORD, set_bits)
andn = RV32_ZBB.row("andn {d}, {a}, {b}", BINARY_WORD, bit_clear)


@RV32_ZBB.instruction("orn {d}, {a}, {b}")
def orn(a: Word, b: Word) -> Word:
    """Return the bits that are set in a or not set in b."""
    return bit_or(a, bit_not(b))


@RV32_ZBB.instruction("xnor {d}, {a}, {b}")
def xnor(a: Word, b: Word) -> Word:
    """Return the bits that agree."""
    return bit_not(bit_xor(a, b))


rori = RV32_ZBB.row(
    "rori {d}, {a}, {n}", signature(Word, a=Word, n=Rotation), rotate_right
)
rev8 = RV32_ZBB.row("rev8 {d}, {a}", UNARY_WORD, reverse_bytes)
