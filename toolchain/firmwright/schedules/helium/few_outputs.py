"""fully_connected of few outputs on Helium: each is the dot product of two rows.

Blocks of eight rows (fully_connected.py) would multiply mostly by rows of zeros, which
also take flash. Here weights are stored as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from firmwright.base.dtypes import INT8
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.kernels.contract import InterleavedChannels, TileContract
from firmwright.ops.fully_connected import has_int32_multiplier
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import has_weight_zero_point
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.computed_channels import computed_channels, integer_layer
from firmwright.schedules.gemm import GroupOperands, Tile, plan_gemm
from firmwright.schedules.helium.int8_dot import DOT
from firmwright.schedules.scalar.gemm_tiles import multiply_windows
from firmwright.schedules.schedule_factories import helium_schedule

_MOST_OUTPUTS = 4
"""The outputs whose dot products take as long as a block of eight rows."""


@dataclass(frozen=True, slots=True)
class DotTile(Tile[tir.Buffer]):
    """The product of one channel and one column of `taps` bytes."""

    taps: int

    @property
    def contract(self) -> TileContract:
        return TileContract(1, 1, InterleavedChannels(INT8, (1,)))

    def multiply(
        self, b: Kernel, group: GroupOperands, columns: tir.Buffer, sums: tir.Buffer
    ) -> None:
        x = b.pointer(columns, 0, self.taps)
        w = group.weight_pointer(b)
        b.evaluate(DOT.name, [x, w, self.taps, b.load(sums, [0])])


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    is_int8 = op.input(0).dtype == op.input(1).dtype == INT8
    applies = is_int8 and has_int32_multiplier(op) and not has_weight_zero_point(op)
    return (NO_CONFIG,) if applies and op.input(1).shape[0] <= _MOST_OUTPUTS else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    rows = computed_channels(b, integer_layer(op))
    requantize = partial(rows.requantize, b)
    gemm = plan_gemm(b, DotTile(rows.taps), rows, rows.bias, requantize)
    multiply_windows(b, op, gemm)


SCHEDULES = (
    helium_schedule(
        "helium.fully_connected.dots",
        "fully_connected",
        configs=_configs,
        build=_build,
    ),
)
