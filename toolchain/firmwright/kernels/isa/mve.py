"""Helium (MVE): arithmetic of vectors of integers.

The rows have the names and the C texts of the Arm C language extensions where these
have an intrinsic. Loads and stores are in `mve_memory.py`, floats in `mve_float.py`.

A predicated row, of which the mnemonic ends in t, is the second or a later instruction
of a block that VPST begins. The predicate register has no place in texts.

Semantics: instruction descriptions of the Armv8-M architecture reference manual.
"""

from functools import partial
from typing import Annotated

from firmwright.base.dtypes import INT8, INT16, INT32, UINT8, UINT16
from firmwright.kernels.isa.dsp import DSP
from firmwright.kernels.isa.instruction import (
    Bytes16,
    Halves8,
    Immediate,
    InstructionSet,
    Int,
    Ints4,
    Predicate4,
    Predicate8,
    UnsignedBytes16,
    UnsignedHalves8,
    UnsignedInts4,
    Word,
    signature,
)
from firmwright.kernels.isa.lanes import (
    constant,
    high_product,
    shift_right,
)
from firmwright.kernels.isa.operations import lanewise, vector_row
from firmwright.kernels.isa.vectors import (
    active,
    add,
    bottom,
    each,
    high_half_of_product,
    magnitude,
    multiply,
    multiply_add,
    negate,
    products,
    repeat,
    rounding_doubling_high_product,
    saturating_add,
    shift_by_sign,
    shift_left_by,
    subtract,
    top,
)
from firmwright.kernels.isa.words import bit_xor

MVE = InstructionSet("mve", frozenset({"mve"}), DSP)
_row = partial(vector_row, MVE)

Lane4 = Annotated[int, Immediate(range(4))]
Lane8 = Annotated[int, Immediate(range(8))]
Byte = Annotated[int, Immediate(range(256))]

BINARY_BYTES = signature(Bytes16, a=Bytes16, b=Bytes16)
BINARY_HALVES = signature(Halves8, a=Halves8, b=Halves8)
BINARY_INTS = signature(Ints4, a=Ints4, b=Ints4)
HALVES_AND_NUMBER = signature(Halves8, a=Halves8, b=Int)
INTS_AND_NUMBER = signature(Ints4, a=Ints4, b=Int)

# ---- numbers in all lanes ------------------------------------------------------------


@MVE.instruction("vdup.8 {d}, {a}", c="vdupq_n_s8((int8_t){a})")
def vdupq_n_s8(a: Int) -> Bytes16:
    """Return the low byte in all lanes."""
    return repeat(a.cast(INT8), 16)


@MVE.instruction("vdup.16 {d}, {a}", c="vdupq_n_s16((int16_t){a})")
def vdupq_n_s16(a: Int) -> Halves8:
    """Return the low half in all lanes."""
    return repeat(a.cast(INT16), 8)


@MVE.instruction("vdup.16 {d}, {a}", c="vdupq_n_u16((uint16_t){a})")
def vdupq_n_u16(a: Word) -> UnsignedHalves8:
    """Return the low half in all lanes."""
    return repeat(a.cast(UINT16), 8)


@MVE.instruction("vdup.32 {d}, {a}", c="vdupq_n_s32({a})")
def vdupq_n_s32(a: Int) -> Ints4:
    """Return a number in all lanes."""
    return repeat(a, 4)


@MVE.instruction("vdup.32 {d}, {a}", c="vdupq_n_u32({a})")
def vdupq_n_u32(a: Word) -> UnsignedInts4:
    """Return a number in all lanes."""
    return repeat(a, 4)


@MVE.instruction("vmov.i32 {d}, #{value}", c="vdupq_n_s32({value})")
def vmov_i32(value: Byte) -> Ints4:
    """Return the same small number in all lanes."""
    return repeat(constant(value, INT32), 4)


@MVE.instruction("vmov.i8 {d}, #{value}", c="vdupq_n_u8({value})")
def vmov_u8(value: Byte) -> UnsignedBytes16:
    """Return the same number in all lanes."""
    return repeat(constant(value, UINT8), 16)


# ---- lanes in core registers ---------------------------------------------------------


@MVE.instruction("vmov {d}[2], {d}[0], {a}, {c}\n\tvmov {d}[3], {d}[1], {b}, {e}")
def vmov_words(a: Int, b: Int, c: Int, e: Int) -> Ints4:
    """Return a vector of four words."""
    return a, b, c, e


@MVE.instruction("vmov {d}[2], {d}[0], {a}, {b}")
def vmov_lanes_2_0(d: Ints4, a: Int, b: Int) -> Ints4:
    """Return d with lane 0 = a and lane 2 = b."""
    return a, d[1], b, d[3]


@MVE.instruction("vmov {d}[3], {d}[1], {a}, {b}")
def vmov_lanes_3_1(d: Ints4, a: Int, b: Int) -> Ints4:
    """Return d with lane 1 = a and lane 3 = b."""
    return d[0], a, d[2], b


@MVE.instruction("vmov.32 {d}, {a}[{lane}]", c="vgetq_lane_s32({a}, {lane})")
def vgetq_lane_s32(a: Ints4, lane: Lane4) -> Int:
    """Return a lane."""
    return a[lane]


@MVE.instruction("vmov.s16 {d}, {a}[{lane}]", c="vgetq_lane_s16({a}, {lane})")
def vgetq_lane_s16(a: Halves8, lane: Lane8) -> Int:
    """Return a lane, sign-extended."""
    return a[lane].cast(INT32)


# ---- sums, differences and products of lanes -----------------------------------------

vaddq_s16 = _row("vadd.i16", "vaddq_s16", BINARY_HALVES, lanewise(add))
vaddq_s32 = _row("vadd.i32", "vaddq_s32", BINARY_INTS, lanewise(add))
vaddq_n_s32 = _row("vadd.i32", "vaddq_n_s32", INTS_AND_NUMBER, lanewise(add))
vaddq_n_s16 = _row("vadd.i16", "vaddq_n_s16", HALVES_AND_NUMBER, lanewise(add))


@MVE.instruction("vaddt.i32 {d}, {a}, {b}", c="vaddq_m_n_s32({d}, {a}, {b}, {inside})")
def vaddq_m_n_s32(d: Ints4, a: Ints4, b: Int, inside: Predicate4) -> Ints4:
    """Return a + b modulo 2^32 in the lanes that are set, d in the others."""
    return active(inside, each(add, a, repeat(b, 4)), d)


vsubq_s16 = _row("vsub.i16", "vsubq_s16", BINARY_HALVES, lanewise(subtract))
vsubq_s32 = _row("vsub.i32", "vsubq_s32", BINARY_INTS, lanewise(subtract))
vsubq_n_s32 = _row("vsub.i32", "vsubq_n_s32", INTS_AND_NUMBER, lanewise(subtract))
vsubq_n_s16 = _row("vsub.i16", "vsubq_n_s16", HALVES_AND_NUMBER, lanewise(subtract))
vqaddq_s16 = _row("vqadd.s16", "vqaddq_s16", BINARY_HALVES, lanewise(saturating_add))
vqaddq_s32 = _row("vqadd.s32", "vqaddq_s32", BINARY_INTS, lanewise(saturating_add))
vqaddq_n_s16 = _row(
    "vqadd.s16", "vqaddq_n_s16", HALVES_AND_NUMBER, lanewise(saturating_add)
)
vqaddq_n_s32 = _row(
    "vqadd.s32", "vqaddq_n_s32", INTS_AND_NUMBER, lanewise(saturating_add)
)
vabsq_s16 = _row(
    "vabs.s16", "vabsq_s16", signature(Halves8, a=Halves8), lanewise(magnitude)
)
vabsq_s32 = _row(
    "vabs.s32", "vabsq_s32", signature(Ints4, a=Ints4), lanewise(magnitude)
)
vnegq_s16 = _row(
    "vneg.s16", "vnegq_s16", signature(Halves8, a=Halves8), lanewise(negate)
)
vmulq_s32 = _row("vmul.i32", "vmulq_s32", BINARY_INTS, lanewise(multiply))
vmulq_n_s32 = _row("vmul.i32", "vmulq_n_s32", INTS_AND_NUMBER, lanewise(multiply))
vmulq_n_u32 = _row(
    "vmul.i32",
    "vmulq_n_u32",
    signature(UnsignedInts4, a=UnsignedInts4, b=Word),
    lanewise(multiply),
)
vmulq_n_s16 = _row("vmul.i16", "vmulq_n_s16", HALVES_AND_NUMBER, lanewise(multiply))
vmulq_n_u16 = _row(
    "vmul.i16",
    "vmulq_n_u16",
    signature(UnsignedHalves8, a=UnsignedHalves8, b=Word),
    lanewise(multiply),
)


vmlaq_n_s16 = _row(
    "vmla.s16",
    "vmlaq_n_s16",
    signature(Halves8, d=Halves8, a=Halves8, b=Int),
    lanewise(multiply_add),
)
vmlaq_n_s32 = _row(
    "vmla.s32",
    "vmlaq_n_s32",
    signature(Ints4, d=Ints4, a=Ints4, b=Int),
    lanewise(multiply_add),
)
vmlasq_n_s32 = _row(
    "vmlas.s32",
    "vmlasq_n_s32",
    signature(Ints4, d=Ints4, a=Ints4, b=Int),
    lanewise(lambda d, a, b: multiply_add(b, d, a)),
)
vmulhq_s32 = _row("vmulh.s32", "vmulhq_s32", BINARY_INTS, lanewise(high_product))
vmulhq_u16 = _row(
    "vmulh.u16",
    "vmulhq_u16",
    signature(UnsignedHalves8, a=UnsignedHalves8, b=UnsignedHalves8),
    lanewise(high_half_of_product),
)
vmulhq_u32 = _row(
    "vmulh.u32",
    "vmulhq_u32",
    signature(UnsignedInts4, a=UnsignedInts4, b=UnsignedInts4),
    lanewise(high_half_of_product),
)
vqrdmulhq_s16 = _row(
    "vqrdmulh.s16",
    "vqrdmulhq_s16",
    BINARY_HALVES,
    lanewise(rounding_doubling_high_product),
)
vqrdmulhq_n_s16 = _row(
    "vqrdmulh.s16",
    "vqrdmulhq_n_s16",
    HALVES_AND_NUMBER,
    lanewise(rounding_doubling_high_product),
)


@MVE.instruction(
    "vqrdmulht.s16 {d}, {a}, {b}",
    c="vqrdmulhq_m_n_s16({d}, {a}, (int16_t){b}, {inside})",
)
def vqrdmulhq_m_n_s16(d: Halves8, a: Halves8, b: Int, inside: Predicate8) -> Halves8:
    """Return the high half of 2 a b, rounded, in the lanes that are set, else d."""
    factor = repeat(b.cast(INT16), 8)
    return active(inside, each(rounding_doubling_high_product, a, factor), d)


vqrdmulhq_s32 = _row(
    "vqrdmulh.s32",
    "vqrdmulhq_s32",
    BINARY_INTS,
    lanewise(rounding_doubling_high_product),
)
vqrdmulhq_n_s32 = _row(
    "vqrdmulh.s32",
    "vqrdmulhq_n_s32",
    INTS_AND_NUMBER,
    lanewise(rounding_doubling_high_product),
)


@MVE.instruction("vmullb.s8 {d}, {a}, {b}", c="vmullbq_int_s8({a}, {b})")
def vmullbq_int_s8(a: Bytes16, b: Bytes16) -> Halves8:
    """Return the products of the lanes of even number."""
    return products(bottom(a), bottom(b), INT16)


@MVE.instruction("vmullt.s8 {d}, {a}, {b}", c="vmulltq_int_s8({a}, {b})")
def vmulltq_int_s8(a: Bytes16, b: Bytes16) -> Halves8:
    """Return the products of the lanes of odd number."""
    return products(top(a), top(b), INT16)


@MVE.instruction("vmullb.s16 {d}, {a}, {b}", c="vmullbq_int_s16({a}, {b})")
def vmullbq_int_s16(a: Halves8, b: Halves8) -> Ints4:
    """Return the products of the lanes of even number."""
    return products(bottom(a), bottom(b), INT32)


@MVE.instruction("vmullt.s16 {d}, {a}, {b}", c="vmulltq_int_s16({a}, {b})")
def vmulltq_int_s16(a: Halves8, b: Halves8) -> Ints4:
    """Return the products of the lanes of odd number."""
    return products(top(a), top(b), INT32)


# ---- bits and shifts -----------------------------------------------------------------


@MVE.instruction("vand {d}, {a}, {b}", c="vandq_s16({a}, {b})")
def vandq_s16(a: Halves8, b: Halves8) -> Halves8:
    """Return the bits that are set in a and b."""
    return tuple(x & y for x, y in zip(a, b, strict=True))


@MVE.instruction("vand {d}, {a}, {b}", c="vandq_s32({a}, {b})")
def vandq_s32(a: Ints4, b: Ints4) -> Ints4:
    """Return the bits that are set in a and b."""
    return tuple(x & y for x, y in zip(a, b, strict=True))


veorq_u8 = _row(
    "veor",
    "veorq_u8",
    signature(UnsignedBytes16, a=UnsignedBytes16, b=UnsignedBytes16),
    lanewise(bit_xor),
)


@MVE.instruction("vshl.i8 {d}, {a}, #{amount}", c="vshlq_n_s8({a}, {amount})")
def vshlq_n_s8(a: Bytes16, amount: Annotated[int, Immediate(range(8))]) -> Bytes16:
    """Return a * 2^amount modulo 2^8."""
    return tuple(shift_left_by(lane, amount) for lane in a)


@MVE.instruction("vshl.i16 {d}, {a}, #{amount}", c="vshlq_n_s16({a}, {amount})")
def vshlq_n_s16(a: Halves8, amount: Annotated[int, Immediate(range(16))]) -> Halves8:
    """Return a * 2^amount modulo 2^16."""
    return tuple(shift_left_by(lane, amount) for lane in a)


@MVE.instruction("vshl.i32 {d}, {a}, #{amount}", c="vshlq_n_s32({a}, {amount})")
def vshlq_n_s32(a: Ints4, amount: Annotated[int, Immediate(range(32))]) -> Ints4:
    """Return a * 2^amount modulo 2^32."""
    return tuple(shift_left_by(lane, amount) for lane in a)


@MVE.instruction("vshr.s16 {d}, {a}, #{amount}", c="vshrq_n_s16({a}, {amount})")
def vshrq_n_s16(a: Halves8, amount: Annotated[int, Immediate(range(1, 17))]) -> Halves8:
    """Return a / 2^amount, rounded down."""
    return tuple(shift_right(lane, min(amount, 15)) for lane in a)


@MVE.instruction("vshr.s32 {d}, {a}, #{amount}", c="vshrq_n_s32({a}, {amount})")
def vshrq_n_s32(a: Ints4, amount: Annotated[int, Immediate(range(1, 33))]) -> Ints4:
    """Return a / 2^amount, rounded down."""
    return tuple(shift_right(lane, min(amount, 31)) for lane in a)


@MVE.instruction("vshl.s32 {d}, {amount}", c="vshlq_r_s32({d}, {amount})")
def vshlq_r_s32(d: Ints4, amount: Int) -> Ints4:
    """Return d * 2^amount, rounded down, modulo 2^32, by the low byte of `amount`."""
    return tuple(shift_by_sign(lane, amount, rounds=False) for lane in d)


@MVE.instruction("vshl.u16 {d}, {amount}", c="vshlq_r_u16({d}, {amount})")
def vshlq_r_u16(d: UnsignedHalves8, amount: Int) -> UnsignedHalves8:
    """Return d * 2^amount, rounded down, modulo 2^16, by the low byte of `amount`."""
    return tuple(shift_by_sign(lane, amount, rounds=False) for lane in d)


@MVE.instruction("vshl.u32 {d}, {amount}", c="vshlq_r_u32({d}, {amount})")
def vshlq_r_u32(d: UnsignedInts4, amount: Int) -> UnsignedInts4:
    """Return d * 2^amount, rounded down, modulo 2^32, by the low byte of `amount`."""
    return tuple(shift_by_sign(lane, amount, rounds=False) for lane in d)


@MVE.instruction("vrshl.s16 {d}, {amount}", c="vrshlq_n_s16({d}, {amount})")
def vrshlq_n_s16(d: Halves8, amount: Int) -> Halves8:
    """Return d * 2^amount to nearest, modulo 2^16, by the low byte of `amount`."""
    return tuple(shift_by_sign(lane, amount, rounds=True) for lane in d)


@MVE.instruction("vrshl.s32 {d}, {amount}", c="vrshlq_n_s32({d}, {amount})")
def vrshlq_n_s32(d: Ints4, amount: Int) -> Ints4:
    """Return d * 2^amount to nearest, modulo 2^32, by the low byte of `amount`."""
    return tuple(shift_by_sign(lane, amount, rounds=True) for lane in d)


@MVE.instruction("vshl.s32 {d}, {a}, {b}", c="vshlq_s32({a}, {b})")
def vshlq_s32(a: Ints4, b: Ints4) -> Ints4:
    """Return a * 2^b, rounded down, modulo 2^32, by the low bytes of b."""
    pairs = zip(a, b, strict=True)
    return tuple(shift_by_sign(lane, amount, rounds=False) for lane, amount in pairs)


@MVE.instruction("vrshl.s32 {d}, {a}, {b}", c="vrshlq_s32({a}, {b})")
def vrshlq_s32(a: Ints4, b: Ints4) -> Ints4:
    """Return a * 2^b to nearest, modulo 2^32, by the low bytes of b."""
    pairs = zip(a, b, strict=True)
    return tuple(shift_by_sign(lane, amount, rounds=True) for lane, amount in pairs)
