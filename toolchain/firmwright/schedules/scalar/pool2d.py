"""max_pool2d with windows inside the input: taps at constant offsets."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import maximum
from firmwright.ops.kernel import Kernel
from firmwright.ops.pooling import narrow_to_output, pool_window
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.pool_windows import is_inside, pooled_pixels

# With a relu, only the order of floats above 0 matters, which is that of their bits.

_UNROLL = (4, 3, 5, 2)
_MAX_UNROLLED = 9


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    return (NO_CONFIG,) if is_inside(op) else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    window, dtype = pool_window(op), op.input(0).dtype
    (height, width), (_, _, cols, channels) = window.size, op.input(0).shape
    is_relu = dtype == FLOAT32 and op.attributes(ActivationAttrs).activation == "relu"
    kind = INT32 if is_relu else dtype
    wide = FLOAT32 if kind == FLOAT32 else INT32
    across = (width,) if width <= _MAX_UNROLLED else _UNROLL
    down = () if width > 1 else _UNROLL
    y = b.view("out", b.y, 0, b.y.shape, dtype=INT32, access="w") if is_relu else b.y
    with pooled_pixels(op, b) as pixel:
        at = pixel.at
        taps = b.view(
            "taps",
            b.input(0),
            pixel.corner * channels,
            (height, width, channels),
            strides=(cols * channels, channels, 1),
            dtype=kind,
        )
        with b.for_("c", channels) as c:
            most = b.register("most", wide, b.load(taps, [0, 0, c]).cast(wide))
            if width * height <= _MAX_UNROLLED:
                for ky, kx in list(np.ndindex(height, width))[1:]:
                    most.set(maximum(most.value, b.load(taps, [ky, kx, c]).cast(wide)))
            else:
                with (
                    b.unrolled("ky", height, *down) as ky,
                    b.unrolled("kx", width, *across) as kx,
                ):
                    most.set(maximum(most.value, b.load(taps, [ky, kx, c]).cast(wide)))
            if is_relu:
                value = maximum(most.value, 0)
            else:
                value = narrow_to_output(op, most.value)
            b.store(y, [at.n, at.oy, at.ox, c], value)


SCHEDULES = (
    Schedule("scalar.max_pool2d.inside", "max_pool2d", frozenset(), _configs, _build),
)
