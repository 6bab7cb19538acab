"""Reading of tuning logs, which are JSON lines and can be merged by concatenation.

Incomplete lines and lines of other versions are skipped and counted in a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.ir.tuning_records import Measurement, TuningRecords, parse_measurement

log = logging.getLogger(__name__)


def read_tuning(path: str | Path) -> TuningRecords:
    """Return the records of the log at `path`; raise UsageError if it cannot be read."""
    return TuningRecords.from_measurements(read_measurements(path))


def read_measurements(path: str | Path) -> tuple[Measurement, ...]:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(
            f"the tuning log cannot be read: {error.strerror}.",
            where=str(path),
            hint="create one with firmwright tune MODEL --board B --out LOG.",
        ) from error
    lines = [line for line in text.split("\n") if line.strip()]
    measurements = tuple(_measurements(lines))
    if len(measurements) < len(lines):
        log.warning(
            "%s: ignored %d of %d lines: incomplete, or of another version",
            path,
            len(lines) - len(measurements),
            len(lines),
        )
    return measurements


def _measurements(lines: list[str]) -> Iterator[Measurement]:
    for line in lines:
        measurement = parse_measurement(line)
        if measurement is not None:
            yield measurement
