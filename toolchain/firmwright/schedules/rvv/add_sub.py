"""add and sub of int8 tensors of equal shape on RISC-V vectors."""

from collections.abc import Iterator, Sequence
from functools import partial

from firmwright.base.dtypes import INT8
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.elementwise import ElementLoop, riscv_text
from firmwright.kernels.isa.c_numbers import right_shift
from firmwright.kernels.isa.rvv import RVV
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.rescaled_sum import left_shift
from firmwright.ops.schedule import Schedule
from firmwright.schedules.helium.add_sub import (
    OPERATORS,
    SumRows,
    build_sum,
    make_sum,
    sum_configs,
    sum_loop,
)
from firmwright.schedules.rvv import vector_requantize
from firmwright.schedules.rvv.vector_requantize import NOMINAL_LANES

_ROWS = SumRows(
    RVV.rows["vsub_vx_i32m8"],
    RVV.rows["vsll_vx_i32m8"],
    RVV.rows["vsmul_vx_i32m8"],
    RVV.rows["vadd_vv_i32m8"],
    RVV.rows["vsra_vx_i32m8"],
    RVV.rows["vssra_vx_i32m8"],
    lambda k, shift: k(right_shift, shift),
)


def vector_sum(name: str) -> ElementLoop:
    """Return the sum or difference on vectors of int32."""

    def compute(k: VectorBuilder, inputs: Sequence[VirtualRegister]) -> VirtualRegister:
        wide = [k(RVV.rows["vsext_vf4_i32m8"], each) for each in inputs]
        combine = RVV.rows[f"v{name}_vv_i32m8"]
        total = _ROWS.total(k, wide, combine, left_shift(INT8))
        amount = k(right_shift, k.number("shift"))
        short = k.named("short_total", RVV.rows["vnclip_wx_i16m4"], total, amount)
        zero_point = k.number("zero_point")
        return vector_requantize.limit_lanes(k, short, NOMINAL_LANES, zero_point)

    return sum_loop(INT8, compute)


def _sums() -> Iterator[Intrinsic]:
    for name, sign in OPERATORS:
        text = riscv_text(vector_sum(name), NOMINAL_LANES)
        yield from make_sum(name, sign, "rvv", text, NOMINAL_LANES)


INTRINSICS = tuple(_sums())
SCHEDULES = tuple(
    Schedule(
        f"rvv.{name}.vectors",
        name,
        frozenset({"rvv"}),
        sum_configs,
        partial(build_sum, family="rvv"),
    )
    for name, _ in OPERATORS
)
