"""The log that a search writes: one line a measurement, in order, each on the disk at once.

In: a path, and measurements in whatever order they become known. Out: a file to which lines are
only added, in the order of the search. What is known before its turn waits in a file beside it
(LOG.ahead), so that a search that was killed measures nothing twice; the file is gone when all is
in order. One process writes at a time.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TextIO

from firmwright.base.closeable import Closeable
from firmwright.base.errors import UsageError
from firmwright.base.platform_compat import lock_file
from firmwright.flows.tuning_log import read_measurements
from firmwright.ir.tuning_records import Measurement, MeasurementKey

log = logging.getLogger(__name__)


class TuningLogWriter(Closeable):
    """An open log. A context manager."""

    def __init__(self, path: str | Path) -> None:
        """Raises UsageError if the file cannot be written, or another process writes it."""
        self.path = Path(path)
        self._ahead = self.path.with_name(self.path.name + ".ahead")
        self._file = open_log(self.path)
        self._waiting: TextIO | None = None
        self._written = {item.key: item for item in read_measurements(self.path)}
        self._known = dict(self._written)
        if self._ahead.exists():
            _mend(self._ahead)
            self._known |= {item.key: item for item in read_measurements(self._ahead)}

    def close(self) -> None:
        """Gives the log back; what waits for its turn stays for the next search."""
        if self._waiting is not None:
            self._waiting.close()
        if self._known.keys() == self._written.keys():
            self._ahead.unlink(missing_ok=True)
        self._file.close()

    def find(self, key: MeasurementKey) -> Measurement | None:
        """What is known of a kernel, written in order or not."""
        return self._known.get(key)

    def record_early(self, item: Measurement) -> None:
        """A measurement whose turn may not have come."""
        self._known[item.key] = item
        if self._waiting is None:
            self._waiting = _open(self._ahead)
        _put(self._waiting, item)

    def append(self, item: Measurement) -> None:
        """The next measurement in order; nothing happens if it is there."""
        if item.key not in self._written:
            _put(self._file, item)
            self._known[item.key] = self._written[item.key] = item


def open_log(path: Path) -> TextIO:
    """A log to add lines to, this process's alone; a last line without an end is taken off."""
    file = _open(path)
    if not lock_file(file, wait=False):
        file.close()
        raise UsageError(
            "another search is writing this log.",
            where=str(path),
            hint="another file; logs are merged by cat.",
        )
    _mend(path)
    return file


def _put(file: TextIO, item: Measurement) -> None:
    file.write(item.line() + "\n")
    file.flush()


def _open(path: Path) -> TextIO:
    try:
        return path.open("a", encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(
            f"the tuning log cannot be written: {error.strerror}.",
            where=str(path),
            hint="another path.",
        ) from error


def _mend(path: Path) -> None:
    """Take off a last line without an end: its writer was killed."""
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        log.warning("%s: the last line is broken and is taken off", path)
        os.truncate(path, end)
