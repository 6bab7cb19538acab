"""float32 depthwise_conv2d on RISC-V vectors: channels in lanes."""

from collections.abc import Sequence
from functools import partial

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.conv2d import channel_multiplier_of, weights_of
from firmwright.ops.conv_window import window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.helium_floats.accumulate_f32 import (
    ACCUMULATE_STYLES,
    AccumulateStyle,
)
from firmwright.schedules.rvv.depthwise_conv2d import adjacent_pixels
from firmwright.schedules.rvv.window_kernel import emit_windows
from firmwright.schedules.rvv_floats.window_sums import (
    WindowSums,
    cheapest,
    window_call,
)

KERNELS = {
    style: tuple(WindowSums(style, pixels, by_channel=True) for pixels in (1, 2, 5))
    for style in ACCUMULATE_STYLES
}
INTRINSICS = tuple(each.intrinsic() for kernels in KERNELS.values() for each in kernels)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    fits = op.input(0).dtype == FLOAT32 and channel_multiplier_of(op) == 1
    return (NO_CONFIG,) if fits else ()


def _build(
    style: AccumulateStyle, op: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    kernel, width = weights_of(op)[0], op.output.shape[2]
    rows, columns, channels = kernel.shape
    window = window_of(op, (rows, columns))
    repeats = adjacent_pixels(window, width, channels)
    lanes = channels * repeats
    sums = cheapest(KERNELS[style], (rows, columns, lanes), width // repeats)
    flat = kernel.reshape(-1, channels).T
    call = window_call(op, b, sums, flat, repeats)
    row = (columns, window.dilation[1] * channels, lanes)
    emit_windows(b, window, call, channels, row, repeats)


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
