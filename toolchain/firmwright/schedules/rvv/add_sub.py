"""add and sub of int8 tensors of equal shape on RISC-V vectors."""

from functools import partial

from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.ops.schedule import Schedule
from firmwright.schedules.helium.add_sub import (
    OPERATORS,
    build_sum,
    make_sum,
    sum_configs,
)
from firmwright.schedules.rvv.vector_requantize import NOMINAL_LANES

_TEXT = read_sections(__file__)["text"]


def _sum(name: str, sign: int) -> Intrinsic:
    text = fill_text(_TEXT, sum=f"__riscv_v{name}_vv_i32m8")
    return make_sum(name, sign, "rvv", text, NOMINAL_LANES)


INTRINSICS = tuple(_sum(name, sign) for name, sign in OPERATORS)
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
