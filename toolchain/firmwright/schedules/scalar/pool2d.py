"""max_pool2d with windows inside the input: taps at constant offsets."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, UINT32
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, Register, maximum, minimum
from firmwright.ops.kernel import Kernel
from firmwright.ops.pooling import lowest, narrow_to_output, pool_window
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.pool_windows import is_inside, pooled_pixels

# With a relu, only the order of floats from 0 to infinity matters, which is that of
# their bits. What is missing to the bits of infinity, as an unsigned number, is least
# for the greatest float; for negative floats and NaN, it is more than for 0. The bits
# themselves can be compared if none is NaN.

_UNROLL = (4, 3, 5, 2)
_MAX_UNROLLED = 9
_INFINITY = 0x7F800000
"""The bits of infinity."""


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    return (NO_CONFIG,) if is_inside(op) else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    window, dtype = pool_window(op), op.input(0).dtype
    (height, width), (_, _, cols, channels) = window.size, op.input(0).shape
    is_float = dtype == FLOAT32
    is_relu = is_float and op.attributes(ActivationAttrs).activation == "relu"
    skips_nan = is_float and not op.no_nan
    kind = dtype
    if is_relu:
        kind = UINT32 if skips_nan else INT32
    wide = kind if is_float else INT32
    across = (width,) if width <= _MAX_UNROLLED else _UNROLL
    down = () if width > 1 else _UNROLL
    y = b.view("out", b.y, 0, b.y.shape, dtype=kind, access="w") if is_relu else b.y

    def take(most: Register, tap: ArithExpr) -> None:
        if is_relu and skips_nan:
            most.set(minimum(_INFINITY - tap, most.value))
        elif skips_nan:
            most.set(maximum(tap, most.value))
        else:
            most.set(maximum(most.value, tap.cast(wide)))

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
            start = _INFINITY if is_relu else lowest(op)
            first = start if skips_nan else b.load(taps, [0, 0, c]).cast(wide)
            most = b.register("most", wide, first)
            if width * height <= _MAX_UNROLLED:
                for ky, kx in list(np.ndindex(height, width))[not skips_nan :]:
                    take(most, b.load(taps, [ky, kx, c]))
            else:
                with (
                    b.unrolled("ky", height, *down) as ky,
                    b.unrolled("kx", width, *across) as kx,
                ):
                    take(most, b.load(taps, [ky, kx, c]))
            if is_relu and skips_nan:
                value = _INFINITY - most.value
            elif is_relu:
                value = maximum(most.value, 0)
            else:
                value = narrow_to_output(op, most.value)
            b.store(y, [at.n, at.oy, at.ox, c], value)


SCHEDULES = (
    Schedule("scalar.max_pool2d.inside", "max_pool2d", frozenset(), _configs, _build),
)
