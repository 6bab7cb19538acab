"""fully_connected of few outputs on RISC-V vectors: dot products (row_dots.py)."""

from collections.abc import Sequence
from functools import partial

from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.row_dots import (
    RowIntrinsics,
    build_dots,
    dot_intrinsic,
    sum_intrinsic,
    takes_dots,
)

_LANES = 64
"""Bytes of four registers of 128 bits."""
_C = read_sections(__file__)
_DOT = dot_intrinsic(
    "rvv_dot_int8", "rvv", _C["dot"], lambda taps: 5 + 11 * divide_up(taps, _LANES)
)
_SUM = sum_intrinsic(
    "rvv_sum_int8", "rvv", _C["sum"], lambda taps: 5 + 8 * divide_up(taps, _LANES)
)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    return (NO_CONFIG,) if takes_dots(op) else ()


INTRINSICS = (_DOT, _SUM)
SCHEDULES = (
    Schedule(
        "rvv.fully_connected.dots",
        "fully_connected",
        frozenset({"rvv"}),
        _configs,
        partial(build_dots, RowIntrinsics(_DOT.name, _SUM.name)),
        takes_weight_zero_point=True,
        disable_scheduling=True,
    ),
)
