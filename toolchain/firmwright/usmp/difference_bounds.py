"""Difference-bound matrix of buffer offsets in one pool under a height limit.

The matrix has a lower bound of the offset difference of every two buffers and is closed under
addition. An additional row and column represent offset zero. Offset constraints, bytes of live
buffers, and decisions of the search raise the bounds; only decisions exclude layouts within the
height. Work is counted in units of about ten microseconds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from firmwright.base.grouping import group_pairs
from firmwright.ir.tir.plan import OffsetConstraint
from firmwright.usmp.liveness import live_sets
from firmwright.usmp.planning_problem import PlanningProblem

IntArray: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LiveSet:
    """Simultaneously live buffers; `shared` holds the overlapping pairs and their joint bytes."""

    members: tuple[int, ...]
    step: int
    shared: tuple[tuple[int, int, int], ...]


class DifferenceBounds:
    """Bounds that `decide` tightens and `undo` restores."""

    def __init__(self, problem: PlanningProblem, height_bytes: int) -> None:
        buffers = problem.buffers
        self.problem = problem
        self.work = 0
        self.constraints = _aligned_constraints(problem)
        self.sizes = np.array([buffer.size_bytes for buffer in buffers], np.int64)
        self.weight = np.ones(len(self.constraints))
        self._origin = len(buffers)
        self._alignments = np.array([buffer.alignment for buffer in buffers], np.int64)
        self._is_mixed = len({buffer.alignment for buffer in buffers}) > 1
        rows = [(c.a, c.b, c.lo, c.hi, c.modulus, c.residue) for c in self.constraints]
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        self.a, self.b, self.lo, self.hi, self._modulus, self._residue = columns
        self.is_plain: NDArray[np.bool_] = self._modulus < 2
        self._live_sets = _live_sets(problem)
        self._least = self._first_bounds(height_bytes)
        self._seen = (self.low.copy(), self.high.copy())

    def _first_bounds(self, height_bytes: int) -> IntArray:
        highest = (height_bytes - self.sizes) // self._alignments * self._alignments
        least = np.zeros((self._origin + 1, self._origin + 1), np.int64)
        least[:-1, :-1] = -highest[:, None]
        least[:-1, -1] = -highest
        np.fill_diagonal(least, 0)
        return least

    @property
    def low(self) -> IntArray:
        return self._least[self._origin, :-1]

    @property
    def high(self) -> IntArray:
        return -self._least[:-1, self._origin]

    def start(self) -> bool:
        """Propagate the initial bounds; return False if no layout fits the height limit."""
        if (self.low > self.high).any():
            return False
        return self._narrow() and not any(map(self._is_overfull, self._live_sets))

    def mark(self) -> IntArray:
        return self._least.copy()

    def undo(self, mark: IntArray) -> None:
        self._least = mark
        self._seen = (self.low.copy(), self.high.copy())

    def decide(self, number: int, least: int | None, greatest: int | None) -> bool:
        """Bound the difference of a constraint's buffers; return False on a contradiction."""
        constraint = self.constraints[number]
        bounded = (least is None or self._bound(constraint.a, constraint.b, least)) and (
            greatest is None or self._bound(constraint.b, constraint.a, -greatest)
        )
        if bounded and self._narrow():
            return True
        self.weight[number] += 1
        return False

    def differences(self) -> tuple[IntArray, IntArray]:
        return self._least[self.a, self.b], -self._least[self.b, self.a]

    def is_open(self, numbers: IntArray) -> NDArray[np.bool_]:
        """Return for each constraint whether the bounds of its buffers still allow a violation."""
        low, high, a, b = self.low, self.high, self.a[numbers], self.b[numbers]
        least, greatest = low[b] - high[a], high[b] - low[a]
        open_: NDArray[np.bool_] = (
            (least < self.hi[numbers]) & (greatest > self.lo[numbers]) & (least < greatest)
        )
        return open_

    def is_violated_at_lowest(self, numbers: IntArray) -> NDArray[np.bool_]:
        difference = self.low[self.b[numbers]] - self.low[self.a[numbers]]
        return self._is_inside(difference, numbers)

    def _is_inside(self, difference: IntArray, numbers: IntArray | slice) -> NDArray[np.bool_]:
        modulus = np.maximum(self._modulus[numbers], 1)
        free = (self._modulus[numbers] > 1) & ((difference - self._residue[numbers]) % modulus == 0)
        inside: NDArray[np.bool_] = (
            (self.lo[numbers] < difference) & (difference < self.hi[numbers]) & ~free
        )
        return inside

    def _bound(self, i: int, j: int, least: int) -> bool:
        """Require offset(j) - offset(i) >= `least` and close the matrix under addition."""
        matrix = self._least
        if least <= matrix[i, j]:
            return True
        if least + matrix[j, i] > 0:
            return False
        self.work += 1 + self._origin * self._origin // 4000
        np.maximum(matrix, (matrix[:, i] + least)[:, None] + matrix[j], out=matrix)
        return True

    def _narrow(self) -> bool:
        """Tighten all bounds repeatedly until none changes; return False on a contradiction."""
        while True:
            if not self._leave_forbidden():
                return False
            progress = self._progress()
            if not self._align():
                return False
            if self._progress() == progress:
                return not self._is_any_overfull()

    def _progress(self) -> int:
        return int(self._least[self._origin].sum() + self._least[:, self._origin].sum())

    def _leave_forbidden(self) -> bool:
        while True:
            self.work += 2
            least, greatest = self.differences()
            low_in = np.flatnonzero(self._is_inside(least, slice(None))).tolist()
            high_in = np.flatnonzero(self._is_inside(greatest, slice(None))).tolist()
            if not low_in and not high_in:
                return True
            for number in low_in:
                c = self.constraints[number]
                if not self._bound(c.a, c.b, c.least_allowed(int(self._least[c.a, c.b]))):
                    self.weight[number] += 1
                    return False
            for number in high_in:
                c = self.constraints[number]
                if not self._bound(c.b, c.a, -c.greatest_allowed(-int(self._least[c.b, c.a]))):
                    self.weight[number] += 1
                    return False

    def _align(self) -> bool:
        if not self._is_mixed:
            return True
        up = -(-self.low // self._alignments) * self._alignments
        down = self.high // self._alignments * self._alignments
        return all(
            self._bound(self._origin, int(i), int(up[i])) for i in np.flatnonzero(up > self.low)
        ) and all(
            self._bound(int(i), self._origin, -int(down[i]))
            for i in np.flatnonzero(down < self.high)
        )

    def _is_any_overfull(self) -> bool:
        low, high = self.low.copy(), self.high.copy()
        changed = set(np.flatnonzero((low != self._seen[0]) | (high != self._seen[1])).tolist())
        self._seen = low, high
        return any(
            not changed.isdisjoint(live_set.members) and self._is_overfull(live_set)
            for live_set in self._live_sets
        )

    def _is_overfull(self, live_set: LiveSet) -> bool:
        """Return whether buffers confined between two heights need more bytes than fit there."""
        own_bytes, joint = self._needed_bytes(live_set)
        step, low, high = live_set.step, self.low, self.high
        rows = sorted(
            (-(-(int(high[i]) + size) // step) * step, int(low[i]), -(-size // step) * step, i)
            for i, size in own_bytes.items()
        )
        self.work += 1 + len(rows)
        for bottom in sorted({row[1] for row in rows}):
            inside: dict[int, int] = {}
            filled = bottom
            for end, lowest, size, index in rows:
                if lowest < bottom:
                    continue
                other, together = joint.get(index, (-1, 0))
                filled += together - inside[other] if other in inside else size
                inside[index] = size
                if filled > end:
                    return True
        return False

    def _needed_bytes(self, live_set: LiveSet) -> tuple[dict[int, int], dict[int, tuple[int, int]]]:
        own_bytes = {index: int(self.sizes[index]) for index in live_set.members}
        undecided: list[tuple[int, int, int]] = []
        for a, b, joint_bytes in live_set.shared:
            if (above := int(self._least[a, b])) > 0:
                own_bytes[a] = min(own_bytes[a], above)
            elif (below := int(self._least[b, a])) > 0:
                own_bytes[b] = min(own_bytes[b], below)
            else:
                undecided.append((a, b, joint_bytes))
        partners = [index for a, b, _ in undecided for index in (a, b)]
        joint: dict[int, tuple[int, int]] = {}
        for a, b, joint_bytes in undecided:
            if a not in own_bytes or b not in own_bytes:
                continue
            whole = own_bytes[a] == self.sizes[a] and own_bytes[b] == self.sizes[b]
            if whole and partners.count(a) == partners.count(b) == 1:
                together = -(-joint_bytes // live_set.step) * live_set.step
                joint[a], joint[b] = (b, together), (a, together)
            else:
                del own_bytes[min((a, b), key=lambda index: (own_bytes[index], index))]
        return own_bytes, joint


def _aligned_constraints(problem: PlanningProblem) -> tuple[OffsetConstraint[int], ...]:
    """Return each constraint once, reduced to the differences that alignments permit."""
    alignments = [buffer.alignment for buffer in problem.buffers]
    aligned = (
        _restrict_to_multiples(c, math.gcd(alignments[c.a], alignments[c.b]))
        for own in problem.constraints
        for c in own
        if c.a < c.b
    )
    return tuple(c for c in aligned if c is not None)


def _restrict_to_multiples(
    constraint: OffsetConstraint[int], step: int
) -> OffsetConstraint[int] | None:
    lo, hi = constraint.lo // step * step, -(-constraint.hi // step) * step
    if hi - lo <= step:
        return None
    common = math.gcd(step, constraint.modulus)
    if constraint.modulus < 2 or constraint.residue % common:
        return replace(constraint, lo=lo, hi=hi, modulus=0, residue=0)
    period = constraint.modulus // common
    if period == 1:
        return None
    times = constraint.residue // common * pow(step // common, -1, period)
    residue = step * times % (period * step)
    return replace(constraint, lo=lo, hi=hi, modulus=period * step, residue=residue)


def _live_sets(problem: PlanningProblem) -> tuple[LiveSet, ...]:
    """Return a live set for each time at which a range begins, without subsets."""
    buffers, joint = problem.buffers, _joint_bytes(problem)
    sizes = [buffer.size_bytes for buffer in buffers]
    sets = []
    for group in _maximal([frozenset(alive) for alive in live_sets(buffers)]):
        members = tuple(sorted(group))
        pairs = combinations(members, 2)
        covers = ((a, b, joint.get((a, b), max(sizes[a], sizes[b]))) for a, b in pairs)
        shared = tuple(cover for cover in covers if cover[2] < sizes[cover[0]] + sizes[cover[1]])
        step = math.gcd(*(buffers[index].alignment for index in members))
        sets.append(LiveSet(members, step, shared))
    return tuple(sets)


def _joint_bytes(problem: PlanningProblem) -> dict[tuple[int, int], int]:
    joint: dict[tuple[int, int], int] = {}
    for c in _aligned_constraints(problem):
        a, b = problem.buffers[c.a].size_bytes, problem.buffers[c.b].size_bytes
        first, last = sorted((0, a - b))
        above, below = c.least_allowed(first), c.greatest_allowed(last)
        least = max(a, b) if above <= last else min(a + b, above + b, a - below)
        joint[c.a, c.b] = max(joint.get((c.a, c.b), 0), least)
    return joint


def _maximal(groups: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    unique = dict.fromkeys(groups)
    containing = group_pairs((index, group) for group in unique for index in group)
    return [g for g in unique if not any(g < other for other in containing[min(g)])]
