"""Planner `search`, the default: first fits, then local search, then branch and bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, OffsetConstraint, Plan
from firmwright.usmp.branch_and_bound import branch_and_bound
from firmwright.usmp.heuristics import (
    best_first_fit,
    best_first_fit_order,
    improve_order,
    order_from_layout,
)
from firmwright.usmp.planning_problem import Layout, PlanningProblem, solve_problem

_QUICK_MOVES = 200
_EXACT_WORK = 100_000
"""Work limit of the exact search in this planner: one to two seconds."""


def search_planner(
    buffers: Sequence[BufferInfo],
    constraints: Sequence[OffsetConstraint[str]],
    pools: Sequence[PoolInfo],
) -> Plan:
    """First fits, then local search, then branch and bound, until the lower bound is met."""
    return solve_problem("search", _search, buffers, constraints, pools)


def best_first_fit_planner(
    buffers: Sequence[BufferInfo],
    constraints: Sequence[OffsetConstraint[str]],
    pools: Sequence[PoolInfo],
) -> Plan:
    """Return the best of several first fits; fast, for the many plans that selection makes."""
    return solve_problem("first_fits", best_first_fit, buffers, constraints, pools)


def _search(problem: PlanningProblem) -> Layout:
    layout = improve_order(problem, *best_first_fit_order(problem), _QUICK_MOVES)
    layout = branch_and_bound(problem, layout, _EXACT_WORK)
    if layout.is_proven(problem):
        return layout
    climbed = improve_order(problem, order_from_layout(layout), layout)
    return replace(climbed, proven_bytes=layout.proven_bytes)
