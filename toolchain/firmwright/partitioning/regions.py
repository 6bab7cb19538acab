"""Merge groups of calls with the same target into convex regions.

A group is convex if no path leaves and re-enters it. Here A and C cannot become one
region, since B must run between them:

    A ──> B ──> C
    └───────────^

Only groups that a tensor connects are merged, the earliest pair first. The result
depends on that order: of few connected groups, all ways to merge them are compared, and
the one with the fewest parameters and results is taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from firmwright.ir.graph.nodes import Function

_SEARCHED_MAX = 8
"""Number of connected groups up to which all ways to merge (4140 for 8) are tried."""


@dataclass(frozen=True, slots=True)
class CoveredCalls:
    """A pattern entry of a backend, by name, and the indices of the calls it covers."""

    entry: str
    calls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallGroup:
    """Sorted indices of calls that one target executes together.

    `entries` are the pattern entries with the calls that each covers, annotated ones
    excepted.
    """

    calls: tuple[int, ...]
    target: str = ""
    entries: tuple[CoveredCalls, ...] = ()

    def merge(self, other: CallGroup) -> CallGroup:
        calls = tuple(sorted({*self.calls, *other.calls}))
        entries = sorted({*self.entries, *other.entries}, key=lambda entry: entry.calls)
        return CallGroup(calls, self.target, tuple(entries))


def calls_in(groups: Iterable[CallGroup]) -> set[int]:
    """Return the indices of all calls of the groups."""
    calls: set[int] = set()
    for group in groups:
        calls.update(group.calls)
    return calls


def with_unmatched(
    function: Function, groups: Sequence[CallGroup]
) -> tuple[CallGroup, ...]:
    """Return the groups, and each call that is in none as a group without a target."""
    unmatched = set(range(len(function.body))) - calls_in(groups)
    return (*groups, *(CallGroup((index,)) for index in sorted(unmatched)))


def merge_regions(
    function: Function, groups: Sequence[CallGroup], owners: Collection[str]
) -> tuple[CallGroup, ...]:
    """Return the groups in their order, those of the targets `owners` merged.

    `groups` must cover all calls of the function.
    """
    merged = _earliest_first(function, groups, owners)
    for together in _connected_groups(function, groups, owners):
        merged = _fewest_boundaries(function, together, merged)
    return tuple(sorted(merged, key=lambda group: group.calls))


def _earliest_first(
    function: Function, groups: Sequence[CallGroup], owners: Collection[str]
) -> list[CallGroup]:
    """Merge the earliest pair of groups, again and again, until there is none."""
    current = sorted(groups, key=lambda group: group.calls)
    while True:
        pair = _earliest_pair(function, current, owners)
        if pair is None:
            return current
        rest = [group for index, group in enumerate(current) if index not in pair]
        merged = current[pair[0]].merge(current[pair[1]])
        current = sorted([*rest, merged], key=lambda group: group.calls)


def _earliest_pair(
    function: Function, groups: Sequence[CallGroup], owners: Collection[str]
) -> tuple[int, int] | None:
    """Return the first two groups of one target that can be one convex region.

    The second one reads a result of the first one, and no other path leads from the
    first one to the second one.
    """
    follows = _followers(function, groups)
    for first, group in enumerate(groups):
        if group.target not in owners:
            continue
        for second in sorted(follows[first]):
            is_same = groups[second].target == group.target
            if is_same and not _has_other_path(first, second, follows):
                return first, second
    return None


# ---- all ways ------------------------------------------------------------------------


def _connected_groups(
    function: Function, groups: Sequence[CallGroup], owners: Collection[str]
) -> list[list[CallGroup]]:
    """Return sets of three or more groups of one target that tensors connect."""
    follows = _followers(function, groups)
    components: list[set[int]] = []
    for index, group in enumerate(groups):
        if group.target not in owners:
            continue
        near = {index}
        for other in follows[index]:
            if groups[other].target == group.target:
                near.add(other)
        components = _with_connected(components, near)
    connected: list[list[CallGroup]] = []
    for component in components:
        if len(component) > 2:
            connected.append([groups[index] for index in sorted(component)])
    return connected


def _with_connected(components: Sequence[set[int]], near: set[int]) -> list[set[int]]:
    """Return disjoint sets of connected items, after those `near` were connected."""
    apart: list[set[int]] = []
    joined = set(near)
    for component in components:
        if component & near:
            joined |= component
        else:
            apart.append(component)
    return [*apart, joined]


def _fewest_boundaries(
    function: Function, together: Sequence[CallGroup], merge: list[CallGroup]
) -> list[CallGroup]:
    """Return `merge`, or a result of merging `together` with fewer boundaries."""
    calls = calls_in(together)
    inside: list[CallGroup] = []
    rest: list[CallGroup] = []
    for group in merge:
        if calls.isdisjoint(group.calls):
            rest.append(group)
        else:
            inside.append(group)
    if len(inside) < 2 or len(together) > _SEARCHED_MAX:
        return merge
    best = inside
    least = _boundaries(function, inside)
    for way in _all_partitions(together):
        boundaries = _boundaries(function, way)
        if boundaries >= least or not _are_connected(function, way):
            continue
        # Regions that read each other have no order: the sorted list is shorter.
        whole = [*rest, *way]
        if len(sort_topologically(function, whole)) == len(whole):
            best = way
            least = boundaries
    return [*rest, *best]


def _all_partitions(groups: Sequence[CallGroup]) -> Iterator[list[CallGroup]]:
    """Yield all ways to merge `groups`: the first stays alone or joins a region."""
    if not groups:
        yield []
        return
    for way in _all_partitions(groups[1:]):
        yield [groups[0], *way]
        for index, region in enumerate(way):
            yield [*way[:index], groups[0].merge(region), *way[index + 1 :]]


def _are_connected(function: Function, regions: Sequence[CallGroup]) -> bool:
    """Return whether tensors connect the calls of each region."""
    makers = function.makers
    for region in regions:
        parts = [{index} for index in region.calls]
        for index in region.calls:
            near = {index}
            for value in function.body[index].variables:
                maker = makers.get(value.name, index)
                if maker in region.calls:
                    near.add(maker)
            parts = _with_connected(parts, near)
        if len(parts) > 1:
            return False
    return True


def _boundaries(function: Function, regions: Sequence[CallGroup]) -> tuple[int, int]:
    """Return the regions' parameters and results in total, and the regions' number."""
    total = 0
    for region in regions:
        defined: set[str] = set()
        read_inside: set[str] = set()
        read_outside = {value.name for value in function.sinks}
        for index, call in enumerate(function.body):
            reads = (value.name for value in call.variables)
            if index in region.calls:
                read_inside.update(reads)
                defined.update(value.name for value in call.outputs)
            else:
                read_outside.update(reads)
        params = read_inside - defined
        results = defined & read_outside
        total += len(params) + len(results)
    return total, len(regions)


def sort_topologically(
    function: Function, groups: Sequence[CallGroup]
) -> list[CallGroup]:
    """Sort groups after the groups that they read, otherwise close to the file's order.

    Of the groups that can be next, that with the earliest last call is next. Groups in
    a circle are omitted.
    """
    follows = _followers(function, groups)
    waits = [0] * len(groups)
    for readers in follows:
        for reader in readers:
            waits[reader] += 1
    ready: list[tuple[int, int]] = []
    for index, group in enumerate(groups):
        if not waits[index]:
            ready.append((group.calls[-1], index))
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
    """Return for each group the numbers of the groups that read its results."""
    group_of: dict[int, int] = {}
    for number, group in enumerate(groups):
        group_of |= dict.fromkeys(group.calls, number)
    makers = function.makers
    follows: list[set[int]] = [set() for _ in groups]
    for index, call in enumerate(function.body):
        reader = group_of[index]
        for value in call.variables:
            if value.name in makers:
                maker = group_of[makers[value.name]]
                if maker != reader:
                    follows[maker].add(reader)
    return follows


def _has_other_path(a: int, b: int, follows: Sequence[set[int]]) -> bool:
    """Return whether a path leads from group `a` over another group to group `b`."""
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
