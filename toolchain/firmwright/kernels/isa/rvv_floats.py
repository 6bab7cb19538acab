"""Rows of RISC-V vectors for floats (Zve32f).

Results are those of IEEE 754, rounded to nearest, halves to even. Which bits a result
has that is not a number is not stated. A number for all lanes is in a register of the
scalar floats.
"""

import operator
from collections.abc import Callable
from typing import Annotated

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, select
from firmwright.kernels.isa.c_numbers import CoreFloat
from firmwright.kernels.isa.instruction import Lanes, Word
from firmwright.kernels.isa.lanes import constant
from firmwright.kernels.isa.rvv_groups import RVV_FLOAT, Vectors
from firmwright.kernels.isa.vectors import (
    active,
    each,
    first_lanes,
    float_to_int,
    fused_multiply_add,
    larger_number,
    nearest_away,
    nearest_even,
    repeat,
    smaller_number,
)

_AWAY, _EVEN = "__RISCV_FRM_RMM", "__RISCV_FRM_RNE"
"""Rounds to nearest, halves away from zero or to even."""
_MASKS = {"f32m1": 32, "f32m2": 16, "f32m4": 8, "f32m8": 4}
"""How many bits of a group belong to one of its mask."""
_PAIRS = {
    "vfadd": operator.add,
    "vfsub": operator.sub,
    "vfmul": operator.mul,
    "vfdiv": operator.truediv,
    "vfmax": larger_number,
    "vfmin": smaller_number,
}


def add_floats(v: Vectors) -> None:
    """Add the rows of groups of some lanes."""
    _add_moves(v)
    for name, function in _PAIRS.items():
        v.lane_row(f"{name}_vv", function, FLOAT32, FLOAT32, FLOAT32)
        v.lane_row(f"{name}_vf", function, FLOAT32, FLOAT32, CoreFloat)
    text = "{d}, {a}, {b}"
    for form, factor in (("vv", FLOAT32), ("vf", CoreFloat)):
        v.lane_row(
            f"vfmacc_{form}",
            fused_multiply_add,
            FLOAT32,
            FLOAT32,
            factor,
            FLOAT32,
            text=text,
        )
    v.lane_row("vfcvt_f_x_v", _as_float, FLOAT32, INT32, text="{a}")
    _add_relu(v)
    _add_limit(v, "vmflt", operator.lt)
    _add_limit(v, "vmfgt", operator.gt)
    _add_conversions(v)


def _add_relu(v: Vectors) -> None:
    floats, ints = v.group(FLOAT32), v.group(INT32)
    bits = f"__riscv_vreinterpret_v_{floats}_{ints}({{a}})"
    limited = f"__riscv_vmax_vx_{ints}({bits}, 0, {{vl}})"
    name = f"relu_{floats}"

    @RVV_FLOAT.instruction(
        "", name, c=f"__riscv_vreinterpret_v_{ints}_{floats}({limited})"
    )
    def relu(
        a: Annotated[Lanes, v.of(FLOAT32)], vl: Word
    ) -> Annotated[Lanes, v.of(FLOAT32)]:
        """Return 0 in place of negative numbers: the bits are limited as integers.

        NaN stays if its sign bit is 0. That of results of arithmetic always is.
        """
        return each(lambda lane: select(lane <= 0.0, 0.0, lane), a)


def _add_limit(
    v: Vectors, comparison: str, beyond: Callable[[ArithExpr, ArithExpr], ArithExpr]
) -> None:
    """Add a row that replaces lanes beyond a number: VFMERGE by a comparison."""
    group = v.group(FLOAT32)
    mask = f"b{_MASKS[group]}"
    inside = f"__riscv_{comparison}_vf_{group}_{mask}({{a}}, {{b}}, {{vl}})"
    name = f"{comparison}_limit_{group}"

    @RVV_FLOAT.instruction(
        "", name, c=f"__riscv_vfmerge_vfm_{group}({{a}}, {{b}}, {inside}, {{vl}})"
    )
    def limit(
        a: Annotated[Lanes, v.of(FLOAT32)], b: CoreFloat, vl: Word
    ) -> Annotated[Lanes, v.of(FLOAT32)]:
        """Return b in the lanes of a that are beyond it; NaN is not."""
        return each(lambda lane: select(beyond(lane, b), b, lane), a)


def _add_moves(v: Vectors) -> None:
    @v.row("vle32_v", FLOAT32, "{address}, {vl}")
    def load(
        address: Annotated[Lanes, v.memory(FLOAT32)], vl: Word
    ) -> Annotated[Lanes, v.of(FLOAT32)]:
        """Return adjacent elements."""
        return address

    @v.row("vse32_v", FLOAT32, "{address}, {a}, {vl}")
    def store(
        a: Annotated[Lanes, v.of(FLOAT32)],
        vl: Word,
        address: Annotated[Lanes, v.memory(FLOAT32)],
    ) -> Annotated[Lanes, v.memory(FLOAT32)]:
        """Write adjacent elements."""
        return active(first_lanes(vl, v.lanes), a, address)

    @v.row("vfmv_v_f", FLOAT32, "{a}, {vl}")
    def fill(a: CoreFloat, vl: Word) -> Annotated[Lanes, v.of(FLOAT32)]:
        """Return a number in all lanes."""
        return repeat(a, v.lanes)


def _add_conversions(v: Vectors) -> None:
    name = f"vfcvt_x_f_v_{v.group(INT32)}"

    @RVV_FLOAT.instruction("", name, c=f"__riscv_{name}_rm({{a}}, {_AWAY}, {{vl}})")
    def vfcvt(
        a: Annotated[Lanes, v.of(FLOAT32)], vl: Word
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return the nearest integers, halves away from zero, saturated."""
        return each(_nearest, a)

    even = f"vfcvt_x_f_even_v_{v.group(INT32)}"

    @RVV_FLOAT.instruction("", even, c=f"__riscv_{name}_rm({{a}}, {_EVEN}, {{vl}})")
    def vfcvt_even(
        a: Annotated[Lanes, v.of(FLOAT32)], vl: Word
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return the nearest integers, halves to even, saturated."""
        return each(_nearest_even, a)

    name = f"vreinterpret_v_{v.group(INT32)}_{v.group(FLOAT32)}"

    @RVV_FLOAT.instruction("", name, c=f"__riscv_{name}({{a}})")
    def vreinterpret(
        a: Annotated[Lanes, v.of(INT32)],
    ) -> Annotated[Lanes, v.of(FLOAT32)]:
        """Return the same bits as floats; no instruction."""
        return each(lambda lane: call_intrinsic("float_of_bits", [lane], FLOAT32), a)


def _as_float(value: ArithExpr) -> ArithExpr:
    """Return the nearest float, halves to even."""
    return value.cast(FLOAT32)


def _nearest(value: ArithExpr) -> ArithExpr:
    return _saturated(value, nearest_away)


def _nearest_even(value: ArithExpr) -> ArithExpr:
    return _saturated(value, nearest_even)


def _saturated(
    value: ArithExpr, nearest: Callable[[ArithExpr], ArithExpr]
) -> ArithExpr:
    """Return `nearest` as int32, saturated; the greatest if x is not a number."""
    whole = float_to_int(value, nearest)
    return select(value.equal(value), whole, constant(INT32.max, INT32))
