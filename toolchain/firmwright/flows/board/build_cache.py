"""The size-limited cache of builds, object files and converted models.

The least recently used entries are removed first.

A build is a folder named by the hash of its project and locked while it is made. Object
files are separate entries, since most of the runtime is the same in every project.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from firmwright.base.cache_folder import cache_root
from firmwright.base.errors import UsageError
from firmwright.base.file_lock import hold_lock

SIZE_VARIABLE = "FIRMWRIGHT_CACHE_SIZE"
DEFAULT_SIZE = "256M"
_UNIT_SHIFTS = {"K": 10, "M": 20, "G": 30}
"""The powers of two of the units of a size."""
MIN_AGE_S = 3600
"""Entries used within this time may be in use: they are not removed automatically."""
TRIM_INTERVAL_S = 600


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A build folder, an object file or a converted model."""

    path: Path
    size_bytes: int
    last_use_s: float


def cache_limit_bytes() -> int:
    """Return the environment's limit, such as 512K, 256M or 2G; UsageError if wrong."""
    text = os.environ.get(SIZE_VARIABLE) or DEFAULT_SIZE
    unit = text[-1] if text[-1] in _UNIT_SHIFTS else ""
    number = text.removesuffix(unit)
    if not number.isdecimal():
        raise UsageError(
            f"{SIZE_VARIABLE} is {text!r}.", hint=f"a size such as {DEFAULT_SIZE}."
        )
    return int(number) << _UNIT_SHIFTS.get(unit, 0)


def object_folder() -> Path:
    """Return the folder of the object cache, which SCons creates."""
    root = cache_root() / "objects"
    root.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return root


@contextlib.contextmanager
def cached_folder(name: str) -> Iterator[Path]:
    """Lock and yield a build's folder; then remove old entries beyond the limit."""
    root = cache_root() / "builds"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with hold_lock(root / f"{name}.lock"):
        (root / name).mkdir(exist_ok=True)
        os.utime(root / name)
        yield root / name
    stamp = root.parent / "trimmed"
    if not stamp.exists() or time.time() - stamp.stat().st_mtime > TRIM_INTERVAL_S:
        stamp.touch()
        trim_cache(cache_limit_bytes())


def cache_entries() -> list[CacheEntry]:
    """Return the entries of the cache, the least recently used first."""
    root = cache_root()
    entries = []
    patterns = ("builds/*/", "objects/*/*", "models/*")
    for path in (found for pattern in patterns for found in root.glob(pattern)):
        with contextlib.suppress(OSError):  # another process may remove it first
            files = [path, *path.rglob("*")]
            size = sum(file.lstat().st_size for file in files if not file.is_dir())
            facts = path.stat()
            last_use_s = facts.st_mtime
            if not path.is_dir():
                last_use_s = max(last_use_s, facts.st_atime)
            entries.append(CacheEntry(path, size, last_use_s))
    return sorted(entries, key=attrgetter("last_use_s"))


def trim_cache(limit_bytes: int, min_age_s: float = MIN_AGE_S) -> int:
    """Remove the least recently used entries beyond the limit; return their bytes."""
    entries = cache_entries()
    excess = sum(entry.size_bytes for entry in entries) - limit_bytes
    removed, newest_s = 0, time.time() - min_age_s
    for entry in entries:
        if removed >= excess or entry.last_use_s > newest_s:
            break
        removed += entry.size_bytes if _remove(entry.path) else 0
    return removed


def _remove(path: Path) -> bool:
    """Remove an entry, which another process may do first; return False if in use."""
    with contextlib.suppress(OSError):
        if not path.is_dir():
            path.unlink(missing_ok=True)
            return True
        with hold_lock(path.with_name(f"{path.name}.lock"), wait=False) as acquired:
            if acquired:
                shutil.rmtree(path, ignore_errors=True)
                path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
            return acquired
    return False
