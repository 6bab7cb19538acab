"""conv2d and fully_connected on Armv6-M: eight channels times one pixel."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8, Array
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.assembly import (
    body_text,
    executed_instructions,
    macro_definitions,
)
from firmwright.kernels.contract import (
    BiasAdder,
    InterleavedChannels,
    SumPlace,
    TileContract,
    sums_of_products,
)
from firmwright.kernels.instruction_intrinsics import instruction_intrinsic
from firmwright.kernels.isa import thumb1
from firmwright.kernels.portable import called_intrinsics, portable_text
from firmwright.kernels.scalar.gemm import THUMB1_ROWS, thumb1_forms
from firmwright.ops import fully_connected
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import weight_zero_point
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.computed_channels import computed_channels, integer_layer
from firmwright.schedules.epilogue import FormPreference
from firmwright.schedules.gemm import Correction, GroupOperands, Tile, plan_gemm
from firmwright.schedules.scalar.gemm_tiles import (
    StoredOffset,
    multiply_windows,
    stored_offset,
)
from firmwright.schedules.schedule_factories import thumb1_schedule

# Micro-kernels multiply by weights that are stored with 128 added, and the caller
# subtracts 128 (plus the weights' zero point) times the column's sum.

ROWS = THUMB1_ROWS
WEIGHT_OFFSET = 128
MAX_UNROLL = 4


def _meaning(w: Array, x: Array, start: Array, _: Array, steps: int) -> Array:
    weights = np.asarray(w)[: ROWS * steps].reshape(steps, ROWS, *w.shape[1:])
    columns = np.asarray(x)[:steps, None]
    return np.stack(sums_of_products(weights, columns, start[:ROWS]))


def unroll_factor(steps: int) -> int:
    return max(n for n in range(1, MAX_UNROLL + 1) if steps % n == 0)


def microkernel_name(steps: int) -> str:
    return f"thumb1_8x1_{unroll_factor(steps)}"


_DOC = (
    "Products of 8 rows of weights, each 128 too large, with a column of `steps` "
    "elements."
)


def _block(unroll: int) -> Intrinsic:
    forms = thumb1_forms(unroll)
    return Intrinsic(
        name=f"thumb1_8x1_{unroll}",
        operands=(
            *pointers(UINT8, w=ROWS * unroll),
            *pointers(INT8, x=unroll),
            *pointers(INT32, start=ROWS),
            *pointers(INT32, "w", sums=ROWS),
            *immediates("steps"),
        ),
        meaning=_meaning,
        portable=portable_text(forms.wide),
        doc=_DOC,
        requires="thumb1",
        text={"gnu": body_text(forms)},
        definitions=macro_definitions(forms),
        instructions=executed_instructions(forms, unroll),
        count=lambda args: executed_instructions(forms, args[-1]),
        calls=called_intrinsics(forms.wide),
    )


INTRINSICS = (
    *map(_block, range(1, MAX_UNROLL + 1)),
    instruction_intrinsic(thumb1.sxtb),
)


@dataclass(frozen=True, slots=True)
class Thumb1Tile(Tile[tir.Buffer]):
    """Eight channels of one pixel, whose sums the micro-kernel stores to memory."""

    taps: int
    stored: StoredOffset

    @property
    def contract(self) -> TileContract:
        return TileContract(
            ROWS,
            1,
            InterleavedChannels(UINT8, (ROWS,), self.stored.offset),
            BiasAdder.MICROKERNEL,
            sums=SumPlace.MEMORY,
        )

    def prepare(
        self, b: Kernel, columns: tir.Buffer
    ) -> tuple[tir.Buffer, Correction | None]:
        return columns, self.stored.sum_columns(b, columns, self.taps)

    def multiply(
        self, b: Kernel, group: GroupOperands, columns: tir.Buffer, sums: tir.Buffer
    ) -> None:
        x = b.pointer(columns, 0, self.taps)
        y = b.pointer(sums, 0, ROWS, "w")
        w, start = group.weight_pointer(b), group.bias_pointer(b)
        b.evaluate(microkernel_name(self.taps), [w, x, start, y, self.taps])


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if not op.input(0).dtype == op.input(1).dtype == INT8:
        return ()
    applies = op.op == "conv2d" or fully_connected.has_int32_multiplier(op)
    return (NO_CONFIG,) if applies else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    rows = computed_channels(b, integer_layer(op), lambda computed: ROWS)
    stored = stored_offset(rows, WEIGHT_OFFSET + weight_zero_point(op))
    tile = Thumb1Tile(rows.taps, stored)
    make_end = partial(rows.requantize, b, preference=FormPreference.NARROW)
    multiply_windows(b, op, plan_gemm(b, tile, rows, rows.bias, make_end))


SCHEDULES = tuple(
    thumb1_schedule(
        f"thumb1.{op}.rows",
        op,
        configs=_configs,
        build=_build,
        takes_weight_zero_point=True,
    )
    for op in ("conv2d", "fully_connected")
)
