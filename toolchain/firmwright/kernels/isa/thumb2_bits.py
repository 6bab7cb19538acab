"""Thumb-2: shifted operands, shifts, bit fields, extensions and saturation.

Semantics: instruction descriptions of the Armv7-M architecture reference manual.
"""

from typing import Annotated

from firmwright.base.dtypes import UINT32
from firmwright.ir.tir.builder import select
from firmwright.kernels.isa.instruction import (
    BINARY_WORD,
    UNARY_WORD,
    Immediate,
    InstructionSet,
    Int,
    Word,
    signature,
)
from firmwright.kernels.isa.lanes import (
    bit_or,
    constant,
    shift_left,
    shift_right,
    wrap_difference,
    wrap_sum,
)
from firmwright.kernels.isa.operations import (
    bit_clear,
    shift_left_by_byte,
    shift_right_by_byte,
    shifted,
    sign_extend_byte,
    sign_extend_half,
    zero_extend_byte,
    zero_extend_half,
)
from firmwright.kernels.isa.thumb2 import THUMB2, Half, Modified
from firmwright.kernels.isa.words import (
    bit_field,
    bit_not,
    bit_xor,
    insert_bits,
    leading_zeros,
    reverse_bits,
    reverse_bytes,
    rotate_right,
    saturate_to_bits,
    signed_bit_field,
)

THUMB2_BITS = InstructionSet("thumb2_bits", frozenset({"thumb2"}), THUMB2)

LeftShift = Annotated[int, Immediate(range(32))]
RightShift = Annotated[int, Immediate(range(1, 32))]
SignedBits = Annotated[int, Immediate(range(1, 33))]
UnsignedBits = Annotated[int, Immediate(range(32))]

_SHIFTED_WORD = signature(Word, a=Word, n=RightShift)
_INT_AND_SHIFTED = signature(Int, a=Int, b=Word, n=LeftShift)
_EXTENDED = signature(Int, a=Word)


# ---- Shifted operands ----------------------------------------------------------------

add_lsl = THUMB2_BITS.row(
    "add {d}, {a}, {b}, lsl #{n}",
    _INT_AND_SHIFTED,
    shifted(wrap_sum, shift_left),
    "add_lsl",
)
add_lsr = THUMB2_BITS.row(
    "add {d}, {a}, {b}, lsr #{n}",
    signature(Int, a=Int, b=Word, n=RightShift),
    shifted(wrap_sum, shift_right),
    "add_lsr",
)
add_asr = THUMB2_BITS.row(
    "add {d}, {a}, {b}, asr #{n}",
    signature(Int, a=Int, b=Int, n=RightShift),
    shifted(wrap_sum, shift_right),
    "add_asr",
)
sub_lsl = THUMB2_BITS.row(
    "sub {d}, {a}, {b}, lsl #{n}",
    _INT_AND_SHIFTED,
    shifted(wrap_difference, shift_left),
    "sub_lsl",
)
sub_asr = THUMB2_BITS.row(
    "sub {d}, {a}, {b}, asr #{n}",
    signature(Int, a=Int, b=Int, n=RightShift),
    shifted(wrap_difference, shift_right),
    "sub_asr",
)


@THUMB2_BITS.instruction("rsb {d}, {a}, {b}, lsl #{n}")
def rsb_lsl(a: Int, b: Word, n: LeftShift) -> Int:
    """Return (b << n) - a modulo 2^32."""
    return wrap_difference(shift_left(b, n), a)


@THUMB2_BITS.instruction("bic {d}, {a}, {b}, asr #{n}")
def bic_asr(a: Word, b: Int, n: RightShift) -> Word:
    """Return the bits of a that are not set in b >> n; if n is 31, a or 0 for b < 0."""
    return a & bit_not(shift_right(b, n).cast(UINT32))


orr_lsl = THUMB2_BITS.row(
    "orr {d}, {a}, {b}, lsl #{n}",
    signature(Word, a=Word, b=Word, n=LeftShift),
    shifted(bit_or, shift_left),
    "orr_lsl",
)
orr_lsr = THUMB2_BITS.row(
    "orr {d}, {a}, {b}, lsr #{n}",
    signature(Word, a=Word, b=Word, n=RightShift),
    shifted(bit_or, shift_right),
    "orr_lsr",
)


@THUMB2_BITS.instruction("eor {d}, {a}, {b}, asr #{n}")
def eor_asr(a: Word, b: Int, n: RightShift) -> Word:
    """Return a with the bits of b >> n inverted."""
    return bit_xor(a, shift_right(b, n).cast(UINT32))


# ---- Bits --------------------------------------------------------------------------


@THUMB2_BITS.instruction("movt {d}, #{value}")
def movt(d: Word, value: Half) -> Word:
    """Replace the high half."""
    return insert_bits(d, constant(value, UINT32), 16, 16)


bic = THUMB2_BITS.row("bic {d}, {a}, {b}", BINARY_WORD, bit_clear)


@THUMB2_BITS.instruction("bic {d}, {a}, #{mask}")
def bic_immediate(a: Word, mask: Modified) -> Word:
    """Return the bits of a that are not set in `mask`."""
    return a & constant(mask ^ 0xFFFFFFFF, UINT32)


clz = THUMB2_BITS.row("clz {d}, {a}", UNARY_WORD, leading_zeros)
rbit = THUMB2_BITS.row("rbit {d}, {a}", UNARY_WORD, reverse_bits)
rev = THUMB2_BITS.row("rev {d}, {a}", UNARY_WORD, reverse_bytes)


# ---- Shifts --------------------------------------------------------------------------

lsl_immediate = THUMB2_BITS.row(
    "lsl {d}, {a}, #{n}",
    signature(Word, a=Word, n=LeftShift),
    shift_left,
    "lsl_immediate",
)
lsr_immediate = THUMB2_BITS.row(
    "lsr {d}, {a}, #{n}", _SHIFTED_WORD, shift_right, "lsr_immediate"
)
asr_immediate = THUMB2_BITS.row(
    "asr {d}, {a}, #{n}",
    signature(Int, a=Int, n=RightShift),
    shift_right,
    "asr_immediate",
)
ror_immediate = THUMB2_BITS.row(
    "ror {d}, {a}, #{n}", _SHIFTED_WORD, rotate_right, "ror_immediate"
)
lsl = THUMB2_BITS.row("lsl {d}, {a}, {b}", BINARY_WORD, shift_left_by_byte)
lsr = THUMB2_BITS.row("lsr {d}, {a}, {b}", BINARY_WORD, shift_right_by_byte)
asr = THUMB2_BITS.row(
    "asr {d}, {a}, {b}", signature(Int, a=Int, b=Word), shift_right_by_byte
)


@THUMB2_BITS.instruction("lsrs {d}, {a}, #{n}\n\tit cs\n\tlslcs {d}, {d}, #{m}")
def lsr_then_lsl_if_carry(a: Word, n: RightShift, m: LeftShift) -> Word:
    """Return a >> n, shifted left by m if the last bit shifted out of a is set."""
    shifted = shift_right(a, n)
    carry = shift_right(a, n - 1) & constant(1, UINT32)
    return select(carry.equal(0), shifted, shift_left(shifted, m))


# ---- Bit fields, extensions, saturation ----------------------------------------------


def _field(width: int) -> Immediate:
    """Return where a field of `width` bits can begin."""
    return Immediate(range(33 - width))


NibbleAt = Annotated[int, _field(4)]
ByteAt = Annotated[int, _field(8)]
HalfAt = Annotated[int, _field(16)]
LowWidth = Annotated[int, Immediate(range(1, 33))]


@THUMB2_BITS.instruction("sbfx {d}, {a}, #0, #{width}")
def sbfx(a: Word, width: LowWidth) -> Int:
    """Return the `width` low bits, sign-extended."""
    return signed_bit_field(a, 0, width)


@THUMB2_BITS.instruction("sbfx {d}, {a}, #{low}, #4")
def sbfx_nibble(a: Word, low: NibbleAt) -> Int:
    """Return 4 bits from bit `low`, sign-extended."""
    return signed_bit_field(a, low, 4)


@THUMB2_BITS.instruction("sbfx {d}, {a}, #{low}, #8")
def sbfx_byte(a: Word, low: ByteAt) -> Int:
    """Return 8 bits from bit `low`, sign-extended."""
    return signed_bit_field(a, low, 8)


@THUMB2_BITS.instruction("ubfx {d}, {a}, #{low}, #4")
def ubfx_nibble(a: Word, low: NibbleAt) -> Word:
    """Return 4 bits from bit `low`, zero-extended."""
    return bit_field(a, low, 4)


@THUMB2_BITS.instruction("ubfx {d}, {a}, #{low}, #8")
def ubfx_byte(a: Word, low: ByteAt) -> Word:
    """Return 8 bits from bit `low`, zero-extended."""
    return bit_field(a, low, 8)


@THUMB2_BITS.instruction("bfi {d}, {a}, #{low}, #8")
def bfi_byte(d: Word, a: Word, low: ByteAt) -> Word:
    """Replace 8 bits from bit `low` by the lowest of a."""
    return insert_bits(d, a, low, 8)


@THUMB2_BITS.instruction("bfi {d}, {a}, #{low}, #16")
def bfi_half(d: Word, a: Word, low: HalfAt) -> Word:
    """Replace 16 bits from bit `low` by the lowest of a."""
    return insert_bits(d, a, low, 16)


@THUMB2_BITS.instruction("bfi {d}, {a}, #0, #23")
def bfi_significand(d: Word, a: Word) -> Word:
    """Replace the 23 low bits, the significand of a float, by those of a."""
    return insert_bits(d, a, 0, 23)


sxtb = THUMB2_BITS.row("sxtb {d}, {a}", _EXTENDED, sign_extend_byte)
sxth = THUMB2_BITS.row("sxth {d}, {a}", _EXTENDED, sign_extend_half)
uxtb = THUMB2_BITS.row("uxtb {d}, {a}", UNARY_WORD, zero_extend_byte)
uxth = THUMB2_BITS.row("uxth {d}, {a}", UNARY_WORD, zero_extend_half)


@THUMB2_BITS.instruction("ssat {d}, #{bits}, {a}")
def ssat(bits: SignedBits, a: Int) -> Int:
    """Return a, limited to a signed number of `bits`."""
    return saturate_to_bits(a, bits, signed=True)


@THUMB2_BITS.instruction("ssat {d}, #{bits}, {a}, asr #{n}")
def ssat_asr(bits: SignedBits, a: Int, n: RightShift) -> Int:
    """Return a >> n, limited to a signed number of `bits`."""
    return saturate_to_bits(shift_right(a, n), bits, signed=True)


@THUMB2_BITS.instruction("usat {d}, #{bits}, {a}")
def usat(bits: UnsignedBits, a: Int) -> Int:
    """Return a, limited to an unsigned number of `bits`."""
    return saturate_to_bits(a, bits, signed=False)


@THUMB2_BITS.instruction("usat {d}, #{bits}, {a}, asr #{n}")
def usat_asr(bits: UnsignedBits, a: Int, n: RightShift) -> Int:
    """Return a >> n, limited to an unsigned number of `bits`."""
    return saturate_to_bits(shift_right(a, n), bits, signed=False)
