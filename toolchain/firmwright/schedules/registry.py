"""All schedules, and every intrinsic that a lowering may call.

Modules in the packages of this folder define them as `SCHEDULES`, `INTRINSICS` and, for
large families of micro-kernels, `INTRINSIC_MAKERS`, and so do modules of extensions.
Schedules of one operator are tried in the order of packages and modules, those of
extensions last. The modules of a package are imported when a target can use them or a
name of theirs is looked for.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
    rvv_floats,
    scalar,
)


@dataclass(frozen=True, slots=True)
class ScheduleFamily:
    """The schedules of a package, or of the extensions if `package` is None.

    Only targets that have one of the `features` can use them; any target if there are
    none.
    """

    package: ModuleType | None
    features: frozenset[str] = frozenset()

    def modules(self) -> Sequence[ModuleType]:
        if self.package is None:
            return door_modules(lambda extension: extension.schedules)
        return package_modules(self.package)

    def suits(self, features: frozenset[str]) -> bool:
        return not self.features or not self.features.isdisjoint(features)

    def schedules(self) -> Iterator[Schedule[ScheduleConfig]]:
        for module in self.modules():
            yield from getattr(module, "SCHEDULES", ())

    def intrinsics(self) -> IntrinsicFamilies:
        ready: dict[str, Intrinsic] = {}
        makers: dict[str, Callable[[], Intrinsic]] = {}
        for module in self.modules():
            ready |= {item.name: item for item in getattr(module, "INTRINSICS", ())}
            makers |= getattr(module, "INTRINSIC_MAKERS", {})
        return IntrinsicFamilies(ready, makers)


_HELIUM = frozenset({"mve", "mvefp"})
FAMILIES = (
    ScheduleFamily(cortex_m_dsp),
    ScheduleFamily(dsp_and_scalar),
    ScheduleFamily(fpu),
    ScheduleFamily(helium, _HELIUM),
    ScheduleFamily(helium_floats, _HELIUM),
    ScheduleFamily(rvv, frozenset({"rvv"})),
    ScheduleFamily(rvv_floats, frozenset({"rvvf"})),
    ScheduleFamily(scalar),
    ScheduleFamily(None),
)


@cache
def schedules_for(features: frozenset[str]) -> Sequence[Schedule[ScheduleConfig]]:
    """Return the schedules for `features`, those of a target or of several targets."""
    families = (family for family in FAMILIES if family.suits(features))
    return tuple(schedule for family in families for schedule in family.schedules())


def _all_schedules() -> Iterator[Schedule[ScheduleConfig]]:
    for family in FAMILIES:
        yield from family.schedules()


def _base_intrinsics() -> IntrinsicFamilies:
    return IntrinsicFamilies(BASE_INTRINSICS, {})


SCHEDULES: Sequence[Schedule[ScheduleConfig]] = SequenceOnUse(_all_schedules)
_GENERAL_FIRST = sorted(FAMILIES, key=lambda family: len(family.features))
INTRINSICS: IntrinsicTable = IntrinsicsOnUse(
    _base_intrinsics, *(family.intrinsics for family in _GENERAL_FIRST)
)
"""Names in families for all targets come first and are found without the others."""
