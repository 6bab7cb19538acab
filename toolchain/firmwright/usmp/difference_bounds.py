"""Difference-bound matrix of buffer offsets in one pool under a height limit.

The matrix M has a lower bound of the offset difference of every two buffers and is
closed under addition. An additional row and column represent offset zero. Offset
constraints, bytes of live buffers, and decisions of the search raise the bounds; only
decisions exclude layouts within the height. Work is counted in units of about ten
microseconds.

               to j          to zero
    from i     M[i, j]       M[i, zero]      M[i, j] <= offset(j) - offset(i)
    from zero  M[zero, j]    0

    low = M[zero, :]: the lowest offsets      high = -M[:, zero]: the highest offsets
    closed: M[i, k] >= M[i, j] + M[j, k]      contradiction: M[i, j] + M[j, i] > 0
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from firmwright.base.rounding import round_up
from firmwright.ir.tir.plan import OffsetConstraint
from firmwright.usmp.liveness import live_sets
from firmwright.usmp.planning_problem import PlanningProblem

IntArray: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SharedPair:
    """Two buffers, a < b, that may overlap and cover at least `joint_bytes`."""

    a: int
    b: int
    joint_bytes: int


@dataclass(frozen=True, slots=True)
class LiveSet:
    """Buffers live together, the common divisor of their alignments, shared pairs."""

    members: tuple[int, ...]
    step: int
    shared: tuple[SharedPair, ...]


@dataclass(frozen=True, slots=True)
class _NeededBytes:
    """The bytes of the buffers that count, and partners with the bytes of both."""

    own_bytes: dict[int, int]
    joint: dict[int, tuple[int, int]]


_ALONE = (-1, 0)
"""Partner and bytes of both for a buffer without a partner."""


class DifferenceBounds:
    """Bounds that `decide` tightens and `undo` restores.

    The arrays `a`, `b`, `lo`, `hi`, `is_plain` and `weight` have an element for each
    constraint. A constraint that is not plain is periodic. `weight` counts the
    contradictions that decisions about a constraint have led to. `_least` is the matrix
    M of the module's docstring; `_seen` are the lowest and highest offsets at the last
    check of live sets.
    """

    def __init__(self, problem: PlanningProblem, height_bytes: int) -> None:
        buffers = problem.buffers
        self.problem = problem
        self.work = 0
        self.constraints = _aligned_constraints(problem)
        self.sizes = np.array([buffer.size_bytes for buffer in buffers], np.int64)
        self.weight = np.ones(len(self.constraints))
        self._origin = len(buffers)
        alignments = [buffer.alignment for buffer in buffers]
        self._alignments = np.array(alignments, np.int64)
        self._is_mixed = len(set(alignments)) > 1
        rows = [(c.a, c.b, c.lo, c.hi, c.modulus, c.residue) for c in self.constraints]
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        self.a, self.b, self.lo, self.hi, self._modulus, self._residue = columns
        self.is_plain: NDArray[np.bool_] = self._modulus < 2
        self._live_sets = _live_sets(problem)
        self._least = self._first_bounds(height_bytes)
        self._seen = (self.low.copy(), self.high.copy())

    def _first_bounds(self, height_bytes: int) -> IntArray:
        """Return the matrix of only 0 <= offset <= highest aligned offset."""
        highest = (height_bytes - self.sizes) // self._alignments * self._alignments
        least = np.zeros((self._origin + 1, self._origin + 1), np.int64)
        # The difference of two buffers is least with the first at its highest offset
        # and the second at zero.
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
        """Propagate the initial bounds; return False if the height is too low."""
        if (self.low > self.high).any():
            return False
        return self._narrow() and not any(map(self._is_overfull, self._live_sets))

    def mark(self) -> IntArray:
        return self._least.copy()

    def undo(self, mark: IntArray) -> None:
        # Nothing else refers to the copy, as each decision makes a mark of its own.
        self._least = mark
        self._seen = (self.low.copy(), self.high.copy())

    def decide(self, number: int, least: int | None, greatest: int | None) -> bool:
        """Bound the difference of two constrained buffers; False if contradictory."""
        constraint = self.constraints[number]
        is_possible = True
        if least is not None:
            is_possible = self._bound(constraint.a, constraint.b, least)
        if is_possible and greatest is not None:
            is_possible = self._bound(constraint.b, constraint.a, -greatest)
        if is_possible and self._narrow():
            return True
        self.weight[number] += 1
        return False

    def differences(self) -> tuple[IntArray, IntArray]:
        """Return the least and greatest possible difference of each constraint."""
        return self._least[self.a, self.b], -self._least[self.b, self.a]

    def is_open(self, numbers: IntArray) -> NDArray[np.bool_]:
        """Return for each constraint whether the bounds still allow a violation."""
        low, high = self.low, self.high
        a, b = self.a[numbers], self.b[numbers]
        least, greatest = low[b] - high[a], high[b] - low[a]
        reaches_interval = (least < self.hi[numbers]) & (greatest > self.lo[numbers])
        open_: NDArray[np.bool_] = reaches_interval & (least < greatest)
        return open_

    def is_violated_at_lowest(self, numbers: IntArray) -> NDArray[np.bool_]:
        """Return for each constraint whether the lowest offsets violate it."""
        difference = self.low[self.b[numbers]] - self.low[self.a[numbers]]
        return self._is_forbidden(difference, numbers)

    def _is_forbidden(
        self, difference: IntArray, numbers: IntArray | slice
    ) -> NDArray[np.bool_]:
        modulus = self._modulus[numbers]
        from_residue = difference - self._residue[numbers]
        is_on_period = (modulus > 1) & (from_residue % np.maximum(modulus, 1) == 0)
        is_inside = (self.lo[numbers] < difference) & (difference < self.hi[numbers])
        forbidden: NDArray[np.bool_] = is_inside & ~is_on_period
        return forbidden

    def _bound(self, i: int, j: int, least: int) -> bool:
        """Require offset(j) - offset(i) >= `least`; return False on a contradiction.

        The matrix was closed, so the paths k -> i -> j -> l are all that the new bound
        can improve.
        """
        matrix = self._least
        if least <= matrix[i, j]:
            return True
        # A positive cycle i -> j -> i would make an offset greater than itself.
        if least + matrix[j, i] > 0:
            return False
        self.work += 1 + self._origin * self._origin // 4000
        # For all k and l, D[k, l] = max(D[k, l], D[k, i] + least + D[j, l]):
        #
        #     k ----> i --least--> j ----> l
        np.maximum(matrix, (matrix[:, i] + least)[:, None] + matrix[j], out=matrix)
        return True

    def _narrow(self) -> bool:
        """Tighten all bounds until none changes; return False on a contradiction."""
        while True:
            if not self._leave_forbidden():
                return False
            progress = self._progress()
            if not self._align():
                return False
            if self._progress() == progress:
                return not self._is_any_overfull()

    def _progress(self) -> int:
        """Return a number that grows whenever a lowest or highest offset tightens."""
        return int(self._least[self._origin].sum() + self._least[:, self._origin].sum())

    def _leave_forbidden(self) -> bool:
        """Move bounds of forbidden differences to the next allowed difference."""
        every = slice(None)
        while True:
            self.work += 2
            least, greatest = self.differences()
            too_low = np.flatnonzero(self._is_forbidden(least, every)).tolist()
            too_high = np.flatnonzero(self._is_forbidden(greatest, every)).tolist()
            if not too_low and not too_high:
                return True
            for number in too_low:
                c = self.constraints[number]
                allowed = c.least_allowed(int(self._least[c.a, c.b]))
                if not self._bound(c.a, c.b, allowed):
                    self.weight[number] += 1
                    return False
            for number in too_high:
                c = self.constraints[number]
                allowed = c.greatest_allowed(-int(self._least[c.b, c.a]))
                if not self._bound(c.b, c.a, -allowed):
                    self.weight[number] += 1
                    return False

    def _align(self) -> bool:
        """Round lowest offsets up and highest down; return False on a contradiction.

        With one alignment for all buffers, the constraints are already multiples of it.
        """
        if not self._is_mixed:
            return True
        up = -(-self.low // self._alignments) * self._alignments
        down = self.high // self._alignments * self._alignments
        for index in np.flatnonzero(up > self.low).tolist():
            if not self._bound(self._origin, index, int(up[index])):
                return False
        for index in np.flatnonzero(down < self.high).tolist():
            if not self._bound(index, self._origin, -int(down[index])):
                return False
        return True

    def _is_any_overfull(self) -> bool:
        """Check the live sets in which bounds have changed since the last check."""
        low, high = self.low.copy(), self.high.copy()
        is_changed = (low != self._seen[0]) | (high != self._seen[1])
        changed = set(np.flatnonzero(is_changed).tolist())
        self._seen = low, high
        for live_set in self._live_sets:
            if not changed.isdisjoint(live_set.members) and self._is_overfull(live_set):
                return True
        return False

    def _is_overfull(self, live_set: LiveSet) -> bool:
        """Return whether buffers confined between two heights need too many bytes.

        For each bottom, the buffers that cannot be below it are taken by their highest
        end. The sum of their sizes must not exceed the highest end of the last one:

            end     ---------------     all of these buffers are between the lines
                     a     c
                     aaa   c   b
            bottom  ---------------
        """
        needed = self._needed_bytes(live_set)
        joint, step = needed.joint, live_set.step
        low, high = self.low, self.high
        rows = []
        for index, size in needed.own_bytes.items():
            end = round_up(int(high[index]) + size, step)
            rows.append((end, int(low[index]), round_up(size, step), index))
        rows.sort()
        self.work += 1 + len(rows)
        # Energetic reasoning, as in scheduling: buffers confined to an interval of
        # addresses must fit into it. The buffers above a bottom only change at lowest
        # offsets.
        for bottom in sorted({lowest for _, lowest, _, _ in rows}):
            inside: dict[int, int] = {}
            filled = bottom
            for end, lowest, size, index in rows:
                if lowest < bottom:
                    continue
                # The second of a pair adds only what the two cover beyond the first.
                other, together = joint.get(index, _ALONE)
                if other in inside:
                    filled += together - inside[other]
                else:
                    filled += size
                inside[index] = size
                if filled > end:
                    return True
        return False

    def _needed_bytes(self, live_set: LiveSet) -> _NeededBytes:
        """Return the least bytes that the buffers of a live set cover disjointly.

        Of two buffers in a decided order, the lower one needs only the bytes up to the
        other. Two undecided buffers that share with no third one count as a pair. Of
        all other undecided pairs, only the larger buffer counts.
        """
        own_bytes = {index: int(self.sizes[index]) for index in live_set.members}
        undecided: list[SharedPair] = []
        for pair in live_set.shared:
            a, b = pair.a, pair.b
            b_above_a, a_above_b = int(self._least[a, b]), int(self._least[b, a])
            # a is below b: whatever b overlaps of a, the bytes below b are a's own.
            if b_above_a > 0:
                own_bytes[a] = min(own_bytes[a], b_above_a)
            elif a_above_b > 0:
                own_bytes[b] = min(own_bytes[b], a_above_b)
            else:
                undecided.append(pair)
        pair_counts: Counter[int] = Counter()
        for pair in undecided:
            pair_counts[pair.a] += 1
            pair_counts[pair.b] += 1
        joint: dict[int, tuple[int, int]] = {}
        for pair in undecided:
            a, b = pair.a, pair.b
            if a not in own_bytes or b not in own_bytes:
                continue
            are_whole = own_bytes[a] == self.sizes[a] and own_bytes[b] == self.sizes[b]
            if are_whole and pair_counts[a] == pair_counts[b] == 1:
                together = round_up(pair.joint_bytes, live_set.step)
                joint[a], joint[b] = (b, together), (a, together)
            else:
                smaller = a if (own_bytes[a], a) <= (own_bytes[b], b) else b
                del own_bytes[smaller]
        return _NeededBytes(own_bytes, joint)


def _aligned_constraints(problem: PlanningProblem) -> tuple[OffsetConstraint[int], ...]:
    """Return each constraint once, reduced to the differences that are aligned."""
    alignments = [buffer.alignment for buffer in problem.buffers]
    aligned: list[OffsetConstraint[int]] = []
    for own in problem.constraints:
        for constraint in own:
            a, b = constraint.a, constraint.b
            if a < b:
                step = math.gcd(alignments[a], alignments[b])
                restricted = _restrict_to_multiples(constraint, step)
                if restricted is not None:
                    aligned.append(restricted)
    return tuple(aligned)


def _restrict_to_multiples(
    constraint: OffsetConstraint[int], step: int
) -> OffsetConstraint[int] | None:
    """Return the constraint for multiples of `step`; None if it has no effect.

    A periodic constraint then allows the multiples of `step` that equal the residue: if
    there are any, these again have a period, the least common multiple of both.
    """
    lo = constraint.lo // step * step
    hi = round_up(constraint.hi, step)
    # The interval is open: between two neighboring multiples, it forbids none.
    if hi - lo <= step:
        return None
    common = math.gcd(step, constraint.modulus)
    if constraint.modulus < 2 or constraint.residue % common:
        return replace(constraint, lo=lo, hi=hi, modulus=0, residue=0)
    period = constraint.modulus // common
    if period == 1:
        return None
    # Solve step * t = residue modulo the period: division by `common` makes the factor
    # invertible.
    times = constraint.residue // common * pow(step // common, -1, period)
    residue = step * times % (period * step)
    return replace(constraint, lo=lo, hi=hi, modulus=period * step, residue=residue)


def _live_sets(problem: PlanningProblem) -> tuple[LiveSet, ...]:
    """Return a live set for each time at which a range begins, without subsets.

    Two buffers without a constraint may be at the same place, so they cover the larger
    size.
    """
    buffers, joint = problem.buffers, _joint_bytes(problem)
    sizes = [buffer.size_bytes for buffer in buffers]
    sets = []
    for group in _maximal(list(map(frozenset, live_sets(buffers)))):
        members = tuple(sorted(group))
        shared: list[SharedPair] = []
        for a, b in combinations(members, 2):
            joint_bytes = joint.get((a, b), max(sizes[a], sizes[b]))
            if joint_bytes < sizes[a] + sizes[b]:
                shared.append(SharedPair(a, b, joint_bytes))
        step = math.gcd(*(buffers[index].alignment for index in members))
        sets.append(LiveSet(members, step, tuple(shared)))
    return tuple(sets)


def _joint_bytes(problem: PlanningProblem) -> dict[tuple[int, int], int]:
    """Return the least bytes that two buffers with a constraint cover together."""
    joint: dict[tuple[int, int], int] = {}
    for c in _aligned_constraints(problem):
        a_bytes = problem.buffers[c.a].size_bytes
        b_bytes = problem.buffers[c.b].size_bytes
        # Between these differences, the smaller buffer is inside the larger one.
        first, last = sorted((0, a_bytes - b_bytes))
        above, below = c.least_allowed(first), c.greatest_allowed(last)
        if above <= last:
            least = max(a_bytes, b_bytes)
        else:
            least = min(a_bytes + b_bytes, above + b_bytes, a_bytes - below)
        joint[c.a, c.b] = max(joint.get((c.a, c.b), 0), least)
    return joint


def _maximal(groups: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """Return the groups, each once, that are no proper subset of another one."""
    unique = dict.fromkeys(groups)
    containing: dict[int, list[frozenset[int]]] = {}
    for group in unique:
        for index in group:
            containing.setdefault(index, []).append(group)
    maximal: list[frozenset[int]] = []
    for group in unique:
        # A superset contains every member: the groups with one of them suffice.
        if not any(group < other for other in containing[min(group)]):
            maximal.append(group)
    return maximal
