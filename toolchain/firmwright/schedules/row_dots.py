"""fully_connected of few outputs on vectors: each is the dot product of two rows.

Lanes of output channels would mostly be idle. Here weights are stored as they are, with
their zero point, and lanes are the taps of one channel.
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
from firmwright.ops.requantize import weight_zero_point
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.computed_channels import computed_channels, integer_layer
from firmwright.schedules.gemm import Correction, GroupOperands, Tile, plan_gemm
from firmwright.schedules.scalar.gemm_tiles import (
    StoredOffset,
    multiply_windows,
    stored_offset,
)

_COUNT_AND_TOTAL = (*immediates("count"), Operand("total", "inout", INT32))


def _portable_sum(term: str) -> str:
    return f"for (int32_t i = 0; i < count; ++i) {{\n    total += {term};\n}}"


def dot_intrinsic(
    name: str, feature: str, text: str, count: Callable[[int], int]
) -> Intrinsic:
    """Return the dot product of bytes; `count` returns the instructions of its taps."""
    return Intrinsic(
        name=name,
        operands=(*pointers(INT8, x=1, w=1), *_COUNT_AND_TOTAL),
        meaning=lambda x, w, count, total: (
            total
            + (np.asarray(x, np.int64)[:count] * np.asarray(w, np.int64)[:count]).sum(0)
        ),
        portable=_portable_sum("x[i] * w[i]"),
        doc="Adds the products of `count` values and weights.",
        requires=feature,
        text={"gnu": text},
        count=lambda args: count(args[2]),
    )


def sum_intrinsic(
    name: str, feature: str, text: str, count: Callable[[int], int]
) -> Intrinsic:
    """Return the sum of bytes; `count` returns the instructions of its taps."""
    return Intrinsic(
        name=name,
        operands=(*pointers(INT8, x=1), *_COUNT_AND_TOTAL),
        meaning=lambda x, count, total: total + np.asarray(x, np.int64)[:count].sum(0),
        portable=_portable_sum("x[i]"),
        doc="Adds `count` values.",
        requires=feature,
        text={"gnu": text},
        count=lambda args: count(args[1]),
    )


@dataclass(frozen=True, slots=True)
class RowIntrinsics:
    """The names of a dot product of bytes, and of a sum for weights with an offset."""

    dot: str
    sum: str | None = None


@dataclass(frozen=True, slots=True)
class DotTile(Tile[tir.Buffer]):
    """The product of one channel and one column of `taps` bytes.

    The column is summed if stored weights have an offset.
    """

    intrinsics: RowIntrinsics
    taps: int
    stored: StoredOffset

    @property
    def contract(self) -> TileContract:
        layout = InterleavedChannels(INT8, (1,), self.stored.offset)
        return TileContract(1, 1, layout)

    def prepare(
        self, b: Kernel, columns: tir.Buffer
    ) -> tuple[tir.Buffer, Correction | None]:
        if not self.stored.offset:
            return columns, None
        assert self.intrinsics.sum is not None
        total = b.register("total", INT32, 0)
        x = b.pointer(columns, 0, self.taps)
        b.evaluate(self.intrinsics.sum, [x, self.taps, total.value])
        excess = b.let("excess", total.value * self.stored.offset)
        return columns, self.stored.subtract([excess])

    def multiply(
        self, b: Kernel, group: GroupOperands, columns: tir.Buffer, sums: tir.Buffer
    ) -> None:
        x = b.pointer(columns, 0, self.taps)
        w = group.weight_pointer(b)
        b.evaluate(self.intrinsics.dot, [x, w, self.taps, b.load(sums, [0])])


def takes_dots(op: OpCall) -> bool:
    """Whether a fully connected layer can be computed by `build_dots`."""
    is_int8 = op.input(0).dtype == op.input(1).dtype == INT8
    return is_int8 and has_int32_multiplier(op)


def build_dots(
    intrinsics: RowIntrinsics, op: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    """Multiply rows; without a sum, weights must not have a zero point."""
    rows = computed_channels(b, integer_layer(op))
    requantize = partial(rows.requantize, b)
    stored = stored_offset(rows, weight_zero_point(op))
    tile = DotTile(intrinsics, rows.taps, stored)
    gemm = plan_gemm(b, tile, rows, rows.bias, requantize)
    multiply_windows(b, op, gemm)
