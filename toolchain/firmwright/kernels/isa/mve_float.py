"""Helium with floats (MVE-F): arithmetic of vectors of four floats.

Vectors compute with the standard settings whatever FPSCR says: subnormal operands and
results are zero of the same sign, and every result that is not a number has the same
bits. The rows state neither: they hold where no operand and no result is subnormal.

Semantics: instruction descriptions of the Armv8-M architecture reference manual.
"""

import operator
from functools import partial

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, select
from firmwright.kernels.isa.c_numbers import CoreFloat
from firmwright.kernels.isa.instruction import (
    Floats4,
    InstructionSet,
    Ints4,
    Predicate4,
    signature,
)
from firmwright.kernels.isa.lanes import constant
from firmwright.kernels.isa.mve import Lane4
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.isa.operations import lanewise, vector_row
from firmwright.kernels.isa.vectors import (
    active,
    cast,
    each,
    float_to_int,
    fused_multiply_add,
    larger_number,
    nearest_away,
    nearest_even,
    repeat,
    smaller_number,
)

MVE_FLOAT = InstructionSet("mve_float", frozenset({"mvefp"}), MVE_MEMORY)
_row = partial(vector_row, MVE_FLOAT)

BINARY_FLOATS = signature(Floats4, a=Floats4, b=Floats4)
FLOATS_AND_NUMBER = signature(Floats4, a=Floats4, b=CoreFloat)


@MVE_FLOAT.instruction("vmov.i32 {d}, #0", c="vdupq_n_f32(0.0f)")
def zero_f32() -> Floats4:
    """Return 0 in all lanes."""
    return repeat(constant(0, FLOAT32), 4)


@MVE_FLOAT.instruction("vdup.32 {d}, {a}", c="vdupq_n_f32({a})")
def vdupq_n_f32(a: CoreFloat) -> Floats4:
    """Return a number in all lanes."""
    return repeat(a, 4)


@MVE_FLOAT.instruction("vmov.32 {d}, {a}[{lane}]", c="vgetq_lane_f32({a}, {lane})")
def vgetq_lane_f32(a: Floats4, lane: Lane4) -> CoreFloat:
    """Return a lane."""
    return a[lane]


@MVE_FLOAT.instruction("vmov.32 {d}[{lane}], {a}", c="vsetq_lane_f32({a}, {d}, {lane})")
def vsetq_lane_f32(d: Floats4, a: CoreFloat, lane: Lane4) -> Floats4:
    """Return d with a in a lane."""
    return (*d[:lane], a, *d[lane + 1 :])


vaddq_f32 = _row("vadd.f32", "vaddq_f32", BINARY_FLOATS, lanewise(operator.add))
vaddq_n_f32 = _row("vadd.f32", "vaddq_n_f32", FLOATS_AND_NUMBER, lanewise(operator.add))
vsubq_f32 = _row("vsub.f32", "vsubq_f32", BINARY_FLOATS, lanewise(operator.sub))
vmulq_f32 = _row("vmul.f32", "vmulq_f32", BINARY_FLOATS, lanewise(operator.mul))
vmulq_n_f32 = _row("vmul.f32", "vmulq_n_f32", FLOATS_AND_NUMBER, lanewise(operator.mul))
vfmaq_f32 = _row(
    "vfma.f32",
    "vfmaq_f32",
    signature(Floats4, d=Floats4, a=Floats4, b=Floats4),
    lanewise(fused_multiply_add),
)
vfmaq_n_f32 = _row(
    "vfma.f32",
    "vfmaq_n_f32",
    signature(Floats4, d=Floats4, a=Floats4, b=CoreFloat),
    lanewise(fused_multiply_add),
)


@MVE_FLOAT.instruction(
    "vfmat.f32 {d}, {a}, {b}", c="vfmaq_m_n_f32({d}, {a}, {b}, {inside})"
)
def vfmaq_m_n_f32(d: Floats4, a: Floats4, b: CoreFloat, inside: Predicate4) -> Floats4:
    """Return d + a * b, rounded once, in the lanes that are set, d in the others."""
    return active(inside, each(fused_multiply_add, d, a, repeat(b, 4)), d)


vmaxnmq_f32 = _row("vmaxnm.f32", "vmaxnmq_f32", BINARY_FLOATS, lanewise(larger_number))
vminnmq_f32 = _row("vminnm.f32", "vminnmq_f32", BINARY_FLOATS, lanewise(smaller_number))


@MVE_FLOAT.instruction("vcmp.f32 eq, {a}, {b}", c="vcmpeqq_f32({a}, {b})")
def vcmpeqq_f32(a: Floats4, b: Floats4) -> Predicate4:
    """Return the lanes in which a equals b."""
    return each(ArithExpr.equal, a, b)


@MVE_FLOAT.instruction("vcmp.f32 gt, {a}, {b}", c="vcmpgtq_f32({a}, {b})")
def vcmpgtq_f32(a: Floats4, b: Floats4) -> Predicate4:
    """Return the lanes in which a is greater than b, none of them NaN.

    VCMP with the condition LT or LE also holds where a lane is NaN.
    """
    return each(operator.gt, a, b)


@MVE_FLOAT.instruction("vpsel {d}, {a}, {b}", c="vpselq_f32({a}, {b}, {inside})")
def vpselq_f32(a: Floats4, b: Floats4, inside: Predicate4) -> Floats4:
    """Return a in the lanes that are set in the predicate, b in the others."""
    return active(inside, a, b)


@MVE_FLOAT.instruction(
    "",
    c="vreinterpretq_f32_s32(vmaxq_s32(vreinterpretq_s32_f32({a}), vdupq_n_s32(0)))",
)
def relu_f32(a: Floats4) -> Floats4:
    """Return 0 in place of negative numbers: the bits are limited as integers.

    NaN stays if its sign bit is 0. That of results of Helium's arithmetic always is.
    """
    return each(lambda lane: select(lane <= 0.0, 0.0, lane), a)


@MVE_FLOAT.instruction("vcvt.f32.s32 {d}, {a}", c="vcvtq_f32_s32({a})")
def vcvtq_f32_s32(a: Ints4) -> Floats4:
    """Return the nearest floats, halves to even."""
    return cast(a, FLOAT32)


@MVE_FLOAT.instruction("vcvtn.s32.f32 {d}, {a}", c="vcvtnq_s32_f32({a})")
def vcvtnq_s32_f32(a: Floats4) -> Ints4:
    """Return the nearest integers, halves to even, saturated; 0 if not a number."""
    return tuple(float_to_int(lane, nearest_even) for lane in a)


@MVE_FLOAT.instruction("vcvta.s32.f32 {d}, {a}", c="vcvtaq_s32_f32({a})")
def vcvtaq_s32_f32(a: Floats4) -> Ints4:
    """Return the nearest integers, halves away from 0, saturated; 0 if not a number."""
    return tuple(float_to_int(lane, nearest_away) for lane in a)


@MVE_FLOAT.instruction("", c="vreinterpretq_f32_s32({a})")
def vreinterpretq_f32_s32(a: Ints4) -> Floats4:
    """Return the bits of a as floats; no instruction, the register is the same."""
    return tuple(call_intrinsic("float_of_bits", [lane], FLOAT32) for lane in a)
