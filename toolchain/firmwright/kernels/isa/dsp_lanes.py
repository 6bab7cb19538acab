"""The DSP extension: packing, sums, maxima and saturation of halves and bytes.

Semantics: instruction descriptions of the Armv7-M architecture reference manual.
"""

import operator
from typing import Annotated

from firmwright.base.dtypes import INT8, INT16, INT32, UINT8, UINT16, DType
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum
from firmwright.kernels.isa.dsp import DSP
from firmwright.kernels.isa.instruction import (
    BINARY_INT,
    BINARY_WORD,
    UNARY_WORD,
    Immediate,
    Instr,
    InstructionSet,
    Int,
    Semantics,
    Word,
)
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
from firmwright.kernels.isa.operations import (
    Operation,
    half_difference,
    half_sum,
    on_bytes,
    on_halves,
    on_unsigned_bytes,
    on_unsigned_halves,
    two_bytes,
)
from firmwright.kernels.isa.words import (
    add_halves,
    saturate_to_bits,
    saturated_difference,
    saturated_sum,
    sign_extend,
    unsigned_bytes,
    unsigned_high,
    zero_extend,
)

DSP_LANES = InstructionSet("dsp_lanes", frozenset({"dsp"}), DSP)

LeftShift = Annotated[int, Immediate(range(1, 32))]
SignedBits = Annotated[int, Immediate(range(1, 17))]
UnsignedBits = Annotated[int, Immediate(range(16))]


# ---- Packing and extension -----------------------------------------------------------


@DSP_LANES.instruction("pkhbt {d}, {a}, {b}, lsl #{n}")
def pkhbt_lsl(a: Word, b: Word, n: LeftShift) -> Word:
    """Return the low half of a and, above it, the high half of b << n."""
    return join_halves(a, shift_right(b << n, 16))


@DSP_LANES.instruction("pkhtb {d}, {a}, {b}, asr #16")
def pkhtb(a: Word, b: Word) -> Word:
    """Return the high halves of two registers side by side, that of b below."""
    return join_halves(unsigned_high(b), unsigned_high(a))


@DSP_LANES.instruction("pkhbt {d}, {a}, {b}")
def pkhbt_in_place(a: Word, b: Word) -> Word:
    """Return the low half of a and, above it, the high half of b."""
    return join_halves(a, unsigned_high(b))


@DSP_LANES.instruction("pkhtb {d}, {a}, {b}, asr #15")
def pkhtb_asr15(a: Word, b: Int) -> Word:
    """Return the high half of a and, below it, the low half of b / 2^15."""
    return join_halves(shift_right(b, 15), unsigned_high(a))


uxtb16 = DSP_LANES.row("uxtb16 {d}, {a}", UNARY_WORD, two_bytes(unsigned_byte, 0, 2))
uxtb16_ror8 = DSP_LANES.row(
    "uxtb16 {d}, {a}, ror #8", UNARY_WORD, two_bytes(unsigned_byte, 1, 3), "uxtb16_ror8"
)


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


def _saturated(operation: Operation, dtype: DType) -> Operation:
    return lambda x, y: saturate(operation(x, y), dtype)


sadd16 = DSP_LANES.row("sadd16 {d}, {a}, {b}", BINARY_WORD, on_halves(operator.add))
ssub16 = DSP_LANES.row("ssub16 {d}, {a}, {b}", BINARY_WORD, on_halves(operator.sub))
sadd8 = DSP_LANES.row("sadd8 {d}, {a}, {b}", BINARY_WORD, on_bytes(operator.add))
ssub8 = DSP_LANES.row("ssub8 {d}, {a}, {b}", BINARY_WORD, on_bytes(operator.sub))
shadd16 = DSP_LANES.row("shadd16 {d}, {a}, {b}", BINARY_WORD, on_halves(half_sum))
shsub16 = DSP_LANES.row(
    "shsub16 {d}, {a}, {b}", BINARY_WORD, on_halves(half_difference)
)
shadd8 = DSP_LANES.row("shadd8 {d}, {a}, {b}", BINARY_WORD, on_bytes(half_sum))
uhadd8 = DSP_LANES.row("uhadd8 {d}, {a}, {b}", BINARY_WORD, on_unsigned_bytes(half_sum))
qadd16 = DSP_LANES.row(
    "qadd16 {d}, {a}, {b}", BINARY_WORD, on_halves(_saturated(operator.add, INT16))
)
qsub16 = DSP_LANES.row(
    "qsub16 {d}, {a}, {b}", BINARY_WORD, on_halves(_saturated(operator.sub, INT16))
)
qadd8 = DSP_LANES.row(
    "qadd8 {d}, {a}, {b}", BINARY_WORD, on_bytes(_saturated(operator.add, INT8))
)
qsub8 = DSP_LANES.row(
    "qsub8 {d}, {a}, {b}", BINARY_WORD, on_bytes(_saturated(operator.sub, INT8))
)
qadd = DSP_LANES.row("qadd {d}, {a}, {b}", BINARY_INT, saturated_sum)
qsub = DSP_LANES.row("qsub {d}, {a}, {b}", BINARY_INT, saturated_difference)


@DSP_LANES.instruction("ssax {d}, {a}, {b}")
def ssax(a: Word, b: Word) -> Word:
    """Return a.low + b.high and, above it, a.high - b.low, modulo 2^16."""
    return join_halves(low(a) + high(b), high(a) - low(b))


@DSP_LANES.instruction("sasx {d}, {a}, {b}")
def sasx(a: Word, b: Word) -> Word:
    """Return a.low - b.high and, above it, a.high + b.low, modulo 2^16."""
    return join_halves(low(a) - high(b), high(a) + low(b))


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


def _extreme(name: str, difference: str, chosen: str, semantics: Semantics) -> Instr:
    """Add a row; of `chosen`, the first is selected where a is not less than b."""
    asm = f"{difference} {{d}}, {{a}}, {{b}}\n\tsel {{d}}, {chosen}"
    return DSP_LANES.row(asm, BINARY_WORD, semantics, name)


smax8 = _extreme("smax8", "ssub8", "{a}, {b}", on_bytes(maximum))
smin8 = _extreme("smin8", "ssub8", "{b}, {a}", on_bytes(minimum))
umax8 = _extreme("umax8", "usub8", "{a}, {b}", on_unsigned_bytes(maximum))
umin8 = _extreme("umin8", "usub8", "{b}, {a}", on_unsigned_bytes(minimum))
smax16 = _extreme("smax16", "ssub16", "{a}, {b}", on_halves(maximum))
smin16 = _extreme("smin16", "ssub16", "{b}, {a}", on_halves(minimum))
umax16 = _extreme("umax16", "usub16", "{a}, {b}", on_unsigned_halves(maximum))


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
