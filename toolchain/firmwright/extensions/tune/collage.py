"""Collage: find the cheapest partition, given each candidate region's cost.

The design is decision 0061.

The search is a shortest path over sets of covered calls. Each step adds a candidate
region with the first uncovered call, so that each partition is built in one order only:

    calls           0 1 2 3 4
    covered         x x . x .     the next region starts at call 2: (2), or (2, 4)

The cost of a partial program is the sum of its regions' costs and of the transfers
between targets. Later transfers depend only on the targets of the calls with an
uncovered neighbor, the border. Of programs with the same covered calls and border,
those remain that are not worse in both cost and memory than another one. The memory of
a region is its workspace plus the bytes live at its last call in file order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from firmwright.base.errors import UsageError
from firmwright.ir.graph.nodes import Function
from firmwright.partitioning.offload import OffloadShare, format_shares
from firmwright.partitioning.partition_result import (
    PartitionedRegion,
    RegionAlternative,
    RegionCost,
)
from firmwright.partitioning.regions import CallGroup, calls_in
from firmwright.partitioning.target_resolution import CORE_TARGET_NAME

TransferCost = Callable[[str, str, int], int]
"""Cost of a transfer, given source, destination and bytes; "" is the core."""
_BEGINNINGS_MAX = 2048
"""Limit of partial programs of one first uncovered call; the cheapest are kept."""


@dataclass(frozen=True, slots=True)
class PartCost:
    """The percentage of an operator that a target computes, and its cycles."""

    share: OffloadShare
    count: int


@dataclass(frozen=True, slots=True)
class PartitionCandidate:
    """A region that its group's target ("" is the core) could execute, and its cost.

    `split` are the parts of an operator that several targets compute at the same time.
    The group's target is the first of them.
    """

    group: CallGroup
    cost: RegionCost
    split: tuple[PartCost, ...] = ()

    @property
    def place(self) -> str:
        """The target, or the shares of several as in `--offload`."""
        if self.split:
            return format_shares([part.share for part in self.split])
        return self.group.target or CORE_TARGET_NAME


@dataclass(frozen=True, slots=True)
class PartitionedProgram:
    """Regions that cover all calls, in order of their first calls, with total cost."""

    parts: tuple[PartitionCandidate, ...]
    count: int
    peak_bytes: int

    @property
    def groups(self) -> list[CallGroup]:
        return [part.group for part in self.parts if part.group.target]


def describe_regions(
    function: Function,
    program: Sequence[PartitionCandidate],
    candidates: Sequence[PartitionCandidate],
    lost: str = "",
) -> tuple[PartitionedRegion, ...]:
    """Return a program's regions; alternatives are candidates with common calls.

    `lost` is why a cheaper alternative was not chosen, if transfers are not the reason.
    """
    regions: list[PartitionedRegion] = []
    for part in program:
        own = _as_alternative(function, part)
        others: list[RegionAlternative] = []
        for candidate in candidates:
            if _is_alternative(candidate, part):
                other = _as_alternative(function, candidate)
                reason = _why_not(candidate, part, program, lost)
                others.append(replace(other, reason=reason))
        region = PartitionedRegion(
            target=own.target,
            makes=own.makes,
            ops=tuple(function.body[index].op for index in part.group.calls),
            entries=own.entries,
            cost=own.cost,
            alternatives=tuple(others),
        )
        regions.append(region)
    return tuple(regions)


def _as_alternative(
    function: Function, candidate: PartitionCandidate
) -> RegionAlternative:
    group = candidate.group
    makes = tuple(function.body[index].outputs[0].name for index in group.calls)
    entries = tuple(covered.entry for covered in group.entries)
    return RegionAlternative(candidate.place, makes, entries, candidate.cost)


def _why_not(
    other: PartitionCandidate,
    part: PartitionCandidate,
    program: Sequence[PartitionCandidate],
    lost: str,
) -> str:
    """Return why a candidate lost to a part, and to others if it has their calls too.

    It is "" if a cost is unknown, or if the parts have more calls than the candidate.
    """
    calls = set(other.group.calls)
    parts = [own for own in program if not calls.isdisjoint(own.group.calls)]
    counts = [own.cost.count for own in parts if own.cost.status == "ok"]
    if other.cost.status != "ok" or len(counts) < len(parts):
        return ""
    if calls != calls_in(own.group for own in parts):
        return ""
    more = other.cost.count - sum(counts)
    if more > 0:
        return f"{more:,} more" + ("" if len(parts) == 1 else " than apart")
    if not more:
        return "no gain"
    if lost:
        return lost
    if other.split:
        return "the run does not end earlier"
    return "transfers cost more than it saves"


def _is_alternative(other: PartitionCandidate, part: PartitionCandidate) -> bool:
    """Return whether `other` has calls of `part`, but differs in calls or targets."""
    calls, own = other.group.calls, part.group.calls
    is_same = (other.place, calls) == (part.place, own)
    return not is_same and not set(calls).isdisjoint(own)


def restrict_to_known_costs(
    candidates: Sequence[PartitionCandidate], eager: Sequence[CallGroup]
) -> list[PartitionCandidate]:
    """Return the usable candidates; where a cost is unknown, use the groups of `eager`.

    `eager` covers all calls. Failed candidates are dropped.
    """
    unknown = calls_in(c.group for c in candidates if c.cost.status == "unknown")
    fixed = [group for group in eager if not unknown.isdisjoint(group.calls)]
    forced = calls_in(fixed)
    # A region without alternatives does not affect the comparison, so that it may cost
    # nothing.
    free = RegionCost("ok", how="free")
    usable = [PartitionCandidate(group, free) for group in fixed]
    for candidate in candidates:
        if candidate.cost.status == "ok" and forced.isdisjoint(candidate.group.calls):
            usable.append(candidate)
    return usable


def search_partitions(
    function: Function, candidates: Sequence[PartitionCandidate], transfer: TransferCost
) -> tuple[PartitionedProgram, ...]:
    """Return the Pareto-optimal programs, the cheapest first.

    Raises:
        UsageError: a call is in no candidate.
    """
    return _PartitionSearch(function, candidates, transfer).programs()


@dataclass(frozen=True, slots=True)
class _PartialProgram:
    """The beginning of a program, as a chain of its regions from last to first."""

    count: int
    peak_bytes: int
    part: PartitionCandidate | None = None
    before: _PartialProgram | None = None

    def parts(self) -> tuple[PartitionCandidate, ...]:
        before = () if self.before is None else self.before.parts()
        return before if self.part is None else (*before, self.part)

    def is_at_least_as_good(self, other: _PartialProgram) -> bool:
        return self.count <= other.count and self.peak_bytes <= other.peak_bytes


class _Border(NamedTuple):
    """The part of a partial program on which the cost of the rest depends.

    It is a tuple, as the search hashes and compares many of them.
    """

    covered: int
    """The covered calls as bits, call 0 in the least significant one."""
    owners: tuple[tuple[int, str], ...]
    """The covered calls with an uncovered neighbor, each with its target."""


_ProgramsByBorder: TypeAlias = dict[_Border, list[_PartialProgram]]
"""The partial programs that none of the same border dominates."""


class _PartitionSearch:
    """The search for the programs of one function, with the facts that it reads."""

    def __init__(
        self,
        function: Function,
        candidates: Sequence[PartitionCandidate],
        transfer: TransferCost,
    ) -> None:
        self.function = function
        self.transfer = transfer
        self.makers = function.makers
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
        self.by_first_call: list[list[PartitionCandidate]] = [[] for _ in function.body]
        for candidate in candidates:
            self.by_first_call[candidate.group.calls[0]].append(candidate)
        coverable = calls_in(candidate.group for candidate in candidates)
        for index, call in enumerate(function.body):
            if index not in coverable:
                what = f"no target can run the operator {call.op}"
                raise UsageError(
                    f"{what}: every region with it failed.",
                    where=str(call.span) if call.span.file else function.name,
                    hint="the reasons are in the result and in the log.",
                )

    def programs(self) -> tuple[PartitionedProgram, ...]:
        """Return the programs that no other one dominates, the cheapest first."""
        total = len(self.function.body)
        # The partial programs by their first uncovered call; complete ones are the last
        # item.
        waiting: list[_ProgramsByBorder] = [{} for _ in range(total + 1)]
        waiting[0][_Border(0, ())] = [_PartialProgram(0, 0)]
        for first in range(total):
            for border, beginnings in _cheapest_borders(waiting[first]).items():
                for candidate in self.by_first_call[first]:
                    self._extend(beginnings, border, candidate, waiting)
            waiting[first] = {}
        complete: list[_PartialProgram] = []
        for program in itertools.chain.from_iterable(waiting[total].values()):
            _add_unless_dominated(complete, program)
        if not complete:
            raise UsageError("no regions cover the model.", where=self.function.name)
        complete.sort(key=lambda program: (program.count, program.peak_bytes))
        programs = []
        for chain in complete:
            parts = chain.parts()
            programs.append(PartitionedProgram(parts, chain.count, chain.peak_bytes))
        return tuple(programs)

    def _extend(
        self,
        programs: Sequence[_PartialProgram],
        border: _Border,
        candidate: PartitionCandidate,
        waiting: list[_ProgramsByBorder],
    ) -> None:
        """Add `candidate` to a border's programs unless they cover one of its calls."""
        bits = sum(1 << index for index in candidate.group.calls)
        if border.covered & bits:
            return
        owners = dict(border.owners)
        moved = self._transfer_cost(candidate.group, owners)
        owners |= dict.fromkeys(candidate.group.calls, candidate.group.target)
        covered = border.covered | bits
        new_border = _Border(covered, self._border_owners(covered, owners))
        # `~covered & covered + 1` is the lowest bit that is 0 in `covered`.
        first_uncovered = (~covered & covered + 1).bit_length() - 1
        place = waiting[first_uncovered].setdefault(new_border, [])
        live_bytes = self.live_bytes[candidate.group.calls[-1]]
        region_bytes = live_bytes + sum(candidate.cost.scratch.values())
        for program in programs:
            count = program.count + candidate.cost.count + moved
            peak_bytes = max(program.peak_bytes, region_bytes)
            new = _PartialProgram(count, peak_bytes, candidate, program)
            _add_unless_dominated(place, new)

    def _border_owners(
        self, covered: int, owners: Mapping[int, str]
    ) -> tuple[tuple[int, str], ...]:
        """Return the calls of `owners` with an uncovered neighbor, and the targets."""
        border: list[tuple[int, str]] = []
        for index, owner in sorted(owners.items()):
            for neighbor in self.neighbors[index]:
                if not covered >> neighbor & 1:
                    border.append((index, owner))
                    break
        return tuple(border)

    def _transfer_cost(self, group: CallGroup, owners: Mapping[int, str]) -> int:
        """Return the cost of transfers between a group and the calls with an owner.

        A region may start at an earlier call than its inputs' makers, so that covered
        calls may be readers of its outputs. The transfers to calls without an owner are
        counted with those.
        """
        total = 0
        inside = set(group.calls)
        sources = {value.name for value in self.function.sources}
        sinks = {value.name for value in self.function.sinks}
        for index in group.calls:
            call = self.function.body[index]
            for value in call.variables:
                maker = self.makers.get(value.name, -1)
                source = "" if value.name in sources else owners.get(maker)
                if maker in inside or source is None or source == group.target:
                    continue
                total += self.transfer(source, group.target, value.type.size_bytes)
            for value in call.outputs:
                readers = self.readers.get(value.name, set())
                targets = {owners[reader] for reader in readers if reader in owners}
                if value.name in sinks:
                    targets.add("")
                for target in sorted(targets - {group.target}):
                    total += self.transfer(group.target, target, value.type.size_bytes)
        return total


def _add_unless_dominated(
    programs: list[_PartialProgram], new: _PartialProgram
) -> None:
    """Add `new` unless one of `programs` is as good, and remove those not better."""
    for program in programs:
        if program.is_at_least_as_good(new):
            return
    better = [program for program in programs if not new.is_at_least_as_good(program)]
    programs[:] = [*better, new]


def _cheapest_borders(borders: _ProgramsByBorder) -> _ProgramsByBorder:
    """Return the `_BEGINNINGS_MAX` borders with the cheapest programs.

    Borders with equal costs are compared themselves, so that the choice is stable.
    """
    if len(borders) <= _BEGINNINGS_MAX:
        return borders

    def least_count(border: _Border) -> tuple[int, _Border]:
        return min(program.count for program in borders[border]), border

    best = sorted(borders, key=least_count)
    return {border: borders[border] for border in best[:_BEGINNINGS_MAX]}


def _live_bytes(function: Function) -> list[int]:
    """Return for each call the bytes of the tensors that are live while it runs.

    Calls run in file order. A tensor is live from the call that makes it to its last
    reader; sources are live from the start and sinks to the end.
    """
    first = {value.name: -1 for value in function.sources}
    size = {value.name: value.type.size_bytes for value in function.sources}
    last = {value.name: len(function.body) for value in function.sinks}
    for index, call in enumerate(function.body):
        for value in call.outputs:
            first[value.name] = index
            size[value.name] = value.type.size_bytes
        for value in call.variables:
            last[value.name] = max(index, last.get(value.name, index))
    live = [0] * len(function.body)
    for name, begin in first.items():
        for index in range(max(begin, 0), min(last.get(name, begin) + 1, len(live))):
            live[index] += size[name]
    return live
