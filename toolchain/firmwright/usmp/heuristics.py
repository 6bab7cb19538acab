"""Fixed orders for a first fit, and the best layout of all of them.

In: a Problem. Out: orders, those that suit most networks first; a layout. Each order is good at
some shape of network: size for most, pressure for those whose peak must be packed first, time for
chains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from firmwright.usmp.first_fit import place_first_fit
from firmwright.usmp.greedy import conflict_order, size_order
from firmwright.usmp.planning_problem import Layout, PlanningProblem

_Rank: TypeAlias = Callable[[int], tuple[int, ...]]


def best_first_fit(problem: PlanningProblem) -> Layout:
    """The best layout of all orders."""
    return best_first_fit_order(problem)[1]


def best_first_fit_order(problem: PlanningProblem) -> tuple[list[int], Layout]:
    """The order that gives the best layout, and that; at the bound no later ones are tried."""
    goal = (0, problem.lower_bound_bytes)
    best: tuple[list[int], Layout] | None = None
    for order in candidate_orders(problem):
        layout = place_first_fit(problem, order)
        if best is None or layout.cost < best[1].cost:
            best = order, layout
        if best[1].cost <= goal:
            break
    assert best is not None
    return best


def candidate_orders(problem: PlanningProblem) -> Iterator[list[int]]:
    """Orders worth a first fit, those that suit most networks first."""
    yield size_order(problem)
    yield conflict_order(problem)
    numbers = range(len(problem.buffers))
    for rank in _ranks(problem):
        yield sorted(numbers, key=rank)


def _ranks(problem: PlanningProblem) -> tuple[_Rank, ...]:
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


def _pressures(problem: PlanningProblem) -> list[int]:
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
