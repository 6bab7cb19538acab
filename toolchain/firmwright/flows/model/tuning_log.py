"""Reads tuning logs: lines of JSON.

Logs can be concatenated; unreadable lines are counted.
"""

import logging
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.base.input_files import read_input_bytes
from firmwright.base.json_input import parse_json
from firmwright.ops.tuning_records import Measurement, TuningRecords, parse_measurement

log = logging.getLogger(__name__)
_HINT = "create one with firmwright tune MODEL --board B --out LOG."


def read_tuning(path: str | Path) -> TuningRecords:
    """Return the records of the log at `path`; UsageError if it cannot be read."""
    return TuningRecords.from_measurements(read_measurements(path))


def read_measurements(path: str | Path) -> tuple[Measurement, ...]:
    try:
        text = read_input_bytes(path).decode("utf-8", errors="replace")
    except OSError as error:
        what = f"the tuning log cannot be read: {error.strerror}."
        raise UsageError(what, where=str(path), hint=_HINT) from error
    return _parse_lines(text, path)


def _parse_lines(text: str, path: str | Path) -> tuple[Measurement, ...]:
    lines = [line for line in text.split("\n") if line.strip()]
    parsed = map(parse_measurement, lines)
    measurements = tuple(item for item in parsed if item is not None)
    ignored = len(lines) - len(measurements)
    if lines and not measurements and not any(map(_is_json_object, lines)):
        what = "this is not a tuning log: no line of it is a JSON object."
        raise UsageError(what, where=str(path), hint=_HINT)
    if ignored:
        message = "%s: ignored %d of %d lines: incomplete, or of another version"
        log.warning(message, path, ignored, len(lines))
    return measurements


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(parse_json(line), dict)
    except ValueError:
        return False
