"""The DSP extension of Armv7E-M and Armv8-M: products of int16 halves of registers.

Semantics: instruction descriptions of the Armv7-M architecture reference manual.
"""

from firmwright.base.dtypes import INT64, UINT64
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.isa.instruction import (
    BINARY_INT,
    InstructionSet,
    Int,
    Semantics,
    Word,
    signature,
)
from firmwright.kernels.isa.lanes import (
    byte,
    high,
    high_product,
    join_halves,
    low,
    wrap_difference,
    wrap_sum,
)
from firmwright.kernels.isa.operations import Part, product_of
from firmwright.kernels.isa.thumb2_bits import THUMB2_BITS
from firmwright.kernels.isa.words import (
    high_word,
    join_words,
    low_word,
    product_bits,
)

DSP = InstructionSet("dsp", frozenset({"dsp"}), THUMB2_BITS)


_OF_HALVES = signature(Int, a=Word, b=Word)
_WIDE = signature(Int, a=Int, b=Word)
_WIDE_SUM = signature(Int, a=Int, b=Word, acc=Int)


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


# ---- Products of halves --------------------------------------------------------------


@DSP.instruction("smladx {d}, {a}, {b}, {acc}")
def smladx(a: Word, b: Word, acc: Int) -> Int:
    """Return acc + a.low * b.high + a.high * b.low, on int16 halves."""
    return wrap_sum(acc, low(a) * high(b), high(a) * low(b))


@DSP.instruction("smlsd {d}, {a}, {b}, {acc}")
def smlsd(a: Word, b: Word, acc: Int) -> Int:
    """Return acc + a.low * b.low - a.high * b.high, on int16 halves."""
    return wrap_difference(wrap_sum(acc, low(a) * low(b)), high(a) * high(b))


@DSP.instruction("smuadx {d}, {a}, {b}")
def smuadx(a: Word, b: Word) -> Int:
    """Return a.low * b.high + a.high * b.low, on int16 halves."""
    return wrap_sum(low(a) * high(b), high(a) * low(b))


@DSP.instruction("smusd {d}, {a}, {b}")
def smusd(a: Word, b: Word) -> Int:
    """Return a.low * b.low - a.high * b.high, on int16 halves."""
    return low(a) * low(b) - high(a) * high(b)


@DSP.instruction("smlald {d0}, {d1}, {a}, {b}")
def smlald(d0: Word, d1: Word, a: Word, b: Word) -> tuple[Word, Word]:
    """Add the products of both halves to the words d0 (low) and d1, modulo 2^64."""
    first = (low(a) * low(b)).cast(INT64)
    total = first + (high(a) * high(b)).cast(INT64)
    wide = join_words(d0, d1) + total.cast(UINT64)
    return low_word(wide), high_word(wide)


@DSP.instruction("smlatb {d}, {a}, {b}, {acc}")
def smlatb(a: Word, b: Word, acc: Int) -> Int:
    """Return acc + a.high * b.low, on int16 halves."""
    return wrap_sum(acc, high(a) * low(b))


def _wide_product(half: Part) -> Semantics:
    """Return acc, if there is one, + (a * a half of b >> 16)."""

    def compute(a: ArithExpr, b: ArithExpr, *acc: ArithExpr) -> ArithExpr:
        product = product_bits(a, half(b), 16)
        return wrap_sum(*acc, product) if acc else product

    return compute


smulbb = DSP.row("smulbb {d}, {a}, {b}", _OF_HALVES, product_of(low, low))
smulbt = DSP.row("smulbt {d}, {a}, {b}", _OF_HALVES, product_of(low, high))
smultb = DSP.row("smultb {d}, {a}, {b}", _OF_HALVES, product_of(high, low))
smultt = DSP.row("smultt {d}, {a}, {b}", _OF_HALVES, product_of(high, high))
smlawb = DSP.row("smlawb {d}, {a}, {b}, {acc}", _WIDE_SUM, _wide_product(low))
smlawt = DSP.row("smlawt {d}, {a}, {b}, {acc}", _WIDE_SUM, _wide_product(high))
smulwb = DSP.row("smulwb {d}, {a}, {b}", _WIDE, _wide_product(low))
smulwt = DSP.row("smulwt {d}, {a}, {b}", _WIDE, _wide_product(high))

# ---- High words of products ----------------------------------------------------------

smmul = DSP.row("smmul {d}, {a}, {b}", BINARY_INT, high_product)


@DSP.instruction("smmulr {d}, {a}, {b}")
def smmulr(a: Int, b: Int) -> Int:
    """Return a * b / 2^32, rounded to the nearest, halves up."""
    return product_bits(a, b, 32, rounding=1 << 31)


@DSP.instruction("smmlar {d}, {a}, {b}, {acc}")
def smmlar(a: Int, b: Int, acc: Int) -> Int:
    """Return acc + a * b / 2^32, rounded to the nearest, halves up."""
    return wrap_sum(acc, product_bits(a, b, 32, rounding=1 << 31))


@DSP.instruction("umaal {d0}, {d1}, {a}, {b}")
def umaal(d0: Word, d1: Word, a: Word, b: Word) -> tuple[Word, Word]:
    """Return the low and the high word of a * b + d0 + d1."""
    total = a.cast(UINT64) * b.cast(UINT64) + d0.cast(UINT64) + d1.cast(UINT64)
    return low_word(total), high_word(total)
