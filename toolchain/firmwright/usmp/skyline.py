"""Beam search for an order in which first fit packs disjoint buffers within a height.

A state is a set of placed buffers and their skyline: the top of the buffers at each time. A step
fills one valley, from the end at which fewer buffers fit, or wastes that
end. Where no remaining buffer can begin, the skyline rises to the lower rim of the valley; a state
whose waste exceeds the slack of a time is dropped. Work is counted, so results are deterministic.
"""

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firmwright.usmp.heuristics import Xorshift32, place_first_fit
from firmwright.usmp.planning_problem import Layout, PlanningProblem

Ints: TypeAlias = NDArray[np.int32]
_ROUNDS = (
    (100, "slack", False),
    (300, "width", True),
    (300, "slack", True),
    (300, "level", False),
    (300, "slack", False),
    (1000, "level", False),
)
"""Width of the beam, valley to fill (the least of that), and whether each set has one skyline."""
_CELLS_MAX = 33_000_000
"""Work limit of a round in columns of placed states: it narrows the beams of large problems."""
_WIDTH_MIN = 4
_WORK_MAX = 160_000_000
"""Columns of successors at the first height; later heights have a quarter of that."""
_WASTES_MAX = 2
"""Ends of valleys that one step may waste."""
_BISECTIONS = 4
_ENDLESS = 1 << 29


def lower_skyline(problem: PlanningProblem, start: Layout, scale: int = 1) -> Layout:
    """Return the lowest layout found, `start` if none is lower; `scale` widens the beams.

    It applies if there is one pool and the peak of disjoint buffers is the lower bound.
    """
    if start.is_proven(problem) or len({pool for b in problem.buffers for pool in b.pools}) > 1:
        return start
    packing = _Packing(problem)
    best, lower = start, problem.lower_bound_bytes
    if packing.peak_bytes > lower:
        return start
    height = lower
    for attempt in range(1 + _BISECTIONS):
        packing.work = scale * _WORK_MAX // (4 if attempt else 1)
        for width, rule, is_by_set in _ROUNDS[: 1 if attempt else None]:
            if order := packing.find_order(height, width * scale, rule, is_by_set):
                best = min(best, place_first_fit(problem, order), key=lambda layout: layout.cost)
                break
        else:
            lower = height
        height = (lower + best.cost[1]) // 2
        if best.is_proven(problem) or best.unplaced_bytes:
            break
    return best


class _Beam(NamedTuple):
    """States, one a row: top (minus height) and slack of each time, and remaining buffers.

    `ends` holds the least end of the remaining buffers that begin at each time, `firsts` the
    greatest beginning of those that end after it; `placed` is a hash of the placed buffers.
    """

    top: Ints
    slack: Ints
    remaining: NDArray[np.bool_]
    ends: Ints
    firsts: Ints
    placed: NDArray[np.int64]

    def rows(self, chosen: NDArray[np.intp] | NDArray[np.bool_]) -> "_Beam":
        return _Beam._make(column[chosen] for column in self)


class _Packing:
    """The sizes in steps of their common divisor, and the lives as ranges of columns."""

    def __init__(self, problem: PlanningProblem) -> None:
        buffers = problem.buffers
        aligned = [-(-b.size_bytes // b.alignment) * b.alignment for b in buffers]
        self.step = math.gcd(*aligned)
        self.work = _WORK_MAX
        lives = [(min(r.first for r in b.live), max(r.end for r in b.live)) for b in buffers]
        times = {time: k for k, time in enumerate(sorted({t for live in lives for t in live}))}
        firsts, ends = ([times[live[k]] for live in lives] for k in (0, 1))
        self._first, self._end = np.array([*firsts, 0]), np.array([*ends, _ENDLESS])
        column = np.arange(len(times) - 1)
        covers = (self._first[:, None] <= column) & (column < self._end[:, None])
        sizes = np.array([*aligned, 0]) // self.step
        self._towers: Ints = (covers * sizes[:, None]).astype(np.int32)
        self._load: Ints = self._towers.sum(0, dtype=np.int32)
        self.peak_bytes = int(self._load.max()) * self.step
        self._beginning = _by_column(firsts, len(column))
        self._ending = _by_column([end - 1 for end in ends], len(column))
        random = Xorshift32()
        hashes = [random.randrange(1 << 32) << 31 ^ random.randrange(1 << 32) for _ in buffers]
        self._hash = np.array(hashes, np.int64)
        hashes = [random.randrange(1 << 32) << 31 ^ random.randrange(1 << 32) for _ in column]
        self._column_hash = np.array(hashes, np.int64)

    def find_order(
        self, height_bytes: int, width: int, rule: str, is_by_set: bool
    ) -> list[int] | None:
        """Return the buffers in an order whose first fit has the height; None if none is found."""
        width = min(width, max(_WIDTH_MIN, _CELLS_MAX // self._towers.size))
        beam = self._start(height_bytes // self.step)
        weight = 1 / (1.0 + beam.slack[0])
        steps: list[tuple[NDArray[np.intp], NDArray[np.intp]]] = []
        self._rise(beam)
        for _ in self._hash:
            children, parents, buffers = self._expand(beam, rule)
            keys = children.placed + children.top.astype(np.int64) @ self._column_hash
            unique = np.unique(keys, return_index=True)[1]
            children = children.rows(unique)
            alive = self._rise(children)
            score = children.slack @ weight
            chosen = np.flatnonzero(alive)[np.argsort(-score[alive], kind="stable")]
            if is_by_set:
                chosen = chosen[np.sort(np.unique(children.placed[chosen], return_index=True)[1])]
            chosen = chosen[:width]
            self.work -= children.top.size
            if self.work < 0 or not len(chosen):
                return None
            beam = children.rows(chosen)
            steps.append((parents[unique[chosen]], buffers[unique[chosen]]))
        order: list[int] = []
        row = 0
        for parents, buffers in reversed(steps):
            order.append(int(buffers[row]))
            row = int(parents[row])
        return order[::-1]

    def _start(self, height: int) -> _Beam:
        remaining = np.ones((1, len(self._first)), np.bool_)
        remaining[:, -1] = False
        ends = self._end[self._beginning].min(1)[None].astype(np.int32)
        firsts = np.where(self._ending < len(self._hash), self._first[self._ending], -1).max(1)
        slack = (height - self._load)[None]
        top = np.full_like(slack, -height)
        return _Beam(top, slack, remaining, ends, firsts[None].astype(np.int32), np.zeros(1, int))

    def _expand(self, beam: _Beam, rule: str) -> tuple[_Beam, NDArray[np.intp], NDArray[np.intp]]:
        """Return the successors, and for each its row in `beam` and the placed buffer."""
        batches = []
        source = np.arange(len(beam.top))
        for _ in range(_WASTES_MAX + 1):
            rows = np.arange(len(source))
            first, end, depth = _valleys(beam)
            wide = end - first
            ranks = {
                "slack": (beam.slack, wide),
                "level": (beam.top, wide),
                "width": (wide, beam.top),
            }
            major, minor = ranks[rule]
            rank = major * float(1 << 30) + minor
            place = np.where(depth > 0, rank, np.inf).argmin(1)
            first, end, depth = first[rows, place], end[rows, place], depth[rows, place]
            left, right = self._beginning[first], self._ending[end - 1]
            from_left = beam.remaining[rows[:, None], left] & (self._end[left] <= end[:, None])
            from_right = beam.remaining[rows[:, None], right]
            from_right &= self._first[right] >= first[:, None]
            is_right = from_right.sum(1) < from_left.sum(1)
            row, slot = np.nonzero(from_left & ~is_right[:, None])
            row_right, slot_right = np.nonzero(from_right & is_right[:, None])
            buffers = np.concatenate((left[row, slot], right[row_right, slot_right]))
            row = np.concatenate((row, row_right))
            batches.append((self._place(beam.rows(row), buffers), source[row], buffers))
            column = np.where(is_right, end - 1, first)
            beam.top[rows, column] += depth
            beam.slack[rows, column] -= depth
            alive = beam.slack[rows, column] >= 0
            beam, source = beam.rows(alive), source[alive]
            alive = self._rise(beam)
            beam, source = beam.rows(alive), source[alive]
            if not len(source):
                break
        beams, sources, buffers_ = zip(*batches, strict=True)
        joined = _Beam._make(np.concatenate(columns) for columns in zip(*beams, strict=True))
        return joined, np.concatenate(sources), np.concatenate(buffers_)

    def _place(self, beam: _Beam, buffers: NDArray[np.intp]) -> _Beam:
        rows = np.arange(len(buffers))
        beam.remaining[rows, buffers] = False
        first, last = self._first[buffers], self._end[buffers] - 1
        others = self._beginning[first]
        is_left = beam.remaining[rows[:, None], others]
        beam.ends[rows, first] = np.where(is_left, self._end[others], _ENDLESS).min(1)
        others = self._ending[last]
        is_left = beam.remaining[rows[:, None], others]
        beam.firsts[rows, last] = np.where(is_left, self._first[others], -1).max(1)
        top = beam.top + self._towers[buffers]
        return beam._replace(top=top, placed=beam.placed + self._hash[buffers])

    def _rise(self, beam: _Beam) -> NDArray[np.bool_]:
        """Raise ends of valleys where no buffer fits; return the states with enough slack."""
        alive = np.ones(len(beam.top), np.bool_)
        rows = np.arange(len(alive))
        column = np.arange(beam.top.shape[1])
        while len(rows):
            part = beam.rows(rows)
            first, end, depth = _valleys(part)
            is_dead = ((first == column) & (part.ends > end)) | (
                (end == column + 1) & (part.firsts < first)
            )
            rise = np.where(is_dead, depth, 0)
            beam.top[rows] = part.top + rise
            beam.slack[rows] = slack = part.slack - rise
            is_short = (slack < 0).any(1)
            alive[rows[is_short]] = False
            rows = rows[rise.any(1) & ~is_short]
        return alive


def _by_column(columns: list[int], count: int) -> NDArray[np.intp]:
    """Return the numbers of the buffers of each column, filled up with the number of buffers."""
    members: list[list[int]] = [[] for _ in range(count)]
    for number, column in enumerate(columns):
        members[column].append(number)
    table = np.full((count, max(map(len, members))), len(columns))
    for row, numbers in zip(table, members, strict=True):
        row[: len(numbers)] = numbers
    return table


def _valleys(beam: _Beam) -> tuple[Ints, Ints, Ints]:
    """Return for each column its plateau as (first, end), and how far it is below both rims.

    Columns of plateaus that are not valleys have depth 0; full columns are endlessly high.
    """
    levels = np.where(beam.top + beam.slack == 0, _ENDLESS, beam.top)
    count, width = levels.shape
    column = np.arange(width)
    padded = np.full((count, width + 2), _ENDLESS, np.int32)
    padded[:, 1:-1] = levels
    is_edge = padded[:, 1:] != padded[:, :-1]
    is_edge[:, 0] = is_edge[:, -1] = True
    first = np.maximum.accumulate(np.where(is_edge[:, :-1], column, 0), 1)
    end = np.where(is_edge[:, 1:], column + 1, width)[:, ::-1]
    end = np.minimum.accumulate(end, 1)[:, ::-1]
    rows = np.arange(count)[:, None]
    depth = np.minimum(padded[rows, first], padded[rows, end + 1]) - levels
    return first, end, np.maximum(np.where(levels < _ENDLESS, depth, 0), 0)
