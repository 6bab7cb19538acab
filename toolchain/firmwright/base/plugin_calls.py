"""Calls of extensions: an exception in one is an error of the extension."""

import os
import sys
import tomllib
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

from firmwright.base.errors import FirmwrightError, InternalError, PluginError
from firmwright.base.resources import checkout_dir

_PACKAGE = Path(__file__).parents[1]
_OWN_NAME = "firmwright"
_STANDARD_LIBRARY = Path(traceback.__file__).parent


@contextmanager
def plugin_call(label: str) -> Iterator[None]:
    """Convert exceptions to PluginError; `label` is the name of the called code."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, FirmwrightError) and not isinstance(error, InternalError):
            raise
        hint = "--debug, which prints the traceback; the defect is in the extension."
        if isinstance(error, FileNotFoundError):
            places = "hatchling: packages, setuptools: package-data"
            hint = f"add it to the package's data ({places})."
        what = f"{label} raised {type(error).__name__}: {error}."
        raise PluginError(what, where=_origin(error), hint=hint) from error


def load_entry_point(point: metadata.EntryPoint) -> object:
    """Return the object of an entry point; an exception is an error of its package."""
    with plugin_call(f"the import of {point.value}, the entry point {point.name},"):
        value: object = point.load()
    return value


def _origin(error: Exception) -> str:
    """Return file, line and function of the last call in the extension's own folder."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_extension(frame.filename)] or frames
    folder = Path(own[0].filename).parent
    last = [frame for frame in own if Path(frame.filename).parent == folder][-1]
    return f"{last.filename}:{last.lineno}, in {last.name}"


def _is_extension(filename: str) -> bool:
    parents = Path(filename).parents
    if filename.startswith("<frozen ") or _PACKAGE in parents:
        return False
    return _STANDARD_LIBRARY not in parents or "-packages" in filename


def entry_points(group: str) -> list[metadata.EntryPoint]:
    """Return the entry points of a group `firmwright.*`, sorted by name and value.

    Once the package importlib_metadata is imported, the standard library returns that
    package's objects, whose `load` would be the origin of errors.
    """
    offered = sorted(_offered(_import_path()).get(group, ()))
    return [metadata.EntryPoint(name, value, group) for name, value in offered]


def package_of(module: str) -> str:
    """Return name and version of the installed package with a module, "" if none."""
    packages = _packages(_import_path()).get(module.partition(".")[0], ())
    if not packages:
        return ""
    return f"{packages[0]} {metadata.version(packages[0])}"


# The searches below read files of every installed package. Their results are kept while
# the import path and its folders are the same.

_Folders: TypeAlias = tuple[tuple[str, int], ...]


def _import_path() -> _Folders:
    """Return the folders from which modules are imported, each with its last change."""
    return tuple((folder, _last_change(folder)) for folder in sys.path)


def _last_change(folder: str) -> int:
    try:
        return os.stat(folder or os.curdir).st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _offered(folders: _Folders) -> Mapping[str, set[tuple[str, str]]]:
    """Return names and values of the entry points for this package, by group.

    Those of a checkout are read from its pyproject.toml: it may not be installed, and
    an editable installation has the entry points of the day on which it was made.
    """
    offered: dict[str, set[tuple[str, str]]] = defaultdict(set)
    own = _checkout_entry_points()
    for group, points in own.items():
        offered[group].update(points.items())
    found = {_OWN_NAME} if own else set[str]()
    for distribution in metadata.distributions():
        # Parsing the texts of all installed packages would take three times as long.
        if f"[{_OWN_NAME}." not in (distribution.read_text("entry_points.txt") or ""):
            continue
        name = distribution.name.lower()
        if name not in found:
            found.add(name)
            for point in distribution.entry_points:
                offered[point.group].add((point.name, point.value))
    return offered


def _checkout_entry_points() -> Mapping[str, Mapping[str, str]]:
    """Return names and values by group of the checkout, if this package is in one."""
    checkout = checkout_dir()
    if checkout is None:
        return {}
    settings = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    groups: Mapping[str, Mapping[str, str]] = settings["project"]["entry-points"]
    return groups


@lru_cache(maxsize=1)
def _packages(folders: _Folders) -> Mapping[str, list[str]]:
    """Return the names of the packages by top-level module."""
    return metadata.packages_distributions()
