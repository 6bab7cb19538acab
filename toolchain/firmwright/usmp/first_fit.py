"""First fit: place buffers in a fixed order, each at the lowest offset that its constraints allow.

Each buffer is placed in the first of its pools that has room, at its own alignment. The bytes of
buffers without room are counted.
"""

import math
from collections.abc import Sequence

from firmwright.ir.tir.plan import OffsetConstraint
from firmwright.usmp.planning_problem import Layout, PlanningProblem


def place_first_fit(problem: PlanningProblem, order: Sequence[int]) -> Layout:
    pools = [""] * len(problem.buffers)
    offsets = [0] * len(problem.buffers)
    tops: dict[str, int] = {}
    unplaced_bytes = 0
    for index in order:
        buffer = problem.buffers[index]
        for pool in buffer.pools:
            active = [c for c in problem.constraints[index] if pools[c.a] == pool]
            offset = lowest_offset(active, offsets, buffer.alignment)
            end = offset + buffer.size_bytes
            limit = problem.limits[pool]
            if limit is None or end <= limit:
                pools[index], offsets[index] = pool, offset
                tops[pool] = max(tops.get(pool, 0), end)
                break
        else:
            unplaced_bytes += buffer.size_bytes
    return Layout(tuple(pools), tuple(offsets), tops, unplaced_bytes)


def lowest_offset(
    constraints: Sequence[OffsetConstraint[int]], offsets: Sequence[int], alignment: int
) -> int:
    """Return the lowest aligned offset of b that all constraints with placed buffers a allow."""
    by_start = sorted((offsets[c.a] + c.lo, offsets[c.a] + c.hi, c) for c in constraints)
    # One sweep suffices for plain intervals. An allowed offset inside a periodic interval may be
    # inside an interval that the sweep has passed, so sweeps repeat until the offset is stable.
    periodic = any(c.modulus > 1 for c in constraints)
    offset, moved = 0, True
    while moved:
        moved = False
        for start, end, constraint in by_start:
            if offset <= start:
                break
            if offset < end:
                allowed = _next_allowed(offset, end, constraint, offsets[constraint.a], alignment)
                moved = moved or (periodic and allowed != offset)
                offset = allowed
    return offset


def _next_allowed(
    offset: int, end: int, constraint: OffsetConstraint[int], other: int, alignment: int
) -> int:
    """Return the lowest aligned offset >= `offset` that is at least `end` or matches the period."""
    past = -(-end // alignment) * alignment
    if constraint.modulus < 2:
        return past
    # Solve x = 0 mod alignment and x = other + residue mod modulus.
    target = other + constraint.residue
    common = math.gcd(alignment, constraint.modulus)
    if target % common:
        return past
    steps = constraint.modulus // common
    first = alignment * (target // common * pow(alignment // common, -1, steps) % steps)
    period = alignment * steps
    on_period = first + -(-(offset - first) // period) * period
    return min(on_period, past)
