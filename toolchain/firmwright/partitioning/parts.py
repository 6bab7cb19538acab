"""A partition as a result: who runs which calls, what that costs, what else there was.

In: programs of the search, or a file that a person edited. Out: a `Partition`, its JSON form, and
the choice that it is (`chosen`), for `assign` to apply. Calls are known by the tensors that they
make, which is what a person reads in the model. What is applied is matched again: a part goes to a
target only where that one's table says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.base.json_text import read_json
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.partitioning.choosing import CORE
from firmwright.partitioning.collage import Candidate, PartCost
from firmwright.partitioning.matching import Active, Choose, possible
from firmwright.partitioning.regions import Group

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another target for all calls of a part, or some of them with others."""

    target: str
    makes: tuple[str, ...]
    entries: tuple[str, ...]
    cost: PartCost


@dataclass(frozen=True, slots=True)
class Part:
    """Calls that one target runs together, by the tensors that they make, and the other ways."""

    target: str
    makes: tuple[str, ...]
    ops: tuple[str, ...]
    entries: tuple[str, ...]
    cost: PartCost
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Total:
    """A whole program. `count` is None where it did not build, or nobody could run it."""

    count: int | None
    pools: Mapping[str, int] = field(default_factory=dict)
    flash_bytes: int | None = None
    reason: str = ""

    @property
    def workspace_bytes(self) -> int:
        return sum(self.pools.values())


@dataclass(frozen=True, slots=True)
class Partition:
    """What a search found. `totals` are of whole programs, by how they were partitioned."""

    model: str
    board: str
    targets: str
    goal: str
    method: str
    unit: str
    chosen: str
    parts: tuple[Part, ...]
    totals: Mapping[str, Total] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    def text(self) -> str:
        """The file that a person may edit."""
        return json.dumps(self.as_json(), indent=2) + "\n"


def parts_of_program(
    function: Function, program: Sequence[Candidate], candidates: Sequence[Candidate]
) -> tuple[Part, ...]:
    """The parts with, for each, every other candidate that would take one of its calls."""
    return tuple(
        Part(
            part.group.owner or CORE,
            _makes(function, part.group),
            tuple(function.body[i].op for i in part.group.calls),
            tuple(name for name, _ in part.group.entries),
            part.cost,
            tuple(
                Alternative(
                    other.group.owner or CORE,
                    _makes(function, other.group),
                    tuple(name for name, _ in other.group.entries),
                    other.cost,
                )
                for other in candidates
                if set(other.group.calls) & set(part.group.calls)
                and (other.group.owner, other.group.calls) != (part.group.owner, part.group.calls)
            ),
        )
        for part in program
    )


def _makes(function: Function, group: Group) -> tuple[str, ...]:
    return tuple(function.body[i].outputs[0].name for i in group.calls)


# ---- a result that is applied --------------------------------------------------------------------


def chosen(found: Sequence[Part], where: str) -> Choose:
    """The choice that a result is. UsageError for a part that its target does not take."""

    def choose(function: Function, module: IRModule, active: Sequence[Active]) -> list[Group]:
        places = {call.outputs[0].name: i for i, call in enumerate(function.body)}
        offered = {(g.owner, g.calls): g for g in possible(function, module, active)}
        groups: list[Group] = []
        for part in found:
            if part.target == CORE or part.makes[0] not in places:
                continue
            calls = tuple(sorted(places[name] for name in part.makes if name in places))
            group = offered.get((part.target, calls))
            if group is None or len(calls) < len(part.makes):
                raise UsageError(
                    f"{part.target} does not take {', '.join(part.makes)} as one part.",
                    where=where,
                    hint=f"a target of the part's alternatives, or {CORE}.",
                )
            groups.append(group)
        _check_apart(groups, function, where)
        return groups

    return choose


def check_tensors(found: Sequence[Part], module: IRModule, where: str) -> None:
    """UsageError for a part that names a tensor which no call of the module makes."""
    made = {
        call.outputs[0].name
        for function in module.functions.values()
        if isinstance(function, Function)
        for call in function.body
    }
    for part in found:
        for name in part.makes:
            if name not in made:
                raise UsageError(
                    f"no operator of the model makes the tensor {name}.",
                    where=where,
                    hint="the result of a search for this model.",
                )


def _check_apart(groups: Sequence[Group], function: Function, where: str) -> None:
    taken: set[int] = set()
    for group in groups:
        for index in sorted(taken & set(group.calls)):
            raise UsageError(
                f"two parts have the tensor {function.body[index].outputs[0].name}.", where=where
            )
        taken |= set(group.calls)


def read_parts(text: str, where: str) -> tuple[Part, ...]:
    """The parts that a result's text says; UsageError where it is none."""
    try:
        data = read_json(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']}, where {SCHEMA} is known")
        return tuple(_part(row) for row in data["parts"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"this is no result of a search for a partition: {error!r}.",
            where=where,
            hint="firmwright partition MODEL --partition collage --result FILE writes one.",
        ) from error


def _part(row: Mapping[str, Any]) -> Part:
    texts = (row["makes"], row.get("ops", []), row.get("entries", []))
    makes, ops, entries = (tuple(map(str, words)) for words in texts)
    if not makes or not isinstance(row["target"], str):
        raise ValueError("a part wants a target, and the tensors that its calls make")
    return Part(row["target"], makes, ops, entries, PartCost("unknown"))
