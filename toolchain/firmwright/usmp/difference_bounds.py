"""Where each buffer may still lie under a height that is asked for: bounds on offset differences.

In: a Problem whose buffers share one pool, and the height. `DifferenceBounds` keeps for each two
buffers the
least difference of their offsets, closed under addition (a difference-bound matrix), with an origin
at offset zero as one more buffer: its row holds the lowest offsets. What conflicts forbid and what
buffers alive at one moment need together raises it; decisions are bounds too. Invariants: no layout
within the height is ever excluded; relaxed and periodic conflicts are exact. Work is counted in
units of some ten microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firmwright.usmp.cliques import live_cliques
from firmwright.usmp.planning_problem import PlanningProblem, Relation

IntArray: TypeAlias = NDArray[np.int64]


class Gap(NamedTuple):
    """offset(b) - offset(a) is at most `lo`, at least `hi`, or `residue` modulo `modulus`."""

    a: int
    b: int
    lo: int
    hi: int
    modulus: int
    residue: int

    def least(self, difference: int) -> int:
        """The least allowed difference from `difference` on."""
        if not self.lo < difference < self.hi:
            return difference
        if self.modulus < 2:
            return self.hi
        return min(self.hi, difference + (self.residue - difference) % self.modulus)

    def greatest(self, difference: int) -> int:
        """The greatest allowed difference up to `difference`."""
        if not self.lo < difference < self.hi:
            return difference
        if self.modulus < 2:
            return self.lo
        return max(self.lo, difference - (difference - self.residue) % self.modulus)


@dataclass(frozen=True, slots=True)
class LiveSet:
    """Buffers alive at once; those pairs of them that may overlap, and what both take at least."""

    members: tuple[int, ...]
    step: int
    shared: tuple[tuple[int, int, int], ...]


class DifferenceBounds:
    """Bounds that tighten by `decide`; `undo` returns to a `mark`."""

    def __init__(self, problem: PlanningProblem, height_bytes: int) -> None:
        buffers = problem.buffers
        self.problem = problem
        self.work = 0
        self.gaps = _gaps(problem)
        self.sizes = np.array([buffer.size_bytes for buffer in buffers], np.int64)
        self.weight = np.ones(len(self.gaps))
        self._origin = len(buffers)
        self._alignments = np.array([buffer.alignment for buffer in buffers], np.int64)
        self._is_mixed = len({buffer.alignment for buffer in buffers}) > 1
        columns = np.array(self.gaps, np.int64).reshape(-1, 6).T
        self.a, self.b, self.lo, self.hi, self._modulus, self._residue = columns
        self.is_plain: NDArray[np.bool_] = self._modulus < 2
        self._moments = _moments(problem)
        self._sections = [
            np.array(section) for section in live_cliques(problem, range(len(buffers)))
        ]
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
        """The lowest offset of each buffer."""
        return self._least[self._origin, :-1]

    @property
    def high(self) -> IntArray:
        """The highest offset of each buffer."""
        return -self._least[:-1, self._origin]

    def start(self) -> bool:
        """Draw the first conclusions; False if no layout is that low."""
        if (self.low > self.high).any():
            return False
        return self._narrow() and not any(self._is_overfull(moment) for moment in self._moments)

    def mark(self) -> IntArray:
        """What `undo` restores."""
        return self._least.copy()

    def undo(self, mark: IntArray) -> None:
        """Forget everything since `mark`."""
        self._least = mark
        self._seen = (self.low.copy(), self.high.copy())

    def decide(self, number: int, least: int | None, greatest: int | None) -> bool:
        """Bound the difference of a gap's buffers; False if that leaves nothing somewhere."""
        gap = self.gaps[number]
        bounded = (least is None or self._bound(gap.a, gap.b, least)) and (
            greatest is None or self._bound(gap.b, gap.a, -greatest)
        )
        if bounded and self._narrow():
            return True
        self.weight[number] += 1
        return False

    def fix_lowest(self, indices: Sequence[int]) -> None:
        """Put buffers at their lowest offsets, which are known to be allowed together."""
        for index in indices:
            self._bound(index, self._origin, -int(self.low[index]))

    def differences(self) -> tuple[IntArray, IntArray]:
        """For each gap the least and the greatest difference that is left."""
        return self._least[self.a, self.b], -self._least[self.b, self.a]

    def is_open(self, numbers: IntArray) -> NDArray[np.bool_]:
        """Whether the gaps' buffers, free in their bounds, may still come to lie in them."""
        low, high, a, b = self.low, self.high, self.a[numbers], self.b[numbers]
        least, greatest = low[b] - high[a], high[b] - low[a]
        open_: NDArray[np.bool_] = (
            (least < self.hi[numbers]) & (greatest > self.lo[numbers]) & (least < greatest)
        )
        return open_

    def is_violated_at_lowest(self, numbers: IntArray) -> NDArray[np.bool_]:
        """Whether the lowest offsets lie in these gaps."""
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
        """offset(j) - offset(i) is at least this, with all that follows by addition."""
        matrix = self._least
        if least <= matrix[i, j]:
            return True
        if least + matrix[j, i] > 0:
            return False
        self.work += 1 + self._origin * self._origin // 4000
        np.maximum(matrix, (matrix[:, i] + least)[:, None] + matrix[j], out=matrix)
        return True

    def _narrow(self) -> bool:
        """Leave gaps, moments and alignments no bound that lies in what they exclude."""
        while True:
            if not self._leave_gaps():
                return False
            ends = self._ends()
            if not self._align() or not self._stack():
                return False
            if self._ends() == ends:
                return not self._is_any_overfull()

    def _ends(self) -> int:
        """Grows whenever the bound of an offset does."""
        return int(self._least[self._origin].sum() + self._least[:, self._origin].sum())

    def _leave_gaps(self) -> bool:
        everything = slice(None)
        while True:
            self.work += 2
            least, greatest = self.differences()
            low_in = np.flatnonzero(self._is_inside(least, everything)).tolist()
            high_in = np.flatnonzero(self._is_inside(greatest, everything)).tolist()
            if not low_in and not high_in:
                return True
            for number in low_in:
                gap = self.gaps[number]
                if not self._bound(gap.a, gap.b, gap.least(int(self._least[gap.a, gap.b]))):
                    self.weight[number] += 1
                    return False
            for number in high_in:
                gap = self.gaps[number]
                greatest_here = gap.greatest(-int(self._least[gap.b, gap.a]))
                if not self._bound(gap.b, gap.a, -greatest_here):
                    self.weight[number] += 1
                    return False

    def _align(self) -> bool:
        """Offsets are multiples; where all have one alignment, so are all bounds."""
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

    def _stack(self) -> bool:
        """Of buffers that are disjoint, what lies below or above one adds up."""
        for section in self._sections:
            sizes = self.sizes[section]
            is_below = self._least[np.ix_(section, section)] > 0
            low, high = self.low[section], self.high[section]
            under = np.where(is_below, low[:, None], 1 << 60).min(axis=0)
            floor = np.where(is_below.any(axis=0), under + sizes @ is_below, 0)
            over = np.where(is_below, (high + sizes)[None, :], -1).max(axis=1)
            ceiling = np.where(is_below.any(axis=1), over - is_below @ sizes - sizes, high)
            for k in np.flatnonzero(floor > low).tolist():
                if not self._bound(self._origin, int(section[k]), int(floor[k])):
                    return False
            for k in np.flatnonzero(ceiling < high).tolist():
                if not self._bound(int(section[k]), self._origin, -int(ceiling[k])):
                    return False
        self.work += len(self._sections)
        return True

    def _is_any_overfull(self) -> bool:
        """Whether a moment is, of those where a bound has changed."""
        low, high = self.low.copy(), self.high.copy()
        changed = set(np.flatnonzero((low != self._seen[0]) | (high != self._seen[1])).tolist())
        self._seen = low, high
        return any(
            not changed.isdisjoint(moment.members) and self._is_overfull(moment)
            for moment in self._moments
        )

    def _is_overfull(self, moment: LiveSet) -> bool:
        """Whether those buffers of a moment that must lie between two heights need more."""
        taken, joint = self._taken(moment)
        step, low, high = moment.step, self.low, self.high
        rows = sorted(
            (-(-(int(high[i]) + size) // step) * step, int(low[i]), -(-size // step) * step, i)
            for i, size in taken.items()
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

    def _taken(self, moment: LiveSet) -> tuple[dict[int, int], dict[int, tuple[int, int]]]:
        """What each member has for itself; who shares with whom, and what such two take."""
        taken = {index: int(self.sizes[index]) for index in moment.members}
        undecided: list[tuple[int, int, int]] = []
        for a, b, joint_bytes in moment.shared:
            if (above := int(self._least[a, b])) > 0:
                taken[a] = min(taken[a], above)
            elif (below := int(self._least[b, a])) > 0:
                taken[b] = min(taken[b], below)
            else:
                undecided.append((a, b, joint_bytes))
        partners = [index for a, b, _ in undecided for index in (a, b)]
        joint: dict[int, tuple[int, int]] = {}
        for a, b, joint_bytes in undecided:
            if a not in taken or b not in taken:
                continue
            whole = taken[a] == self.sizes[a] and taken[b] == self.sizes[b]
            if whole and partners.count(a) == partners.count(b) == 1:
                together = -(-joint_bytes // moment.step) * moment.step
                joint[a], joint[b] = (b, together), (a, together)
            else:
                del taken[min((a, b), key=lambda index: (taken[index], index))]
        return taken, joint


def _gaps(problem: PlanningProblem) -> tuple[Gap, ...]:
    found = []
    for b, relations in enumerate(problem.relations):
        for relation in relations:
            a = relation.other
            if a < b:
                step = math.gcd(problem.buffers[a].alignment, problem.buffers[b].alignment)
                gap = _on_steps(a, b, relation, step)
                if gap is not None:
                    found.append(gap)
    return tuple(found)


def _on_steps(a: int, b: int, relation: Relation, step: int) -> Gap | None:
    """What a relation forbids to differences that are multiples of `step`; None if nothing."""
    lo, hi = relation.lo // step * step, -(-relation.hi // step) * step
    if hi - lo <= step:
        return None
    common = math.gcd(step, relation.modulus)
    if relation.modulus < 2 or relation.residue % common:
        return Gap(a, b, lo, hi, 0, 0)
    period = relation.modulus // common
    if period == 1:
        return None
    times = relation.residue // common * pow(step // common, -1, period)
    return Gap(a, b, lo, hi, period * step, step * times % (period * step))


def _moments(problem: PlanningProblem) -> tuple[LiveSet, ...]:
    """One for each moment at which a buffer's life begins, without those that others hold."""
    buffers = problem.buffers
    groups = {
        frozenset(
            index
            for index, buffer in enumerate(buffers)
            if any(live.first <= time < live.end for live in buffer.live)
        ): None
        for time in sorted({live.first for buffer in buffers for live in buffer.live})
    }
    joint = _joint_bytes(problem)
    found = []
    for group in groups:
        if any(group < other for other in groups):
            continue
        members = tuple(sorted(group))
        shared = tuple(
            (a, b, joint_bytes)
            for a, b in combinations(members, 2)
            if (joint_bytes := joint.get((a, b), _larger(problem, a, b)))
            < buffers[a].size_bytes + buffers[b].size_bytes
        )
        step = math.gcd(*(buffers[index].alignment for index in members))
        found.append(LiveSet(members, step, shared))
    return tuple(found)


def _larger(problem: PlanningProblem, a: int, b: int) -> int:
    return max(problem.buffers[a].size_bytes, problem.buffers[b].size_bytes)


def _joint_bytes(problem: PlanningProblem) -> dict[tuple[int, int], int]:
    """For each two buffers in conflict the least bytes that they cover together."""
    joint: dict[tuple[int, int], int] = {}
    for gap in _gaps(problem):
        a, b = problem.buffers[gap.a].size_bytes, problem.buffers[gap.b].size_bytes
        first, last = sorted((0, a - b))
        above, below = gap.least(first), gap.greatest(last)
        least = max(a, b) if above <= last else min(a + b, above + b, a - below)
        joint[gap.a, gap.b] = max(joint.get((gap.a, gap.b), 0), least)
    return joint
