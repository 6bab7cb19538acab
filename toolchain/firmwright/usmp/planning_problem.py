"""The problem that planners solve; layouts become plans or errors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from typing import TypeAlias

from firmwright.base.errors import DoesNotFitError, InternalError, RegionOverflow
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import (
    CONSTRAINTS_KEPT,
    BufferInfo,
    Constraints,
    OffsetConstraint,
    Placement,
    Plan,
    Planner,
)
from firmwright.usmp.lower_bound import lower_bound_bytes, peak_buffers

_LAYOUTS_KEPT = 64
"""Layouts kept: selection plans the same buffers for each budget and failure."""
_PEAK_SHOWN = 4
"""Number of buffers live at the peak that the error message names."""


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """Numbered buffers, the constraints of each (as b), pool sizes or None."""

    buffers: tuple[BufferInfo, ...]
    constraints: tuple[tuple[OffsetConstraint[int], ...], ...]
    limits: Mapping[str, int | None]
    lower_bound_bytes: int

    @property
    def exceeds_all_pools(self) -> bool:
        """Whether even the lower bound is larger than all pools together."""
        total_bytes = 0
        for size in self.limits.values():
            if size is None:
                return False
            total_bytes += size
        return total_bytes < self.lower_bound_bytes


@dataclass(frozen=True, slots=True)
class Layout:
    """The pool ("" if unplaced) and offset of each buffer, the height of each pool.

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
    """Number the buffers; list each constraint with an effect for both of its own."""
    numbers = {buffer.name: index for index, buffer in enumerate(buffers)}
    if len(numbers) != len(buffers):
        raise InternalError("two buffers of a memory plan have the same name.")
    by_buffer: list[list[OffsetConstraint[int]]] = [[] for _ in buffers]
    for c in constraints:
        if c.hi - c.lo < 2:
            continue
        numbered = _numbered(c, numbers[c.a], numbers[c.b])
        by_buffer[numbered[0].b].append(numbered[0])
        by_buffer[numbered[1].b].append(numbered[1])
    return PlanningProblem(
        buffers=tuple(buffers),
        constraints=tuple(map(tuple, by_buffer)),
        limits={pool.name: pool.size_bytes for pool in pools},
        lower_bound_bytes=lower_bound_bytes(buffers, constraints),
    )


@lru_cache(CONSTRAINTS_KEPT)
def _numbered(
    constraint: OffsetConstraint[str], a: int, b: int
) -> tuple[OffsetConstraint[int], OffsetConstraint[int]]:
    """Return a constraint between the numbers of its buffers, as seen from b and a."""
    c = constraint
    numbered = OffsetConstraint(a, b, c.lo, c.hi, c.modulus, c.residue)
    return numbered, numbered.seen_from(a)


def make_planner(name: str) -> Callable[[Solver], Planner]:
    """Return a decorator that turns a solver into the planner `name`.

    The planner raises DoesNotFitError if the buffers do not fit in the pools. It keeps
    the last layouts; a dict of limits is no key, so it becomes a tuple of pairs.
    """

    def decorate(solve: Solver) -> Planner:
        @lru_cache(_LAYOUTS_KEPT)
        def solved(
            buffers: tuple[BufferInfo, ...],
            constraints: tuple[tuple[OffsetConstraint[int], ...], ...],
            limits: tuple[tuple[str, int | None], ...],
            bound_bytes: int,
        ) -> Layout:
            limit_of = dict(limits)
            return solve(PlanningProblem(buffers, constraints, limit_of, bound_bytes))

        def solve_once(problem: PlanningProblem) -> Layout:
            buffers, constraints = problem.buffers, problem.constraints
            limits = tuple(problem.limits.items())
            return solved(buffers, constraints, limits, problem.lower_bound_bytes)

        @wraps(solve)
        def planner(
            buffers: Sequence[BufferInfo],
            constraints: Constraints,
            pools: Sequence[PoolInfo],
        ) -> Plan:
            problem = build_problem(buffers, constraints, pools)
            layout = None if problem.exceeds_all_pools else solve_once(problem)
            if layout is None or layout.unplaced_bytes:
                layout = _solve_with_unlimited_pools(problem, solve_once)
            return Plan(
                planner=name,
                placements=_placements(problem, layout),
                pool_bytes=_pool_bytes(layout, pools),
                lower_bound_bytes=max(problem.lower_bound_bytes, layout.proven_bytes),
                buffers=problem.buffers,
                conflicts=tuple(constraints),
            )

        return planner

    return decorate


def _placements(problem: PlanningProblem, layout: Layout) -> dict[str, Placement]:
    """Return the placement of each buffer by name."""
    placements: dict[str, Placement] = {}
    rows = zip(problem.buffers, layout.pools, layout.offsets, strict=True)
    for buffer, pool, offset in rows:
        placements[buffer.name] = Placement(pool, offset)
    return placements


def _pool_bytes(layout: Layout, pools: Sequence[PoolInfo]) -> dict[str, int]:
    """Return the height of each pool that holds bytes, in the order of `pools`."""
    heights: dict[str, int] = {}
    for pool in pools:
        height = layout.tops.get(pool.name, 0)
        if height:
            heights[pool.name] = height
    return heights


def _solve_with_unlimited_pools(problem: PlanningProblem, solve: Solver) -> Layout:
    """Solve with each buffer's last pool unlimited; raise an error on overflows."""
    limits = dict(problem.limits)
    for buffer in problem.buffers:
        limits[buffer.pools[-1]] = None
    layout = solve(replace(problem, limits=limits))
    overflows: list[RegionOverflow] = []
    for name, limit in problem.limits.items():
        top = layout.tops.get(name, 0)
        if limit is not None and top > limit:
            overflows.append(RegionOverflow(name, top, limit))
    if overflows:
        raise _does_not_fit(problem, layout, overflows)
    return layout


def _does_not_fit(
    problem: PlanningProblem, layout: Layout, overflows: Sequence[RegionOverflow]
) -> DoesNotFitError:
    """Return the error that names the pools too small, and the buffers at the peak."""
    largest: list[tuple[str, int]] = []
    for buffer in peak_buffers(problem.buffers):
        largest.append((buffer.name, buffer.size_bytes))
    lowest_bytes = sum(layout.tops.values())
    needs: list[str] = []
    for overflow in overflows:
        missing_bytes = overflow.need_bytes - overflow.have_bytes
        needs.append(
            f"pool {overflow.name} needs {overflow.need_bytes:,} bytes and has "
            f"{overflow.have_bytes:,} ({missing_bytes:,} too few)"
        )
    shown = [f"{name} {size_bytes:,}" for name, size_bytes in largest[:_PEAK_SHOWN]]
    peak = ", ".join(shown) + " bytes"
    if len(largest) > _PEAK_SHOWN:
        peak += f" and {len(largest) - _PEAK_SHOWN} more"
    return DoesNotFitError(
        f"the workspace does not fit: {', '.join(needs)}. The best plan found takes "
        f"{lowest_bytes:,} bytes and none can take less than "
        f"{problem.lower_bound_bytes:,}; alive at the peak are {peak}.",
        regions=overflows,
        lowest_bytes=lowest_bytes,
        peak=largest,
        is_proven=problem.exceeds_all_pools,
        hint="a board with more RAM, or further memory by --pool.",
    )
