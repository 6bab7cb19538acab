"""Match patterns of backends in a graph; annotated calls belong to their target."""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from firmwright.base.plugin_calls import plugin_call
from firmwright.ir.core import Target
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.patterns import Match, PatternGraph, match_pattern
from firmwright.ir.module import IRModule
from firmwright.partitioning.engine_instances import spread_over_instances
from firmwright.partitioning.regions import (
    CallGroup,
    CoveredCalls,
    calls_in,
    merge_regions,
    with_unmatched,
)
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
    """Return the backends among the module's targets, in the order of preference."""
    active: list[ActiveBackend] = []
    for name, target in module.targets.items():
        backend = backend_in(module, name)
        if backend is not None:
            active.append(ActiveBackend(name, target, backend))
    return tuple(active)


PartitionStrategy = Callable[
    [Function, IRModule, Sequence[ActiveBackend]], Sequence[CallGroup]
]
"""Selects the groups of calls for the backends; other calls stay on the core."""


def greedy_cover(
    function: Function, module: IRModule, active: Sequence[ActiveBackend]
) -> list[CallGroup]:
    """Return the matches in order of preference, first those with annotated calls.

    The order is: annotated before other matches, then the user's order of backends,
    then the order of the backend's table, then later calls before earlier ones, since a
    pattern is matched from its last call backward. A match takes its calls from all
    that follow.
    """
    groups: list[CallGroup] = []
    first = annotated_calls(function, active, any_target=True)
    annotated = {group.calls[0] for group in first}
    no_requirement: set[int] = set()
    rounds = (annotated, no_requirement) if annotated else (no_requirement,)
    for required, item in itertools.product(rounds, active):
        free = _free(function, item) - calls_in(groups)
        for entry in item.backend.table:
            for index in reversed(range(len(function.body))):
                group = _match(entry, index, item, function, module, free)
                if group is not None and (not required or required & set(group.calls)):
                    groups.append(group)
                    free -= set(group.calls)
    covered = calls_in(groups)
    for group in annotated_calls(function, active):
        if group.calls[0] not in covered:
            groups.append(group)
    return spread_over_equal_targets(function, module, groups, active)


def spread_over_equal_targets(
    function: Function,
    module: IRModule,
    groups: Sequence[CallGroup],
    active: Sequence[ActiveBackend],
) -> list[CallGroup]:
    """Return the groups, each on the equal target that can start it first."""
    return spread_over_instances(function, module, groups, _instances(active))


def _instances(active: Sequence[ActiveBackend]) -> dict[str, list[str]]:
    """Return the targets that may execute the calls of each target with an own device.

    They are equal targets, such as the two of `--target "npu, npu"`, under the same
    condition.
    """
    instances: dict[str, list[str]] = {}
    for item in active:
        if item.backend.device:
            equal: list[str] = []
            for other in active:
                if (other.target, other.where) == (item.target, item.where):
                    equal.append(other.name)
            instances[item.name] = equal
    return instances


def annotated_cover(
    function: Function, module: IRModule, active: Sequence[ActiveBackend]
) -> list[CallGroup]:
    """Return the groups of `greedy_cover` with an annotated call."""
    annotated: list[CallGroup] = []
    for group in greedy_cover(function, module, active):
        if any(function.body[index].target for index in group.calls):
            annotated.append(group)
    return annotated


def annotated_calls(
    function: Function, active: Sequence[ActiveBackend], *, any_target: bool = False
) -> Iterator[CallGroup]:
    """Yield each operator annotated with an active target, or with any, as a group."""
    names = {item.name for item in active}
    for index, call in enumerate(function.body):
        is_wanted = bool(call.target) if any_target else call.target in names
        if is_wanted and not call.op.startswith("@"):
            yield CallGroup((index,), call.target)


def all_matches(
    function: Function, module: IRModule, active: Sequence[ActiveBackend]
) -> list[CallGroup]:
    """Return all matches, overlapping or not, and the regions of merging backends."""
    matches: dict[tuple[str, tuple[int, ...]], CallGroup] = {}
    for item in active:
        free = _free(function, item)
        groups: list[CallGroup] = []
        for entry in item.backend.table:
            for index in range(len(function.body)):
                match = _match(entry, index, item, function, module, free)
                if match is not None:
                    groups.append(match)
        groups += annotated_calls(function, [item])
        if item.backend.merge_regions:
            groups += _whole_regions(function, module, item)
        for group in groups:
            matches.setdefault((group.target, group.calls), group)
    return list(matches.values())


def _whole_regions(
    function: Function, module: IRModule, item: ActiveBackend
) -> list[CallGroup]:
    """Return the regions of several matches that a backend would execute if alone."""
    whole = with_unmatched(function, greedy_cover(function, module, [item]))
    regions: list[CallGroup] = []
    for region in merge_regions(function, whole, {item.name}):
        if region.target and len(region.entries) > 1:
            regions.append(region)
    return regions


def _free(function: Function, item: ActiveBackend) -> set[int]:
    """Return the calls that a backend may take: open ones or annotated with it."""
    free: set[int] = set()
    for index, call in enumerate(function.body):
        if call.target in ("", item.name) and not call.op.startswith("@"):
            free.add(index)
    return free


def _match(
    entry: PatternEntry,
    index: int,
    item: ActiveBackend,
    function: Function,
    module: IRModule,
    free: Collection[int],
) -> CallGroup | None:
    """Return the match of `entry` that ends at call `index`, or None if rejected."""
    calls = match_pattern(entry.pattern, index, PatternGraph(function, module, free))
    if calls is None:
        return None
    match = make_match(calls, item, function, module)
    is_annotated = any(call.target for call in match.calls)
    last = function.body[index]
    label = f"the predicate of {entry.name}, for the {last.op} that computes"
    with plugin_call(f"{label} {last.outputs[0].name},"):
        is_taken = entry.predicate(match) and (is_annotated or item.where(match))
    if not is_taken:
        return None
    return CallGroup(calls, item.name, (CoveredCalls(entry.name, calls),))


def make_match(
    calls: Sequence[int], item: ActiveBackend, function: Function, module: IRModule
) -> Match:
    covered = tuple(function.body[i] for i in calls)
    return Match(covered, module, item.target, item.backend.version, function)
