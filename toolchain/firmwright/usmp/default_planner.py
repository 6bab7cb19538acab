"""Planner `search_planner`, the default: first fits, then a bounded local search, then a bounded
exact one.

Where no fixed order meets the lower bound, buffers that touch the top of a pool move forward in the
order; where that soon leads nowhere and buffers are few, branch and bound finds a better layout or
proves that there is none; else the moves go on. All of it is a fixed amount of work at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, OffsetConstraint, Plan
from firmwright.usmp.branch_and_bound import branch_and_bound
from firmwright.usmp.heuristics import best_first_fit, best_first_fit_order
from firmwright.usmp.local_search import improve_order, order_from_layout
from firmwright.usmp.planning_problem import Layout, PlanningProblem, solve_problem

_QUICK_ATTEMPTS = 200
_EXACT_WORK = 100_000
"""One to two seconds."""


def search_planner(
    buffers: Sequence[BufferInfo], conflicts: Sequence[OffsetConstraint], pools: Sequence[PoolInfo]
) -> Plan:
    """First fits, then local search, then branch and bound, until the lower bound is met."""
    return solve_problem("search", _search, buffers, conflicts, pools)


def best_first_fit_planner(
    buffers: Sequence[BufferInfo], conflicts: Sequence[OffsetConstraint], pools: Sequence[PoolInfo]
) -> Plan:
    """The best of several first fits: for selection, which asks often."""
    return solve_problem("first_fits", best_first_fit, buffers, conflicts, pools)


def _search(problem: PlanningProblem) -> Layout:
    layout = improve_order(problem, *best_first_fit_order(problem), _QUICK_ATTEMPTS)
    layout = branch_and_bound(problem, layout, _EXACT_WORK)
    if layout.is_proven(problem):
        return layout
    climbed = improve_order(problem, order_from_layout(layout), layout)
    return replace(climbed, proven_bytes=layout.proven_bytes)
