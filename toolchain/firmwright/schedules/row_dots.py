"""fully_connected of few outputs on vectors: each is the dot product of two rows.

Lanes of output channels would mostly be idle. Here weights are stored as they are, and
lanes are the taps of one channel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, pointers
from firmwright.kernels.contract import InterleavedChannels, TileContract
from firmwright.ops.fully_connected import has_int32_multiplier
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import has_weight_zero_point
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.computed_channels import computed_channels, integer_layer
from firmwright.schedules.gemm import GroupOperands, Tile, plan_gemm
from firmwright.schedules.scalar.gemm_tiles import multiply_windows


def dot_intrinsic(
    name: str, feature: str, text: str, count: Callable[[int], int]
) -> Intrinsic:
    """Return the dot product of bytes; `count` returns the instructions of its taps."""
    return Intrinsic(
        name=name,
        operands=(
            *pointers(INT8, x=1, w=1),
            *immediates("count"),
            Operand("total", "inout", INT32),
        ),
        meaning=lambda x, w, count, total: (
            total
            + (np.asarray(x, np.int64)[:count] * np.asarray(w, np.int64)[:count]).sum(0)
        ),
        portable=(
            "for (int32_t i = 0; i < count; ++i) {\n    total += x[i] * w[i];\n}"
        ),
        doc="Adds the products of `count` values and weights.",
        requires=feature,
        text={"gnu": text},
        count=lambda args: count(args[2]),
    )


@dataclass(frozen=True, slots=True)
class DotTile(Tile[tir.Buffer]):
    """The product of one channel and one column of `taps` bytes, by intrinsic `dot`."""

    dot: str
    taps: int

    @property
    def contract(self) -> TileContract:
        return TileContract(1, 1, InterleavedChannels(INT8, (1,)))

    def multiply(
        self, b: Kernel, group: GroupOperands, columns: tir.Buffer, sums: tir.Buffer
    ) -> None:
        x = b.pointer(columns, 0, self.taps)
        w = group.weight_pointer(b)
        b.evaluate(self.dot, [x, w, self.taps, b.load(sums, [0])])


def takes_dots(op: OpCall) -> bool:
    """Whether a fully connected layer can be computed by `build_dots`."""
    is_int8 = op.input(0).dtype == op.input(1).dtype == INT8
    return is_int8 and has_int32_multiplier(op) and not has_weight_zero_point(op)


def build_dots(dot: str, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    rows = computed_channels(b, integer_layer(op))
    requantize = partial(rows.requantize, b)
    tile = DotTile(dot, rows.taps)
    gemm = plan_gemm(b, tile, rows, rows.bias, requantize)
    multiply_windows(b, op, gemm)
