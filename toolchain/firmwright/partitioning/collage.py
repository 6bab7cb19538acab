"""Collage: find the cheapest partition, given the cost of each candidate region (decision 0061).

The search is a shortest path over sets of covered calls; each step covers the first uncovered call.
 Memory
is a region's workspace plus the bytes live at its last call in file order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from firmwright.base.errors import UsageError
from firmwright.ir.graph.nodes import Function
from firmwright.partitioning.regions import CallGroup

CostStatus: TypeAlias = Literal["ok", "failed", "unknown"]
TransferCost = Callable[[str, str, int], int]
"""Cost of a transfer, given source, destination and bytes; "" is the core."""
_BEGINNINGS_MAX = 2048
"""Limit of partial programs with the same first uncovered call; the cheapest are kept."""


@dataclass(frozen=True, slots=True)
class RegionCost:
    """The cost of one run of a region; the figures are valid only with the status ok.

    `how` is the origin of `count`: measured, modeled, or free (a view, or a part without a
    choice). `scratch` is workspace and inner tensors by pool.
    """

    status: CostStatus
    count: int = 0
    how: str = "measured"
    scratch: Mapping[str, int] = field(default_factory=dict)
    constants_bytes: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PartitionCandidate:
    """A region that its group's target ("" is the core) could execute, with its cost."""

    group: CallGroup
    cost: RegionCost


@dataclass(frozen=True, slots=True)
class PartitionedProgram:
    """Regions that cover all calls, in the order of their first calls, with total cost."""

    parts: tuple[PartitionCandidate, ...]
    count: int
    peak_bytes: int

    @property
    def groups(self) -> list[CallGroup]:
        return [part.group for part in self.parts if part.group.target]


def restrict_to_known_costs(
    candidates: Sequence[PartitionCandidate], eager: Sequence[CallGroup]
) -> list[PartitionCandidate]:
    """Return the usable candidates; where a cost is unknown, use the groups of `eager`.

    `eager` covers all calls. Failed candidates are dropped.
    """
    forced: set[int] = set()
    for candidate in candidates:
        if candidate.cost.status == "unknown":
            calls = set(candidate.group.calls)
            forced |= {i for group in eager if calls & set(group.calls) for i in group.calls}
    fixed = [group for group in eager if forced & set(group.calls)]
    # A region without alternatives does not affect the comparison.
    return [PartitionCandidate(group, RegionCost("ok", how="free")) for group in fixed] + [
        candidate
        for candidate in candidates
        if candidate.cost.status == "ok" and not forced & set(candidate.group.calls)
    ]


def search_partitions(
    function: Function, candidates: Sequence[PartitionCandidate], transfer: TransferCost
) -> tuple[PartitionedProgram, ...]:
    """Return Pareto-optimal programs, cheapest first; UsageError if a call is in no candidate."""
    return _PartitionSearch(function, candidates, transfer).programs()


@dataclass(frozen=True, slots=True)
class _PartialProgram:
    count: int
    peak_bytes: int
    part: PartitionCandidate | None = None
    before: _PartialProgram | None = None

    def parts(self) -> tuple[PartitionCandidate, ...]:
        before = () if self.before is None else self.before.parts()
        return before if self.part is None else (*before, self.part)


_Border: TypeAlias = "tuple[int, tuple[tuple[int, str], ...]]"
"""Covered calls as bits, and the targets of those with an uncovered neighbor."""


class _PartitionSearch:
    def __init__(
        self, function: Function, candidates: Sequence[PartitionCandidate], transfer: TransferCost
    ) -> None:
        self.function = function
        self.transfer = transfer
        self.makers = {v.name: i for i, call in enumerate(function.body) for v in call.outputs}
        self.readers: dict[str, set[int]] = {}
        self.neighbors: list[set[int]] = [set() for _ in function.body]
        for index, call in enumerate(function.body):
            for value in call.variables:
                self.readers.setdefault(value.name, set()).add(index)
                maker = self.makers.get(value.name)
                if maker is not None:
                    self.neighbors[maker].add(index)
                    self.neighbors[index].add(maker)
        self.live_bytes = _live_bytes(function)
        self.with_call: list[list[PartitionCandidate]] = [[] for _ in function.body]
        for candidate in candidates:
            self.with_call[candidate.group.calls[0]].append(candidate)
        for index, call in enumerate(function.body):
            if not any(index in c.group.calls for c in candidates):
                raise UsageError(
                    f"no target can run the operator {call.op}: every region with it failed.",
                    where=str(call.span) if call.span.file else function.name,
                    hint="the reasons are in the result and in the log.",
                )

    def programs(self) -> tuple[PartitionedProgram, ...]:
        total = len(self.function.body)
        waiting: list[dict[_Border, list[_PartialProgram]]] = [{} for _ in range(total + 1)]
        waiting[0][0, ()] = [_PartialProgram(0, 0)]
        for first in range(total):
            for border, labels in _cheapest_borders(waiting[first]).items():
                for candidate in self.with_call[first]:
                    self._add(candidate, border, labels, waiting)
            waiting[first] = {}
        complete: list[_PartialProgram] = []
        for label in itertools.chain.from_iterable(waiting[total].values()):
            _add_unless_dominated(complete, label)
        if not complete:
            raise UsageError("no regions cover the model.", where=self.function.name)
        complete.sort(key=lambda label: (label.count, label.peak_bytes))
        return tuple(PartitionedProgram(k.parts(), k.count, k.peak_bytes) for k in complete)

    def _add(
        self,
        candidate: PartitionCandidate,
        border: _Border,
        labels: Sequence[_PartialProgram],
        waiting: list[dict[_Border, list[_PartialProgram]]],
    ) -> None:
        covered, owners = border[0], dict(border[1])
        bits = sum(1 << i for i in candidate.group.calls)
        if covered & bits:
            return
        moved = self._transfer_cost(candidate.group, owners)
        owners |= dict.fromkeys(candidate.group.calls, candidate.group.target)
        after = covered | bits
        border_owners = tuple(
            (index, owner)
            for index, owner in sorted(owners.items())
            if any(not after >> other & 1 for other in self.neighbors[index])
        )
        first_uncovered = (~after & after + 1).bit_length() - 1
        place = waiting[first_uncovered].setdefault((after, border_owners), [])
        peak = self.live_bytes[candidate.group.calls[-1]] + sum(candidate.cost.scratch.values())
        for label in labels:
            count = label.count + candidate.cost.count + moved
            new = _PartialProgram(count, max(label.peak_bytes, peak), candidate, label)
            _add_unless_dominated(place, new)

    def _transfer_cost(self, group: CallGroup, owners: Mapping[int, str]) -> int:
        total, inside = 0, set(group.calls)
        sources = {value.name for value in self.function.sources}
        sinks = {value.name for value in self.function.sinks}
        for index in group.calls:
            call = self.function.body[index]
            for value in call.variables:
                maker = self.makers.get(value.name, -1)
                source = "" if value.name in sources else owners.get(maker)
                if maker not in inside and source not in (None, group.target):
                    total += self.transfer(str(source), group.target, value.type.size_bytes)
            for value in call.outputs:
                targets = {owners[i] for i in self.readers.get(value.name, ()) if i in owners}
                targets |= {""} if value.name in sinks else set()
                for target in sorted(targets - {group.target}):
                    total += self.transfer(group.target, target, value.type.size_bytes)
        return total


def _add_unless_dominated(labels: list[_PartialProgram], new: _PartialProgram) -> None:
    if any(k.count <= new.count and k.peak_bytes <= new.peak_bytes for k in labels):
        return
    labels[:] = [k for k in labels if k.count < new.count or k.peak_bytes < new.peak_bytes]
    labels.append(new)


def _cheapest_borders(
    borders: dict[_Border, list[_PartialProgram]],
) -> dict[_Border, list[_PartialProgram]]:
    if len(borders) <= _BEGINNINGS_MAX:
        return borders
    best = sorted(borders, key=lambda border: (min(k.count for k in borders[border]), border))
    return {border: borders[border] for border in best[:_BEGINNINGS_MAX]}


def _live_bytes(function: Function) -> list[int]:
    definitions = {value.name: (-1, value.type.size_bytes) for value in function.sources}
    last = {value.name: len(function.body) for value in function.sinks}
    for index, call in enumerate(function.body):
        definitions |= {value.name: (index, value.type.size_bytes) for value in call.outputs}
        for value in call.variables:
            last[value.name] = max(index, last.get(value.name, index))
    ranges = [(first, last.get(name, first), size) for name, (first, size) in definitions.items()]
    return [
        sum(size for first, end, size in ranges if first <= index <= end)
        for index in range(len(function.body))
    ]
