"""Groups of calls of one target become regions that can each run in one piece.

In: for a graph function the calls in groups, each with its owner ("" for what stays), and the
owners whose groups may be merged. Out: the groups after merging. Invariants: a group is convex (no
way leads from it through a call outside back into it), and so are all of them together: some order
runs each in one piece. Only groups between which a tensor passes are merged, so each merge removes
a boundary; the earliest pair goes first, until none is left that may be merged. The fewest possible
boundaries would need a search; where regions compete for a call this takes the first.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from firmwright.ir.graph.nodes import Function


@dataclass(frozen=True, slots=True)
class Group:
    """Calls by index, sorted, that one target runs together.

    `entries` are the pattern's entries by the calls that each covers; a call that a pass annotated
    is in none.
    """

    calls: tuple[int, ...]
    owner: str = ""
    entries: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def merged(self, other: Group) -> Group:
        calls = tuple(sorted({*self.calls, *other.calls}))
        entries = sorted({*self.entries, *other.entries}, key=lambda entry: entry[1])
        return Group(calls, self.owner, tuple(entries))


def merge_regions(
    function: Function, groups: Sequence[Group], owners: Collection[str]
) -> tuple[Group, ...]:
    """Merges groups of each of `owners` as far as they stay convex."""
    found = sorted(groups, key=lambda group: group.calls)
    merged = True
    while merged:
        merged = False
        follows = _followers(function, found)
        for a, group in enumerate(found):
            for b in sorted(follows[a]):
                mine = group.owner in owners and found[b].owner == group.owner
                if mine and not _leads_round(a, b, follows):
                    both = group.merged(found[b])
                    found = [item for i, item in enumerate(found) if i not in (a, b)]
                    found = sorted([*found, both], key=lambda item: item.calls)
                    merged = True
                    break
            if merged:
                break
    return tuple(found)


def in_order(function: Function, groups: Sequence[Group]) -> list[Group]:
    """The groups so that each comes after what it reads, else as near to the file's order."""
    follows = _followers(function, groups)
    waits = [0] * len(groups)
    for readers in follows:
        for reader in readers:
            waits[reader] += 1
    ready = [(group.calls[-1], i) for i, group in enumerate(groups) if not waits[i]]
    heapq.heapify(ready)
    ordered: list[Group] = []
    while ready:
        _, index = heapq.heappop(ready)
        ordered.append(groups[index])
        for after in follows[index]:
            waits[after] -= 1
            if not waits[after]:
                heapq.heappush(ready, (groups[after].calls[-1], after))
    return ordered


def _followers(function: Function, groups: Sequence[Group]) -> list[set[int]]:
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
