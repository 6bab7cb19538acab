"""Wrappers for functions that differ between operating systems."""

import getpass
import importlib
import os
import sys
import time
from types import ModuleType
from typing import IO, Final

HAS_ELF_OBJECTS: Final = sys.platform not in ("cygwin", "darwin", "win32")
"""Whether compilers for this computer write ELF, whose assembly directives we know."""
_RETRY_S: Final = 0.1


def lock_file(
    file: IO[str] | IO[bytes], *, wait: bool = True, system: str = os.name
) -> bool:
    """Lock `file` for this process until it closes; return whether it succeeded."""
    if system == "nt":
        return _lock_first_byte(file, importlib.import_module("msvcrt"), wait=wait)
    fcntl = importlib.import_module("fcntl")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _lock_first_byte(
    file: IO[str] | IO[bytes], msvcrt: ModuleType, *, wait: bool
) -> bool:
    """Lock on Windows, where locks are of bytes.

    A blocking call would give up after ten seconds, so this one tries again and again.
    """
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


def process_cpu_s(pid: int) -> float | None:
    """Return the processor time of a child in seconds; None where it is not known.

    On Linux the clock of a process is its number's complement (clock_getcpuclockid(3)).
    """
    if sys.platform != "linux":
        return None
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return None


def current_user_tag() -> str:
    """Return a number or plain name that distinguishes users' temporary files."""
    getuid = getattr(os, "getuid", None)
    if getuid is not None:
        return str(getuid())
    return "".join(sign if sign.isalnum() else "_" for sign in getpass.getuser())
