"""What the backends of a module could take, and what they take in order of preference.

In: a graph function, and the backends that take part. Out: groups of its calls, each with the name
of the target that would run it and the entry of that one's table. `greedy_cover` gives each call
to the
first that takes it; `all_matches` lists everything that any of them would take, overlapping or not.
Calls that carry a target are that one's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from firmwright.ir.core import Target
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.patterns import Match, PatternGraph, match_pattern
from firmwright.ir.module import IRModule
from firmwright.partitioning.regions import CallGroup, merge_regions
from firmwright.targets.backend import Backend, PatternEntry


@dataclass(frozen=True, slots=True)
class ActiveBackend:
    """A backend that takes part: its instance, and the name of that in the module's table."""

    name: str
    target: Target
    backend: Backend


PartitionStrategy = Callable[[Function, IRModule, Sequence[ActiveBackend]], Sequence[CallGroup]]
"""Which parts of a function the backends get; what is in no group stays."""


def greedy_cover(
    function: Function, module: IRModule, active: Sequence[ActiveBackend]
) -> list[CallGroup]:
    """What patterns cover, the first target's first, then calls that a pass gave to a backend."""
    groups: list[CallGroup] = []
    for item in active:
        free = _free(function, item) - {index for group in groups for index in group.calls}
        for entry in item.backend.table:
            for index in reversed(range(len(function.body))):
                found = _match(entry, index, item, function, module, free)
                if found is not None:
                    groups.append(found)
                    free -= set(found.calls)
    taken = {index for group in groups for index in group.calls}
    return groups + [
        group for group in annotated_calls(function, active) if group.calls[0] not in taken
    ]


def annotated_calls(function: Function, active: Sequence[ActiveBackend]) -> Iterator[CallGroup]:
    """Single calls that a pass gave to a backend."""
    names = {item.name for item in active}
    for index, call in enumerate(function.body):
        if call.target in names and not call.op.startswith("@"):
            yield CallGroup((index,), call.target)


def all_matches(
    function: Function, module: IRModule, active: Sequence[ActiveBackend]
) -> list[CallGroup]:
    """Everything that one of them would take; for those that merge regions, whole regions too."""
    found: dict[tuple[str, tuple[int, ...]], CallGroup] = {}
    for item in active:
        own: list[CallGroup] = []
        for entry in item.backend.table:
            for index in range(len(function.body)):
                group = _match(entry, index, item, function, module, _free(function, item))
                if group is not None:
                    own.append(group)
        own += [group for group in annotated_calls(function, active) if group.target == item.name]
        if item.backend.merge_regions:
            own += _regions(function, greedy_cover(function, module, [item]), item.name)
        for group in own:
            found.setdefault((group.target, group.calls), group)
    return list(found.values())


def with_unmatched(function: Function, groups: Sequence[CallGroup]) -> tuple[CallGroup, ...]:
    """The groups, and each call that is in none as one that stays."""
    taken = {index for group in groups for index in group.calls}
    rest = (CallGroup((i,)) for i in range(len(function.body)) if i not in taken)
    return (*groups, *rest)


def _regions(function: Function, groups: Sequence[CallGroup], target: str) -> Iterator[CallGroup]:
    for group in merge_regions(function, with_unmatched(function, groups), {target}):
        if group.target and len(group.entries) > 1:
            yield group


def _free(function: Function, item: ActiveBackend) -> set[int]:
    return {
        index
        for index, call in enumerate(function.body)
        if call.target in ("", item.name) and not call.op.startswith("@")
    }


def _match(
    entry: PatternEntry,
    index: int,
    item: ActiveBackend,
    function: Function,
    module: IRModule,
    free: Collection[int],
) -> CallGroup | None:
    """What the entry covers when it ends in that call, and its predicate takes."""
    calls = match_pattern(entry.pattern, index, PatternGraph(function, module, free))
    if calls is None or not entry.predicate(make_match(calls, item, function, module)):
        return None
    return CallGroup(calls, item.name, ((entry.name, calls),))


def make_match(
    calls: Sequence[int], item: ActiveBackend, function: Function, module: IRModule
) -> Match:
    """Those calls as predicates see them."""
    covered = tuple(function.body[i] for i in calls)
    return Match(covered, module, item.target, item.backend.version)
