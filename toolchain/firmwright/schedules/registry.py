"""All schedules, and every intrinsic that a lowering may call.

Modules in the packages of this folder define them as `SCHEDULES` and `INTRINSICS`. Schedules of one
operator are tried in the order of packages and modules.
"""

import pkgutil
from collections.abc import Mapping
from importlib import import_module

from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.ir.tir.schedule import Schedule
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.schedules import cortex_m_dsp, dsp_and_scalar, fpu, helium, helium_floats, scalar

_MODULES = [
    import_module(f"{package.__name__}.{info.name}")
    for package in (cortex_m_dsp, dsp_and_scalar, fpu, helium, helium_floats, scalar)
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda item: item.name)
]

SCHEDULES: tuple[Schedule, ...] = tuple(
    schedule for module in _MODULES for schedule in getattr(module, "SCHEDULES", ())
)

INTRINSICS: Mapping[str, Intrinsic] = {
    **BASE_INTRINSICS,
    **{item.name: item for module in _MODULES for item in getattr(module, "INTRINSICS", ())},
}
