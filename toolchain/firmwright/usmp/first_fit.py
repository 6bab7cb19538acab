"""First fit: buffers in a given order, each at the lowest offset its conflicts leave free.

In: a Problem and an order of its buffers. Out: a Layout. Invariants: gaps below placed buffers are
used; each buffer has its own alignment; the first candidate pool with room is taken; buffers that
no pool has room for stay out and are counted. Deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from firmwright.usmp.planning_problem import Layout, PlanningProblem, Relation


def place_first_fit(problem: PlanningProblem, order: Sequence[int]) -> Layout:
    """Lay the buffers out in `order`, a permutation of their numbers."""
    pools = [""] * len(problem.buffers)
    offsets = [0] * len(problem.buffers)
    tops: dict[str, int] = {}
    unplaced_bytes = 0
    for index in order:
        buffer = problem.buffers[index]
        for pool in buffer.pools:
            placed = [r for r in problem.relations[index] if pools[r.other] == pool]
            offset = lowest_offset(placed, offsets, buffer.alignment)
            end = offset + buffer.size_bytes
            limit = problem.limits[pool]
            if limit is None or end <= limit:
                pools[index], offsets[index] = pool, offset
                tops[pool] = max(tops.get(pool, 0), end)
                break
        else:
            unplaced_bytes += buffer.size_bytes
    return Layout(tuple(pools), tuple(offsets), tops, unplaced_bytes)


def lowest_offset(relations: Sequence[Relation], offsets: Sequence[int], alignment: int) -> int:
    """The least aligned offset that every relation to a placed buffer allows."""
    by_start = sorted((offsets[r.other] + r.lo, offsets[r.other] + r.hi, r) for r in relations)
    # Past plain intervals one sweep suffices; a landing place inside a periodic one may lie in
    # an interval that was passed before, so those are swept until nothing moves.
    periodic = any(r.modulus > 1 for r in relations)
    offset, moved = 0, True
    while moved:
        moved = False
        for start, end, relation in by_start:
            if offset <= start:
                break
            if offset < end:
                landed = _next_allowed(offset, end, relation, offsets[relation.other], alignment)
                moved = moved or (periodic and landed != offset)
                offset = landed
    return offset


def _next_allowed(offset: int, end: int, relation: Relation, other: int, alignment: int) -> int:
    """The least aligned offset from `offset` on that lies past `end` or on the period."""
    past = -(-end // alignment) * alignment
    if relation.modulus < 2:
        return past
    # Solve x = 0 mod alignment and x = other + residue mod modulus.
    wanted = other + relation.residue
    common = math.gcd(alignment, relation.modulus)
    if wanted % common:
        return past
    steps = relation.modulus // common
    first = alignment * (wanted // common * pow(alignment // common, -1, steps) % steps)
    period = alignment * steps
    on_period = first + -(-(offset - first) // period) * period
    return min(on_period, past)
