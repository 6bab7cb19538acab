"""Planner `hill_climb`: first fits whose order changes by swaps near the top of a pool.

After USMP's algorithm of this name: start by size, swap a buffer that touches the top with one of
its neighbours (conflicts, and their conflicts), take what is not worse, sometimes what is, and
stop at the lower bound. The generator and the number of attempts are fixed, so is the plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, OffsetConstraint, Plan
from firmwright.usmp.first_fit import place_first_fit
from firmwright.usmp.greedy import size_order
from firmwright.usmp.planning_problem import Layout, PlanningProblem, solve_problem
from firmwright.usmp.prng import Xorshift32

ATTEMPTS = 500
_PERCENT_WORSE = 50


def hill_climb(
    buffers: Sequence[BufferInfo], conflicts: Sequence[OffsetConstraint], pools: Sequence[PoolInfo]
) -> Plan:
    """First fits improved by swaps, at most 500 of them."""
    return solve_problem("hill_climb", _climb, buffers, conflicts, pools)


def buffers_at_top(problem: PlanningProblem, layout: Layout) -> list[int]:
    """The buffers that make the pools as large as they are, and those that found no room."""
    return [
        index
        for index, (pool, offset) in enumerate(zip(layout.pools, layout.offsets, strict=True))
        if not pool or offset + problem.buffers[index].size_bytes == layout.tops[pool]
    ]


def _climb(problem: PlanningProblem) -> Layout:
    random = Xorshift32()
    order = size_order(problem)
    current = best = place_first_fit(problem, order)
    goal = (0, problem.lower_bound_bytes)
    for attempt in range(1, ATTEMPTS):
        if best.cost <= goal:
            break
        changed = _swapped(problem, current, order, random)
        layout = place_first_fit(problem, changed)
        if layout.cost <= current.cost or _accepts(layout, current, attempt, random):
            order, current = changed, layout
        if layout.cost < best.cost:
            best = layout
    return best


def _accepts(layout: Layout, current: Layout, attempt: int, random: Xorshift32) -> bool:
    """Whether to take a worse layout: the more seldom the later."""
    if layout.unplaced_bytes > current.unplaced_bytes:
        return False
    return random.randrange(100 * attempt) < _PERCENT_WORSE


def _swapped(
    problem: PlanningProblem, layout: Layout, order: Sequence[int], random: Xorshift32
) -> list[int]:
    tops = buffers_at_top(problem, layout)
    chosen = tops[random.randrange(len(tops))]
    near = {r.other for r in problem.relations[chosen]}
    near |= {r.other for index in near for r in problem.relations[index]}
    near.discard(chosen)
    changed = list(order)
    if near:
        partners = sorted(near)
        partner = partners[random.randrange(len(partners))]
        i, j = order.index(chosen), order.index(partner)
        changed[i], changed[j] = changed[j], changed[i]
    return changed
