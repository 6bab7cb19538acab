"""Merge groups of calls with the same target into convex regions.

A group is convex if no path leaves and re-enters it. Only groups connected by a tensor are merged,
earliest pair first; of few groups, in the way that gives the fewest parameters and results.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from firmwright.ir.graph.nodes import Function

_SEARCHED_MAX = 8
"""Number of connected groups up to which all ways to merge are tried: 4140 ways for 8 groups."""


@dataclass(frozen=True, slots=True)
class CallGroup:
    """Sorted indices of calls that one target executes together.

    `entries` are the pattern entries with the calls that each covers, annotated ones excepted.
    """

    calls: tuple[int, ...]
    target: str = ""
    entries: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def merge(self, other: CallGroup) -> CallGroup:
        calls = tuple(sorted({*self.calls, *other.calls}))
        entries = sorted({*self.entries, *other.entries}, key=lambda entry: entry[1])
        return CallGroup(calls, self.target, tuple(entries))


def with_unmatched(function: Function, groups: Sequence[CallGroup]) -> tuple[CallGroup, ...]:
    """Return the groups, and each call that is in none of them as a group without a target."""
    covered = {index for group in groups for index in group.calls}
    rest = (CallGroup((i,)) for i in range(len(function.body)) if i not in covered)
    return (*groups, *rest)


def merge_regions(
    function: Function, groups: Sequence[CallGroup], owners: Collection[str]
) -> tuple[CallGroup, ...]:
    merged = _earliest_first(function, groups, owners)
    for together in _connected_groups(function, groups, owners):
        merged = _fewest_boundaries(function, together, merged)
    return tuple(sorted(merged, key=lambda group: group.calls))


def _earliest_first(
    function: Function, groups: Sequence[CallGroup], owners: Collection[str]
) -> list[CallGroup]:
    current = sorted(groups, key=lambda group: group.calls)
    while True:
        follows = _followers(function, current)
        pairs = (
            (a, b)
            for a, group in enumerate(current)
            for b in (sorted(follows[a]) if group.target in owners else ())
            if current[b].target == group.target and not _has_other_path(a, b, follows)
        )
        pair = next(pairs, None)
        if pair is None:
            return current
        rest = [group for index, group in enumerate(current) if index not in pair]
        merged = current[pair[0]].merge(current[pair[1]])
        current = sorted([*rest, merged], key=lambda group: group.calls)


# ---- all ways ------------------------------------------------------------------------------------


def _connected_groups(
    function: Function, groups: Sequence[CallGroup], owners: Collection[str]
) -> list[list[CallGroup]]:
    """Return sets of three or more groups of one target that are connected by tensors."""
    follows = _followers(function, groups)
    components: list[set[int]] = []
    for a, group in enumerate(groups):
        if group.target not in owners:
            continue
        near = {b for b in follows[a] if groups[b].target == group.target} | {a}
        joined = [part for part in components if part & near]
        components = [part for part in components if not part & near] + [near.union(*joined)]
    return [[groups[i] for i in sorted(part)] for part in components if len(part) > 2]


def _fewest_boundaries(
    function: Function, together: Sequence[CallGroup], merge: list[CallGroup]
) -> list[CallGroup]:
    """Return `merge`, or a result with fewer boundaries from merging `together` differently."""
    calls = {call for group in together for call in group.calls}
    inside = [group for group in merge if calls & set(group.calls)]
    if len(inside) < 2 or len(together) > _SEARCHED_MAX:
        return merge
    rest = [group for group in merge if not calls & set(group.calls)]
    best, least = inside, _boundaries(function, inside)
    for way in _all_partitions(together):
        boundaries, whole = _boundaries(function, way), [*rest, *way]
        if boundaries >= least or not _are_connected(function, way):
            continue
        if len(sort_topologically(function, whole)) == len(whole):
            best, least = way, boundaries
    return [*rest, *best]


def _all_partitions(groups: Sequence[CallGroup]) -> Iterator[list[CallGroup]]:
    if not groups:
        yield []
        return
    for way in _all_partitions(groups[1:]):
        yield [groups[0], *way]
        for index, region in enumerate(way):
            yield [*way[:index], groups[0].merge(region), *way[index + 1 :]]


def _are_connected(function: Function, regions: Sequence[CallGroup]) -> bool:
    maker = {v.name: i for i, call in enumerate(function.body) for v in call.outputs}
    for region in regions:
        parts = [{index} for index in region.calls]
        for index in region.calls:
            near = {maker.get(value.name, index) for value in function.body[index].variables}
            near = near & set(region.calls) | {index}
            joined = [part for part in parts if part & near]
            parts = [part for part in parts if not part & near] + [set().union(*joined)]
        if len(parts) > 1:
            return False
    return True


def _boundaries(function: Function, regions: Sequence[CallGroup]) -> tuple[int, int]:
    """Return the regions' parameters and results in total, and the number of regions."""
    total = 0
    for region in regions:
        inside = [function.body[index] for index in region.calls]
        others = [call for i, call in enumerate(function.body) if i not in region.calls]
        defined = {value.name for call in inside for value in call.outputs}
        read = {value.name for call in inside for value in call.variables}
        read_outside = {value.name for call in others for value in call.variables}
        read_outside |= {value.name for value in function.sinks}
        total += len(read - defined) + len(defined & read_outside)
    return total, len(regions)


def sort_topologically(function: Function, groups: Sequence[CallGroup]) -> list[CallGroup]:
    """Sort groups after the groups that they read, otherwise close to the file's order."""
    follows = _followers(function, groups)
    waits = [0] * len(groups)
    for readers in follows:
        for reader in readers:
            waits[reader] += 1
    ready = [(group.calls[-1], i) for i, group in enumerate(groups) if not waits[i]]
    heapq.heapify(ready)
    ordered: list[CallGroup] = []
    while ready:
        _, index = heapq.heappop(ready)
        ordered.append(groups[index])
        for after in follows[index]:
            waits[after] -= 1
            if not waits[after]:
                heapq.heappush(ready, (groups[after].calls[-1], after))
    return ordered


def _followers(function: Function, groups: Sequence[CallGroup]) -> list[set[int]]:
    place = {call: i for i, group in enumerate(groups) for call in group.calls}
    maker = {v.name: i for i, call in enumerate(function.body) for v in call.outputs}
    follows: list[set[int]] = [set() for _ in groups]
    for index, call in enumerate(function.body):
        for value in call.inputs:
            producer = None if value is None else maker.get(value.name)
            if producer is not None and place[producer] != place[index]:
                follows[place[producer]].add(place[index])
    return follows


def _has_other_path(a: int, b: int, follows: Sequence[set[int]]) -> bool:
    queue = [group for group in follows[a] if group != b]
    seen = set(queue)
    while queue:
        group = queue.pop()
        if b in follows[group]:
            return True
        new = follows[group] - seen
        seen |= new
        queue.extend(new)
    return False
