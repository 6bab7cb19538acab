"""The tuning log as a file: JSON lines, appended to, mergeable by concatenation.

In: a path. Out: its measurements in order, or all of them as a `TuningRecords`. A line that is
broken (its
writer was killed) or of another version is skipped, and one message says how many there were.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.ir.tuning_records import Measurement, TuningRecords, parse_measurement

log = logging.getLogger(__name__)


def read_tuning(path: str | Path) -> TuningRecords:
    """What the log at `path` says. Raises UsageError where there is no such file."""
    return TuningRecords.from_measurements(read_measurements(path))


def read_measurements(path: str | Path) -> tuple[Measurement, ...]:
    """The measurements in the log, in order, duplicates among them."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(
            f"the tuning log cannot be read: {error.strerror}.",
            where=str(path),
            hint="firmwright tune MODEL --board B --out LOG makes one.",
        ) from error
    lines = [line for line in text.split("\n") if line.strip()]
    found = tuple(_measurements(lines))
    if len(found) < len(lines):
        log.warning(
            "%s: %d of %d lines are ignored: broken, or of another version",
            path,
            len(lines) - len(found),
            len(lines),
        )
    return found


def _measurements(lines: list[str]) -> Iterator[Measurement]:
    for line in lines:
        found = parse_measurement(line)
        if found is not None:
            yield found
