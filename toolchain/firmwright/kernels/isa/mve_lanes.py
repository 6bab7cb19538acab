"""Helium (MVE): widths, limits and sums of integer lanes, and predicates.

Semantics: instruction descriptions of the Armv8-M architecture reference manual.
"""

from collections.abc import Callable
from functools import partial

from firmwright.base.dtypes import INT8, INT16, INT32, DType
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum
from firmwright.kernels.isa.instruction import (
    Bytes16,
    EvenInt,
    Halves8,
    Instr,
    InstructionSet,
    Int,
    Ints4,
    Lanes,
    Predicate4,
    Predicate8,
    Predicate16,
    RegisterPlace,
    UnsignedHalves8,
    UnsignedInts4,
    Word,
    signature,
)
from firmwright.kernels.isa.lanes import constant, join_halves, sum_lanes
from firmwright.kernels.isa.mve import BINARY_BYTES, BINARY_HALVES, BINARY_INTS, MVE
from firmwright.kernels.isa.operations import lanewise, vector_row
from firmwright.kernels.isa.vectors import (
    active,
    active_or_zero,
    bottom,
    cast,
    each,
    first_lanes,
    interleave,
    largest,
    pack_bits,
    products,
    replace_low,
    saturate_cast,
    saturate_cast_lanes,
    split_words,
    top,
    unpack_bits,
)

MVE_LANES = InstructionSet("mve_lanes", frozenset({"mve"}), MVE)
_row = partial(vector_row, MVE_LANES)

# ---- widths --------------------------------------------------------------------------


@MVE_LANES.instruction("vmovlb.s16 {d}, {a}", c="vmovlbq_s16({a})")
def vmovlbq_s16(a: Halves8) -> Ints4:
    """Return the lanes of even number, sign-extended."""
    return cast(bottom(a), INT32)


@MVE_LANES.instruction("vmovlt.s16 {d}, {a}", c="vmovltq_s16({a})")
def vmovltq_s16(a: Halves8) -> Ints4:
    """Return the lanes of odd number, sign-extended."""
    return cast(top(a), INT32)


# VQMOVNB and VQMOVNT write every second narrow lane:
#
#     a            |      a1       |      a0       |
#     VQMOVNB to d | d.3   | sat a1| d.1   | sat a0|
#     VQMOVNT to d | sat a1| d.2   | sat a0| d.0   |


def _narrow_bottom(d: Lanes, a: Lanes) -> Lanes:
    """Return d with a, saturated, in the lanes of even number."""
    return interleave(saturate_cast_lanes(a, d[0].expr.dtype), top(d))


def _narrow_top(d: Lanes, a: Lanes) -> Lanes:
    """Return d with a, saturated, in the lanes of odd number."""
    return interleave(bottom(d), saturate_cast_lanes(a, d[0].expr.dtype))


_HALVES_OF_INTS = signature(Halves8, d=Halves8, a=Ints4)
_BYTES_OF_HALVES = signature(Bytes16, d=Bytes16, a=Halves8)
vqmovnbq_s32 = _row("vqmovnb.s32", "vqmovnbq_s32", _HALVES_OF_INTS, _narrow_bottom)
vqmovntq_s32 = _row("vqmovnt.s32", "vqmovntq_s32", _HALVES_OF_INTS, _narrow_top)
vqmovnbq_s16 = _row("vqmovnb.s16", "vqmovnbq_s16", _BYTES_OF_HALVES, _narrow_bottom)
vqmovntq_s16 = _row("vqmovnt.s16", "vqmovntq_s16", _BYTES_OF_HALVES, _narrow_top)


@MVE_LANES.instruction("vqmovnb.s32 {d}, {d}")
def narrow_words_in_place(d: Ints4) -> Ints4:
    """Return d with the low halves replaced by the saturated words."""
    return tuple(replace_low(lane, saturate_cast(lane, INT16)) for lane in d)


@MVE_LANES.instruction("vqmovnb.s16 {d}, {d}")
def narrow_halves_in_place(d: Halves8) -> Halves8:
    """Return d with the low bytes replaced by the saturated halves."""
    return tuple(replace_low(lane, saturate_cast(lane, INT8)) for lane in d)


@MVE_LANES.instruction("vqmovnb.s32 {d}, {d}\n\tvqmovnb.s16 {d}, {d}")
def narrow_words_twice_in_place(d: Ints4) -> Ints4:
    """Return d with the low bytes replaced by the saturated words.

    Byte 2 becomes the saturated upper half.
    """
    lanes = split_words(narrow_words_in_place.apply(d)[0], INT16)
    narrow = narrow_halves_in_place.apply(lanes)[0]
    pairs = each(join_halves, bottom(narrow), top(narrow))
    return cast(pairs, INT32)


@MVE_LANES.instruction("vqmovnb.s32 {d}, {d}\n\tvqmovnt.s32 {d}, {a}")
def narrow_words_together(d: Ints4, a: Ints4) -> Ints4:
    """Return saturated words: those of d in the low halves, those of a in the upper."""
    low, high = saturate_cast_lanes(d, INT16), saturate_cast_lanes(a, INT16)
    return cast(each(join_halves, low, high), INT32)


@MVE_LANES.instruction("vqmovnb.s16 {d}, {d}\n\tvqmovnt.s16 {d}, {a}")
def narrow_halves_together(d: Halves8, a: Halves8) -> Halves8:
    """Return saturated halves: those of d in the low bytes, those of a in the upper."""
    low, high = saturate_cast_lanes(d, INT8), saturate_cast_lanes(a, INT8)
    raised = tuple(lane.cast(INT16) * 256 for lane in high)
    return each(replace_low, raised, low)


def _reinterpret(
    name: str, result: object, a: object, function: Callable[[Lanes, DType], Lanes]
) -> Instr:
    """Add another type of the same register; it is no instruction."""
    operands = signature(result, a=a)
    (place,) = (item.place for item in operands.results)
    assert isinstance(place, RegisterPlace)
    dtype = place.dtype

    def semantics(a: Lanes) -> Lanes:
        return function(a, dtype)

    return MVE_LANES.row("", operands, semantics, name, f"{name}({{a}})")


vreinterpretq_s16_s32 = _reinterpret(
    "vreinterpretq_s16_s32", Halves8, Ints4, split_words
)
vreinterpretq_s8_s16 = _reinterpret(
    "vreinterpretq_s8_s16", Bytes16, Halves8, split_words
)
vreinterpretq_u16_s16 = _reinterpret(
    "vreinterpretq_u16_s16", UnsignedHalves8, Halves8, cast
)
vreinterpretq_s16_u16 = _reinterpret(
    "vreinterpretq_s16_u16", Halves8, UnsignedHalves8, cast
)
vreinterpretq_u32_s32 = _reinterpret(
    "vreinterpretq_u32_s32", UnsignedInts4, Ints4, cast
)
vreinterpretq_s32_u32 = _reinterpret(
    "vreinterpretq_s32_u32", Ints4, UnsignedInts4, cast
)


# ---- limits --------------------------------------------------------------------------

vmaxq_s8 = _row("vmax.s8", "vmaxq_s8", BINARY_BYTES, lanewise(maximum))
vmaxq_s16 = _row("vmax.s16", "vmaxq_s16", BINARY_HALVES, lanewise(maximum))
vmaxq_s32 = _row("vmax.s32", "vmaxq_s32", BINARY_INTS, lanewise(maximum))
vmaxq_u32 = _row(
    "vmax.u32",
    "vmaxq_u32",
    signature(UnsignedInts4, a=UnsignedInts4, b=UnsignedInts4),
    lanewise(maximum),
)
vminq_s8 = _row("vmin.s8", "vminq_s8", BINARY_BYTES, lanewise(minimum))
vminq_s16 = _row("vmin.s16", "vminq_s16", BINARY_HALVES, lanewise(minimum))
vminq_s32 = _row("vmin.s32", "vminq_s32", BINARY_INTS, lanewise(minimum))
vmaxvq_s32 = _row("vmaxv.s32", "vmaxvq_s32", signature(Int, d=Int, a=Ints4), largest)
vmaxvq_u32 = _row(
    "vmaxv.u32", "vmaxvq_u32", signature(Word, d=Word, a=UnsignedInts4), largest
)

# ---- sums over lanes -----------------------------------------------------------------


def _sum_of_products(a: Lanes, b: Lanes) -> ArithExpr:
    return sum_lanes(constant(0, INT32), products(a, b, INT32))


def _add_products(d: ArithExpr, a: Lanes, b: Lanes) -> ArithExpr:
    """Return d plus the products of lanes modulo 2^32."""
    return sum_lanes(d, products(a, b, INT32))


_OF_BYTES = signature(EvenInt, a=Bytes16, b=Bytes16)
_AND_BYTES = signature(EvenInt, d=EvenInt, a=Bytes16, b=Bytes16)
_OF_HALVES = signature(EvenInt, a=Halves8, b=Halves8)
_AND_HALVES = signature(EvenInt, d=EvenInt, a=Halves8, b=Halves8)
vmladavq_s8 = _row("vmladav.s8", "vmladavq_s8", _OF_BYTES, _sum_of_products)
vmladavaq_s8 = _row("vmladava.s8", "vmladavaq_s8", _AND_BYTES, _add_products)
vmladavq_s16 = _row("vmladav.s16", "vmladavq_s16", _OF_HALVES, _sum_of_products)
vmladavaq_s16 = _row("vmladava.s16", "vmladavaq_s16", _AND_HALVES, _add_products)


@MVE_LANES.instruction("vaddva.s8 {d}, {a}", c="vaddvaq_s8({d}, {a})")
def vaddvaq_s8(d: EvenInt, a: Bytes16) -> EvenInt:
    """Return d plus the lanes of a modulo 2^32."""
    return sum_lanes(d, cast(a, INT32))


@MVE_LANES.instruction("vaddvat.s8 {d}, {a}", c="vaddvaq_p_s8({d}, {a}, {inside})")
def vaddvaq_p_s8(d: EvenInt, a: Bytes16, inside: Predicate16) -> EvenInt:
    """Return d plus the lanes of a that are set in the predicate, modulo 2^32."""
    return sum_lanes(d, cast(active_or_zero(inside, a), INT32))


# ---- predicates ----------------------------------------------------------------------

# The predicate has a bit for each byte of a vector, and the lanes of wider elements
# have as many equal ones.


@MVE_LANES.instruction("vctp.8 {a}", c="vctp8q({a})")
def vctp8q(a: Word) -> Predicate16:
    """Return a predicate of the first a lanes."""
    return first_lanes(a, 16)


@MVE_LANES.instruction("vctp.16 {a}", c="vctp16q({a})")
def vctp16q(a: Word) -> Predicate8:
    """Return a predicate of the first a lanes."""
    return first_lanes(a, 8)


@MVE_LANES.instruction("vctp.32 {a}", c="vctp32q({a})")
def vctp32q(a: Word) -> Predicate4:
    """Return a predicate of the first a lanes."""
    return first_lanes(a, 4)


@MVE_LANES.instruction("vmrs {d}, p0")
def vmrs(inside: Predicate16) -> Word:
    """Return the predicate as bits of a register."""
    return pack_bits(inside)


@MVE_LANES.instruction("vmsr p0, {a}")
def vmsr(a: Word) -> Predicate16:
    """Return the low 16 bits of a register as a predicate."""
    return unpack_bits(a, 16)


@MVE_LANES.instruction("vcmp.s16 lt, {a}, {b}", c="vcmpltq_n_s16({a}, (int16_t){b})")
def vcmpltq_n_s16(a: Halves8, b: Int) -> Predicate8:
    """Return the lanes of a that are less than b."""
    return tuple(lane < b.cast(INT16) for lane in a)


@MVE_LANES.instruction("vcmp.i16 eq, {a}, {b}", c="vcmpeqq_n_s16({a}, (int16_t){b})")
def vcmpeqq_n_s16(a: Halves8, b: Int) -> Predicate8:
    """Return the lanes of a that equal b."""
    return tuple(lane.equal(b.cast(INT16)) for lane in a)


@MVE_LANES.instruction("vcmp.s32 lt, {a}, {b}", c="vcmpltq_n_s32({a}, {b})")
def vcmpltq_n_s32(a: Ints4, b: Int) -> Predicate4:
    """Return the lanes of a that are less than b."""
    return tuple(lane < b for lane in a)


@MVE_LANES.instruction("vpsel {d}, {a}, {b}", c="vpselq_s16({a}, {b}, {inside})")
def vpselq_s16(a: Halves8, b: Halves8, inside: Predicate8) -> Halves8:
    """Return a in the lanes that are set in the predicate, b in the others."""
    return active(inside, a, b)


@MVE_LANES.instruction("vpsel {d}, {a}, {b}", c="vpselq_s32({a}, {b}, {inside})")
def vpselq_s32(a: Ints4, b: Ints4, inside: Predicate4) -> Ints4:
    """Return a in the lanes that are set in the predicate, b in the others."""
    return active(inside, a, b)
