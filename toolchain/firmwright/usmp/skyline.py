"""Beam search for orders in which first fit packs disjoint buffers within a height.

A state is a set of placed buffers and their skyline: the top of the buffers at each
time. A step places a buffer at an end of one valley, the end at which fewer buffers
fit, or wastes that end up to the lower rim. Where no remaining buffer fits at an end,
the skyline rises at once; a state whose waste exceeds the slack of a time is dropped.
Work is counted, so results are deterministic.

    height  - - - - - - - - - - - - -      no buffer may end above
            ####
            ####            #####          # are placed buffers
            ####w...........#####          . is a valley, as deep as its
            ####w...........#####            lower rim, which is the right one
            #####################          w is its left end, wasted up to that rim
             ------- time ------>

    slack of a column = height - bytes of all buffers that are live then - waste so far

A buffer at the bottom of the left end begins where the valley begins, as the rim is in
its way; one at the right end ends where the valley ends. The search tries all of these,
or waste.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firmwright.base.rounding import round_up
from firmwright.ir.tir.plan import LiveRange
from firmwright.usmp.heuristics import order_from_layout, place_first_fit
from firmwright.usmp.planning_problem import Layout, PlanningProblem
from firmwright.usmp.skyline_states import Beam, Fitting, Floats, Ints, Steps, Valleys


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a beam fills first, and how it ranks its states.

    `valley` names the measure of which the valley to fill has the least: `slack`,
    `width` or `level`. States are ranked by their waste, divided by their placed area
    to the power `power`.
    """

    valley: str
    power: int


_RULES = (_Rule("slack", 2), _Rule("width", 1), _Rule("level", 0), _Rule("width", 0))
"""The rules to try, those that solve most problems first."""
_WIDTH_FIRST = 16
"""States that the first beam keeps after each step; later beams keep twice as many."""
_WIDTH_MAX = 512
_WORK_PER_BUFFER = 3_000_000
"""Work limit in columns of states."""
_WASTE_LEAST = 0.03
"""Added to the waste, as part of the slack: the area ranks states without waste."""
_ENDLESS = 1 << 29
"""A level above all heights, in steps."""
_HASHES_END = 1 << 62
"""Hashes are below this number; their sums wrap around in 64 bits."""


def lower_skyline(problem: PlanningProblem, start: Layout, scale: int = 1) -> Layout:
    """Return the lowest layout found, or `start`; `scale` multiplies the work.

    It applies if there is one pool and the peak of disjoint buffers is the lower bound.
    """
    pools: set[str] = set()
    lives: list[LiveRange] = []
    for buffer in problem.buffers:
        pools.update(buffer.pools)
        first = min(live.first for live in buffer.live)
        lives.append(LiveRange(first, max(live.end for live in buffer.live)))
    if start.is_proven(problem) or len(pools) > 1:
        return start
    packings = [_Packing(problem, lives, group) for group in _separate(lives)]
    if max(packing.peak_bytes for packing in packings) > problem.lower_bound_bytes:
        return start
    order: list[int] = []
    for packing in packings:
        packing.work = scale * _WORK_PER_BUFFER * len(packing.members)
        order += packing.lowest(problem, start, scale * _WIDTH_MAX)
    return min(start, place_first_fit(problem, order), key=lambda layout: layout.cost)


def _separate(lives: Sequence[LiveRange]) -> list[list[int]]:
    """Return the numbers of the buffers in groups that are never alive at once."""
    groups: list[list[int]] = []
    until = 0

    def times(number: int) -> tuple[int, int]:
        return lives[number].first, lives[number].end

    for number in sorted(range(len(lives)), key=times):
        if lives[number].first >= until:
            groups.append([])
        groups[-1].append(number)
        until = max(until, lives[number].end)
    return groups


class _Packing:
    """Buffers with sizes in steps of a common divisor, and lives as column ranges.

    Columns are the times with maximal sets of live buffers. The last buffer, called the
    empty one, has neither size nor life and is never among the remaining ones; placing
    it is waste.

    Arrays by buffer: `_first`, `_end` (columns), `_areas` (part of the total area) and
    `_hash`, which is equal for buffers of the same size and life. `_towers[buffer,
    column]` is the buffer's size where it is live, else 0, and `_load[column]` their
    sum. `_beginning[column]` and `_ending[column]` list the buffers that begin and that
    end there, the widest and then the largest first.
    """

    def __init__(
        self,
        problem: PlanningProblem,
        lives: Sequence[LiveRange],
        members: Sequence[int],
    ) -> None:
        aligned: list[int] = []
        for number in members:
            buffer = problem.buffers[number]
            aligned.append(round_up(buffer.size_bytes, buffer.alignment))
        self.members = members
        self.step = math.gcd(*aligned)
        self.work = 0
        ranges = [(lives[number].first, lives[number].end) for number in members]
        firsts, ends = np.array(ranges).T
        times = _maximal_times(firsts, ends)
        self._empty = len(members)
        self._first = np.append(np.searchsorted(times, firsts), 0)
        self._end = np.append(np.searchsorted(times, ends), 0)
        sizes = np.array([*aligned, 0]) // self.step
        column = np.arange(len(times))
        is_live = (self._first[:, None] <= column) & (column < self._end[:, None])
        self._towers = (is_live * sizes[:, None]).astype(np.int32)
        self._load = self._towers.sum(0, dtype=np.int32)
        self._areas = self._towers.sum(1) / self._load.sum()
        self.peak_bytes = int(self._load.max()) * self.step
        widest_first = np.lexsort((-sizes, self._first - self._end))[:-1].tolist()
        self._beginning = _by_column(widest_first, self._first, len(times))
        self._ending = _by_column(widest_first, self._end - 1, len(times))
        # Buffers of the same kind have the same hash, so states that differ only in
        # which of them they placed are equal. The seed is fixed: results are the same
        # from run to run.
        measures = self._first, self._end, sizes
        _, kinds = np.unique(measures, axis=1, return_inverse=True)
        count = len(sizes) + len(times)
        hashes = np.random.default_rng(1).integers(_HASHES_END, size=count)
        self._hash = hashes[kinds.ravel()]
        self._column_hash = hashes[len(sizes) :]

    def lowest(
        self, problem: PlanningProblem, start: Layout, most: int
    ) -> Sequence[int]:
        """Return the order of the lowest layout found, by beams of up to `most` states.

        The width of the beams doubles. For each width and rule, heights between the
        lower bound and the lowest layout are bisected, first the lower bound itself.
        """
        own, buffers = set(self.members), problem.buffers
        order = order_from_layout(start)
        best: Sequence[int] = [number for number in order if number in own]
        if start.unplaced_bytes:
            upper_bytes = problem.limits[buffers[best[0]].pools[0]] or 0
        else:
            upper_bytes = 0
            for number in best:
                end = start.offsets[number] + buffers[number].size_bytes
                upper_bytes = max(upper_bytes, end)
        lower, upper = problem.lower_bound_bytes // self.step, upper_bytes // self.step
        width = _WIDTH_FIRST
        while width <= most and lower < upper and self.work >= 0:
            for rule in _RULES:
                height = lower
                while lower <= height < upper and self.work >= 0:
                    found = self._find_order(height, width, rule)
                    if found:
                        best, upper = found, height
                    elif height > lower:
                        break
                    height = max((lower + upper) // 2, lower + 1)
            width *= 2
        return best

    def _find_order(self, height: int, width: int, rule: _Rule) -> list[int] | None:
        """Return the buffers in an order whose first fit has the height, or None.

        Each round extends all states of the beam by one step. Before the successors are
        computed, the ranking by waste keeps two for each state that the beam may hold.
        Afterwards, those that are equal or whose waste exceeds the slack are dropped,
        and the beam keeps the best.
        """
        free = height - self._load
        # Waste in a column counts more the less is free there.
        weight = 1 / (1.0 + free)
        weight /= weight.sum()
        beam = self._empty_beam(height, free)
        self._rise(beam)
        history: list[Steps] = []
        while beam.remaining.any(1).all():
            steps = self._expand(beam, rule.valley)
            waste_before = ((free - beam.slack) @ weight)[steps.parents]
            waste = waste_before + steps.depths * weight[steps.columns]
            area = beam.area[steps.parents] + self._areas[steps.buffers]
            # Waste and area of a successor are known before it is computed, so the
            # costly arrays are only made for those that have a chance.
            promising = _rank(waste, area, rule.power)[: 2 * width]
            steps = steps.at(promising)
            children = self._successors(beam, steps, area[promising])
            is_possible = self._rise(children)
            ranked = _rank((free - children.slack) @ weight, children.area, rule.power)
            ranked = ranked[is_possible[ranked]]
            # Two orders of the same placements lead to one state. A weighted sum of its
            # levels and remaining kinds, with random weights, is equal for these, and
            # hardly for others.
            keys = children.remaining @ self._hash + children.top @ self._column_hash
            first_of_equal = np.unique(keys[ranked], return_index=True)[1]
            kept = ranked[np.sort(first_of_equal)[:width]]
            if not len(kept) or self.work < 0:
                return None
            beam = children.rows(kept)
            history.append(steps.at(kept))
        # A state has no remaining buffer: its order is the result.
        complete = int(beam.remaining.any(1).argmin())
        return self._trace(history, complete)

    def _empty_beam(self, height: int, free: NDArray[np.int32]) -> Beam:
        """Return the only state without placed buffers; `free` is its slack."""
        top = np.full_like(free, -height)[None]
        remaining = np.arange(len(self._first))[None] < self._empty
        return Beam(top, free[None], remaining, np.zeros(1))

    def _successors(self, beam: Beam, steps: Steps, area: Floats) -> Beam:
        """Return the states after the steps; `area` is their placed area."""
        children = replace(beam.rows(steps.parents), area=area)
        rows = np.arange(len(steps.buffers))
        children.remaining[rows, steps.buffers] = False
        children.top[...] += self._towers[steps.buffers]
        children.top[rows, steps.columns] += steps.depths
        children.slack[rows, steps.columns] -= steps.depths
        return children

    def _trace(self, history: Sequence[Steps], row: int) -> list[int]:
        """Return the buffers in the order in which state `row` placed them."""
        placed: list[int] = []
        for steps in reversed(history):
            buffer = int(steps.buffers[row])
            if buffer != self._empty:
                placed.append(self.members[buffer])
            row = int(steps.parents[row])
        placed.reverse()
        return placed

    def _expand(self, beam: Beam, measure: str) -> Steps:
        """Return the steps of each state, all at one end of one of its valleys.

        It is the valley with the least of `measure`, at equality the narrowest, and the
        end at which fewer buffers fit, at equality the left one.
        """
        valleys = _valleys(beam.top, beam.slack)
        row, width = valleys.row, valleys.end - valleys.first
        if measure == "slack":
            rank = self._least_slack(beam, valleys)
        elif measure == "width":
            rank = width
        else:
            rank = beam.top[row, valleys.first].astype(np.int64)
        # lexsort sorts by its last key first: by state, then by the measure, then by
        # width. The first of each state is the valley to fill.
        order = np.lexsort((width, rank, row))
        first_of_row = np.unique(row[order], return_index=True)[1]
        chosen = valleys.at(order[first_of_row])
        fitting = self._fitting(beam, chosen)
        # Fewer choices at an end mean fewer successors, and an earlier end of a
        # hopeless state.
        goes_right = fitting.is_right.sum(1) < fitting.is_left.sum(1)
        column = np.where(goes_right, chosen.end - 1, chosen.first)
        left_row, left_slot = np.nonzero(fitting.is_left & ~goes_right[:, None])
        right_row, right_slot = np.nonzero(fitting.is_right & goes_right[:, None])
        wasting = np.flatnonzero(chosen.depth <= beam.slack[chosen.row, column])
        parents = np.concatenate((left_row, right_row, wasting))
        left = fitting.left[left_row, left_slot]
        right = fitting.right[right_row, right_slot]
        buffers = np.concatenate((left, right, np.full(len(wasting), self._empty)))
        depths = chosen.depth[parents] * (buffers == self._empty)
        # The chosen valleys are one for each state, in order: positions are rows.
        return Steps(parents, buffers, column[parents], depths)

    def _least_slack(self, beam: Beam, valleys: Valleys) -> Ints:
        """Return the least slack of the columns of each valley."""
        # `reduceat` takes the minimum from each index to the next one: at the even
        # positions, from the first column to the end of a valley. The appended element
        # is the end of the last one.
        row_starts = valleys.row[:, None] * len(self._load)
        ends = np.stack((valleys.first, valleys.end), 1) + row_starts
        slack = np.append(beam.slack, _ENDLESS)
        least: Ints = np.minimum.reduceat(slack, ends.ravel())[::2]
        return least

    def _rise(self, beam: Beam) -> NDArray[np.bool_]:
        """Raise valley ends where no buffer fits; return which states have slack.

        This changes `beam`. It repeats until all ends of all valleys have a fitting
        buffer.
        """
        is_possible = np.ones(len(beam.top), np.bool_)
        rows = np.arange(len(is_possible))
        while len(rows):
            self.work -= len(rows) * len(self._load)
            valleys = _valleys(beam.top[rows], beam.slack[rows])
            valleys = replace(valleys, row=rows[valleys.row])
            fitting = self._fitting(beam, valleys)
            # A valley one column wide has the same column at both ends.
            is_single = valleys.end - valleys.first == 1
            is_left = ~fitting.is_left.any(1)
            is_raised = is_left & is_single
            is_right = ~fitting.is_right.any(1) & ~is_raised
            row = np.append(valleys.row[is_left], valleys.row[is_right])
            column = np.append(valleys.first[is_left], valleys.end[is_right] - 1)
            rise = np.append(valleys.depth[is_left], valleys.depth[is_right])
            beam.top[row, column] += rise
            beam.slack[row, column] -= rise
            is_possible[row[beam.slack[row, column] < 0]] = False
            rows = np.unique(row[is_possible[row]])
        return is_possible

    def _fitting(self, beam: Beam, valleys: Valleys) -> Fitting:
        """Return the buffers that fit at the ends of valleys of the beam's states."""
        row = valleys.row[:, None]
        first, end = valleys.first[:, None], valleys.end[:, None]
        left, right = self._beginning[valleys.first], self._ending[valleys.end - 1]
        is_left = beam.remaining[row, left] & (self._end[left] <= end)
        is_right = beam.remaining[row, right] & (self._first[right] >= first)
        return Fitting(left, is_left, right, is_right)


def _maximal_times(firsts: Ints, ends: Ints) -> Ints:
    """Return the times with maximal live sets, given all first times and ends.

    These are the times at which a life begins, except those after which the next life
    begins before any ends: then the next set contains this one.
    """
    beginnings, endings = np.unique(firsts), np.unique(ends)
    next_ending = endings[np.searchsorted(endings, beginnings, "right")]
    is_maximal = next_ending[:-1] <= beginnings[1:]
    times: Ints = beginnings[np.append(is_maximal, True)]
    return times


def _by_column(numbers: Sequence[int], columns: Ints, count: int) -> Ints:
    """Return the buffers of each column, filled up with the empty one."""
    buffers_of_column: list[list[int]] = [[] for _ in range(count)]
    for number in numbers:
        buffers_of_column[columns[number]].append(number)
    most = max(map(len, buffers_of_column))
    table = np.full((count, most), len(numbers))
    for row, buffers in zip(table, buffers_of_column, strict=True):
        row[: len(buffers)] = buffers
    return table


def _rank(waste: Floats, area: Floats, power: int) -> Ints:
    """Return the positions of states, best first: little waste for much area."""
    placed = np.maximum(area, 1e-9)  # no division by zero
    return np.argsort((waste + _WASTE_LEAST) / placed**power, kind="stable")


def _valleys(top: NDArray[np.int32], slack: NDArray[np.int32]) -> Valleys:
    """Return all valleys of the rows: runs of equal columns between higher rims.

    Full columns are endlessly high, as are the rims at the ends of a row.
    """
    count, width = top.shape
    # An endless column after each row separates the rows: one pass finds all runs.
    levels = np.full((count, width + 1), _ENDLESS, np.int32)
    levels[:, :-1] = np.where(top + slack == 0, _ENDLESS, top)
    flat = levels.ravel()
    starts = np.append(0, np.flatnonzero(flat[1:] != flat[:-1]) + 1)
    rims = np.concatenate(([_ENDLESS], flat[starts], [_ENDLESS]))
    depth = np.minimum(rims[:-2], rims[2:]) - flat[starts]
    runs = np.flatnonzero(depth > 0)
    row, first = np.divmod(starts[runs], width + 1)
    end = starts[runs + 1] - row * (width + 1)
    return Valleys(row, first, end, depth[runs])
