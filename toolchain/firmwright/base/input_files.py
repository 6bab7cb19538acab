"""Reading of files that users or projects name, which may be links to devices or pipes."""

import errno
import os
import stat
from pathlib import Path


def check_regular_file(path: str | Path) -> None:
    """Raise OSError for a device, pipe or socket, which may have no end or never answer.

    Folders and absent files are left to the call that opens them, whose errors name them.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is a device or pipe, not a file", str(path))


def read_input_bytes(path: str | Path) -> bytes:
    """Return the bytes of a regular file; raise OSError if it cannot be read."""
    check_regular_file(path)
    return Path(path).read_bytes()
