"""What the backends of a module could take, and what they take in order of preference.

In: a graph function, and the backends that take part. Out: groups of its calls, each with the name
of the target that would run it and the entry of that one's table. `eager` gives each call to the
first that takes it; `possible` lists everything that any of them would take, overlapping or not.
Calls that carry a target are that one's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from firmwright.ir.core import Target
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.patterns import Graph, Match, find
from firmwright.ir.module import IRModule
from firmwright.partitioning.regions import Group, merge_regions
from firmwright.targets.backend import Backend, PatternEntry


@dataclass(frozen=True, slots=True)
class Active:
    """A backend that takes part: its instance, and the name of that in the module's table."""

    name: str
    target: Target
    backend: Backend


Choose = Callable[[Function, IRModule, Sequence[Active]], Sequence[Group]]
"""Which parts of a function the backends get; what is in no group stays."""


def eager(function: Function, module: IRModule, active: Sequence[Active]) -> list[Group]:
    """What patterns cover, the first target's first, then calls that a pass gave to a backend."""
    groups: list[Group] = []
    for item in active:
        free = _free(function, item) - {index for group in groups for index in group.calls}
        for entry in item.backend.table:
            for index in reversed(range(len(function.body))):
                found = _match(entry, index, item, function, module, free)
                if found is not None:
                    groups.append(found)
                    free -= set(found.calls)
    taken = {index for group in groups for index in group.calls}
    return groups + [group for group in annotated(function, active) if group.calls[0] not in taken]


def annotated(function: Function, active: Sequence[Active]) -> Iterator[Group]:
    """Single calls that a pass gave to a backend."""
    names = {item.name for item in active}
    for index, call in enumerate(function.body):
        if call.target in names and not call.op.startswith("@"):
            yield Group((index,), call.target)


def possible(function: Function, module: IRModule, active: Sequence[Active]) -> list[Group]:
    """Everything that one of them would take; for those that merge regions, whole regions too."""
    found: dict[tuple[str, tuple[int, ...]], Group] = {}
    for item in active:
        own: list[Group] = []
        for entry in item.backend.table:
            for index in range(len(function.body)):
                group = _match(entry, index, item, function, module, _free(function, item))
                if group is not None:
                    own.append(group)
        own += [group for group in annotated(function, active) if group.owner == item.name]
        if item.backend.merge_regions:
            own += _regions(function, eager(function, module, [item]), item.name)
        for group in own:
            found.setdefault((group.owner, group.calls), group)
    return list(found.values())


def with_rest(function: Function, groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups, and each call that is in none as one that stays."""
    taken = {index for group in groups for index in group.calls}
    rest = (Group((i,)) for i in range(len(function.body)) if i not in taken)
    return (*groups, *rest)


def _regions(function: Function, groups: Sequence[Group], owner: str) -> Iterator[Group]:
    for group in merge_regions(function, with_rest(function, groups), {owner}):
        if group.owner and len(group.entries) > 1:
            yield group


def _free(function: Function, item: Active) -> set[int]:
    return {
        index
        for index, call in enumerate(function.body)
        if call.target in ("", item.name) and not call.op.startswith("@")
    }


def _match(
    entry: PatternEntry,
    index: int,
    item: Active,
    function: Function,
    module: IRModule,
    free: Collection[int],
) -> Group | None:
    """What the entry covers when it ends in that call, and its predicate takes."""
    calls = find(entry.pattern, index, Graph(function, module, free))
    if calls is None or not entry.predicate(match_of(calls, item, function, module)):
        return None
    return Group(calls, item.name, ((entry.name, calls),))


def match_of(calls: Sequence[int], item: Active, function: Function, module: IRModule) -> Match:
    """Those calls as predicates see them."""
    covered = tuple(function.body[i] for i in calls)
    return Match(covered, module, item.target, item.backend.version)
