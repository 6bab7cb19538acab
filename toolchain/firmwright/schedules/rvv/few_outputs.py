"""fully_connected of few outputs on RISC-V vectors: dot products (row_dots.py)."""

from collections.abc import Sequence
from functools import partial

from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.row_dots import build_dots, dot_intrinsic, takes_dots

_LANES = 64
"""Bytes of four registers of 128 bits."""
_DOT = dot_intrinsic(
    "rvv_dot_int8",
    "rvv",
    read_sections(__file__)["dot"],
    lambda taps: 5 + 11 * divide_up(taps, _LANES),
)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    return (NO_CONFIG,) if takes_dots(op) else ()


INTRINSICS = (_DOT,)
SCHEDULES = (
    Schedule(
        "rvv.fully_connected.dots",
        "fully_connected",
        frozenset({"rvv"}),
        _configs,
        partial(build_dots, _DOT.name),
        disable_scheduling=True,
    ),
)
