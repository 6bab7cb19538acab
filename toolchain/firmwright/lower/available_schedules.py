"""The schedules that a target, the settings and the graph permit for a call."""

from collections.abc import Collection, Sequence

from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule
from firmwright.lower.rounding_sensitivity import has_discontinuity
from firmwright.ops.requantize import has_weight_zero_point
from firmwright.ops.schedule import Schedule, ScheduleConfig


def available_schedules(
    rules: Sequence[Schedule[ScheduleConfig]],
    call: Call,
    module: IRModule,
    features: frozenset[str],
    short_loops: Collection[str],
) -> list[Schedule[ScheduleConfig]]:
    """Return the schedules of `rules` that can build a kernel for a call.

    If the call's first output is in `short_loops`, they offer loops with less
    unrolling, too.
    """
    settings = module.settings
    own = [schedule for schedule in rules if schedule.op == call.op]
    schedules = [schedule for schedule in own if schedule.requires <= features]
    if settings.flash.has_short_loops:
        schedules = [schedule.with_short_loops() for schedule in schedules]
    elif call.outputs[0].name in short_loops:
        schedules = [one.with_short_loops(only=False) for one in schedules]
    if has_weight_zero_point(make_op_call(call, module)):
        schedules = [s for s in schedules if s.takes_weight_zero_point]
    # A fused float operation rounds once instead of twice. Before a rounding to
    # integers, that last bit may decide between two results, so such graphs get the
    # exact kernels.
    if any(s.fuses for s in schedules) and has_discontinuity(module.entry_graph):
        return [s for s in schedules if not s.fuses]
    return schedules
