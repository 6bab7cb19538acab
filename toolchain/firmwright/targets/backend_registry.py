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
        """Register a backend and return its instance.

        It replaces an earlier one of its class. Raise UsageError if another class uses
        the name.
        """
        with plugin_call(f"the backend {backend.name}"):
            instance = backend() if isinstance(backend, type) else backend
            check_backend(instance, frozenset(op_table()))
        before = self._known.get(instance.name, instance)
        first, second = _home(before), _home(instance)
        if first != second:
            what = f"two backends are called {instance.name}: {first} and {second}."
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
        names = sorted(self._known, key=_with_numbers)
        return {name: self._known[name] for name in names}

    def _load(self, point: EntryPoint) -> None:
        name = point.name
        label = f"the import of {point.value}, the entry point of the backend {name},"
        with plugin_call(label):
            backend = point.load()
        is_class = isinstance(backend, type) and issubclass(backend, Backend)
        if not (is_class or isinstance(backend, Backend)) or backend.name != name:
            what = (
                f"the entry point {name} of the group {ENTRY_POINT_GROUP} is not a "
                "backend of that name."
            )
            hint = "a subclass of firmwright.targets.backend.Backend, or an instance."
            raise UsageError(what, where=point.value, hint=hint)
        self.register(backend)


def _home(backend: Backend) -> str:
    kind = type(backend)
    return f"{kind.__module__}.{kind.__qualname__}"


def _with_numbers(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts the numbers in names by their values."""
    key = []
    for part in re.split(r"(\d+)", name):
        key.append((int(part) if part.isdigit() else 0, part))
    return key


BACKENDS = BackendRegistry()


def register_backend(backend: RegisteredBackend) -> RegisteredBackend:
    """Make a backend or its class known in this process, and return it.

    It takes the place of an earlier one.
    """
    BACKENDS.register(backend)
    return backend
