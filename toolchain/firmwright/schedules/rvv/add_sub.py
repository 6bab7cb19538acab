"""add, sub and mul of tensors of equal shape on RISC-V vectors."""

from collections.abc import Iterator, Sequence
from functools import partial

from firmwright.base.dtypes import INT8, INT16, DType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.elementwise import ElementLoop, riscv_text
from firmwright.kernels.isa.c_numbers import right_shift
from firmwright.kernels.isa.rvv import RVV
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.rescaled_sum import left_shift
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.schedules.helium.add_sub import (
    OPERATORS,
    SumRows,
    build_sum,
    make_sum,
    sum_configs,
    sum_loop,
)
from firmwright.schedules.rvv.endings import NOMINAL_LANES, limit_lanes

_ROWS = SumRows(
    RVV.rows["vsub_vx_i32m8"],
    RVV.rows["vsll_vx_i32m8"],
    RVV.rows["vsmul_vx_i32m8"],
    RVV.rows["vadd_vv_i32m8"],
    RVV.rows["vsra_vx_i32m8"],
    RVV.rows["vssra_vx_i32m8"],
    lambda k, shift: k(right_shift, shift),
)
_EXTEND = {INT8: RVV.rows["vsext_vf4_i32m8"], INT16: RVV.rows["vsext_vf2_i32m8"]}
PAIRS = (*OPERATORS, ("mul", 0))


def vector_sum(name: str, dtype: DType) -> ElementLoop:
    """Return the sum, difference or product on vectors of int32."""

    def compute(k: VectorBuilder, inputs: Sequence[VirtualRegister]) -> VirtualRegister:
        wide = [k(_EXTEND[dtype], each) for each in inputs]
        combine = RVV.rows[f"v{name}_vv_i32m8"]
        left = None if name == "mul" else left_shift(dtype)
        total = _ROWS.total(k, wide, combine, left)
        amount = k(right_shift, k.number("shift"))
        short = k.named("short_total", RVV.rows["vnclip_wx_i16m4"], total, amount)
        # A zero point of int16 could come back from beyond 16 bits; there is none.
        zero_point = k.number("zero_point") if dtype == INT8 else None
        return limit_lanes(k, short, NOMINAL_LANES, zero_point, dtype)

    return sum_loop(dtype, compute)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if op.output.dtype == INT16 and per_tensor_quant(op.output).zero_point:
        return ()
    return sum_configs(op, (INT8, INT16))


def _sums() -> Iterator[Intrinsic]:
    for dtype in (INT8, INT16):
        for name, sign in PAIRS:
            text = riscv_text(vector_sum(name, dtype), NOMINAL_LANES)
            yield from make_sum(name, sign, "rvv", text, NOMINAL_LANES, dtype)


INTRINSICS = tuple(_sums())
SCHEDULES = tuple(
    Schedule(
        f"rvv.{name}.vectors",
        name,
        frozenset({"rvv"}),
        _configs,
        partial(build_sum, family="rvv"),
    )
    for name, _ in PAIRS
)
