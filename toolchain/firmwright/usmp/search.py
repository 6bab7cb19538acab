"""Planner `search`, the default: the best of several first fits, then a bounded local search.

Each order is good at some shape of network: size for most, pressure for those whose peak must be
packed first, time for chains. Where none meets the lower bound, buffers that touch the top of a
pool move forward in the order. Everything stops at the bound, else at a fixed amount of work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, Conflict, Plan
from firmwright.usmp.first_fit import place
from firmwright.usmp.greedy import conflict_order, size_order
from firmwright.usmp.hill_climb import touching_top
from firmwright.usmp.prng import Xorshift32
from firmwright.usmp.problem import Layout, Problem, solve_problem

ATTEMPTS = 2000
_PLACEMENTS = 300_000
"""Work in placed buffers: about two seconds."""
_RESTART_AFTER = 200

_Rank: TypeAlias = Callable[[int], tuple[int, ...]]


def search(
    buffers: Sequence[BufferInfo], conflicts: Sequence[Conflict], pools: Sequence[PoolInfo]
) -> Plan:
    """The best of several first fits, then local search, until the lower bound is met."""
    return solve_problem("search", _search, buffers, conflicts, pools)


def first_fits(
    buffers: Sequence[BufferInfo], conflicts: Sequence[Conflict], pools: Sequence[PoolInfo]
) -> Plan:
    """The best of several first fits: for selection, which asks often."""
    return solve_problem(
        "first_fits", lambda problem: _first_fits(problem)[1], buffers, conflicts, pools
    )


def _search(problem: Problem) -> Layout:
    order, layout = _first_fits(problem)
    goal = (0, problem.lower_bound_bytes)
    return layout if layout.cost <= goal else _improve(problem, order, layout)


def _first_fits(problem: Problem) -> tuple[list[int], Layout]:
    goal = (0, problem.lower_bound_bytes)
    found: tuple[list[int], Layout] | None = None
    for order in orders(problem):
        layout = place(problem, order)
        if found is None or layout.cost < found[1].cost:
            found = order, layout
        if found[1].cost <= goal:
            break
    assert found is not None
    return found


def orders(problem: Problem) -> Iterator[list[int]]:
    """Orders worth a first fit, those that suit most networks first."""
    yield size_order(problem)
    yield conflict_order(problem)
    numbers = range(len(problem.buffers))
    for rank in _ranks(problem):
        yield sorted(numbers, key=rank)


def _ranks(problem: Problem) -> tuple[_Rank, ...]:
    buffers, relations = problem.buffers, problem.relations
    size = [b.size_bytes for b in buffers]
    first = [min(r.first for r in b.live) for b in buffers]
    end = [max(r.end for r in b.live) for b in buffers]
    length = [sum(r.end - r.first for r in b.live) for b in buffers]
    pressure = _pressures(problem)
    weight = [sum(size[r.other] for r in mine) for mine in relations]
    return (
        lambda i: (-size[i], first[i]),
        lambda i: (-size[i] * length[i], first[i]),
        lambda i: (-length[i], -size[i], first[i]),
        lambda i: (-pressure[i], -size[i], first[i]),
        lambda i: (-pressure[i], -length[i], -size[i], first[i]),
        lambda i: (-weight[i], -size[i], first[i]),
        lambda i: (first[i], -end[i], -size[i]),
        lambda i: (-end[i], first[i], -size[i]),
    )


def _pressures(problem: Problem) -> list[int]:
    """For each buffer the most bytes alive at a moment of its life."""
    bytes_at: dict[int, int] = {}
    for buffer in problem.buffers:
        for live in buffer.live:
            for time in range(live.first, live.end):
                bytes_at[time] = bytes_at.get(time, 0) + buffer.size_bytes
    return [
        max(bytes_at[time] for live in buffer.live for time in range(live.first, live.end))
        for buffer in problem.buffers
    ]


def _improve(problem: Problem, best_order: Sequence[int], best: Layout) -> Layout:
    """Move buffers forward in the order, going back to the best where that leads nowhere."""
    random = Xorshift32()
    goal = (0, problem.lower_bound_bytes)
    order, current, idle = list(best_order), best, 0
    for _ in range(min(ATTEMPTS, _PLACEMENTS // len(order))):
        if best.cost <= goal:
            break
        changed = _moved(problem, current, order, random)
        layout = place(problem, changed)
        idle += 1
        if layout.cost <= current.cost or _is_tolerable(layout, best, random):
            order, current = changed, layout
        if layout.cost < best.cost:
            best_order, best, idle = changed, layout, 0
        if idle == _RESTART_AFTER:
            order, current, idle = list(best_order), best, 0
    return best


def _is_tolerable(layout: Layout, best: Layout, random: Xorshift32) -> bool:
    """Whether to take a worse layout: one in four of those at most a fifth above the best."""
    (unplaced, total), (best_unplaced, best_total) = layout.cost, best.cost
    return unplaced <= best_unplaced and 5 * total <= 6 * best_total and random.below(4) == 0


def _moved(problem: Problem, layout: Layout, order: Sequence[int], random: Xorshift32) -> list[int]:
    """`order` with a buffer at the top, or one in conflict with it, moved forward.

    Of 238 random graphs that no fixed order solved, this missed the bound in 4; moves to anywhere
    and swaps missed more of them.
    """
    tops = touching_top(problem, layout)
    chosen = tops[random.below(len(tops))]
    neighbours = problem.relations[chosen]
    if neighbours and random.below(2):
        chosen = neighbours[random.below(len(neighbours))].other
    place_now = order.index(chosen)
    changed = list(order)
    changed.insert(random.below(place_now + 1), changed.pop(place_now))
    return changed
