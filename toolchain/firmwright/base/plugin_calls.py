"""Calls of extensions: an exception in one is an error of the extension."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from firmwright.base.errors import FirmwrightError, InternalError, PluginError

_PACKAGE = Path(__file__).parents[1]
_STANDARD_LIBRARY = Path(traceback.__file__).parent


@contextmanager
def plugin_call(label: str) -> Iterator[None]:
    """Convert exceptions to PluginError, with `label` as the name of the called code."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, FirmwrightError) and not isinstance(error, InternalError):
            raise
        hint = "--debug, which prints the traceback; the defect is in the extension."
        if isinstance(error, FileNotFoundError):
            hint = "add it to the package's data (hatchling: packages, setuptools: package-data)."
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
    is_python = _STANDARD_LIBRARY in parents and "-packages" not in filename
    return not is_python and _PACKAGE not in parents and not filename.startswith("<frozen ")


def entry_points(group: str) -> list[metadata.EntryPoint]:
    """Return the entry points of a group, sorted by name and value.

    Once the package importlib_metadata is imported, the standard library returns that package's
    objects, whose `load` would be the origin of errors.
    """
    folders = tuple((folder, _last_change(folder)) for folder in sys.path)
    return [metadata.EntryPoint(name, value, group) for name, value in _installed(group, folders)]


def _last_change(folder: str) -> int:
    try:
        return os.stat(folder or os.curdir).st_mtime_ns
    except OSError:
        return 0


@lru_cache  # the search reads a file of every installed package
def _installed(group: str, folders: tuple[tuple[str, int], ...]) -> list[tuple[str, str]]:
    """Return names and values; `folders` is the import path, with each folder's last change."""
    return sorted({(point.name, point.value) for point in metadata.entry_points(group=group)})
