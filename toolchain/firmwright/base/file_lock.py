"""Locks that processes of this computer hold on a name, such as a shared folder."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from firmwright.base.platform_compat import lock_file


@contextlib.contextmanager
def hold_lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file; yield whether it was acquired (always, with `wait`).

    The file may be removed while its lock is held: other processes then lock a new one.
    """
    while True:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            acquired = lock_file(file, wait=wait)
            if not acquired or _is_file_of(path, file.fileno()):
                yield acquired
                return


def _is_file_of(path: Path, descriptor: int) -> bool:
    """Return whether the file has not been removed since it was opened."""
    try:
        return os.path.samefile(path, descriptor)
    except FileNotFoundError:
        return False
