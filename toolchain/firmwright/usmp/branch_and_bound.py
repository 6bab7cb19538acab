"""Branch and bound on the height of a pool, and the planners `exact` and `search` that use it.

It requires at most 100 buffers that all have the same single pool. To decide whether a height is
sufficient, the search takes the pair of buffers with the least freedom, tries both vertical orders,
and propagates each decision. Independent groups of buffers are searched separately. Work is
counted, not timed, so the result is deterministic (decision 0019).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from firmwright.ir.tir.plan import OffsetConstraint
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
EXACT_WORK_MAX = 1_000_000
"""Work limit of `exact` in units of about ten microseconds."""
_QUICK_MOVES = 200
_QUICK_WORK = 100_000
"""Limits of the first rounds of `search`, which take one to two seconds."""
_DEEPEST = 300
_BISECTIONS = 4


@make_planner("exact")
def exact_planner(problem: PlanningProblem) -> Layout:
    """Branch and bound: the optimum, proven where it ends in time; for up to a hundred buffers."""
    layout = improve_order(problem, *best_first_fit_order(problem))
    return _lower_skyline(problem, branch_and_bound(problem, layout, EXACT_WORK_MAX), 3)


@make_planner("search")
def search_planner(problem: PlanningProblem) -> Layout:
    """First fits, local search, branch and bound, and beams, until the lower bound is met."""
    layout = improve_order(problem, *best_first_fit_order(problem), _QUICK_MOVES)
    layout = branch_and_bound(problem, layout, _QUICK_WORK)
    lowered = _lower_skyline(problem, layout, 1)
    if lowered.is_proven(problem) or lowered.cost < layout.cost:
        return lowered
    climbed = improve_order(problem, order_from_layout(layout), layout)
    return replace(climbed, proven_bytes=layout.proven_bytes)


def _lower_skyline(problem: PlanningProblem, layout: Layout, scale: int) -> Layout:
    lowered = lower_skyline(problem, layout, scale)
    return replace(lowered, proven_bytes=layout.proven_bytes)


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
        try:
            offsets = _HeightSearch(self._problem, height_bytes, work).run()
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


class _Choice(NamedTuple):
    """A constraint to resolve by a difference of at most `below` or of at least `above`."""

    constraint: int
    below: int
    above: int
    is_above_first: bool


class _HeightSearch:
    def __init__(self, problem: PlanningProblem, height_bytes: int, work: int) -> None:
        self._problem = problem
        self._height_bytes = height_bytes
        self._bounds = DifferenceBounds(problem, height_bytes)
        self._work = work
        self._found: Sequence[int] | None = None

    def run(self) -> Sequence[int] | None:
        bounds = self._bounds
        if not bounds.start() or not all(
            bounds.decide(number, 0, None) for number in _without_symmetry(bounds)
        ):
            return None
        if not self._solve(np.arange(len(bounds.constraints)), 0):
            return None
        return self._found or tuple(bounds.low.tolist())

    def _solve(self, numbers: IntArray, depth: int) -> bool:
        """Satisfy the constraints `numbers` by fixing their buffers, or find a complete layout."""
        bounds = self._bounds
        if bounds.work > self._work or depth > _DEEPEST:
            raise _OutOfWorkError
        if self._first_fit_succeeds():
            return True
        for part in _connected_groups(bounds, numbers):
            if bounds.is_violated_at_lowest(part).any():
                if not self._branch(part, depth):
                    return False
            else:
                bounds.fix_lowest(np.unique((bounds.a[part], bounds.b[part])).tolist())
            if self._found:
                return True
        return True

    def _branch(self, part: IntArray, depth: int) -> bool:
        choice = _choose(self._bounds, part)
        ways: list[tuple[int | None, int | None]] = [(None, choice.below), (choice.above, None)]
        if choice.is_above_first:
            ways.reverse()
        for least, greatest in ways:
            mark = self._bounds.mark()
            if self._bounds.decide(choice.constraint, least, greatest) and self._solve(
                part, depth + 1
            ):
                return True
            self._bounds.undo(mark)
        return False

    def _first_fit_succeeds(self) -> bool:
        bounds = self._bounds
        middle = bounds.low + bounds.high + bounds.sizes
        layout = place_first_fit(self._problem, np.lexsort((-bounds.sizes, middle)).tolist())
        bounds.work += len(bounds.sizes) // 2
        if layout.cost > (0, self._height_bytes):
            return False
        self._found = layout.offsets
        return True


def _choose(bounds: DifferenceBounds, part: IntArray) -> _Choice:
    """Return the plain constraint with the least freedom, weighted by earlier failures.

    If all are decided, return the first periodic constraint that the lowest offsets violate.
    """
    least, greatest = bounds.differences()
    below, above = bounds.lo[part] - least[part], greatest[part] - bounds.hi[part]
    is_split = (below >= 0) & (above >= 0) & bounds.is_plain[part]
    if is_split.any():
        rank = (np.minimum(below, above) + 1) / bounds.weight[part]
        best = int(np.where(is_split, rank, np.inf).argmin())
        c = bounds.constraints[part[best]]
        return _Choice(int(part[best]), c.lo, c.hi, bool(above[best] > below[best]))
    number = int(part[bounds.is_violated_at_lowest(part).argmax()])
    c = bounds.constraints[number]
    at_lowest = int(bounds.low[c.b] - bounds.low[c.a])
    return _Choice(number, c.greatest_allowed(at_lowest), c.least_allowed(at_lowest), True)


def _connected_groups(bounds: DifferenceBounds, numbers: IntArray) -> list[IntArray]:
    group = list(range(len(bounds.sizes)))

    def find(index: int) -> int:
        while group[index] != index:
            group[index] = group[group[index]]
            index = group[index]
        return index

    still: list[int] = numbers[bounds.is_open(numbers)].tolist()
    for number in still:
        group[find(bounds.constraints[number].b)] = find(bounds.constraints[number].a)
    parts: dict[int, list[int]] = {}
    for number in still:
        parts.setdefault(find(bounds.constraints[number].a), []).append(number)
    return [np.array(part) for part in sorted(parts.values(), key=len)]


def _without_symmetry(bounds: DifferenceBounds) -> list[int]:
    """Return constraints that may be decided as "b above a" without loss of generality."""
    # These are pairs of equal buffers, and one constraint to exclude mirror images.
    constraints, sizes = bounds.constraints, bounds.sizes
    equal = [n for n, c in enumerate(constraints) if _are_interchangeable(bounds.problem, c)]
    if not _is_mirror_symmetric(bounds):
        return equal
    alike = {index for n in equal for index in (constraints[n].a, constraints[n].b)}
    others = [n for n, c in enumerate(constraints) if alike.isdisjoint((c.a, c.b))]
    weights = sizes[bounds.a] + sizes[bounds.b]
    return equal + ([max(others, key=lambda n: int(weights[n]))] if others else [])


def _are_interchangeable(problem: PlanningProblem, constraint: OffsetConstraint[int]) -> bool:
    a, b = problem.buffers[constraint.a], problem.buffers[constraint.b]
    of_a, of_b = problem.constraints[constraint.a], problem.constraints[constraint.b]
    between = [c for c in of_a if c.a == constraint.b]
    other_a = {(c.a, c.lo, c.hi, c.modulus, c.residue) for c in of_a if c.a != constraint.b}
    other_b = {(c.a, c.lo, c.hi, c.modulus, c.residue) for c in of_b if c.a != constraint.a}
    return (
        (a.size_bytes, a.alignment) == (b.size_bytes, b.alignment)
        and all(c.lo == -c.hi and c.modulus < 2 for c in between)
        and other_a == other_b
    )


def _is_mirror_symmetric(bounds: DifferenceBounds) -> bool:
    sizes, alignments = bounds.sizes, {b.alignment for b in bounds.problem.buffers}
    return (
        len(alignments) == 1
        and not (sizes % min(alignments)).any()
        and bool(bounds.is_plain.all())
        and bool((bounds.lo + bounds.hi == sizes[bounds.a] - sizes[bounds.b]).all())
    )


def _layout(problem: PlanningProblem, offsets: Sequence[int]) -> Layout:
    pool = problem.buffers[0].pools[0]
    ends = (o + b.size_bytes for o, b in zip(offsets, problem.buffers, strict=True))
    return Layout((pool,) * len(offsets), tuple(offsets), {pool: max(ends)}, 0)
