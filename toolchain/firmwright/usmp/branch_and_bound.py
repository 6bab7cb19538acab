"""Planner `exact_planner`: branch and bound, for few buffers; also the last step of `search`.

In: a problem whose buffers all have the same one pool (others keep their layout), and a layout to
improve. Out: a layout, and the height that was proven to be needed. A search asks whether a height
is enough: it takes the pair of buffers with least room to lie either way, tries one above the
other, then below, and draws what follows from it (`domains`). Parts whose pairs no longer constrain
each other, as those of different times, are searched one by one. Equal buffers and mirror images
are tried once. Work is counted, never timed, so the result is always the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, OffsetConstraint, Plan
from firmwright.usmp.difference_bounds import DifferenceBounds, Gap, IntArray
from firmwright.usmp.first_fit import place_first_fit
from firmwright.usmp.heuristics import best_first_fit_order
from firmwright.usmp.local_search import improve_order
from firmwright.usmp.planning_problem import Layout, PlanningProblem, solve_problem

BUFFERS_MAX = 100
EXACT_WORK_MAX = 1_000_000
"""In units of some ten microseconds."""
_DEEPEST = 300
_BISECTIONS = 4


def exact_planner(
    buffers: Sequence[BufferInfo], conflicts: Sequence[OffsetConstraint], pools: Sequence[PoolInfo]
) -> Plan:
    """Branch and bound: the optimum, proven where it ends in time; for up to a hundred buffers."""
    return solve_problem("exact", _exact, buffers, conflicts, pools)


def _exact(problem: PlanningProblem) -> Layout:
    return branch_and_bound(
        problem, improve_order(problem, *best_first_fit_order(problem)), EXACT_WORK_MAX
    )


def _applies(problem: PlanningProblem) -> bool:
    """Whether buffers are few, and all have the same single candidate pool."""
    candidates = {buffer.pools for buffer in problem.buffers}
    return (
        len(problem.buffers) <= BUFFERS_MAX and len(candidates) == 1 and len(min(candidates)) == 1
    )


def branch_and_bound(problem: PlanningProblem, start: Layout, work: int) -> Layout:
    """The best layout found, `start` if none is better, with the bound that was proven."""
    if start.cost <= (0, problem.lower_bound_bytes) or not _applies(problem):
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
    """The optimum is at least `lower`, and at most `upper`, the height of `best`."""

    def __init__(self, problem: PlanningProblem, start: Layout) -> None:
        limit = problem.limits[problem.buffers[0].pools[0]]
        self.best = start
        self.upper = start.cost[1] if limit is None or not start.unplaced_bytes else limit + 1
        self._problem = problem
        self._step = math.gcd(*(b.size_bytes for b in problem.buffers), _alignment(problem))
        self.lower = min(self._rounded(problem.lower_bound_bytes), self.upper)

    @property
    def is_open(self) -> bool:
        return self.lower < self.upper

    def attempt(self, height_bytes: int, work: int) -> bool:
        """Ask whether a layout of this height exists; whether one was found."""
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
        """Heights are multiples of what divides all sizes and alignments."""
        return -(-height_bytes // self._step) * self._step


class _OutOfWorkError(Exception):
    """The search was cut off."""


class _Choice(NamedTuple):
    """A gap whose difference shall be at most `below` or at least `above`; which comes first."""

    gap: int
    below: int
    above: int
    is_above_first: bool


class _HeightSearch:
    """Whether a layout of at most `height_bytes` exists, and which."""

    def __init__(self, problem: PlanningProblem, height_bytes: int, work: int) -> None:
        self._problem = problem
        self._height_bytes = height_bytes
        self._domains = DifferenceBounds(problem, height_bytes)
        self._work = work
        self._found: Sequence[int] | None = None

    def run(self) -> Sequence[int] | None:
        """Offsets, or None if there is no such layout; _OutOfWorkError if it takes too long."""
        domains = self._domains
        if not domains.start() or not all(
            domains.decide(number, 0, None) for number in _without_symmetry(domains)
        ):
            return None
        if not self._solve(np.arange(len(domains.gaps)), 0):
            return None
        return self._found or tuple(domains.low.tolist())

    def _solve(self, numbers: IntArray, depth: int) -> bool:
        """Satisfy these gaps; on success their buffers are fixed, or a whole layout is found."""
        domains = self._domains
        if domains.work > self._work or depth > _DEEPEST:
            raise _OutOfWorkError
        if self._first_fit_succeeds():
            return True
        for part in _parts(domains, numbers):
            if domains.is_violated_at_lowest(part).any():
                if not self._branch(part, depth):
                    return False
            else:
                domains.fix_lowest(np.unique((domains.a[part], domains.b[part])).tolist())
            if self._found:
                return True
        return True

    def _branch(self, part: IntArray, depth: int) -> bool:
        choice = _choose(self._domains, part)
        ways: list[tuple[int | None, int | None]] = [(None, choice.below), (choice.above, None)]
        if choice.is_above_first:
            ways.reverse()
        for least, greatest in ways:
            mark = self._domains.mark()
            if self._domains.decide(choice.gap, least, greatest) and self._solve(part, depth + 1):
                return True
            self._domains.undo(mark)
        return False

    def _first_fit_succeeds(self) -> bool:
        """A first fit in the order of the bounds often completes what was decided."""
        domains = self._domains
        middle = domains.low + domains.high + domains.sizes
        layout = place_first_fit(self._problem, np.lexsort((-domains.sizes, middle)).tolist())
        domains.work += len(domains.sizes) // 2
        if layout.cost > (0, self._height_bytes):
            return False
        self._found = layout.offsets
        return True


def _choose(domains: DifferenceBounds, part: IntArray) -> _Choice:
    """The plain gap with least room on one of its sides; gaps that often failed come sooner.

    Where none is undecided, the first period that the lowest offsets violate: most of the places
    of a period are free, so they come last.
    """
    least, greatest = domains.differences()
    below, above = domains.lo[part] - least[part], greatest[part] - domains.hi[part]
    is_split = (below >= 0) & (above >= 0) & domains.is_plain[part]
    if is_split.any():
        rank = (np.minimum(below, above) + 1) / domains.weight[part]
        best = int(np.where(is_split, rank, np.inf).argmin())
        gap = domains.gaps[part[best]]
        return _Choice(int(part[best]), gap.lo, gap.hi, bool(above[best] > below[best]))
    number = int(part[domains.is_violated_at_lowest(part).argmax()])
    gap = domains.gaps[number]
    at_lowest = int(domains.low[gap.b] - domains.low[gap.a])
    return _Choice(number, gap.greatest(at_lowest), gap.least(at_lowest), True)


def _parts(domains: DifferenceBounds, numbers: IntArray) -> list[IntArray]:
    """The gaps that still constrain something, grouped by the buffers they connect."""
    group = list(range(len(domains.sizes)))

    def find(index: int) -> int:
        while group[index] != index:
            group[index] = group[group[index]]
            index = group[index]
        return index

    still: list[int] = numbers[domains.is_open(numbers)].tolist()
    for number in still:
        group[find(domains.gaps[number].b)] = find(domains.gaps[number].a)
    parts: dict[int, list[int]] = {}
    for number in still:
        parts.setdefault(find(domains.gaps[number].a), []).append(number)
    return [np.array(part) for part in sorted(parts.values(), key=len)]


def _without_symmetry(domains: DifferenceBounds) -> list[int]:
    """Gaps whose b may be taken to lie above: of equal buffers, and one against mirror images."""
    gaps, sizes = domains.gaps, domains.sizes
    equal = [number for number, gap in enumerate(gaps) if _are_equal(domains.problem, gap)]
    if not _has_mirror_image(domains):
        return equal
    alike = {index for number in equal for index in gaps[number][:2]}
    others = [number for number, gap in enumerate(gaps) if alike.isdisjoint(gap[:2])]

    def weight(number: int) -> int:
        return int(sizes[gaps[number].a] + sizes[gaps[number].b])

    return equal + ([max(others, key=weight)] if others else [])


def _are_equal(problem: PlanningProblem, gap: Gap) -> bool:
    """Whether exchanging the gap's two buffers changes nothing."""
    a, b = problem.buffers[gap.a], problem.buffers[gap.b]
    mine, theirs = problem.relations[gap.a], problem.relations[gap.b]
    between = [r for r in mine if r.other == gap.b]
    return (
        (a.size_bytes, a.alignment) == (b.size_bytes, b.alignment)
        and all(r.lo == -r.hi and r.modulus < 2 for r in between)
        and {r for r in mine if r.other != gap.b} == {r for r in theirs if r.other != gap.a}
    )


def _has_mirror_image(domains: DifferenceBounds) -> bool:
    """Whether a layout turned upside down is one again."""
    sizes, alignments = domains.sizes, {b.alignment for b in domains.problem.buffers}
    return (
        len(alignments) == 1
        and not (sizes % min(alignments)).any()
        and bool(domains.is_plain.all())
        and bool((domains.lo + domains.hi == sizes[domains.a] - sizes[domains.b]).all())
    )


def _alignment(problem: PlanningProblem) -> int:
    return math.gcd(*(buffer.alignment for buffer in problem.buffers))


def _layout(problem: PlanningProblem, offsets: Sequence[int]) -> Layout:
    pool = problem.buffers[0].pools[0]
    ends = (o + b.size_bytes for o, b in zip(offsets, problem.buffers, strict=True))
    return Layout((pool,) * len(offsets), tuple(offsets), {pool: max(ends)}, 0)
