"""float32 depthwise_conv2d on RISC-V vectors: channels in lanes."""

from collections.abc import Sequence
from functools import partial

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.conv2d import weights_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.helium_floats.accumulate_f32 import (
    ACCUMULATE_STYLES,
    AccumulateStyle,
)
from firmwright.schedules.rvv.depthwise_conv2d import (
    DepthwiseBlocks,
    has_short_offsets,
)
from firmwright.schedules.rvv.window_kernel import adjacent_taps, emit_windows
from firmwright.schedules.rvv_floats.conv2d_fully_connected import emit_dots
from firmwright.schedules.rvv_floats.window_sums import (
    WindowSums,
    cheapest,
    window_call,
)

_LANES = 16
"""Lanes of adjacent pixels: weights that are repeated more often take much flash."""
KERNELS = {
    (style, gathers): tuple(
        WindowSums(style, pixels, by_channel=True, gathers=gathers)
        for pixels in (1, 2, 5)
    )
    for style in ACCUMULATE_STYLES
    for gathers in (False, True)
}
INTRINSICS = tuple(each.intrinsic() for kernels in KERNELS.values() for each in kernels)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    fits = op.input(0).dtype == FLOAT32 and has_short_offsets(op)
    return (NO_CONFIG,) if fits else ()


def _build(
    style: AccumulateStyle, op: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    kernel = weights_of(op)[0]
    flat = kernel.reshape(-1, kernel.shape[2]).T
    blocks = DepthwiseBlocks.of(op, _LANES)
    if op.input(0).shape[3] == 1 and adjacent_taps(blocks.window, 1) is not None:
        emit_dots(style, op, b, flat, blocks.window)
        return
    rows, columns, channels = kernel.shape
    shape, repeats = (rows, columns, channels * blocks.repeats), blocks.repeats
    kernels = KERNELS[style, blocks.offsets is not None]
    sums = cheapest(kernels, shape, op.output.shape[2] // repeats)
    call = window_call(op, b, sums, flat, repeats, blocks.offsets)
    emit_windows(b, blocks.window, call, channels, blocks.columns, repeats)


SCHEDULES = tuple(
    Schedule(
        f"rvv.depthwise.{style}",
        "depthwise_conv2d",
        frozenset({"rvvf"}),
        _configs,
        partial(_build, style),
        fuses=style == "fused",
    )
    for style in ACCUMULATE_STYLES
)
