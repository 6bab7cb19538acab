"""Windows on Armv6-M: if no weight is above 1, products need no limits."""

from collections.abc import Sequence

from firmwright.base.dtypes import INT16
from firmwright.extensions.tflm_signal.attributes import WindowFunctionAttrs
from firmwright.ir.graph import OpCall
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.schedule_factories import thumb1_schedule

_UNROLLED = 4


def _configs(call: OpCall) -> Sequence[ScheduleConfig]:
    """Return a configuration if no product leaves 16 bits when it is shifted."""
    weights = call.constant(1)
    one = 1 << call.attributes(WindowFunctionAttrs).shift
    if weights is None or call.input(1).elements < _UNROLLED:
        return ()
    fits = weights.array().max() <= one and weights.array().min() > -one
    return (NO_CONFIG,) if fits else ()


def _build(call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    size = call.input(1).elements
    shape = (call.output.elements // size, size)
    x, y = b.views("frames out", shape, b.input(0), b.y)
    shift = call.attributes(WindowFunctionAttrs).shift
    with b.for_("frame", shape[0]) as frame, b.unrolled("i", size, _UNROLLED) as i:
        product = b.load_i32(x, [frame, i]) * b.load_i32(b.input(1), [i])
        b.store(y, [frame, i], (product >> shift).cast(INT16))


SCHEDULES = (
    thumb1_schedule(
        "thumb1.window.small_weights", "window", configs=_configs, build=_build
    ),
)
