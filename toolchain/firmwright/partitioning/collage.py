"""The search for the partition that costs least, given what each part costs.

In: a graph function, parts that it could consist of (`PartitionCandidate`: calls, who runs them,
what that
costs) and what it costs to move a tensor between two targets. Out: programs, each a cover of all
calls, none worse than another in both time and memory, the fastest first. Nothing is rewritten
here and nothing measured: a result is applied by `parts.py`.

Source of the method: a shortest path over sets of calls that are covered, where each step adds a
part that covers the first call which is not. A part may be computed in one piece in the place of
its last call (ir/graph/patterns.py), so any cover by disjoint parts is a program. Of two beginnings
that cover the same calls, with the same targets at the border, nothing else counts later.
Memory is what is alive at a part in the order of the file, and its workspace: an estimate, since
the planner may do better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from firmwright.base.errors import UsageError
from firmwright.ir.graph.nodes import Function
from firmwright.partitioning.regions import CallGroup

CostStatus: TypeAlias = Literal["ok", "failed", "unknown"]
TransferCost = Callable[[str, str, int], int]
"""What it costs to bring so many bytes from one target to another; "" is the core."""
_BEGINNINGS_MAX = 2048
"""Beginnings that are pursued at a call; of more those of least time."""


@dataclass(frozen=True, slots=True)
class RegionCost:
    """What one run of a part takes; nothing of it is known unless the status is ok.

    `how` says where `count` is from: measured, modelled (the backend's or the core's cost model),
    or free (a view, or what no choice can change). `scratch` is workspace and inner tensors by
    pool. `reason` says why a part failed.
    """

    status: CostStatus
    count: int = 0
    how: str = "measured"
    scratch: Mapping[str, int] = field(default_factory=dict)
    constants_bytes: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PartitionCandidate:
    """A part of a function, run by its group's owner ("" is the core)."""

    group: CallGroup
    cost: RegionCost


@dataclass(frozen=True, slots=True)
class PartitionedProgram:
    """A cover of all calls, in the order of their first ones."""

    parts: tuple[PartitionCandidate, ...]
    count: int
    peak_bytes: int

    @property
    def groups(self) -> list[CallGroup]:
        """What backends get."""
        return [part.group for part in self.parts if part.group.target]


def restrict_to_known_costs(
    candidates: Sequence[PartitionCandidate], eager: Sequence[CallGroup]
) -> list[PartitionCandidate]:
    """Candidates to choose from: where a cost is unknown, what the order of preference takes.

    `eager` covers all calls. What failed is out.
    """
    forced: set[int] = set()
    for candidate in candidates:
        if candidate.cost.status == "unknown":
            calls = set(candidate.group.calls)
            forced |= {i for group in eager if calls & set(group.calls) for i in group.calls}
    fixed = [group for group in eager if forced & set(group.calls)]
    # What nobody compares costs nothing.
    return [PartitionCandidate(group, RegionCost("ok", how="free")) for group in fixed] + [
        candidate
        for candidate in candidates
        if candidate.cost.status == "ok" and not forced & set(candidate.group.calls)
    ]


def search_partitions(
    function: Function, candidates: Sequence[PartitionCandidate], transfer: TransferCost
) -> tuple[PartitionedProgram, ...]:
    """The programs, the fastest first; UsageError if some call is in no candidate."""
    return _PartitionSearch(function, candidates, transfer).programs()


@dataclass(frozen=True, slots=True)
class _PartialProgram:
    """A beginning of a program."""

    count: int
    peak_bytes: int
    part: PartitionCandidate | None = None
    before: _PartialProgram | None = None

    def parts(self) -> Iterator[PartitionCandidate]:
        if self.before is not None:
            yield from self.before.parts()
        if self.part is not None:
            yield self.part


_Border: TypeAlias = "tuple[int, tuple[tuple[int, str], ...]]"
"""The calls that are covered, as bits, and the targets of those with a neighbour that is not."""


class _PartitionSearch:
    def __init__(
        self, function: Function, candidates: Sequence[PartitionCandidate], transfer: TransferCost
    ) -> None:
        self.function = function
        self.transfer = transfer
        self.makers = {v.name: i for i, call in enumerate(function.body) for v in call.outputs}
        self.neighbours = self._neighbours()
        self.live_bytes = _live_bytes(function)
        self.with_call: list[list[PartitionCandidate]] = [[] for _ in function.body]
        for candidate in candidates:
            self.with_call[candidate.group.calls[0]].append(candidate)
        for index, call in enumerate(function.body):
            if not any(index in c.group.calls for c in candidates):
                raise UsageError(
                    f"no target can run the operator {call.op}: every part with it failed.",
                    where=str(call.span) if call.span.file else function.name,
                    hint="the reasons are in the result and in the log.",
                )

    def programs(self) -> tuple[PartitionedProgram, ...]:
        total = len(self.function.body)
        waiting: list[dict[_Border, list[_PartialProgram]]] = [{} for _ in range(total + 1)]
        waiting[0][0, ()] = [_PartialProgram(0, 0)]
        for first in range(total):
            for border, labels in _fewest(waiting[first]).items():
                for candidate in self.with_call[first]:
                    self._add(candidate, border, labels, waiting)
            waiting[first] = {}
        kept: list[_PartialProgram] = []
        for label in (label for found in waiting[total].values() for label in found):
            _keep(kept, label)
        if not kept:
            raise UsageError("no parts cover the model.", where=self.function.name)
        kept.sort(key=lambda label: (label.count, label.peak_bytes))
        return tuple(PartitionedProgram(tuple(k.parts()), k.count, k.peak_bytes) for k in kept)

    def _add(
        self,
        candidate: PartitionCandidate,
        border: _Border,
        labels: Sequence[_PartialProgram],
        waiting: list[dict[_Border, list[_PartialProgram]]],
    ) -> None:
        """Beginnings that go on with `candidate`, where it covers nothing twice."""
        covered, owners = border[0], dict(border[1])
        bits = sum(1 << i for i in candidate.group.calls)
        if covered & bits:
            return
        moved = self._moved(candidate.group, owners)
        owners |= dict.fromkeys(candidate.group.calls, candidate.group.target)
        after = covered | bits
        place = waiting[_first_zero(after)].setdefault((after, self._border(after, owners)), [])
        for label in labels:
            _keep(place, self._extended(label, candidate, moved))

    def _extended(
        self, label: _PartialProgram, candidate: PartitionCandidate, moved: int
    ) -> _PartialProgram:
        scratch = sum(candidate.cost.scratch.values())
        peak = self.live_bytes[candidate.group.calls[-1]] + scratch
        count = label.count + candidate.cost.count + moved
        return _PartialProgram(count, max(label.peak_bytes, peak), candidate, label)

    def _moved(self, group: CallGroup, owners: Mapping[int, str]) -> int:
        """Transfers between this part, what is outside the function, and parts chosen before."""
        total, inside = 0, set(group.calls)
        sources = {value.name for value in self.function.sources}
        sinks = {value.name for value in self.function.sinks}
        for index in group.calls:
            call = self.function.body[index]
            for value in call.variables:
                maker = self.makers.get(value.name, -1)
                whose = "" if value.name in sources else owners.get(maker)
                if maker not in inside and whose is not None and whose != group.target:
                    total += self.transfer(whose, group.target, value.type.size_bytes)
            for value in call.outputs:
                readers = {owners[i] for i in self._readers(value.name) if i in owners}
                readers |= {""} if value.name in sinks else set()
                for whose in sorted(readers - {group.target}):
                    total += self.transfer(group.target, whose, value.type.size_bytes)
        return total

    def _readers(self, name: str) -> Iterator[int]:
        for index in self.neighbours[self.makers[name]]:
            if any(value.name == name for value in self.function.body[index].variables):
                yield index

    def _neighbours(self) -> list[set[int]]:
        found: list[set[int]] = [set() for _ in self.function.body]
        for index, call in enumerate(self.function.body):
            for value in call.variables:
                maker = self.makers.get(value.name)
                if maker is not None:
                    found[maker].add(index)
                    found[index].add(maker)
        return found

    def _border(self, covered: int, owners: Mapping[int, str]) -> tuple[tuple[int, str], ...]:
        return tuple(
            (index, owner)
            for index, owner in sorted(owners.items())
            if any(not covered >> other & 1 for other in self.neighbours[index])
        )


def _first_zero(bits: int) -> int:
    return (~bits & (bits + 1)).bit_length() - 1


def _keep(labels: list[_PartialProgram], new: _PartialProgram) -> None:
    """Adds a beginning unless another is no worse in both; takes out those it beats."""
    if any(k.count <= new.count and k.peak_bytes <= new.peak_bytes for k in labels):
        return
    labels[:] = [k for k in labels if k.count < new.count or k.peak_bytes < new.peak_bytes]
    labels.append(new)


def _fewest(found: dict[_Border, list[_PartialProgram]]) -> dict[_Border, list[_PartialProgram]]:
    if len(found) <= _BEGINNINGS_MAX:
        return found
    best = sorted(found, key=lambda border: (min(k.count for k in found[border]), border))
    return {border: found[border] for border in best[:_BEGINNINGS_MAX]}


def _live_bytes(function: Function) -> list[int]:
    """At each call the bytes of its inputs and outputs, and of what is read after it."""
    made = {value.name: (-1, value.type.size_bytes) for value in function.sources}
    last = {value.name: len(function.body) for value in function.sinks}
    for index, call in enumerate(function.body):
        made |= {value.name: (index, value.type.size_bytes) for value in call.outputs}
        for value in call.variables:
            last[value.name] = max(index, last.get(value.name, index))
    return [
        sum(size for name, (first, size) in made.items() if first <= at <= last.get(name, first))
        for at in range(len(function.body))
    ]
