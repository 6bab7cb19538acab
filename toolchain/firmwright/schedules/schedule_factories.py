"""Constructors of `Schedule` for the instruction sets.

All disable gcc's first scheduling pass, since the kernels order loads for register
pressure.
"""

from collections.abc import Callable
from functools import partial

from firmwright.base.dtypes import DType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig

dsp_schedule = partial(Schedule, requires=frozenset({"dsp"}), disable_scheduling=True)
helium_schedule = partial(
    Schedule, requires=frozenset({"mve"}), disable_scheduling=True
)
helium_float_schedule = partial(
    Schedule, requires=frozenset({"mvefp"}), disable_scheduling=True
)
thumb1_schedule = partial(
    Schedule, requires=frozenset({"thumb1"}), disable_scheduling=True
)

FLOAT_FAMILIES = (
    ("fpu", "fpu"),
    *(("soft_float", each) for each in ("mla", "softfloat", "thumb1")),
)
"""Families of float schedules with the feature that they require."""


def for_inputs_of(dtype: DType) -> Callable[[OpCall], tuple[ScheduleConfig, ...]]:
    """Return `configs` of a schedule for all calls whose first input is of `dtype`."""
    return lambda op: (NO_CONFIG,) if op.input(0).dtype == dtype else ()
