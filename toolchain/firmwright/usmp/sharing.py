"""Who may lie on whom: a conflict for every two buffers alive at the same time.

In: buffers with live ranges, and the pairs that a kernel computes in place. Out: conflicts, in the
order of the buffers. Two buffers alive at once must be disjoint. An in-place pair (input, output)
of equal size whose lives meet at the one call that turns one into the other may also have the same
offset: a period as long as the buffer leaves exactly that difference open.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from firmwright.ir.tir.plan import BufferInfo, Conflict


def find_conflicts(
    buffers: Sequence[BufferInfo], in_place: Collection[tuple[str, str, int]] = ()
) -> tuple[Conflict, ...]:
    """All conflicts. `in_place` holds (input, output, time of the call)."""
    call_time = {(source, result): time for source, result, time in in_place}
    conflicts = []
    for i, j in _pairs_alive_together(buffers):
        a, b = buffers[i], buffers[j]
        time = call_time.get((a.name, b.name), call_time.get((b.name, a.name)))
        if time is not None and a.size_bytes == b.size_bytes and _meet_only_at(a, b, time):
            conflicts.append(_same_place_or_disjoint(a, b))
        else:
            conflicts.append(Conflict(a.name, b.name, -b.size_bytes, a.size_bytes))
    return tuple(conflicts)


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


def _meet_only_at(a: BufferInfo, b: BufferInfo, time: int) -> bool:
    """Whether `time` is the one moment at which both are alive."""
    common = {
        (max(mine.first, other.first), min(mine.end, other.end))
        for mine in a.live
        for other in b.live
        if mine.overlaps(other)
    }
    return common == {(time, time + 1)}


def _same_place_or_disjoint(a: BufferInfo, b: BufferInfo) -> Conflict:
    size_bytes = a.size_bytes
    return Conflict(a.name, b.name, -size_bytes, size_bytes, modulus=max(size_bytes, 2))
