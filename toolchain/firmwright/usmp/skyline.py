"""Beam search for orders in which first fit packs disjoint buffers within a height.

A state is a set of placed buffers and their skyline: the top of the buffers at each time. A step
places a buffer at an end of one valley, the end at which fewer buffers fit, or wastes that end up
to the lower rim. Where no remaining buffer fits at an end, the skyline rises at once; a state
whose waste exceeds the slack of a time is dropped. Work is counted, so results are deterministic.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firmwright.usmp.heuristics import order_from_layout, place_first_fit
from firmwright.usmp.planning_problem import Layout, PlanningProblem

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
_RULES = (("slack", 2), ("width", 1), ("level", 0), ("width", 0))
"""The valley to fill, with the least of that, and the power of the placed area that divides the
waste to rank states."""
_WIDTH_MAX = 512
_WORK_PER_BUFFER = 3_000_000
"""Work limit in columns of states."""
_WASTE_LEAST = 0.03
"""Added to the waste, as part of the slack, so that the area also ranks states without waste."""
_ENDLESS = 1 << 29


def lower_skyline(problem: PlanningProblem, start: Layout, scale: int = 1) -> Layout:
    """Return the lowest layout found, `start` if none is lower; `scale` multiplies the work.

    It applies if there is one pool and the peak of disjoint buffers is the lower bound.
    """
    if start.is_proven(problem) or len({pool for b in problem.buffers for pool in b.pools}) > 1:
        return start
    lives = [(min(r.first for r in b.live), max(r.end for r in b.live)) for b in problem.buffers]
    packings = [_Packing(problem, lives, group) for group in _separate(lives)]
    if max(packing.peak_bytes for packing in packings) > problem.lower_bound_bytes:
        return start
    order: list[int] = []
    for packing in packings:
        packing.work = scale * _WORK_PER_BUFFER * len(packing.members)
        order += packing.lowest(problem, start, scale * _WIDTH_MAX)
    return min(start, place_first_fit(problem, order), key=lambda layout: layout.cost)


def _separate(lives: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the numbers in groups that are never alive at once."""
    groups: list[list[int]] = []
    until = 0
    for (first, end), number in sorted(zip(lives, range(len(lives)), strict=True)):
        if first >= until:
            groups.append([])
        groups[-1].append(number)
        until = max(until, end)
    return groups


class _Beam(NamedTuple):
    """States, one a row: top (minus height) and slack of each column, and remaining buffers.

    `area` is the part of the total that is placed.
    """

    top: NDArray[np.int32]
    slack: NDArray[np.int32]
    remaining: NDArray[np.bool_]
    area: Floats

    def rows(self, chosen: Ints) -> "_Beam":
        return _Beam._make(column[chosen] for column in self)


class _Packing:
    """Buffers with sizes in steps of their common divisor, and lives as ranges of columns.

    Columns are the times with maximal sets of live buffers. The last buffer, without size or life,
    is never among the remaining ones; placing it is waste.
    """

    def __init__(
        self, problem: PlanningProblem, lives: Sequence[tuple[int, int]], members: Sequence[int]
    ) -> None:
        buffers = [problem.buffers[number] for number in members]
        aligned = [-(-b.size_bytes // b.alignment) * b.alignment for b in buffers]
        self.members = members
        self.step = math.gcd(*aligned)
        self.work = 0
        firsts, ends = np.array([lives[number] for number in members]).T
        begins = np.unique(firsts)
        next_end = np.unique(ends)[np.searchsorted(np.unique(ends), begins, "right")]
        times = begins[np.append(next_end[:-1] <= begins[1:], True)]
        self._first = np.append(np.searchsorted(times, firsts), 0)
        self._end = np.append(np.searchsorted(times, ends), 0)
        sizes = np.array([*aligned, 0]) // self.step
        column = np.arange(len(times))
        covers = (self._first[:, None] <= column) & (column < self._end[:, None])
        self._towers = (covers * sizes[:, None]).astype(np.int32)
        self._load = self._towers.sum(0, dtype=np.int32)
        self._areas = self._towers.sum(1) / self._load.sum()
        self.peak_bytes = int(self._load.max()) * self.step
        rank = np.lexsort((-sizes, self._first - self._end))[:-1].tolist()
        self._beginning = _by_column(rank, self._first, len(times))
        self._ending = _by_column(rank, self._end - 1, len(times))
        kinds = np.unique((self._first, self._end, sizes), axis=1, return_inverse=True)[1]
        hashes = np.random.default_rng(1).integers(1 << 62, size=len(sizes) + len(times))
        self._hash, self._column_hash = hashes[kinds.ravel()], hashes[len(sizes) :]

    def lowest(self, problem: PlanningProblem, start: Layout, most: int) -> Sequence[int]:
        """Return the order of the lowest layout found, by beams of doubling width."""
        best: Sequence[int] = [n for n in order_from_layout(start) if n in set(self.members)]
        upper = max(start.offsets[n] + problem.buffers[n].size_bytes for n in best)
        if start.unplaced_bytes:
            upper = problem.limits[problem.buffers[best[0]].pools[0]] or 0
        lower, upper = problem.lower_bound_bytes // self.step, upper // self.step
        width = 16
        while width <= most and lower < upper and self.work >= 0:
            for valley, power in _RULES:
                height = lower
                while lower <= height < upper and self.work >= 0:
                    order = self._find_order(height, width, valley, power)
                    if order:
                        best, upper = order, height
                    elif height > lower:
                        break
                    height = max((lower + upper) // 2, lower + 1)
            width *= 2
        return best

    def _find_order(self, height: int, width: int, valley: str, power: int) -> list[int] | None:
        """Return the buffers in an order whose first fit has the height; None if none is found."""
        free = height - self._load
        weight = 1 / (1.0 + free)
        weight /= weight.sum()
        remaining = np.arange(len(self._first))[None] < len(self.members)
        beam = _Beam(np.full_like(free, -height)[None], free[None], remaining, np.zeros(1))
        self._rise(beam)
        steps: list[tuple[Ints, Ints]] = []
        while beam.remaining.any(1).all():
            parents, buffers, columns, depths = self._expand(beam, valley)
            waste = ((free - beam.slack) @ weight)[parents] + depths * weight[columns]
            area = beam.area[parents] + self._areas[buffers]
            chosen = _rank(waste, area, power)[: 2 * width]
            parents, buffers = parents[chosen], buffers[chosen]
            children = beam.rows(parents)._replace(area=area[chosen])
            rows = np.arange(len(buffers))
            children.remaining[rows, buffers] = False
            children.top[...] += self._towers[buffers]
            children.top[rows, columns[chosen]] += depths[chosen]
            children.slack[rows, columns[chosen]] -= depths[chosen]
            alive = self._rise(children)
            chosen = _rank((free - children.slack) @ weight, children.area, power)
            chosen = chosen[alive[chosen]]
            keys = children.remaining @ self._hash + children.top @ self._column_hash
            chosen = chosen[np.sort(np.unique(keys[chosen], return_index=True)[1])[:width]]
            if not len(chosen) or self.work < 0:
                return None
            beam = children.rows(chosen)
            steps.append((parents[chosen], buffers[chosen]))
        return self._trace(steps, int(beam.remaining.any(1).argmin()))

    def _trace(self, steps: Sequence[tuple[Ints, Ints]], row: int) -> list[int]:
        placed = []
        for parents, buffers in reversed(steps):
            placed.append(int(buffers[row]))
            row = int(parents[row])
        return [self.members[n] for n in reversed(placed) if n < len(self.members)]

    def _expand(self, beam: _Beam, valley: str) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the successors: parent, placed buffer, and column and depth of waste."""
        row, first, end, depth = _valleys(beam.top, beam.slack)
        spans = np.stack((first, end), 1) + row[:, None] * len(self._load)
        slack = np.minimum.reduceat(np.append(beam.slack, _ENDLESS), spans.ravel())[::2]
        ranks = {"slack": slack, "width": end - first, "level": beam.top[row, first]}
        order = np.lexsort((end - first, ranks[valley], row))
        order = order[np.unique(row[order], return_index=True)[1]]
        row, first, end, depth = row[order], first[order], end[order], depth[order]
        left, from_left, right, from_right = self._fitting(beam, row, first, end)
        is_right = from_right.sum(1) < from_left.sum(1)
        column = np.where(is_right, end - 1, first)
        left_row, left_slot = np.nonzero(from_left & ~is_right[:, None])
        right_row, right_slot = np.nonzero(from_right & is_right[:, None])
        wasting = np.flatnonzero(depth <= beam.slack[row, column])
        parents = np.concatenate((left_row, right_row, wasting))
        none = np.full(len(wasting), len(self.members))
        buffers = np.concatenate((left[left_row, left_slot], right[right_row, right_slot], none))
        return parents, buffers, column[parents], depth[parents] * (buffers == len(self.members))

    def _rise(self, beam: _Beam) -> NDArray[np.bool_]:
        """Raise ends of valleys where no buffer fits; return which states have enough slack."""
        alive = np.ones(len(beam.top), np.bool_)
        rows = np.arange(len(alive))
        while len(rows):
            self.work -= len(rows) * len(self._load)
            row, first, end, depth = _valleys(beam.top[rows], beam.slack[rows])
            row = rows[row]
            _, from_left, _, from_right = self._fitting(beam, row, first, end)
            is_left = ~from_left.any(1)
            is_right = ~from_right.any(1) & ~(is_left & (end - first == 1))
            row = np.append(row[is_left], row[is_right])
            column = np.append(first[is_left], end[is_right] - 1)
            rise = np.append(depth[is_left], depth[is_right])
            beam.top[row, column] += rise
            beam.slack[row, column] -= rise
            alive[row[beam.slack[row, column] < 0]] = False
            rows = np.unique(row[alive[row]])
        return alive

    def _fitting(
        self, beam: _Beam, row: Ints, first: Ints, end: Ints
    ) -> tuple[Ints, NDArray[np.bool_], Ints, NDArray[np.bool_]]:
        """Return the buffers that begin, and that end, with a valley, and whether each fits."""
        left, right = self._beginning[first], self._ending[end - 1]
        from_left = beam.remaining[row[:, None], left] & (self._end[left] <= end[:, None])
        from_right = beam.remaining[row[:, None], right] & (self._first[right] >= first[:, None])
        return left, from_left, right, from_right


def _by_column(numbers: Sequence[int], columns: Ints, count: int) -> Ints:
    """Return the numbers of the buffers of each column, filled up with the number of none."""
    lists = [[n for n in numbers if columns[n] == column] for column in range(count)]
    table = np.full((count, max(map(len, lists))), len(numbers))
    for row, own in zip(table, lists, strict=True):
        row[: len(own)] = own
    return table


def _rank(waste: Floats, area: Floats, power: int) -> Ints:
    return np.argsort((waste + _WASTE_LEAST) / np.maximum(area, 1e-9) ** power, kind="stable")


def _valleys(top: NDArray[np.int32], slack: NDArray[np.int32]) -> tuple[Ints, Ints, Ints, Ints]:
    """Return row, beginning, end, and depth (to the lower rim) of all valleys.

    Full columns are endlessly high, as are the rims at the ends of a row.
    """
    count, width = top.shape
    levels = np.full((count, width + 1), _ENDLESS, np.int32)
    levels[:, :-1] = np.where(top + slack == 0, _ENDLESS, top)
    flat = levels.ravel()
    starts = np.append(0, np.flatnonzero(flat[1:] != flat[:-1]) + 1)
    rims = np.concatenate(([_ENDLESS], flat[starts], [_ENDLESS]))
    depth = np.minimum(rims[:-2], rims[2:]) - flat[starts]
    valley = np.flatnonzero(depth > 0)
    row, first = np.divmod(starts[valley], width + 1)
    return row, first, starts[valley + 1] - row * (width + 1), depth[valley]
