"""Interference of buffers: the offset constraints of every two simultaneously live buffers.

Simultaneously live buffers must be disjoint. If an input's last use is the call that defines an
output, the constraint is as weak as the kernel's order of reads and writes permits: none, one
interval, or two intervals of which one is periodic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from firmwright.ir.tir.plan import BufferInfo, LiveRange, OffsetConstraint
from firmwright.usmp.inplace_analysis import InplacePair


def build_interference(
    buffers: Sequence[BufferInfo], inplace_pairs: Collection[InplacePair] = ()
) -> tuple[OffsetConstraint[str], ...]:
    shared = {pair.names: pair for pair in inplace_pairs}
    constraints: list[OffsetConstraint[str]] = []
    for i, j in _simultaneously_live_pairs(buffers):
        a, b = buffers[i], buffers[j]
        if (b.name, a.name) in shared:
            a, b = b, a
        pair = shared.get((a.name, b.name))
        if pair is not None and _are_live_together_only_in(a, b, pair.live):
            constraints += pair.constraints
        else:
            a, b = buffers[i], buffers[j]
            constraints.append(OffsetConstraint(a.name, b.name, -b.size_bytes, a.size_bytes))
    return tuple(constraints)


def _simultaneously_live_pairs(buffers: Sequence[BufferInfo]) -> list[tuple[int, int]]:
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


def _are_live_together_only_in(a: BufferInfo, b: BufferInfo, live: LiveRange) -> bool:
    common = {
        (max(mine.first, other.first), min(mine.end, other.end))
        for mine in a.live
        for other in b.live
        if mine.overlaps(other)
    }
    return common == {(live.first, live.end)}
