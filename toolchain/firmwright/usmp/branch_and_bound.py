"""Branch and bound on the height of a pool, and the planners `exact` and `search` that use it.

It requires at most 100 buffers that all have the same single pool. To decide whether a height is
sufficient, the search takes the pair of buffers with the least freedom, tries both vertical orders,
and propagates each decision. Work is counted, not timed, so the result is deterministic
(decision 0019).
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from firmwright.usmp.difference_bounds import DifferenceBounds, IntArray
from firmwright.usmp.heuristics import (
    best_first_fit_order,
    improve_order,
    order_from_layout,
    place_first_fit,
)
from firmwright.usmp.planning_problem import Layout, PlanningProblem, make_planner
from firmwright.usmp.skyline import lower_skyline

BUFFERS_MAX = 100
_WORK_MAX = 200_000
"""Work limit of branch and bound in `search` in units of about ten microseconds."""
_QUICK_MOVES = 200
"""Moves of local search before branch and bound."""
_DEEPEST = 300
_BISECTIONS = 4


@make_planner("exact")
def exact_planner(problem: PlanningProblem) -> Layout:
    """As search, with ten times the work: the optimum, proven where it ends in time."""
    return _search(problem, 10)


@make_planner("search")
def search_planner(problem: PlanningProblem) -> Layout:
    """First fits, branch and bound, beams, and local search, until the lower bound is met."""
    return _search(problem, 1)


def _search(problem: PlanningProblem, scale: int) -> Layout:
    layout = improve_order(problem, *best_first_fit_order(problem), _QUICK_MOVES)
    bounded = branch_and_bound(problem, layout, scale * _WORK_MAX)
    layout = lower_skyline(problem, bounded, scale)
    if layout is bounded and not layout.is_proven(problem):
        layout = improve_order(problem, order_from_layout(layout), layout)
    return replace(layout, proven_bytes=bounded.proven_bytes)


def _is_supported(problem: PlanningProblem) -> bool:
    pools = {buffer.pools for buffer in problem.buffers}
    return len(problem.buffers) <= BUFFERS_MAX and len(pools) == 1 and len(min(pools)) == 1


def branch_and_bound(problem: PlanningProblem, start: Layout, work: int) -> Layout:
    """Return the best layout (`start` if none is better) and the proven lower bound."""
    if start.cost <= (0, problem.lower_bound_bytes) or not _is_supported(problem):
        return start
    bracket = _Bracket(problem, start)
    bracket.attempt(bracket.lower, work // 3)
    while bracket.is_open and bracket.attempt(bracket.upper - 1, work // 3):
        continue
    for _ in range(_BISECTIONS):
        if bracket.is_open:
            bracket.attempt((bracket.lower + bracket.upper) // 2, work // (3 * _BISECTIONS))
    return replace(bracket.best, proven_bytes=bracket.lower)


class _Bracket:
    """Bounds of the optimal height: at least `lower`; at most `upper`, the height of `best`."""

    def __init__(self, problem: PlanningProblem, start: Layout) -> None:
        limit = problem.limits[problem.buffers[0].pools[0]]
        self.best = start
        self.upper = start.cost[1] if limit is None or not start.unplaced_bytes else limit + 1
        self._problem = problem
        self._step = math.gcd(
            *(b.size_bytes for b in problem.buffers), *(b.alignment for b in problem.buffers)
        )
        self.lower = min(self._rounded(problem.lower_bound_bytes), self.upper)

    @property
    def is_open(self) -> bool:
        return self.lower < self.upper

    def attempt(self, height_bytes: int, work: int) -> bool:
        if not self.is_open:
            return False
        bounds = DifferenceBounds(self._problem, height_bytes)
        numbers = np.arange(len(bounds.constraints))
        try:
            offsets = _solve(bounds, height_bytes, work, numbers) if bounds.start() else None
        except _OutOfWorkError:
            return False
        if offsets is None:
            self.lower = min(self._rounded(height_bytes + 1), self.upper)
            return False
        self.best = _layout(self._problem, offsets)
        self.upper = self.best.cost[1]
        return True

    def _rounded(self, height_bytes: int) -> int:
        return -(-height_bytes // self._step) * self._step


class _OutOfWorkError(Exception): ...


def _solve(
    bounds: DifferenceBounds, height_bytes: int, work: int, numbers: IntArray, depth: int = 0
) -> Sequence[int] | None:
    """Return offsets that satisfy the constraints `numbers` and the height, or None."""
    if bounds.work > work or depth > _DEEPEST:
        raise _OutOfWorkError
    middle = bounds.low + bounds.high + bounds.sizes
    layout = place_first_fit(bounds.problem, np.lexsort((-bounds.sizes, middle)).tolist())
    bounds.work += len(bounds.sizes) // 2
    if layout.cost <= (0, height_bytes):
        return layout.offsets
    numbers = numbers[bounds.is_open(numbers)]
    if not bounds.is_violated_at_lowest(numbers).any():
        return tuple(bounds.low.tolist())
    number, ways = _choose(bounds, numbers)
    for least, greatest in ways:
        mark = bounds.mark()
        if bounds.decide(number, least, greatest) and (
            offsets := _solve(bounds, height_bytes, work, numbers, depth + 1)
        ):
            return offsets
        bounds.undo(mark)
    return None


def _choose(
    bounds: DifferenceBounds, part: IntArray
) -> tuple[int, tuple[tuple[int | None, int | None], ...]]:
    """Return a constraint, and in the order to try, the least and greatest differences to allow.

    It is the plain constraint with the least freedom, weighted by earlier failures. If all are
    decided, it is the first periodic constraint that the lowest offsets violate.
    """
    least, greatest = bounds.differences()
    below, above = bounds.lo[part] - least[part], greatest[part] - bounds.hi[part]
    is_split = (below >= 0) & (above >= 0) & bounds.is_plain[part]
    if is_split.any():
        rank = (np.minimum(below, above) + 1) / bounds.weight[part]
        best = int(np.where(is_split, rank, np.inf).argmin())
        c = bounds.constraints[part[best]]
        ways = (None, c.lo), (c.hi, None)
        return int(part[best]), ways[::-1] if above[best] > below[best] else ways
    number = int(part[bounds.is_violated_at_lowest(part).argmax()])
    c = bounds.constraints[number]
    at_lowest = int(bounds.low[c.b] - bounds.low[c.a])
    return number, ((c.least_allowed(at_lowest), None), (None, c.greatest_allowed(at_lowest)))


def _layout(problem: PlanningProblem, offsets: Sequence[int]) -> Layout:
    pool = problem.buffers[0].pools[0]
    ends = (o + b.size_bytes for o, b in zip(offsets, problem.buffers, strict=True))
    return Layout((pool,) * len(offsets), tuple(offsets), {pool: max(ends)}, 0)
