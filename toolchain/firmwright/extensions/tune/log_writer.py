"""Writers of search logs: one line per measurement, in the order of the search.

Each line is flushed at once. Measurements that arrive before their turn are kept in
LOG.ahead. Only one process can write a log at a time.
"""

import contextlib
import json
import logging
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TextIO, TypeAlias, get_args

from firmwright.base.closeable import Closeable
from firmwright.base.errors import UsageError
from firmwright.base.input_files import check_regular_file, read_input_text
from firmwright.base.json_input import (
    JsonObject,
    as_integer,
    as_object,
    as_text,
    parse_json,
)
from firmwright.base.platform_compat import lock_file
from firmwright.flows.model.tuning_log import read_measurements
from firmwright.ops.tuning_records import (
    Measurement,
    MeasurementContext,
    MeasurementKey,
)
from firmwright.partitioning.partition_result import CostStatus, RegionCost

log = logging.getLogger(__name__)
REGION_COST_SCHEMA = "part-1"
RegionCostKey: TypeAlias = "tuple[str, str, str, MeasurementContext]"
"""Digest of the region, its target, the goal, and the measurement context."""
_CONTEXT_FIELDS = tuple(field.name for field in fields(MeasurementContext))


@dataclass(frozen=True, slots=True)
class RegionCostRecord:
    """The cost of one region or whole program, with a readable description."""

    key: RegionCostKey
    what: str
    cost: RegionCost

    def line(self) -> str:
        """Return the record as a line of JSON."""
        part, target, goal, context = self.key
        head = {
            "schema": REGION_COST_SCHEMA,
            "part": part,
            "target": target,
            "goal": goal,
            "what": self.what,
        }
        return json.dumps({**head, **asdict(self.cost), **asdict(context)})


class TuningLogWriter(Closeable):
    """Writes an open log; use it as a context manager."""

    def __init__(self, path: str | Path) -> None:
        """Open the log; UsageError if that fails or another process writes it."""
        self.path = Path(path)
        self._ahead = self.path.with_name(self.path.name + ".ahead")
        self._file = open_log(self.path)
        self._waiting: TextIO | None = None
        self._written = {item.key: item for item in read_measurements(self.path)}
        self._known = dict(self._written)
        if self._ahead.exists():
            _truncate_incomplete_line(self._ahead)
            self._known |= {item.key: item for item in read_measurements(self._ahead)}

    def close(self) -> None:
        """Release the log; early measurements are kept for the next search."""
        if self._waiting is not None:
            self._waiting.close()
        if self._known.keys() == self._written.keys():
            self._ahead.unlink(missing_ok=True)
        self._file.close()

    def find(self, key: MeasurementKey) -> Measurement | None:
        return self._known.get(key)

    def record_early(self, item: Measurement) -> None:
        """Keep a measurement before its turn, in case the search is interrupted."""
        self._known[item.key] = item
        if self._waiting is None:
            self._waiting = _open(self._ahead)
        _write_line(self._waiting, item)

    def append(self, item: Measurement) -> None:
        """Append the next measurement in order, unless it is already in the log."""
        if item.key not in self._written:
            _write_line(self._file, item)
            self._known[item.key] = self._written[item.key] = item


def open_log(path: Path) -> TextIO:
    """Open and lock a log for appending; remove an incomplete last line."""
    file = _open(path)
    if not lock_file(file, wait=False):
        file.close()
        what = "another search is writing this log."
        hint = "another file; logs are merged by cat."
        raise UsageError(what, where=str(path), hint=hint)
    _truncate_incomplete_line(path)
    return file


def _write_line(file: TextIO, item: Measurement | RegionCostRecord) -> None:
    file.write(item.line() + "\n")
    file.flush()


def _open(path: Path) -> TextIO:
    try:
        check_regular_file(path)
        return path.open("a", encoding="utf-8", newline="\n")
    except OSError as error:
        what = f"the tuning log cannot be written: {error.strerror}."
        raise UsageError(what, where=str(path), hint="another path.") from error


def _truncate_incomplete_line(path: Path) -> None:
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        log.warning("%s: the last line is incomplete and is removed", path)
        os.truncate(path, end)


class RegionCostLog(Closeable):
    """An open log, without a file if the path is empty; use it as a context manager."""

    def __init__(self, path: str | Path = "") -> None:
        self._file: TextIO | None = None
        self._costs: dict[RegionCostKey, RegionCost] = {}
        if path:
            self._file = open_log(Path(path))
            for line in read_input_text(path, errors="replace").split("\n"):
                with contextlib.suppress(KeyError, TypeError, ValueError):
                    record = _parsed(as_object(parse_json(line)))
                    self._costs[record.key] = record.cost

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def find(self, key: RegionCostKey) -> RegionCost | None:
        return self._costs.get(key)

    def append(self, record: RegionCostRecord) -> None:
        self._costs[record.key] = record.cost
        if self._file is not None:
            _write_line(self._file, record)


_STATUSES: dict[str, CostStatus] = {status: status for status in get_args(CostStatus)}


def _parsed(data: JsonObject) -> RegionCostRecord:
    """Return the record of a line; KeyError, TypeError or ValueError if malformed."""
    if data["schema"] != REGION_COST_SCHEMA:
        raise ValueError("another schema")
    context = MeasurementContext(**{name: str(data[name]) for name in _CONTEXT_FIELDS})
    scratch = as_object(data["scratch"])
    cost = RegionCost(
        status=_STATUSES[as_text(data["status"])],
        count=as_integer(data["count"]),
        constants_bytes=as_integer(data["constants_bytes"]),
        scratch={pool: as_integer(size_bytes) for pool, size_bytes in scratch.items()},
        how=as_text(data["how"]),
        reason=as_text(data["reason"]),
    )
    key = (str(data["part"]), str(data["target"]), str(data["goal"]), context)
    return RegionCostRecord(key, str(data["what"]), cost)
