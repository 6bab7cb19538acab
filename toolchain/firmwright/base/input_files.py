"""Reading of files that users or projects name; they may be devices or pipes."""

import csv
import errno
import io
import os
import stat
from pathlib import Path
from typing import Final

from firmwright.base.resource_limits import RAISED_BY, scaled_limit

INPUT_BYTES_MAX: Final = 1 << 32
"""A file that is read as a whole; models have at most 2 GiB."""
TEXT_BYTES_MAX: Final = 1 << 28
"""A text, such as JSON, TOML, CSV or a log."""


def check_regular_file(path: str | Path, limit: int = INPUT_BYTES_MAX) -> None:
    """Raise OSError for a device, pipe or socket, or above `limit` bytes.

    A device, pipe or socket may have no end.

    Folders and absent files are left to the call that opens them, whose errors name
    them.
    """
    try:
        status = os.stat(path)
    except OSError:
        return
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EINVAL, "it is a device or pipe, not a file", str(path))
    most = scaled_limit(limit)
    if stat.S_ISREG(status.st_mode) and status.st_size > most:
        what = f"it has {status.st_size:,} bytes, more than {most:,} ({RAISED_BY})"
        raise OSError(errno.EFBIG, what, str(path))


def read_input_bytes(path: str | Path) -> bytes:
    """Return the bytes of a regular file; raise OSError if it cannot be read."""
    check_regular_file(path)
    return Path(path).read_bytes()


def read_input_text(path: str | Path, errors: str = "strict") -> str:
    r"""Return the UTF-8 text of a regular file, with line ends as \n.

    `errors` is that of bytes.decode. Raise OSError or UnicodeDecodeError if it cannot
    be read.
    """
    check_regular_file(path, TEXT_BYTES_MAX)
    return Path(path).read_text(encoding="utf-8", errors=errors)


def read_input_rows(path: str | Path) -> list[list[str]]:
    """Return the rows of a CSV file that are not empty, without space after commas.

    Raise OSError, UnicodeDecodeError or csv.Error if it cannot be read.
    """
    lines = io.StringIO(read_input_text(path))
    return [row for row in csv.reader(lines, skipinitialspace=True) if row]
