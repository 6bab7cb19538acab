"""Log of a partition search: one JSON line per measured region or whole program."""

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
"""Digest of the region, its target, the goal, and the measurement context."""
_CIRCUMSTANCES = tuple(field.name for field in fields(MeasurementContext))


@dataclass(frozen=True, slots=True)
class RegionCostRecord:
    """The cost of one region, with a readable description."""

    key: RegionCostKey
    what: str
    cost: RegionCost

    def line(self) -> str:
        part, target, goal, context = self.key
        head = {
            "schema": REGION_COST_SCHEMA, "part": part, "target": target, "goal": goal,
            "what": self.what,
        }  # fmt: skip
        return json.dumps({**head, **asdict(self.cost), **asdict(context)})


class RegionCostLog(Closeable):
    """An open log, without a file if the path is empty; use it as a context manager."""

    def __init__(self, path: str | Path = "") -> None:
        self._file: TextIO | None = None
        self._costs: dict[RegionCostKey, RegionCost] = {}
        if path:
            self._file = open_log(Path(path))
            for line in Path(path).read_text(encoding="utf-8", errors="replace").split("\n"):
                record = _parsed(line)
                if record is not None:
                    self._costs[record.key] = record.cost

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def find(self, key: RegionCostKey) -> RegionCost | None:
        return self._costs.get(key)

    def append(self, record: RegionCostRecord) -> None:
        self._costs[record.key] = record.cost
        if self._file is not None:
            self._file.write(record.line() + "\n")
            self._file.flush()


def _parsed(line: str) -> RegionCostRecord | None:
    try:
        data = parse_json(line)
        is_record = isinstance(data, dict) and data.get("schema") == REGION_COST_SCHEMA
        return _record(data) if is_record else None
    except (KeyError, TypeError, ValueError):
        return None


def _record(data: Mapping[str, Any]) -> RegionCostRecord:
    context = MeasurementContext(*(str(data[name]) for name in _CIRCUMSTANCES))
    cost = RegionCost(**{field.name: data[field.name] for field in fields(RegionCost)})
    texts = (cost.status, cost.how, cost.reason)
    numbers = (cost.count, cost.constants_bytes, *dict(cost.scratch).values())
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("expected a string")
    if not all(type(n) is int for n in numbers):
        raise TypeError("expected an integer")
    key = (str(data["part"]), str(data["target"]), str(data["goal"]), context)
    return RegionCostRecord(key, str(data["what"]), cost)
