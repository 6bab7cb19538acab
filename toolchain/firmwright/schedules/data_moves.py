"""Data movement operators by the copies of an instruction set.

The default loops of these operators end in runs, which a schedule copies in its own way
(`CopyRuns`).
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, Array, DType
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ops.kernel import CopyRuns, Kernel
from firmwright.ops.pad import merged_axes, pad_value
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.ops.strided_copy import (
    MOVES,
    CopyAxis,
    StridedCopy,
    lower_copies,
    lower_fill,
    row_major_strides,
)
from firmwright.schedules.row_band import RowMoves

MOVE_TIME_MAX = 0.9
"""Copies are chosen if they take at most this part of the default loops' time."""
_Place = tuple[tir.Buffer, ArithExpr]
_STRIDED = """\
for (int32_t i = 0; i < count; ++i) {
    y[i * y_step] = x[i * x_step];
}"""

# ---- elements with strides -----------------------------------------------------------


def _strided(y: Array, x: Array, y_step: int, x_step: int, count: int) -> Array:
    result = np.array(y)
    result[::y_step] = np.asarray(x)[::x_step]
    return result


def strided_copy(
    name: str,
    dtype: DType,
    requires: str,
    text: str,
    count: Callable[[Sequence[int]], int],
) -> Intrinsic:
    """Return the copy of elements with strides that `emit_strided` calls."""
    return Intrinsic(
        f"{name}_{dtype.name}",
        (
            *pointers(dtype, "rw", y=1),
            *pointers(dtype, x=1),
            *immediates("y_step", "x_step", "count"),
        ),
        _strided,
        _STRIDED,
        "Copies `count` elements with strides.",
        requires=requires,
        text={"gnu": text},
        count=count,
    )


def emit_strided(
    name: str, b: Kernel, target: _Place, source: _Place, axis: CopyAxis
) -> None:
    """Emit the copy of a run by the intrinsic `name` of its type of elements."""
    last = axis.extent - 1
    y = b.pointer(*target, last * axis.y_stride + 1, "rw")
    x = b.pointer(*source, last * axis.x_stride + 1)
    numbers = [axis.y_stride, axis.x_stride, axis.extent]
    b.evaluate(f"{name}_{target[0].dtype.name}", [y, x, *numbers])


def vector_runs(moves: RowMoves, name: str) -> CopyRuns:
    """Return copies of adjacent elements by `moves`, of others by `name`."""

    def copy(b: Kernel, target: _Place, source: _Place, axis: CopyAxis) -> None:
        if (axis.x_stride, axis.y_stride) == (1, 1):
            moves.copy(b, *target, *source, axis.extent)
        else:
            emit_strided(name, b, target, source, axis)

    return CopyRuns(of_bytes=copy, strided=copy)


# ---- operators -----------------------------------------------------------------------


def _build(runs: CopyRuns, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    b.copy_runs = runs
    op_table()[op.op].lower(op, b)


def _build_pad(
    runs: CopyRuns, moves: RowMoves, op: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    """Fill the whole output by vectors, then copy the input in runs."""
    b.copy_runs = runs
    count, value = op.output.elements, pad_value(op)
    if op.output.dtype == INT8:
        whole = b.view("bytes", b.y, 0, (count,), access="w")
        moves.fill(b, whole, 0, int(value), count)
    else:
        lower_fill(b, b.y, value)
    x_shape, y_shape, before = merged_axes(op)
    strides = row_major_strides(y_shape)
    start = sum(n * stride for n, stride in zip(before, strides, strict=True))
    axes = map(CopyAxis, x_shape, row_major_strides(x_shape), strides)
    lower_copies(b, StridedCopy(tuple(axes), y_offset=start))


def move_schedules(
    make: Callable[..., Schedule[ScheduleConfig]],
    family: str,
    variant: str,
    runs: CopyRuns,
) -> tuple[Schedule[ScheduleConfig], ...]:
    """Return a schedule by `make` for every operator that only moves elements."""
    return tuple(
        make(
            f"{family}.{op}.{variant}",
            op,
            configs=lambda op: (NO_CONFIG,),
            build=partial(_build, runs),
            time_max=MOVE_TIME_MAX,
        )
        for op in MOVES
    )


def pad_schedule(
    make: Callable[..., Schedule[ScheduleConfig]],
    name: str,
    runs: CopyRuns,
    moves: RowMoves,
) -> Schedule[ScheduleConfig]:
    return make(
        name,
        "pad",
        configs=lambda op: (NO_CONFIG,),
        build=partial(_build_pad, runs, moves),
        time_max=MOVE_TIME_MAX,
    )
