"""resize_bilinear by output rows.

Columns are sums of two input rows, computed once a row, with two channels in a word.
"""

from functools import partial

from firmwright.base.dtypes import INT8
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.kernel import Kernel
from firmwright.ops.resize import HALF_BITS, lower, share_bits
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.fpu.expressions import compute_in_line
from firmwright.schedules.scalar.unrolled_loops import unroll_inner_loops
from firmwright.schedules.schedule_factories import FLOAT_FAMILIES

_LANES = 4


def _build(feature: str, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    fits = op.input(0).dtype == INT8 and share_bits(op, 0, 1) <= HALF_BITS
    lanes = _LANES if fits and op.output.shape[3] % _LANES == 0 else 1
    lower(op, b, lanes, by_rows=True)
    b.transform = lambda func: unroll_inner_loops(compute_in_line(feature, func))


SCHEDULES = tuple(
    Schedule(
        f"{feature}.resize_bilinear.rows",
        "resize_bilinear",
        frozenset({feature}),
        lambda op: (NO_CONFIG,),
        partial(_build, feature),
        time_max=0.95,
    )
    for _, feature in FLOAT_FAMILIES
)
