"""float32 depthwise_conv2d without an FPU: the window of a channel is a column.

A column and the weights of its channel are multiplied by the integer loop of
convolutions (microkernels.py). Taps outside the input are zeros, as there.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, immediate
from firmwright.ops.conv2d import bias_of, channel_multiplier_of, weights_of
from firmwright.ops.conv_window import output_positions, window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.fpu.microkernels import (
    ALL_STYLES,
    SOFT_TILE,
    activated,
    microkernel_name,
)

_UNROLL = (9, 8, 5, 4, 3, 2)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    is_float = op.input(0).dtype == op.input(1).dtype == FLOAT32
    return (NO_CONFIG,) if is_float and op.input(0).shape[3] > 1 else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    kernel = weights_of(op)[0]
    rows, columns, channels = kernel.shape
    taps, multiplier = rows * columns, channel_multiplier_of(op)
    window = window_of(op, (rows, columns))
    weights = b.constant("weights", np.moveaxis(kernel, 2, 0).reshape(-1), FLOAT32)
    bias = b.constant("bias", bias_of(op, "float32"), FLOAT32)
    column = b.allocate("column", FLOAT32, (taps,))
    steps = ArithExpr(immediate(taps, INT32))
    name = microkernel_name(None, SOFT_TILE, taps)
    with (
        output_positions(b, op.output.shape) as at,
        b.for_("c", channels) as c,
    ):
        if window.guarded(0) or window.guarded(1):
            with b.unrolled("k", taps, *_UNROLL) as k:
                b.store(column, [k], 0.0)
        with window.taps(b, at) as (ky, kx, iy, ix):
            value = b.load(b.input(0), [at.n, iy, ix, c // multiplier])
            b.store(column, [ky * columns + kx], value)
        total = b.register("total", FLOAT32, 0)
        w, x = b.pointer(weights, c * taps, taps), b.pointer(column, 0, taps)
        b.evaluate(name, [w, x, steps, total.value])
        result = activated(op, total.value + b.load(bias, [c]))
        b.store(b.y, [at.n, at.oy, at.ox, c], result)


def _schedules() -> Iterator[Schedule[ScheduleConfig]]:
    for style, requires in ALL_STYLES:
        if style is None:
            yield Schedule(
                "soft_float.depthwise_conv2d.column",
                "depthwise_conv2d",
                requires,
                _configs,
                _build,
                disable_scheduling=True,
            )


SCHEDULES = tuple(_schedules())
