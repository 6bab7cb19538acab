"""Constructors of `Schedule` for the instruction sets.

All disable gcc's first scheduling pass, since the kernels order loads for register pressure.
"""

from functools import partial

from firmwright.ir.tir.schedule import Schedule

dsp_schedule = partial(Schedule, requires=frozenset({"dsp"}), disable_scheduling=True)
helium_schedule = partial(Schedule, requires=frozenset({"mve"}), disable_scheduling=True)
helium_float_schedule = partial(Schedule, requires=frozenset({"mvefp"}), disable_scheduling=True)
thumb1_schedule = partial(Schedule, requires=frozenset({"thumb1"}), disable_scheduling=True)
