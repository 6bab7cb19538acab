"""The modules of a package, found instead of listed, and names imported on use."""

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import TypeVar, overload

T = TypeVar("T")


def package_modules(package: ModuleType) -> list[ModuleType]:
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__))
    return [import_module(f"{package.__name__}.{name}") for name in names]


def export_on_use(
    package: str, names_of_modules: Mapping[str, Sequence[str]]
) -> Callable[[str], object]:
    """Return the `__getattr__` of a package that imports its names on first use."""
    homes: dict[str, str] = {}
    for module, names in names_of_modules.items():
        homes |= dict.fromkeys(names, module)

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find


class SequenceOnUse(Sequence[T]):
    """The items that `load` returns; it is called when they are first used."""

    def __init__(self, load: Callable[[], Iterable[T]]) -> None:
        self._load = load

    @cached_property
    def _items(self) -> tuple[T, ...]:
        return tuple(self._load())

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._items[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)
