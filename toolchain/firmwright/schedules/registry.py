"""All schedules, and every intrinsic that a lowering may call.

Modules in the packages of this folder define them as `SCHEDULES`, `INTRINSICS` and, for large
families of micro-kernels, `INTRINSIC_MAKERS`, and so do modules of extensions. Schedules of one
operator are tried in the order of packages and modules, those of extensions last. The modules are
imported when one of the tables is first used.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import ModuleType

from firmwright.base.extensions import door_modules
from firmwright.base.package_modules import SequenceOnUse, package_modules
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    IntrinsicFamilies,
    IntrinsicsOnUse,
    IntrinsicTable,
)
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.schedules import (
    cortex_m_dsp,
    dsp_and_scalar,
    fpu,
    helium,
    helium_floats,
    rvv,
    scalar,
)

_PACKAGES = (cortex_m_dsp, dsp_and_scalar, fpu, helium, helium_floats, rvv, scalar)


@cache
def _modules() -> list[ModuleType]:
    own = [module for package in _PACKAGES for module in package_modules(package)]
    return own + door_modules(lambda extension: extension.schedules)


def _schedules() -> Iterator[Schedule[ScheduleConfig]]:
    for module in _modules():
        yield from getattr(module, "SCHEDULES", ())


def _intrinsics() -> IntrinsicFamilies:
    ready, makers = dict(BASE_INTRINSICS), dict[str, Callable[[], Intrinsic]]()
    for module in _modules():
        ready |= {item.name: item for item in getattr(module, "INTRINSICS", ())}
        makers |= getattr(module, "INTRINSIC_MAKERS", {})
    return IntrinsicFamilies(ready, makers)


SCHEDULES: Sequence[Schedule[ScheduleConfig]] = SequenceOnUse(_schedules)
INTRINSICS: IntrinsicTable = IntrinsicsOnUse(_intrinsics)
