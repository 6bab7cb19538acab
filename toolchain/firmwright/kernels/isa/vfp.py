"""FPv4-SP and FPv5: single-precision arithmetic and multiple loads.

Results are those of IEEE 754, rounded to nearest, halves to even, as after a reset.
Which bits a result has that is not a number is not stated. Fused multiply-add has no
row: TIR cannot state a sum of an exact product.

Semantics: instruction descriptions of the Armv7-M architecture reference manual.
"""

import operator
from typing import Annotated

from firmwright.base.dtypes import FLOAT32, INT32, DType
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.kernels.isa.instruction import (
    AddressForm,
    Float,
    Instr,
    InstructionSet,
    Int,
    Lanes,
    Memory,
    RegisterClass,
    RegisterPlace,
    signature,
)
from firmwright.kernels.isa.thumb2 import THUMB2
from firmwright.kernels.isa.vectors import float_to_int, nearest_even

VFP = InstructionSet("vfp", frozenset({"fpu"}), THUMB2)

MOST_IN_GROUP = 16
"""Registers of the longest multiple load that micro-kernels use."""
IntInFloat = Annotated[ArithExpr, RegisterPlace(RegisterClass.FLOAT, INT32)]
"""An integer in a register of the FPU."""
BINARY_FLOAT = signature(Float, a=Float, b=Float)


def _memory(count: int, dtype: DType = FLOAT32) -> Memory:
    return Memory(dtype, count, range(1), can_advance=True, form=AddressForm.MULTIPLE)


def _group(count: int, dtype: DType = FLOAT32) -> RegisterPlace:
    """Return `count` adjacent registers."""
    return RegisterPlace(RegisterClass.FLOAT, dtype, count)


vadd_f32 = VFP.row("vadd.f32 {d}, {a}, {b}", BINARY_FLOAT, operator.add)
vsub_f32 = VFP.row("vsub.f32 {d}, {a}, {b}", BINARY_FLOAT, operator.sub)
vmul_f32 = VFP.row("vmul.f32 {d}, {a}, {b}", BINARY_FLOAT, operator.mul)
vdiv_f32 = VFP.row("vdiv.f32 {d}, {a}, {b}", BINARY_FLOAT, operator.truediv)


@VFP.instruction("vmla.f32 {d}, {a}, {b}")
def vmla_f32(d: Float, a: Float, b: Float) -> Float:
    """Return d + a * b, rounded after the product and after the sum."""
    return d + a * b


@VFP.instruction("vsqrt.f32 {d}, {a}")
def vsqrt_f32(a: Float) -> Float:
    """Return the square root of a."""
    return call_intrinsic("sqrt_f32", [a], FLOAT32)


@VFP.instruction("vcvt.s32.f32 {d}, {a}")
def vcvt_s32_f32(a: Float) -> IntInFloat:
    """Return the integer next to a towards 0, saturated; 0 if not a number."""
    return float_to_int(a, lambda x: x.cast(INT32))


@VFP.instruction("vcvtr.s32.f32 {d}, {a}")
def vcvtr_s32_f32(a: Float) -> IntInFloat:
    """Return the nearest integer, halves to even, saturated; 0 if not a number."""
    return float_to_int(a, nearest_even)


@VFP.instruction("vmov {d}, {a}")
def vmov_to_core(a: IntInFloat) -> Int:
    """Return the bits of a register of the FPU."""
    return a


def _multiple_load(count: int, dtype: DType) -> Instr:
    kind = "" if dtype.is_float else f"{dtype.name}_"

    @VFP.instruction("vldmia {address}, {{{d}}}", name=f"vldmia_{kind}{count}")
    def load(
        address: Annotated[Lanes, _memory(count, dtype)],
    ) -> Annotated[Lanes, _group(count, dtype)]:
        """Return adjacent words in adjacent registers."""
        return address

    return load


def _multiple_store(count: int) -> Instr:
    @VFP.instruction("vstmia {address}, {{{a}}}", name=f"vstmia_{count}")
    def store(
        a: Annotated[Lanes, _group(count)],
    ) -> Annotated[Lanes, _memory(count)]:
        """Write adjacent registers to adjacent floats."""
        return a

    return store


_COUNTS = range(1, MOST_IN_GROUP + 1)
VLDMIA = {count: _multiple_load(count, FLOAT32) for count in _COUNTS}
"""Loads of some floats to as many adjacent registers, by their number."""
VLDMIA_INTS = {count: _multiple_load(count, INT32) for count in _COUNTS}
"""Loads of some integers, which registers of the FPU then hold."""
VSTMIA = {count: _multiple_store(count) for count in _COUNTS}
"""Stores of some adjacent registers, by their number."""
