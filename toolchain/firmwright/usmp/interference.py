"""Interference of buffers: the offset constraints of every two simultaneously live buffers.

Simultaneously live buffers must be disjoint. If an input's last use is the call that defines an
output, the constraint is as weak as the kernel's order of reads and writes permits: none, one
interval, or two intervals of which one is periodic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations

from firmwright.ir.tir.plan import BufferInfo, LiveRange, OffsetConstraint, disjoint_constraint
from firmwright.usmp.inplace_analysis import InplacePair
from firmwright.usmp.liveness import live_sets


def build_interference(
    buffers: Sequence[BufferInfo], inplace_pairs: Collection[InplacePair] = ()
) -> tuple[OffsetConstraint[str], ...]:
    shared = {pair.names: pair for pair in inplace_pairs}
    constraints: list[OffsetConstraint[str]] = []
    for i, j in sorted({pair for alive in live_sets(buffers) for pair in combinations(alive, 2)}):
        a, b = buffers[i], buffers[j]
        if (b.name, a.name) in shared:
            a, b = b, a
        pair = shared.get((a.name, b.name))
        if pair is not None and _are_live_together_only_in(a, b, pair.live):
            constraints += pair.constraints
        else:
            constraints.append(disjoint_constraint(buffers[i], buffers[j]))
    return tuple(constraints)


def _are_live_together_only_in(a: BufferInfo, b: BufferInfo, live: LiveRange) -> bool:
    common = {
        (max(mine.first, other.first), min(mine.end, other.end))
        for mine in a.live
        for other in b.live
        if mine.overlaps(other)
    }
    return common == {(live.first, live.end)}
