"""Groups of calls of one target become regions that can each run in one piece.

In: for a graph function the calls in groups, each with its owner ("" for what stays), and the
owners whose groups may be merged. Out: the groups after merging. Invariants: a group is convex (no
way leads from it through a call outside back into it), and so are all of them together: some order
runs each in one piece. Only groups between which a tensor passes are merged, so each merge removes
a boundary; the earliest pair goes first, until none is left that may be merged. Where that leaves
several regions of few groups that compete for a call, all ways are looked at, and the one with the
fewest parameters and results is taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from firmwright.ir.graph.nodes import Function

_SEARCHED_MAX = 8
"""Groups that hang together of which all ways to merge are looked at: there are 4140."""


@dataclass(frozen=True, slots=True)
class CallGroup:
    """Calls by index, sorted, that one target runs together.

    `entries` are the pattern's entries by the calls that each covers; a call that a pass annotated
    is in none.
    """

    calls: tuple[int, ...]
    target: str = ""
    entries: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def merged(self, other: CallGroup) -> CallGroup:
        calls = tuple(sorted({*self.calls, *other.calls}))
        entries = sorted({*self.entries, *other.entries}, key=lambda entry: entry[1])
        return CallGroup(calls, self.target, tuple(entries))


def merge_regions(
    function: Function, groups: Sequence[CallGroup], owners: Collection[str]
) -> tuple[CallGroup, ...]:
    """Merges groups of each of `owners` as far as they stay convex."""
    found = _earliest_first(function, groups, owners)
    for together in _hanging_together(function, groups, owners):
        found = _fewest_boundaries(function, together, found)
    return tuple(sorted(found, key=lambda group: group.calls))


def _earliest_first(
    function: Function, groups: Sequence[CallGroup], owners: Collection[str]
) -> list[CallGroup]:
    found = sorted(groups, key=lambda group: group.calls)
    merged = True
    while merged:
        merged = False
        follows = _followers(function, found)
        for a, group in enumerate(found):
            for b in sorted(follows[a]):
                mine = group.target in owners and found[b].target == group.target
                if mine and not _leads_round(a, b, follows):
                    both = group.merged(found[b])
                    found = [item for i, item in enumerate(found) if i not in (a, b)]
                    found = sorted([*found, both], key=lambda item: item.calls)
                    merged = True
                    break
            if merged:
                break
    return found


# ---- all ways ------------------------------------------------------------------------------------


def _hanging_together(
    function: Function, groups: Sequence[CallGroup], owners: Collection[str]
) -> list[list[CallGroup]]:
    """Groups of one owner between which tensors pass, three or more."""
    follows = _followers(function, groups)
    found: list[set[int]] = []
    for a, group in enumerate(groups):
        if group.target not in owners:
            continue
        near = {b for b in follows[a] if groups[b].target == group.target} | {a}
        joined = [part for part in found if part & near]
        found = [part for part in found if not part & near] + [near.union(*joined)]
    return [[groups[i] for i in sorted(part)] for part in found if len(part) > 2]


def _fewest_boundaries(
    function: Function, together: Sequence[CallGroup], merged: list[CallGroup]
) -> list[CallGroup]:
    """`merged`, with the groups `together` in it merged another way where that is better."""
    calls = {call for group in together for call in group.calls}
    inside = [group for group in merged if calls & set(group.calls)]
    if len(inside) < 2 or len(together) > _SEARCHED_MAX:
        return merged
    rest = [group for group in merged if not calls & set(group.calls)]
    best, least = inside, _boundaries(function, inside)
    for way in _ways(together):
        found = _boundaries(function, way)
        if (
            found < least
            and _in_one_piece(function, way)
            and len(sort_topologically(function, [*rest, *way])) == len(rest) + len(way)
        ):
            best, least = way, found
    return [*rest, *best]


def _ways(groups: Sequence[CallGroup]) -> Iterator[list[CallGroup]]:
    """Every division of groups into regions."""
    if not groups:
        yield []
        return
    for way in _ways(groups[1:]):
        yield [groups[0], *way]
        for index, region in enumerate(way):
            yield [*way[:index], groups[0].merged(region), *way[index + 1 :]]


def _in_one_piece(function: Function, regions: Sequence[CallGroup]) -> bool:
    """Whether tensors lead from each call of a region to each other, either way along them."""
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
    """Parameters and results of all regions; how many regions there are."""
    made = [{v.name for i in region.calls for v in function.body[i].outputs} for region in regions]
    read = [{v.name for i in r.calls for v in function.body[i].variables} for r in regions]
    sinks = {value.name for value in function.sinks}
    total = 0
    for region, own, inner in zip(regions, made, read, strict=True):
        outside = {
            value.name
            for index, call in enumerate(function.body)
            if index not in region.calls
            for value in call.variables
        }
        total += len(inner - own) + len(own & (outside | sinks))
    return total, len(regions)


def sort_topologically(function: Function, groups: Sequence[CallGroup]) -> list[CallGroup]:
    """The groups so that each comes after what it reads, else as near to the file's order."""
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
    """For each group the groups that read what it makes."""
    place = {call: i for i, group in enumerate(groups) for call in group.calls}
    maker = {v.name: i for i, call in enumerate(function.body) for v in call.outputs}
    follows: list[set[int]] = [set() for _ in groups]
    for index, call in enumerate(function.body):
        for value in call.inputs:
            made = None if value is None else maker.get(value.name)
            if made is not None and place[made] != place[index]:
                follows[place[made]].add(place[index])
    return follows


def _leads_round(a: int, b: int, follows: Sequence[set[int]]) -> bool:
    """Whether another way leads from `a` to its follower `b`: through calls of others."""
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
