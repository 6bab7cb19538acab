"""The DSP extension: packing, sums, maxima and saturation of halves and bytes.

Semantics: instruction descriptions of the Armv7-M architecture reference manual.
"""

from collections.abc import Callable
from typing import Annotated

from firmwright.base.dtypes import INT8, INT16, INT32, UINT8, UINT16
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum
from firmwright.kernels.isa.dsp import DSP
from firmwright.kernels.isa.instruction import Immediate, InstructionSet, Int, Word
from firmwright.kernels.isa.lanes import (
    byte,
    high,
    join_halves,
    low,
    saturate,
    shift_right,
    unsigned_byte,
    wrap_sum,
)
from firmwright.kernels.isa.words import (
    add_halves,
    join_bytes,
    saturate_to_bits,
    saturated_difference,
    saturated_sum,
    sign_extend,
    signed_bytes,
    unsigned_bytes,
    unsigned_high,
    unsigned_low,
    zero_extend,
)

DSP_LANES = InstructionSet("dsp_lanes", frozenset({"dsp"}), DSP)

LeftShift = Annotated[int, Immediate(range(1, 32))]
SignedBits = Annotated[int, Immediate(range(1, 17))]
UnsignedBits = Annotated[int, Immediate(range(16))]
_Operation = Callable[[ArithExpr, ArithExpr], ArithExpr]


def _on_halves(operation: _Operation, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    return join_halves(operation(low(a), low(b)), operation(high(a), high(b)))


def _on_unsigned_halves(operation: _Operation, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    lower = operation(unsigned_low(a), unsigned_low(b))
    return join_halves(lower, operation(unsigned_high(a), unsigned_high(b)))


def _on_bytes(operation: _Operation, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    pairs = zip(signed_bytes(a), signed_bytes(b), strict=True)
    return join_bytes(*(operation(x, y) for x, y in pairs))


def _on_unsigned_bytes(operation: _Operation, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    pairs = zip(unsigned_bytes(a), unsigned_bytes(b), strict=True)
    return join_bytes(*(operation(x, y) for x, y in pairs))


# ---- Packing and extension -----------------------------------------------------------


@DSP_LANES.instruction("pkhbt {d}, {a}, {b}, lsl #{n}")
def pkhbt_lsl(a: Word, b: Word, n: LeftShift) -> Word:
    """Return the low half of a and, above it, the high half of b << n."""
    return join_halves(a, shift_right(b << n, 16))


@DSP_LANES.instruction("pkhtb {d}, {a}, {b}, asr #16")
def pkhtb(a: Word, b: Word) -> Word:
    """Return the high halves of two registers side by side, that of b below."""
    return join_halves(unsigned_high(b), unsigned_high(a))


@DSP_LANES.instruction("uxtb16 {d}, {a}")
def uxtb16(a: Word) -> Word:
    """Return bytes 0 and 2, zero-extended to halves."""
    return join_halves(unsigned_byte(a, 0), unsigned_byte(a, 2))


@DSP_LANES.instruction("uxtb16 {d}, {a}, ror #8")
def uxtb16_ror8(a: Word) -> Word:
    """Return bytes 1 and 3, zero-extended to halves."""
    return join_halves(unsigned_byte(a, 1), unsigned_byte(a, 3))


@DSP_LANES.instruction("sxtab16 {d}, {a}, {b}")
def sxtab16(a: Word, b: Word) -> Word:
    """Return the halves of a plus bytes 0 and 2 of b, signed, modulo 2^16."""
    return add_halves(a, byte(b, 0), byte(b, 2))


@DSP_LANES.instruction("sxtab16 {d}, {a}, {b}, ror #8")
def sxtab16_ror8(a: Word, b: Word) -> Word:
    """Return the halves of a plus bytes 1 and 3 of b, signed, modulo 2^16."""
    return add_halves(a, byte(b, 1), byte(b, 3))


@DSP_LANES.instruction("uxtab16 {d}, {a}, {b}")
def uxtab16(a: Word, b: Word) -> Word:
    """Return the halves of a plus bytes 0 and 2 of b, unsigned, modulo 2^16."""
    return add_halves(a, unsigned_byte(b, 0), unsigned_byte(b, 2))


@DSP_LANES.instruction("sxtab {d}, {a}, {b}")
def sxtab(a: Int, b: Word) -> Int:
    """Return a plus the lowest byte of b, sign-extended."""
    return wrap_sum(a, sign_extend(b, INT8))


@DSP_LANES.instruction("sxtah {d}, {a}, {b}")
def sxtah(a: Int, b: Word) -> Int:
    """Return a plus the low half of b, sign-extended."""
    return wrap_sum(a, sign_extend(b, INT16))


@DSP_LANES.instruction("uxtab {d}, {a}, {b}")
def uxtab(a: Int, b: Word) -> Int:
    """Return a plus the lowest byte of b, zero-extended."""
    return wrap_sum(a, zero_extend(b, UINT8))


@DSP_LANES.instruction("uxtah {d}, {a}, {b}")
def uxtah(a: Int, b: Word) -> Int:
    """Return a plus the low half of b, zero-extended."""
    return wrap_sum(a, zero_extend(b, UINT16))


# ---- Sums and differences ------------------------------------------------------------


def _sum(x: ArithExpr, y: ArithExpr) -> ArithExpr:
    return x + y


def _difference(x: ArithExpr, y: ArithExpr) -> ArithExpr:
    return x - y


@DSP_LANES.instruction("sadd16 {d}, {a}, {b}")
def sadd16(a: Word, b: Word) -> Word:
    """Return the sums of the halves, modulo 2^16."""
    return _on_halves(_sum, a, b)


@DSP_LANES.instruction("ssub16 {d}, {a}, {b}")
def ssub16(a: Word, b: Word) -> Word:
    """Return the differences of the halves, modulo 2^16."""
    return _on_halves(_difference, a, b)


@DSP_LANES.instruction("sadd8 {d}, {a}, {b}")
def sadd8(a: Word, b: Word) -> Word:
    """Return the sums of the bytes, modulo 2^8."""
    return _on_bytes(_sum, a, b)


@DSP_LANES.instruction("ssub8 {d}, {a}, {b}")
def ssub8(a: Word, b: Word) -> Word:
    """Return the differences of the bytes, modulo 2^8."""
    return _on_bytes(_difference, a, b)


@DSP_LANES.instruction("shadd16 {d}, {a}, {b}")
def shadd16(a: Word, b: Word) -> Word:
    """Return half the sums of the int16 halves, rounded down."""
    return _on_halves(lambda x, y: shift_right(x + y, 1), a, b)


@DSP_LANES.instruction("shadd8 {d}, {a}, {b}")
def shadd8(a: Word, b: Word) -> Word:
    """Return half the sums of the int8 bytes, rounded down."""
    return _on_bytes(lambda x, y: shift_right(x + y, 1), a, b)


@DSP_LANES.instruction("uhadd8 {d}, {a}, {b}")
def uhadd8(a: Word, b: Word) -> Word:
    """Return half the sums of the uint8 bytes, rounded down."""
    return _on_unsigned_bytes(lambda x, y: shift_right(x + y, 1), a, b)


@DSP_LANES.instruction("qadd16 {d}, {a}, {b}")
def qadd16(a: Word, b: Word) -> Word:
    """Return the sums of the int16 halves, saturated."""
    return _on_halves(lambda x, y: saturate(x + y, INT16), a, b)


@DSP_LANES.instruction("qsub16 {d}, {a}, {b}")
def qsub16(a: Word, b: Word) -> Word:
    """Return the differences of the int16 halves, saturated."""
    return _on_halves(lambda x, y: saturate(x - y, INT16), a, b)


@DSP_LANES.instruction("qadd8 {d}, {a}, {b}")
def qadd8(a: Word, b: Word) -> Word:
    """Return the sums of the int8 bytes, saturated."""
    return _on_bytes(lambda x, y: saturate(x + y, INT8), a, b)


@DSP_LANES.instruction("qsub8 {d}, {a}, {b}")
def qsub8(a: Word, b: Word) -> Word:
    """Return the differences of the int8 bytes, saturated."""
    return _on_bytes(lambda x, y: saturate(x - y, INT8), a, b)


@DSP_LANES.instruction("qadd {d}, {a}, {b}")
def qadd(a: Int, b: Int) -> Int:
    """Return a + b, saturated."""
    return saturated_sum(a, b)


@DSP_LANES.instruction("qsub {d}, {a}, {b}")
def qsub(a: Int, b: Int) -> Int:
    """Return a - b, saturated."""
    return saturated_difference(a, b)


@DSP_LANES.instruction("qdadd {d}, {a}, {b}")
def qdadd(a: Int, b: Int) -> Int:
    """Return a plus twice b, each saturated."""
    return saturated_sum(a, saturated_sum(b, b))


@DSP_LANES.instruction("usad8 {d}, {a}, {b}")
def usad8(a: Word, b: Word) -> Word:
    """Return the sum of the absolute differences of the uint8 bytes."""
    return _absolute_differences(a, b).cast(a.expr.dtype)


@DSP_LANES.instruction("usada8 {d}, {a}, {b}, {acc}")
def usada8(a: Word, b: Word, acc: Int) -> Int:
    """Return acc plus the sum of the absolute differences of the uint8 bytes."""
    return wrap_sum(acc, _absolute_differences(a, b))


def _absolute_differences(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    total: ArithExpr | None = None
    for x, y in zip(unsigned_bytes(a), unsigned_bytes(b), strict=True):
        difference = (maximum(x, y) - minimum(x, y)).cast(INT32)
        total = difference if total is None else total + difference
    assert total is not None
    return total


# ---- Extremes, by the flags of a difference ------------------------------------------


@DSP_LANES.instruction("ssub8 {d}, {a}, {b}\n\tsel {d}, {a}, {b}")
def smax8(a: Word, b: Word) -> Word:
    """Return the greater of each pair of int8."""
    return _on_bytes(maximum, a, b)


@DSP_LANES.instruction("ssub8 {d}, {a}, {b}\n\tsel {d}, {b}, {a}")
def smin8(a: Word, b: Word) -> Word:
    """Return the lesser of each pair of int8."""
    return _on_bytes(minimum, a, b)


@DSP_LANES.instruction("usub8 {d}, {a}, {b}\n\tsel {d}, {a}, {b}")
def umax8(a: Word, b: Word) -> Word:
    """Return the greater of each pair of uint8."""
    return _on_unsigned_bytes(maximum, a, b)


@DSP_LANES.instruction("usub8 {d}, {a}, {b}\n\tsel {d}, {b}, {a}")
def umin8(a: Word, b: Word) -> Word:
    """Return the lesser of each pair of uint8."""
    return _on_unsigned_bytes(minimum, a, b)


@DSP_LANES.instruction("ssub16 {d}, {a}, {b}\n\tsel {d}, {a}, {b}")
def smax16(a: Word, b: Word) -> Word:
    """Return the greater of each pair of int16."""
    return _on_halves(maximum, a, b)


@DSP_LANES.instruction("ssub16 {d}, {a}, {b}\n\tsel {d}, {b}, {a}")
def smin16(a: Word, b: Word) -> Word:
    """Return the lesser of each pair of int16."""
    return _on_halves(minimum, a, b)


@DSP_LANES.instruction("usub16 {d}, {a}, {b}\n\tsel {d}, {a}, {b}")
def umax16(a: Word, b: Word) -> Word:
    """Return the greater of each pair of uint16."""
    return _on_unsigned_halves(maximum, a, b)


# ---- Saturation ----------------------------------------------------------------------


@DSP_LANES.instruction("ssat16 {d}, #{bits}, {a}")
def ssat16(bits: SignedBits, a: Word) -> Word:
    """Return the int16 halves, limited to signed numbers of `bits`."""
    parts = [saturate_to_bits(part, bits, signed=True) for part in (low(a), high(a))]
    return join_halves(*parts)


@DSP_LANES.instruction("usat16 {d}, #{bits}, {a}")
def usat16(bits: UnsignedBits, a: Word) -> Word:
    """Return the int16 halves, limited to unsigned numbers of `bits`."""
    parts = [saturate_to_bits(part, bits, signed=False) for part in (low(a), high(a))]
    return join_halves(*parts)
