"""Registry of backends: of installed packages, and registered in this process.

A package provides a subclass of `Backend`, or an instance of one, as an entry point in
the group `firmwright.backends`. It is loaded when its name is looked up or all backends
are listed.
"""

import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import TypeVar

from firmwright.base.errors import UsageError
from firmwright.base.plugin_calls import entry_points, plugin_call
from firmwright.ops.registry import op_table
from firmwright.targets.backend import Backend, check_backend

ENTRY_POINT_GROUP = "firmwright.backends"
RegisteredBackend = TypeVar("RegisteredBackend", bound=Backend | type[Backend])


class BackendRegistry:
    """Backends by name."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Backend] = {}

    def register(self, backend: Backend | type[Backend]) -> Backend:
        """Register a backend and return its instance, which replaces an earlier one of
        its class.

        Raise UsageError if another class uses the name.
        """
        with plugin_call(f"the backend {backend.name}"):
            instance = backend() if isinstance(backend, type) else backend
            check_backend(instance, frozenset(op_table()))
        before = self._known.get(instance.name, instance)
        homes = [
            f"{kind.__module__}.{kind.__qualname__}"
            for kind in map(type, (before, instance))
        ]
        if homes[0] != homes[1]:
            what = (
                f"two backends are called {instance.name}: {homes[0]} and {homes[1]}."
            )
            raise UsageError(what, hint="rename or uninstall one of them.")
        self._known[instance.name] = instance
        return instance

    def find(self, name: str) -> Backend | None:
        if name not in self._known:
            for point in entry_points(group=ENTRY_POINT_GROUP):
                if point.name == name:
                    self._load(point)
        return self._known.get(name)

    def all(self) -> Mapping[str, Backend]:
        for point in entry_points(group=ENTRY_POINT_GROUP):
            if point.name not in self._known:
                self._load(point)
        return {
            name: self._known[name] for name in sorted(self._known, key=_with_numbers)
        }

    def _load(self, point: EntryPoint) -> None:
        label = (
            f"the import of {point.value}, the entry point of the backend {point.name},"
        )
        with plugin_call(label):
            backend = point.load()
        is_class = isinstance(backend, type) and issubclass(backend, Backend)
        if not (is_class or isinstance(backend, Backend)) or backend.name != point.name:
            raise UsageError(
                f"the entry point {point.name} of the group {ENTRY_POINT_GROUP} "
                "is not a backend of that name.",
                where=point.value,
                hint=(
                    "a subclass of firmwright.targets.backend.Backend, or an instance."
                ),
            )
        self.register(backend)


def _with_numbers(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts the numbers in names by their values."""
    return [
        (int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)
    ]


BACKENDS = BackendRegistry()


def register_backend(backend: RegisteredBackend) -> RegisteredBackend:
    """Make a backend or its class known in this process, in place of an earlier one;
    return it.
    """
    BACKENDS.register(backend)
    return backend
