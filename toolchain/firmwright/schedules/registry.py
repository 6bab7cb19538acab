"""All schedules, and every intrinsic that a lowering may call.

Modules in the packages of this folder define them as `SCHEDULES`, `INTRINSICS` and, for large
families of micro-kernels, `INTRINSIC_MAKERS`. Schedules of one operator are tried in the order of
packages and modules.
"""

from firmwright.base.package_modules import package_modules
from firmwright.ir.tir.intrinsic import IntrinsicsOnUse, IntrinsicTable
from firmwright.ir.tir.schedule import Schedule
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.schedules import (
    cortex_m_dsp,
    dsp_and_scalar,
    fpu,
    helium,
    helium_floats,
    rvv,
    scalar,
)

_MODULES = [
    module
    for package in (cortex_m_dsp, dsp_and_scalar, fpu, helium, helium_floats, rvv, scalar)
    for module in package_modules(package)
]

SCHEDULES: tuple[Schedule, ...] = tuple(
    schedule for module in _MODULES for schedule in getattr(module, "SCHEDULES", ())
)

_READY = {item.name: item for module in _MODULES for item in getattr(module, "INTRINSICS", ())}
_MAKERS = {
    name: make
    for module in _MODULES
    for name, make in getattr(module, "INTRINSIC_MAKERS", {}).items()
}

INTRINSICS: IntrinsicTable = IntrinsicsOnUse({**BASE_INTRINSICS, **_READY}, _MAKERS)
