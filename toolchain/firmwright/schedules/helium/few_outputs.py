"""fully_connected of few outputs on Helium: dot products of rows (row_dots.py).

Blocks of eight rows (fully_connected.py) would multiply mostly by rows of zeros, which
also take flash.
"""

from collections.abc import Sequence
from functools import partial

from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.requantize import has_weight_zero_point
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.computed_channels import count_computed
from firmwright.schedules.helium.int8_dot import DOT
from firmwright.schedules.row_dots import RowIntrinsics, build_dots, takes_dots
from firmwright.schedules.schedule_factories import helium_schedule

_MOST_OUTPUTS = 4
"""The dot products that take as long as a block of eight rows."""


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    applies = takes_dots(op) and not has_weight_zero_point(op)
    return (NO_CONFIG,) if applies and count_computed(op) <= _MOST_OUTPUTS else ()


SCHEDULES = (
    helium_schedule(
        "helium.fully_connected.dots",
        "fully_connected",
        configs=_configs,
        build=partial(build_dots, RowIntrinsics(DOT.name)),
    ),
)
