"""The DSP extension of Armv7E-M and Armv8-M: two int16 or four int8 in a register.

Semantics: instruction descriptions of the Armv7-M architecture reference manual.
"""

from firmwright.kernels.isa.instruction import (
    InstructionSet,
    Int,
    Word,
)
from firmwright.kernels.isa.lanes import (
    byte,
    high,
    high_product,
    join_halves,
    low,
    wrap_sum,
)
from firmwright.kernels.isa.thumb2 import THUMB2

DSP = InstructionSet("dsp", frozenset({"dsp"}), THUMB2)


@DSP.instruction("smlad {d}, {a}, {b}, {acc}")
def smlad(a: Word, b: Word, acc: Int) -> Int:
    """Return acc + a.low * b.low + a.high * b.high, on int16 halves."""
    return wrap_sum(acc, low(a) * low(b), high(a) * high(b))


@DSP.instruction("smuad {d}, {a}, {b}")
def smuad(a: Word, b: Word) -> Int:
    """Return a.low * b.low + a.high * b.high, on int16 halves."""
    return wrap_sum(low(a) * low(b), high(a) * high(b))


@DSP.instruction("smlabb {d}, {a}, {b}, {acc}")
def smlabb(a: Word, b: Word, acc: Int) -> Int:
    """Return acc + a.low * b.low, on int16 halves."""
    return wrap_sum(acc, low(a) * low(b))


@DSP.instruction("smlabt {d}, {a}, {b}, {acc}")
def smlabt(a: Word, b: Word, acc: Int) -> Int:
    """Return acc + a.low * b.high, on int16 halves."""
    return wrap_sum(acc, low(a) * high(b))


@DSP.instruction("smlatt {d}, {a}, {b}, {acc}")
def smlatt(a: Word, b: Word, acc: Int) -> Int:
    """Return acc + a.high * b.high, on int16 halves."""
    return wrap_sum(acc, high(a) * high(b))


@DSP.instruction("smmla {d}, {a}, {b}, {acc}")
def smmla(a: Int, b: Int, acc: Int) -> Int:
    """Return acc + the high 32 bits of a * b."""
    return wrap_sum(acc, high_product(a, b))


@DSP.instruction("sxtb16 {d}, {a}")
def sxtb16(a: Word) -> Word:
    """Return bytes 0 and 2, sign-extended to int16 halves."""
    return join_halves(byte(a, 0), byte(a, 2))


@DSP.instruction("sxtb16 {d}, {a}, ror #8")
def sxtb16_ror8(a: Word) -> Word:
    """Return bytes 1 and 3, sign-extended to int16 halves."""
    return join_halves(byte(a, 1), byte(a, 3))


@DSP.instruction("pkhbt {d}, {a}, {b}, lsl #16")
def pkhbt(a: Int, b: Int) -> Word:
    """Return the low halves of two registers side by side, that of a below."""
    return join_halves(a, b)
