"""A planning problem as planners see it, and the way from a layout to a Plan or an error.

In: buffers, conflicts, pools. Out: `PlanningProblem`, with conflicts listed per buffer and seen
from it, and `Plan`s made by `solve_problem`. Invariants: buffers are numbered in the order given; a
relation's difference is always own offset minus the other's; relations that forbid nothing are
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from firmwright.base.errors import DoesNotFitError, InternalError, RegionOverflow
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, OffsetConstraint, Placement, Plan
from firmwright.usmp.lower_bound import lower_bound_bytes, peak_buffers

_PEAK_SHOWN = 4


class Relation(NamedTuple):
    """A conflict seen from one buffer: own offset - other's must stay out of (lo, hi)."""

    other: int
    lo: int
    hi: int
    modulus: int
    residue: int


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """`limits` holds each pool's size in bytes, None where unlimited."""

    buffers: tuple[BufferInfo, ...]
    relations: tuple[tuple[Relation, ...], ...]
    limits: Mapping[str, int | None]
    lower_bound_bytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Pool and offset of each buffer by number (pool "" if none had room), tops per pool."""

    pools: tuple[str, ...]
    offsets: tuple[int, ...]
    tops: Mapping[str, int]
    unplaced_bytes: int
    proven_bytes: int = 0
    """What the planner proved that no layout can go below."""

    @property
    def cost(self) -> tuple[int, int]:
        """What planners minimise: first everything must fit, then the sum of the pools."""
        return self.unplaced_bytes, sum(self.tops.values())

    def is_proven(self, problem: PlanningProblem) -> bool:
        """Whether no layout can be better."""
        return self.cost <= (0, max(problem.lower_bound_bytes, self.proven_bytes))


Solver: TypeAlias = Callable[[PlanningProblem], Layout]


def build_problem(
    buffers: Sequence[BufferInfo], conflicts: Sequence[OffsetConstraint], pools: Sequence[PoolInfo]
) -> PlanningProblem:
    """Number the buffers and turn each conflict to both of its sides."""
    number = {buffer.name: index for index, buffer in enumerate(buffers)}
    if len(number) != len(buffers):
        raise InternalError("two buffers of a memory plan have one name.")
    relations: list[list[Relation]] = [[] for _ in buffers]
    for c in conflicts:
        if c.hi - c.lo < 2:
            continue
        a, b = number[c.a], number[c.b]
        opposite = -c.residue % c.modulus if c.modulus > 1 else 0
        relations[b].append(Relation(a, c.lo, c.hi, c.modulus, c.residue))
        relations[a].append(Relation(b, -c.hi, -c.lo, c.modulus, opposite))
    return PlanningProblem(
        tuple(buffers),
        tuple(tuple(mine) for mine in relations),
        {pool.name: pool.size_bytes for pool in pools},
        lower_bound_bytes(buffers, conflicts),
    )


def solve_problem(
    planner: str,
    solve: Solver,
    buffers: Sequence[BufferInfo],
    conflicts: Sequence[OffsetConstraint],
    pools: Sequence[PoolInfo],
) -> Plan:
    """The plan of `solve`'s layout. DoesNotFitError if the pools are too small for it."""
    problem = build_problem(buffers, conflicts, pools)
    layout = solve(problem)
    if layout.unplaced_bytes:
        layout = _enlarged_layout(problem, solve)
    placements = {
        buffer.name: Placement(pool, offset)
        for buffer, pool, offset in zip(buffers, layout.pools, layout.offsets, strict=True)
    }
    tops = {pool.name: layout.tops[pool.name] for pool in pools if layout.tops.get(pool.name)}
    bound_bytes = max(problem.lower_bound_bytes, layout.proven_bytes)
    return Plan(planner, placements, tops, bound_bytes, tuple(buffers), tuple(conflicts))


def _enlarged_layout(problem: PlanningProblem, solve: Solver) -> Layout:
    """A layout found with the last resort of each buffer unlimited, if it happens to fit.

    Otherwise the error: what that layout needs is what the pools would have to hold.
    """
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
        hint="a board with more RAM, or further memory by --pool.",
    )
