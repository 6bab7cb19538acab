"""Planners `greedy_by_size` and `greedy_by_conflicts`: one first fit in a fixed order.

The orders and their ties are those of USMP's algorithms of these names; placement is first fit
into gaps with each buffer's own alignment.
"""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, OffsetConstraint, Plan
from firmwright.usmp.first_fit import place_first_fit
from firmwright.usmp.planning_problem import Layout, PlanningProblem, solve_problem


def greedy_by_size(
    buffers: Sequence[BufferInfo], conflicts: Sequence[OffsetConstraint], pools: Sequence[PoolInfo]
) -> Plan:
    """One first fit, largest buffers first."""
    return solve_problem("greedy_by_size", _by_size, buffers, conflicts, pools)


def greedy_by_conflicts(
    buffers: Sequence[BufferInfo], conflicts: Sequence[OffsetConstraint], pools: Sequence[PoolInfo]
) -> Plan:
    """One first fit, buffers with most conflicts first."""
    return solve_problem("greedy_by_conflicts", _by_conflicts, buffers, conflicts, pools)


def size_order(problem: PlanningProblem) -> list[int]:
    """Size, then number of conflicts, then name, each descending."""

    def rank(index: int) -> tuple[int, int, str]:
        buffer = problem.buffers[index]
        return buffer.size_bytes, len(problem.relations[index]), buffer.name

    return sorted(range(len(problem.buffers)), key=rank, reverse=True)


def conflict_order(problem: PlanningProblem) -> list[int]:
    """Number of conflicts, then size, then name, each descending."""

    def rank(index: int) -> tuple[int, int, str]:
        buffer = problem.buffers[index]
        return len(problem.relations[index]), buffer.size_bytes, buffer.name

    return sorted(range(len(problem.buffers)), key=rank, reverse=True)


def _by_size(problem: PlanningProblem) -> Layout:
    return place_first_fit(problem, size_order(problem))


def _by_conflicts(problem: PlanningProblem) -> Layout:
    return place_first_fit(problem, conflict_order(problem))
