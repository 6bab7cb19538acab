"""float32 conv2d and fully_connected on RISC-V vectors: output channels in lanes."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.conv2d import weights_of
from firmwright.ops.conv_window import ConvWindow, kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.helium_floats.accumulate_f32 import (
    ACCUMULATE_STYLES,
    AccumulateStyle,
)
from firmwright.schedules.rvv.window_kernel import (
    adjacent_taps,
    emit_windows,
    window_extents,
)
from firmwright.schedules.rvv_floats.window_sums import (
    WindowSums,
    cheapest,
    window_call,
)

# A tap is a load of one weight for each lane and, for each pixel, the load of a scalar
# input and VFMACC, or VFMUL and VFADD.

_PIXELS = {"fused": (1, 3, 7, 12), "separate": (1, 2, 6, 12)}
"""The pixels that leave few of 32 registers free."""
KERNELS = {
    style: tuple(WindowSums(style, pixels) for pixels in _PIXELS[style])
    for style in ACCUMULATE_STYLES
}
INTRINSICS = tuple(each.intrinsic() for kernels in KERNELS.values() for each in kernels)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    taps = adjacent_taps(kernel_window(op), 1)
    fits = op.input(0).dtype == FLOAT32 and taps is not None
    return (NO_CONFIG,) if fits else ()


def _build(
    style: AccumulateStyle, op: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    kernel = np.asarray(weights_of(op))
    emit_dots(style, op, b, kernel.reshape(len(kernel), -1), kernel_window(op))


def emit_dots(
    style: AccumulateStyle, op: OpCall, b: Kernel, flat: Array, window: ConvWindow
) -> None:
    """Compute a layer with weights `flat` [channel, tap], which reads all inputs."""
    extents = window_extents(op, window)
    shape = (extents.rows, extents.run, len(flat))
    sums = cheapest(KERNELS[style], shape, extents.pixels)
    call = window_call(op, b, sums, flat)
    emit_windows(b, window, call, len(flat), (extents.run, 1, 1))


SCHEDULES = tuple(
    Schedule(
        f"rvv.{name}.{style}",
        name,
        frozenset({"rvvf"}),
        _configs,
        partial(_build, style),
        fuses=style == "fused",
    )
    for style in ACCUMULATE_STYLES
    for name in ("conv2d", "fully_connected")
)
