"""The log of a search for a partition: one line for each part or whole program that was measured.

In: a path, or none. Out: what is known of a part, by its structure, the targets and the
circumstances; nothing is measured twice. Lines are JSON; those of other kinds are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from firmwright.base.closeable import Closeable
from firmwright.base.json_input import parse_json
from firmwright.ir.tuning_records import MeasurementContext
from firmwright.partitioning.collage import RegionCost
from firmwright.tune.log_writer import open_log

REGION_COST_SCHEMA = "part-1"
RegionCostKey: TypeAlias = "tuple[str, str, str, MeasurementContext]"
"""Digest of the part, its target, the goal, circumstances."""
_CIRCUMSTANCES = tuple(field.name for field in fields(MeasurementContext))


@dataclass(frozen=True, slots=True)
class RegionCostRecord:
    """What was found of one part; `what` is for readers."""

    key: RegionCostKey
    what: str
    cost: RegionCost

    def line(self) -> str:
        part, target, goal, at = self.key
        head = {
            "schema": REGION_COST_SCHEMA,
            "part": part,
            "target": target,
            "goal": goal,
            "what": self.what,
        }
        return json.dumps({**head, **asdict(self.cost), **asdict(at)})


class RegionCostLog(Closeable):
    """An open log, in memory alone where there is no path. A context manager."""

    def __init__(self, path: str | Path = "") -> None:
        self._file: TextIO | None = None
        self._known: dict[RegionCostKey, RegionCost] = {}
        if path:
            self._file = open_log(Path(path))
            for line in Path(path).read_text(encoding="utf-8", errors="replace").split("\n"):
                record = _parsed(line)
                if record is not None:
                    self._known[record.key] = record.cost

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def find(self, key: RegionCostKey) -> RegionCost | None:
        return self._known.get(key)

    def append(self, record: RegionCostRecord) -> None:
        self._known[record.key] = record.cost
        if self._file is not None:
            self._file.write(record.line() + "\n")
            self._file.flush()


def _parsed(line: str) -> RegionCostRecord | None:
    try:
        data = parse_json(line)
    except ValueError:
        return None
    if not isinstance(data, dict) or data.get("schema") != REGION_COST_SCHEMA:
        return None
    try:
        return _record(data)
    except (KeyError, TypeError, ValueError):
        return None


def _record(data: Mapping[str, Any]) -> RegionCostRecord:
    at = MeasurementContext(*(str(data[name]) for name in _CIRCUMSTANCES))
    cost = RegionCost(**{field.name: data[field.name] for field in fields(RegionCost)})
    _check_cost(cost)
    key = (str(data["part"]), str(data["target"]), str(data["goal"]), at)
    return RegionCostRecord(key, str(data["what"]), cost)


def _check_cost(cost: RegionCost) -> None:
    """TypeError where a field is of another kind than what a part's cost is made of."""
    texts = (cost.status, cost.how, cost.reason)
    numbers = (cost.count, cost.constants_bytes, *dict(cost.scratch).values())
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a text is none")
    if not all(type(n) is int for n in numbers):
        raise TypeError("a number is none")
