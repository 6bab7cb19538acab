"""The modules of a package, which are found instead of listed, and the tables they define."""

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from firmwright.base.errors import InternalError


def package_modules(package: ModuleType) -> list[ModuleType]:
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__))
    return [import_module(f"{package.__name__}.{name}") for name in names]


def merge_tables(package: ModuleType, name: str) -> Mapping[str, Any]:
    """Merge the tables of that name of a package's modules; InternalError on a duplicate key."""
    merged: dict[str, Any] = {}
    for module in package_modules(package):
        for key, value in getattr(module, name, {}).items():
            if key in merged:
                raise InternalError(f"{name} of {package.__name__} define {key} twice")
            merged[key] = value
    return merged
