"""RISC-V bit manipulation: Zba (addresses) and Zbb (basic).

Semantics: The RISC-V Instruction Set Manual, volume I, chapter B.
"""

from typing import Annotated

from firmwright.base.dtypes import INT8, INT16, UINT16
from firmwright.ir.tir.builder import maximum, minimum
from firmwright.kernels.isa.instruction import Immediate, InstructionSet, Int, Word
from firmwright.kernels.isa.lanes import bit_or, shift_left, wrap_sum
from firmwright.kernels.isa.rv32 import RV32
from firmwright.kernels.isa.words import (
    bit_not,
    bit_xor,
    leading_zeros,
    reverse_bytes,
    rotate_right,
    set_bits,
    sign_extend,
    trailing_zeros,
    zero_extend,
)

RV32_ZBA = InstructionSet("rv32_zba", frozenset({"zba"}), RV32)
RV32_ZBB = InstructionSet("rv32_zbb", frozenset({"zbb"}), RV32)

Rotation = Annotated[int, Immediate(range(1, 32))]


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


@RV32_ZBB.instruction("max {d}, {a}, {b}")
def greater(a: Int, b: Int) -> Int:
    """Return the greater of two signed numbers."""
    return maximum(a, b)


@RV32_ZBB.instruction("min {d}, {a}, {b}")
def lesser(a: Int, b: Int) -> Int:
    """Return the lesser of two signed numbers."""
    return minimum(a, b)


@RV32_ZBB.instruction("maxu {d}, {a}, {b}")
def greater_unsigned(a: Word, b: Word) -> Word:
    """Return the greater of two unsigned numbers."""
    return maximum(a, b)


@RV32_ZBB.instruction("minu {d}, {a}, {b}")
def lesser_unsigned(a: Word, b: Word) -> Word:
    """Return the lesser of two unsigned numbers."""
    return minimum(a, b)


@RV32_ZBB.instruction("sext.b {d}, {a}")
def sext_b(a: Word) -> Int:
    """Return the lowest byte, sign-extended."""
    return sign_extend(a, INT8)


@RV32_ZBB.instruction("sext.h {d}, {a}")
def sext_h(a: Word) -> Int:
    """Return the low half, sign-extended."""
    return sign_extend(a, INT16)


@RV32_ZBB.instruction("zext.h {d}, {a}")
def zext_h(a: Word) -> Word:
    """Return the low half, zero-extended."""
    return zero_extend(a, UINT16)


@RV32_ZBB.instruction("clz {d}, {a}")
def clz(a: Word) -> Word:
    """Return the number of leading zeros."""
    return leading_zeros(a)


@RV32_ZBB.instruction("ctz {d}, {a}")
def ctz(a: Word) -> Word:
    """Return the number of trailing zeros."""
    return trailing_zeros(a)


@RV32_ZBB.instruction("cpop {d}, {a}")
def cpop(a: Word) -> Word:
    """Return the number of bits that are set."""
    return set_bits(a)


@RV32_ZBB.instruction("andn {d}, {a}, {b}")
def andn(a: Word, b: Word) -> Word:
    """Return the bits of a that are not set in b."""
    return a & bit_not(b)


@RV32_ZBB.instruction("orn {d}, {a}, {b}")
def orn(a: Word, b: Word) -> Word:
    """Return the bits that are set in a or not set in b."""
    return bit_or(a, bit_not(b))


@RV32_ZBB.instruction("xnor {d}, {a}, {b}")
def xnor(a: Word, b: Word) -> Word:
    """Return the bits that agree."""
    return bit_not(bit_xor(a, b))


@RV32_ZBB.instruction("rori {d}, {a}, {n}")
def rori(a: Word, n: Rotation) -> Word:
    """Return a rotated right by n bits."""
    return rotate_right(a, n)


@RV32_ZBB.instruction("rev8 {d}, {a}")
def rev8(a: Word) -> Word:
    """Return the bytes in reverse order."""
    return reverse_bytes(a)
