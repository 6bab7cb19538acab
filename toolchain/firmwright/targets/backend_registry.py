"""The backends that there are: those in this package, of other packages, and of this process.

Another package offers one as an entry point of the group `firmwright.backends`: a subclass of
`Backend`. It is loaded when a name is asked for that is no core's, or when all are listed, never
before: a package that is installed and not used changes nothing. `register` is for one that is no
package. `BACKENDS` is the only table of the project that grows while a process runs; it holds code,
and nothing of a compilation.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from firmwright.base.errors import UsageError
from firmwright.ops.registry import op_table
from firmwright.targets.backend import Backend, check_backend
from firmwright.targets.cmsis_nn import CmsisNn
from firmwright.targets.vanilla import VanillaAccelerator

ENTRY_POINT_GROUP = "firmwright.backends"
BUILTIN_BACKENDS: Mapping[str, type[Backend]] = MappingProxyType(
    {CmsisNn.name: CmsisNn, VanillaAccelerator.name: VanillaAccelerator}
)
"""The project's own."""


class BackendRegistry:
    """Backends by name. Order is that of registration."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Backend] = {}

    def register(self, backend: Backend | type[Backend]) -> Backend:
        """Makes its target kind, table and hooks known; the same class twice is once."""
        made = backend() if isinstance(backend, type) else backend
        check_backend(made, frozenset(op_table()))
        before = self._known.get(made.name)
        if before is not None and type(before) is not type(made):
            raise UsageError(
                f"two backends are called {made.name}: {_home(before)} and {_home(made)}.",
                hint="uninstall one of them.",
            )
        self._known[made.name] = made
        return made

    def find(self, name: str) -> Backend | None:
        """The backend of that name."""
        if name in BUILTIN_BACKENDS and name not in self._known:
            self.register(BUILTIN_BACKENDS[name])
        if name not in self._known:
            for point in _offered():
                if point.name == name:
                    self._load(point)
        return self._known.get(name)

    def all(self) -> Mapping[str, Backend]:
        """Every backend by name: the project's own, those of packages, those of this process."""
        for name in BUILTIN_BACKENDS:
            self.find(name)
        for point in _offered():
            if point.name not in self._known:
                self._load(point)
        return dict(self._known)

    def _load(self, point: EntryPoint) -> None:
        try:
            found = point.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the entry point {point.name} of the group {ENTRY_POINT_GROUP} cannot be loaded: {error}.",
                where=point.value,
                hint="install or remove the package.",
            ) from error
        if not (isinstance(found, type) and issubclass(found, Backend)) or found.name != point.name:
            raise UsageError(
                f"the entry point {point.name} of the group {ENTRY_POINT_GROUP} is no backend of that name.",
                where=point.value,
                hint="a subclass of firmwright.targets.backend.Backend.",
            )
        self.register(found)


def _offered() -> list[EntryPoint]:
    return sorted(
        entry_points(group=ENTRY_POINT_GROUP), key=lambda point: (point.name, point.value)
    )


def _home(backend: Backend) -> str:
    return f"{type(backend).__module__}.{type(backend).__qualname__}"


BACKENDS = BackendRegistry()
