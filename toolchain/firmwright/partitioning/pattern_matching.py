"""Match patterns of backends in a graph function; annotated calls belong to their target."""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from firmwright.base.plugin_calls import plugin_call
from firmwright.ir.core import Target
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.patterns import Match, PatternGraph, match_pattern
from firmwright.ir.module import IRModule
from firmwright.partitioning.engine_instances import spread_over_instances
from firmwright.partitioning.regions import CallGroup, merge_regions, with_unmatched
from firmwright.targets.backend import Backend, PatternEntry, match_always
from firmwright.targets.saved_backend import backend_in

MatchCondition = Callable[[Match], bool]


@dataclass(frozen=True, slots=True)
class ActiveBackend:
    """A backend of a compilation, with its target and the target's name in the module.

    `where` is the user's condition on matches without annotated calls.
    """

    name: str
    target: Target
    backend: Backend
    where: MatchCondition = match_always


def active_backends(module: IRModule) -> tuple[ActiveBackend, ...]:
    return tuple(
        ActiveBackend(name, target, backend)
        for name, target in module.targets.items()
        if (backend := backend_in(module, name)) is not None
    )


PartitionStrategy = Callable[[Function, IRModule, Sequence[ActiveBackend]], Sequence[CallGroup]]
"""Selects the groups of a function's calls for the backends; other calls stay on the core."""


def greedy_cover(
    function: Function, module: IRModule, active: Sequence[ActiveBackend]
) -> list[CallGroup]:
    """Return the matches in order of preference, first those with annotated calls."""
    groups: list[CallGroup] = []
    annotated = {i for i, c in enumerate(function.body) if c.target and not c.op.startswith("@")}
    rounds = (annotated, set[int]()) if annotated else (set[int](),)
    for required, item in itertools.product(rounds, active):
        free = _free(function, item) - {index for group in groups for index in group.calls}
        for entry in item.backend.table:
            for index in reversed(range(len(function.body))):
                group = _match(entry, index, item, function, module, free)
                if group is not None and (not required or required & set(group.calls)):
                    groups.append(group)
                    free -= set(group.calls)
    covered = {index for group in groups for index in group.calls}
    groups += [g for g in annotated_calls(function, active) if g.calls[0] not in covered]
    instances = {
        item.name: [x.name for x in active if (x.target, x.where) == (item.target, item.where)]
        for item in active
        if item.backend.device
    }
    return spread_over_instances(function, module, groups, instances)


def annotated_cover(
    function: Function, module: IRModule, active: Sequence[ActiveBackend]
) -> list[CallGroup]:
    """Return the groups of `greedy_cover` with an annotated call."""
    groups = greedy_cover(function, module, active)
    return [group for group in groups if any(function.body[i].target for i in group.calls)]


def annotated_calls(function: Function, active: Sequence[ActiveBackend]) -> Iterator[CallGroup]:
    names = {item.name for item in active}
    for index, call in enumerate(function.body):
        if call.target in names and not call.op.startswith("@"):
            yield CallGroup((index,), call.target)


def all_matches(
    function: Function, module: IRModule, active: Sequence[ActiveBackend]
) -> list[CallGroup]:
    """Return all matches, overlapping or not, and whole regions of backends that merge them."""
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
    if calls is None:
        return None
    match = make_match(calls, item, function, module)
    is_annotated = any(call.target for call in match.calls)
    last = function.body[index]
    label = f"the predicate of {entry.name}, for the {last.op} that computes"
    with plugin_call(f"{label} {last.outputs[0].name},"):
        is_taken = entry.predicate(match) and (is_annotated or item.where(match))
    return CallGroup(calls, item.name, ((entry.name, calls),)) if is_taken else None


def make_match(
    calls: Sequence[int], item: ActiveBackend, function: Function, module: IRModule
) -> Match:
    covered = tuple(function.body[i] for i in calls)
    return Match(covered, module, item.target, item.backend.version, function)
