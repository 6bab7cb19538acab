"""Branch and bound on a pool's height, and the planners `exact` and `search`.

It requires at most 100 buffers that all have the same single pool. To decide whether a
height is sufficient, the search takes the pair of buffers with the least freedom, tries
both vertical orders, and propagates each decision. Work is counted, not timed, so the
result is deterministic (decision 0019).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.rounding import round_up
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
_EXACT_SCALE = 10
"""Factor by which `exact` works longer than `search`."""
_QUICK_MOVES = 200
"""Moves of local search before branch and bound."""
_DEPTH_MAX = 300
"""Limit of nested decisions, below Python's limit of nested calls."""
_BISECTIONS = 4
"""Heights between the bounds that are tried after the bounds themselves."""


@make_planner("exact")
def exact_planner(problem: PlanningProblem) -> Layout:
    """As search, with ten times the work: the optimum, proven where it ends in time."""
    return _search(problem, _EXACT_SCALE)


@make_planner("search")
def search_planner(problem: PlanningProblem) -> Layout:
    """First fits, branch and bound, beams and local search, up to the lower bound."""
    return _search(problem, 1)


def _search(problem: PlanningProblem, scale: int) -> Layout:
    """Return the best layout of all methods, cheapest first; `scale` multiplies work.

    Each method starts from the best layout so far and returns it unchanged if it finds
    no better.
    """
    order, first_fit = best_first_fit_order(problem)
    layout = improve_order(problem, order, first_fit, _QUICK_MOVES)
    bounded = branch_and_bound(problem, layout, scale * _WORK_MAX)
    layout = lower_skyline(problem, bounded, scale)
    if layout is bounded and not layout.is_proven(problem):
        layout = improve_order(problem, order_from_layout(layout), layout)
    return replace(layout, proven_bytes=bounded.proven_bytes)


def _is_supported(problem: PlanningProblem) -> bool:
    """Return whether the buffers are few and all have the same single pool."""
    if len(problem.buffers) > BUFFERS_MAX:
        return False
    candidates = {buffer.pools for buffer in problem.buffers}
    return len(candidates) == 1 and len(min(candidates)) == 1


def branch_and_bound(problem: PlanningProblem, start: Layout, work: int) -> Layout:
    """Return the best layout (`start` if none is better) and the proven lower bound.

    A third of the work is for the lower bound, which is often the optimum; a third for
    steps below the best height; a third for heights in between, of which each halves
    the gap.
    """
    if start.cost <= (0, problem.lower_bound_bytes) or not _is_supported(problem):
        return start
    bracket = _Bracket(problem, start)
    # A success at the lower bound ends the search; a refutation raises the bound.
    bracket.attempt(bracket.lower, work // 3)
    while bracket.is_open and bracket.attempt(bracket.upper - 1, work // 3):
        continue
    for _ in range(_BISECTIONS):
        if bracket.is_open:
            middle = (bracket.lower + bracket.upper) // 2
            bracket.attempt(middle, work // (3 * _BISECTIONS))
    return replace(bracket.best, proven_bytes=bracket.lower)


class _Bracket:
    """Bounds of the optimal height: at least `lower`, at most `upper`, that of `best`.

    If `start` does not fit, `upper` is one byte more than the pool has. Heights are
    multiples of `_step`, the common divisor of all sizes and alignments.
    """

    def __init__(self, problem: PlanningProblem, start: Layout) -> None:
        limit = problem.limits[problem.buffers[0].pools[0]]
        self.best = start
        self.upper = start.cost[1]
        if limit is not None and start.unplaced_bytes:
            self.upper = limit + 1
        self._problem = problem
        sizes = [buffer.size_bytes for buffer in problem.buffers]
        alignments = [buffer.alignment for buffer in problem.buffers]
        self._step = math.gcd(*sizes, *alignments)
        self.lower = min(round_up(problem.lower_bound_bytes, self._step), self.upper)

    @property
    def is_open(self) -> bool:
        return self.lower < self.upper

    def attempt(self, height_bytes: int, work: int) -> bool:
        """Search a layout of at most that height; if found, lower `upper`, return True.

        If it is proven that there is none, `lower` moves above the height. If the work
        runs out, nothing changes.
        """
        if not self.is_open:
            return False
        try:
            offsets = self._offsets_within(height_bytes, work)
        except _OutOfWorkError:
            return False
        if offsets is None:
            self.lower = min(round_up(height_bytes + 1, self._step), self.upper)
            return False
        self.best = _layout(self._problem, offsets)
        self.upper = self.best.cost[1]
        return True

    def _offsets_within(self, height_bytes: int, work: int) -> Sequence[int] | None:
        bounds = DifferenceBounds(self._problem, height_bytes)
        if not bounds.start():
            return None
        return _solve(bounds, height_bytes, work, np.arange(len(bounds.constraints)))


class _OutOfWorkError(Exception):
    """The search has used its work without a result."""


def _solve(
    bounds: DifferenceBounds,
    height_bytes: int,
    work: int,
    numbers: IntArray,
    depth: int = 0,
) -> Sequence[int] | None:
    """Return offsets that satisfy the constraints `numbers` and the height, or None.

    A first fit by the middle of each buffer's range of offsets often succeeds early.
    Otherwise, if the lowest offsets violate no constraint, they are a solution; else a
    decision is made.
    """
    if bounds.work > work or depth > _DEPTH_MAX:
        raise _OutOfWorkError
    # Twice the middle of each buffer's range, as integers. Buffers that propagation has
    # pushed upwards come late in the first fit, as they do in a solution.
    middle = bounds.low + bounds.high + bounds.sizes
    order = np.lexsort((-bounds.sizes, middle)).tolist()
    layout = place_first_fit(bounds.problem, order)
    bounds.work += len(bounds.sizes) // 2
    if layout.cost <= (0, height_bytes):
        return layout.offsets
    # Deeper decisions only narrow the bounds: what can no longer be violated is never
    # looked at again below this node.
    numbers = numbers[bounds.is_open(numbers)]
    if not bounds.is_violated_at_lowest(numbers).any():
        return tuple(bounds.low.tolist())
    branch = _choose(bounds, numbers)
    # b is above a or below it: the two ways exclude each other and leave nothing out,
    # so a failure of both refutes the height.
    for way in branch.ways:
        mark = bounds.mark()
        if bounds.decide(branch.number, way.least, way.greatest):
            offsets = _solve(bounds, height_bytes, work, numbers, depth + 1)
            if offsets:
                return offsets
        bounds.undo(mark)
    return None


@dataclass(frozen=True, slots=True)
class _Way:
    """The offset differences that one decision keeps; None leaves that side open."""

    least: int | None
    greatest: int | None


@dataclass(frozen=True, slots=True)
class _Branch:
    """The number of a constraint, and the ways to satisfy it in the order to try."""

    number: int
    ways: tuple[_Way, _Way]


def _choose(bounds: DifferenceBounds, part: IntArray) -> _Branch:
    """Choose the constraint of `part` to decide next.

    It is the plain constraint with the least freedom, weighted by earlier failures. If
    all are decided, it is the first periodic constraint that the lowest offsets
    violate.

    The freedom is the smaller distance by which the differences that are still possible
    exceed the forbidden interval. The way with the larger distance is tried first:

        possible    |---------------------------------|
        forbidden         (lo               hi)
        distances   |below|                   |above  |
    """
    least, greatest = bounds.differences()
    below = bounds.lo[part] - least[part]
    above = greatest[part] - bounds.hi[part]
    is_undecided = (below >= 0) & (above >= 0) & bounds.is_plain[part]
    if is_undecided.any():
        freedom = (np.minimum(below, above) + 1) / bounds.weight[part]
        best = int(np.where(is_undecided, freedom, np.inf).argmin())
        number = int(part[best])
        constraint = bounds.constraints[number]
        b_is_below, b_is_above = _Way(None, constraint.lo), _Way(constraint.hi, None)
        if above[best] > below[best]:
            return _Branch(number, (b_is_above, b_is_below))
        return _Branch(number, (b_is_below, b_is_above))
    number = int(part[bounds.is_violated_at_lowest(part).argmax()])
    constraint = bounds.constraints[number]
    at_lowest = int(bounds.low[constraint.b] - bounds.low[constraint.a])
    upwards = _Way(constraint.least_allowed(at_lowest), None)
    downwards = _Way(None, constraint.greatest_allowed(at_lowest))
    return _Branch(number, (upwards, downwards))


def _layout(problem: PlanningProblem, offsets: Sequence[int]) -> Layout:
    """Return the layout with all buffers in the only pool."""
    pool = problem.buffers[0].pools[0]
    top = 0
    for offset, buffer in zip(offsets, problem.buffers, strict=True):
        top = max(top, offset + buffer.size_bytes)
    return Layout(
        pools=(pool,) * len(offsets),
        offsets=tuple(offsets),
        tops={pool: top},
        unplaced_bytes=0,
    )
