"""Who may lie on whom: a conflict for every two buffers alive at the same time.

In: buffers with live ranges, and what the input and output of a call may share. Out: conflicts, in
the order of the buffers. Two buffers alive at once must be disjoint. Where an input's life ends at
the call that an output's begins with, they conflict as far as that kernel's order of reads and
writes forbids it: in nothing, in one interval, or in two of which one is periodic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from firmwright.ir.tir.plan import BufferInfo, LiveRange, OffsetConstraint
from firmwright.usmp.inplace_analysis import InplacePair


def build_interference(
    buffers: Sequence[BufferInfo], overlaps: Collection[InplacePair] = ()
) -> tuple[OffsetConstraint, ...]:
    """All conflicts."""
    shared = {(pair.source, pair.result): pair for pair in overlaps}
    conflicts: list[OffsetConstraint] = []
    for i, j in _pairs_alive_together(buffers):
        a, b = buffers[i], buffers[j]
        if (b.name, a.name) in shared:
            a, b = b, a
        pair = shared.get((a.name, b.name))
        if pair is not None and _meet_only_in(a, b, pair.live):
            conflicts += [c.between(a.name, b.name) for c in pair.constraints] or [_free(a, b)]
        else:
            a, b = buffers[i], buffers[j]
            conflicts.append(OffsetConstraint(a.name, b.name, -b.size_bytes, a.size_bytes))
    return tuple(conflicts)


def _free(a: BufferInfo, b: BufferInfo) -> OffsetConstraint:
    """Says that the two may lie anywhere: without it they would have to be disjoint."""
    return OffsetConstraint(a.name, b.name, 0, 0)


def _pairs_alive_together(buffers: Sequence[BufferInfo]) -> list[tuple[int, int]]:
    """Index pairs (i < j), sorted: a sweep over the beginnings of live ranges."""
    ranges = sorted(
        (live.first, live.end, index) for index, b in enumerate(buffers) for live in b.live
    )
    pairs: set[tuple[int, int]] = set()
    alive: list[tuple[int, int]] = []
    for first, end, index in ranges:
        alive = [(until, other) for until, other in alive if until > first]
        pairs.update((min(index, other), max(index, other)) for _, other in alive)
        alive.append((end, index))
    return sorted(pairs)


def _meet_only_in(a: BufferInfo, b: BufferInfo, live: LiveRange) -> bool:
    """Whether both are alive at once during `live`, all of it, and at no other moment."""
    common = {
        (max(mine.first, other.first), min(mine.end, other.end))
        for mine in a.live
        for other in b.live
        if mine.overlaps(other)
    }
    return common == {(live.first, live.end)}
