"""The problem that planners solve, and the conversion of their layouts to plans or errors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from typing import TypeAlias

from firmwright.base.errors import DoesNotFitError, InternalError, RegionOverflow
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import (
    BufferInfo,
    Constraints,
    OffsetConstraint,
    Placement,
    Plan,
    Planner,
)
from firmwright.usmp.lower_bound import lower_bound_bytes, peak_buffers

_LAYOUTS_KEPT = 64
"""Selection plans the same buffers again and again: for each budget, and to explain a failure."""
_PEAK_SHOWN = 4
"""Number of buffers live at the peak that the error message names."""


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """Numbered buffers, the constraints of each (as b), and pool sizes (None if unlimited)."""

    buffers: tuple[BufferInfo, ...]
    constraints: tuple[tuple[OffsetConstraint[int], ...], ...]
    limits: Mapping[str, int | None]
    lower_bound_bytes: int

    @property
    def exceeds_all_pools(self) -> bool:
        """Whether even the lower bound is larger than all pools together."""
        sizes = [size for size in self.limits.values() if size is not None]
        return len(sizes) == len(self.limits) and sum(sizes) < self.lower_bound_bytes


@dataclass(frozen=True, slots=True)
class Layout:
    """The pool ("" if not placed) and offset of each buffer, and the height of each pool.

    `proven_bytes` is a lower bound that the planner proved; 0 if it proved none.
    """

    pools: tuple[str, ...]
    offsets: tuple[int, ...]
    tops: Mapping[str, int]
    unplaced_bytes: int
    proven_bytes: int = 0

    @property
    def cost(self) -> tuple[int, int]:
        """The quantity to minimize: unplaced bytes, then the sum of the pool sizes."""
        return self.unplaced_bytes, sum(self.tops.values())

    def is_proven(self, problem: PlanningProblem) -> bool:
        return self.cost <= (0, max(problem.lower_bound_bytes, self.proven_bytes))


Solver: TypeAlias = Callable[[PlanningProblem], Layout]


def build_problem(
    buffers: Sequence[BufferInfo], constraints: Constraints, pools: Sequence[PoolInfo]
) -> PlanningProblem:
    """Number the buffers; list each constraint that forbids something for both of its buffers."""
    number = {buffer.name: index for index, buffer in enumerate(buffers)}
    if len(number) != len(buffers):
        raise InternalError("two buffers of a memory plan have the same name.")
    by_buffer: list[list[OffsetConstraint[int]]] = [[] for _ in buffers]
    for c in constraints:
        if c.hi - c.lo < 2:
            continue
        a, b = number[c.a], number[c.b]
        by_buffer[b].append(OffsetConstraint(a, b, c.lo, c.hi, c.modulus, c.residue))
        by_buffer[a].append(by_buffer[b][-1].seen_from(a))
    numbered, limits = tuple(map(tuple, by_buffer)), {pool.name: pool.size_bytes for pool in pools}
    lower_bound = lower_bound_bytes(buffers, constraints)
    return PlanningProblem(tuple(buffers), numbered, limits, lower_bound)


def make_planner(name: str) -> Callable[[Solver], Planner]:
    """Return a decorator that turns a solver into the planner `name`.

    The planner raises DoesNotFitError if the buffers do not fit in the pools.
    """

    def decorate(solve: Solver) -> Planner:
        @lru_cache(_LAYOUTS_KEPT)
        def solved(
            buffers: tuple[BufferInfo, ...],
            constraints: tuple[tuple[OffsetConstraint[int], ...], ...],
            limits: tuple[tuple[str, int | None], ...],
            bound_bytes: int,
        ) -> Layout:
            return solve(PlanningProblem(buffers, constraints, dict(limits), bound_bytes))

        def solve_once(problem: PlanningProblem) -> Layout:
            limits = tuple(problem.limits.items())
            return solved(problem.buffers, problem.constraints, limits, problem.lower_bound_bytes)

        @wraps(solve)
        def planner(
            buffers: Sequence[BufferInfo], constraints: Constraints, pools: Sequence[PoolInfo]
        ) -> Plan:
            problem = build_problem(buffers, constraints, pools)
            layout = None if problem.exceeds_all_pools else solve_once(problem)
            if layout is None or layout.unplaced_bytes:
                layout = _solve_with_unlimited_pools(problem, solve_once)
            rows = zip(problem.buffers, layout.pools, layout.offsets, strict=True)
            placements = {buffer.name: Placement(pool, offset) for buffer, pool, offset in rows}
            tops = {p.name: layout.tops[p.name] for p in pools if layout.tops.get(p.name)}
            bound_bytes = max(problem.lower_bound_bytes, layout.proven_bytes)
            return Plan(name, placements, tops, bound_bytes, problem.buffers, tuple(constraints))

        return planner

    return decorate


def _solve_with_unlimited_pools(problem: PlanningProblem, solve: Solver) -> Layout:
    """Solve with the last pool of each buffer unlimited; raise an error if one is too small."""
    last_resorts = {buffer.pools[-1] for buffer in problem.buffers}
    limits = {name: None if name in last_resorts else n for name, n in problem.limits.items()}
    layout = solve(replace(problem, limits=limits))
    overflows = [
        RegionOverflow(name, top, limit)
        for name, limit in problem.limits.items()
        if limit is not None and (top := layout.tops.get(name, 0)) > limit
    ]
    if overflows:
        raise _does_not_fit(problem, layout, overflows)
    return layout


def _does_not_fit(
    problem: PlanningProblem, layout: Layout, overflows: Sequence[RegionOverflow]
) -> DoesNotFitError:
    largest = [(buffer.name, buffer.size_bytes) for buffer in peak_buffers(problem.buffers)]
    lowest_bytes = sum(layout.tops.values())
    needs = ", ".join(
        f"pool {o.name} needs {o.need_bytes:,} bytes and has {o.have_bytes:,} "
        f"({o.need_bytes - o.have_bytes:,} too few)"
        for o in overflows
    )
    shown = ", ".join(f"{name} {size_bytes:,}" for name, size_bytes in largest[:_PEAK_SHOWN])
    further = len(largest) - _PEAK_SHOWN
    return DoesNotFitError(
        f"the workspace does not fit: {needs}. The best plan found takes {lowest_bytes:,} bytes "
        f"and none can take less than {problem.lower_bound_bytes:,}; alive at the peak are "
        f"{shown} bytes{f' and {further} more' if further > 0 else ''}.",
        regions=overflows,
        lowest_bytes=lowest_bytes,
        peak=largest,
        is_proven=problem.exceeds_all_pools,
        hint="a board with more RAM, or further memory by --pool.",
    )
