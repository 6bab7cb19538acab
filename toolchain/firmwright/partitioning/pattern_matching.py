"""Match the patterns of backends against a graph function.

`greedy_cover` assigns each call to the first backend that matches it. `all_matches` lists all
matches of all backends, overlapping or not. Annotated calls belong to their target only.
"""

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
    """A backend of a compilation, with its target and the target's name in the module."""

    name: str
    target: Target
    backend: Backend


PartitionStrategy = Callable[[Function, IRModule, Sequence[ActiveBackend]], Sequence[CallGroup]]
"""Selects the groups of a function's calls for the backends; other calls stay on the core."""


def greedy_cover(
    function: Function, module: IRModule, active: Sequence[ActiveBackend]
) -> list[CallGroup]:
    """Return each backend's matches in order of preference, then annotated calls."""
    groups: list[CallGroup] = []
    for item in active:
        free = _free(function, item) - {index for group in groups for index in group.calls}
        for entry in item.backend.table:
            for index in reversed(range(len(function.body))):
                group = _match(entry, index, item, function, module, free)
                if group is not None:
                    groups.append(group)
                    free -= set(group.calls)
    covered = {index for group in groups for index in group.calls}
    return groups + [g for g in annotated_calls(function, active) if g.calls[0] not in covered]


def annotated_calls(function: Function, active: Sequence[ActiveBackend]) -> Iterator[CallGroup]:
    names = {item.name for item in active}
    for index, call in enumerate(function.body):
        if call.target in names and not call.op.startswith("@"):
            yield CallGroup((index,), call.target)


def all_matches(
    function: Function, module: IRModule, active: Sequence[ActiveBackend]
) -> list[CallGroup]:
    """Return every match of every backend; for backends that merge regions, whole regions too."""
    matches: dict[tuple[str, tuple[int, ...]], CallGroup] = {}
    for item in active:
        free = _free(function, item)
        matched = [
            _match(entry, index, item, function, module, free)
            for entry in item.backend.table
            for index in range(len(function.body))
        ]
        groups = [group for group in matched if group is not None]
        groups += annotated_calls(function, [item])
        if item.backend.merge_regions:
            whole = with_unmatched(function, greedy_cover(function, module, [item]))
            regions = merge_regions(function, whole, {item.name})
            groups += [g for g in regions if g.target and len(g.entries) > 1]
        for group in groups:
            matches.setdefault((group.target, group.calls), group)
    return list(matches.values())


def with_unmatched(function: Function, groups: Sequence[CallGroup]) -> tuple[CallGroup, ...]:
    """Return the groups, and each call that is in none of them as a group without a target."""
    covered = {index for group in groups for index in group.calls}
    rest = (CallGroup((i,)) for i in range(len(function.body)) if i not in covered)
    return (*groups, *rest)


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
    """Return the match of `entry` that ends at call `index`; None if its predicate rejects it."""
    calls = match_pattern(entry.pattern, index, PatternGraph(function, module, free))
    if calls is None or not entry.predicate(make_match(calls, item, function, module)):
        return None
    return CallGroup(calls, item.name, ((entry.name, calls),))


def make_match(
    calls: Sequence[int], item: ActiveBackend, function: Function, module: IRModule
) -> Match:
    covered = tuple(function.body[i] for i in calls)
    return Match(covered, module, item.target, item.backend.version)
