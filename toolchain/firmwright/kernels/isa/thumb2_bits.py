"""Thumb-2: shifted operands, shifts, bit fields, extensions and saturation.

Semantics: instruction descriptions of the Armv7-M architecture reference manual.
"""

from typing import Annotated

from firmwright.base.dtypes import INT8, INT16, UINT8, UINT16, UINT32
from firmwright.ir.tir.builder import select
from firmwright.kernels.isa.instruction import Immediate, InstructionSet, Int, Word
from firmwright.kernels.isa.lanes import (
    bit_or,
    constant,
    shift_left,
    shift_right,
    wrap_difference,
    wrap_sum,
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
    shift_by_register,
    sign_extend,
    signed_bit_field,
    zero_extend,
)

THUMB2_BITS = InstructionSet("thumb2_bits", frozenset({"thumb2"}), THUMB2)

LeftShift = Annotated[int, Immediate(range(32))]
RightShift = Annotated[int, Immediate(range(1, 32))]
SignedBits = Annotated[int, Immediate(range(1, 33))]
UnsignedBits = Annotated[int, Immediate(range(32))]


# ---- Shifted operands ----------------------------------------------------------------


@THUMB2_BITS.instruction("add {d}, {a}, {b}, lsl #{n}")
def add_lsl(a: Int, b: Word, n: LeftShift) -> Int:
    """Return a + (b << n) modulo 2^32."""
    return wrap_sum(a, shift_left(b, n))


@THUMB2_BITS.instruction("add {d}, {a}, {b}, lsr #{n}")
def add_lsr(a: Int, b: Word, n: RightShift) -> Int:
    """Return a + (b >> n) modulo 2^32, with an unsigned shift."""
    return wrap_sum(a, shift_right(b, n))


@THUMB2_BITS.instruction("add {d}, {a}, {b}, asr #{n}")
def add_asr(a: Int, b: Int, n: RightShift) -> Int:
    """Return a + (b >> n) modulo 2^32."""
    return wrap_sum(a, shift_right(b, n))


@THUMB2_BITS.instruction("sub {d}, {a}, {b}, lsl #{n}")
def sub_lsl(a: Int, b: Word, n: LeftShift) -> Int:
    """Return a - (b << n) modulo 2^32."""
    return wrap_difference(a, shift_left(b, n))


@THUMB2_BITS.instruction("sub {d}, {a}, {b}, asr #{n}")
def sub_asr(a: Int, b: Int, n: RightShift) -> Int:
    """Return a - (b >> n) modulo 2^32."""
    return wrap_difference(a, shift_right(b, n))


@THUMB2_BITS.instruction("rsb {d}, {a}, {b}, lsl #{n}")
def rsb_lsl(a: Int, b: Word, n: LeftShift) -> Int:
    """Return (b << n) - a modulo 2^32."""
    return wrap_difference(shift_left(b, n), a)


@THUMB2_BITS.instruction("bic {d}, {a}, {b}, asr #{n}")
def bic_asr(a: Word, b: Int, n: RightShift) -> Word:
    """Return the bits of a that are not set in b >> n; if n is 31, a or 0 for b < 0."""
    return a & bit_not(shift_right(b, n).cast(UINT32))


@THUMB2_BITS.instruction("orr {d}, {a}, {b}, lsl #{n}")
def orr_lsl(a: Word, b: Word, n: LeftShift) -> Word:
    """Return the bits that are set in a or b << n."""
    return bit_or(a, shift_left(b, n))


@THUMB2_BITS.instruction("orr {d}, {a}, {b}, lsr #{n}")
def orr_lsr(a: Word, b: Word, n: RightShift) -> Word:
    """Return the bits that are set in a or b >> n."""
    return bit_or(a, shift_right(b, n))


@THUMB2_BITS.instruction("eor {d}, {a}, {b}, asr #{n}")
def eor_asr(a: Word, b: Int, n: RightShift) -> Word:
    """Return a with the bits of b >> n inverted."""
    return bit_xor(a, shift_right(b, n).cast(UINT32))


# ---- Bits --------------------------------------------------------------------------


@THUMB2_BITS.instruction("movt {d}, #{value}")
def movt(d: Word, value: Half) -> Word:
    """Replace the high half."""
    return insert_bits(d, constant(value, UINT32), 16, 16)


@THUMB2_BITS.instruction("bic {d}, {a}, {b}")
def bic(a: Word, b: Word) -> Word:
    """Return the bits of a that are not set in b."""
    return a & bit_not(b)


@THUMB2_BITS.instruction("bic {d}, {a}, #{mask}")
def bic_immediate(a: Word, mask: Modified) -> Word:
    """Return the bits of a that are not set in `mask`."""
    return a & constant(mask ^ 0xFFFFFFFF, UINT32)


@THUMB2_BITS.instruction("clz {d}, {a}")
def clz(a: Word) -> Word:
    """Return the number of leading zeros."""
    return leading_zeros(a)


@THUMB2_BITS.instruction("rbit {d}, {a}")
def rbit(a: Word) -> Word:
    """Return the bits in reverse order."""
    return reverse_bits(a)


@THUMB2_BITS.instruction("rev {d}, {a}")
def rev(a: Word) -> Word:
    """Return the bytes in reverse order."""
    return reverse_bytes(a)


# ---- Shifts --------------------------------------------------------------------------


@THUMB2_BITS.instruction("lsl {d}, {a}, #{n}")
def lsl_immediate(a: Word, n: LeftShift) -> Word:
    """Return a << n."""
    return shift_left(a, n)


@THUMB2_BITS.instruction("lsr {d}, {a}, #{n}")
def lsr_immediate(a: Word, n: RightShift) -> Word:
    """Return a >> n, unsigned."""
    return shift_right(a, n)


@THUMB2_BITS.instruction("asr {d}, {a}, #{n}")
def asr_immediate(a: Int, n: RightShift) -> Int:
    """Return a >> n."""
    return shift_right(a, n)


@THUMB2_BITS.instruction("ror {d}, {a}, #{n}")
def ror_immediate(a: Word, n: RightShift) -> Word:
    """Return a rotated right by n bits."""
    return rotate_right(a, n)


@THUMB2_BITS.instruction("lsl {d}, {a}, {b}")
def lsl(a: Word, b: Word) -> Word:
    """Return a << n for the lowest byte n of b; 0 from 32 bits on."""
    return shift_by_register("shl", a, b)


@THUMB2_BITS.instruction("lsr {d}, {a}, {b}")
def lsr(a: Word, b: Word) -> Word:
    """Return a >> n, unsigned, for the lowest byte n of b; 0 from 32 bits on."""
    return shift_by_register("shr", a, b)


@THUMB2_BITS.instruction("asr {d}, {a}, {b}")
def asr(a: Int, b: Word) -> Int:
    """Return a >> n for the lowest byte n of b; the sign from 32 bits on."""
    return shift_by_register("shr", a, b)


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


@THUMB2_BITS.instruction("sxtb {d}, {a}")
def sxtb(a: Word) -> Int:
    """Return the lowest byte, sign-extended."""
    return sign_extend(a, INT8)


@THUMB2_BITS.instruction("sxth {d}, {a}")
def sxth(a: Word) -> Int:
    """Return the low half, sign-extended."""
    return sign_extend(a, INT16)


@THUMB2_BITS.instruction("uxtb {d}, {a}")
def uxtb(a: Word) -> Word:
    """Return the lowest byte, zero-extended."""
    return zero_extend(a, UINT8)


@THUMB2_BITS.instruction("uxth {d}, {a}")
def uxth(a: Word) -> Word:
    """Return the low half, zero-extended."""
    return zero_extend(a, UINT16)


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
