"""What differs between operating systems: locks on files, and who the user is.

In: open files. Out: the same answers everywhere. Modules that only POSIX or only Windows has are
imported where they are used, so that importing anything works on every system.
"""

from __future__ import annotations

import getpass
import importlib
import os
import time
from typing import IO, Any, Final

_RETRY_S: Final = 0.1


def lock_file(file: IO[Any], *, wait: bool = True, system: str = os.name) -> bool:
    """Whether `file` is this process's alone until it is closed; with `wait`, always at last."""
    if system == "nt":
        return _lock_first_byte(file, importlib.import_module("msvcrt"), wait=wait)
    fcntl = importlib.import_module("fcntl")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _lock_first_byte(file: IO[Any], msvcrt: Any, *, wait: bool) -> bool:
    """Windows locks bytes from where the file stands, and gives up by itself after a while."""
    while True:
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            if not wait:
                return False
            time.sleep(_RETRY_S)
        else:
            return True


def user_tag() -> str:
    """What tells this user's temporary files from others': a number, or a plain name."""
    getuid = getattr(os, "getuid", None)
    if getuid is not None:
        return str(getuid())
    return "".join(sign if sign.isalnum() else "_" for sign in getpass.getuser())
