"""Known defects of memory planners, tested with every built-in planner."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from firmwright.base.errors import DoesNotFitError
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import Plan
from firmwright.usmp.heuristics import place_first_fit, size_order
from firmwright.usmp.interference import build_interference
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planner_registry import BUILTIN_PLANNERS
from firmwright.usmp.planning_problem import build_problem

PLANNERS = list(BUILTIN_PLANNERS)
pytestmark = pytest.mark.parametrize("name", PLANNERS)


def planned(name: str, buffers: tuple, *pools: PoolInfo) -> Plan:
    conflicts = build_interference(buffers)
    plan = BUILTIN_PLANNERS[name](buffers, conflicts, pools)
    check_plan(plan, buffers, conflicts, pools)
    return plan


def test_full_pool_is_not_entered_below_a_later_conflict(
    make_buffer: Callable, name: str
) -> None:
    sizes = (("a", 64), ("b", 32), ("c", 16))
    buffers = tuple(make_buffer(n, size, (0, 1), pools=("small",)) for n, size in sizes)
    for conflicts in (build_interference(buffers), build_interference(buffers)[::-1]):
        with pytest.raises(DoesNotFitError) as caught:
            BUILTIN_PLANNERS[name](buffers, conflicts, (PoolInfo("small", 100),))
        assert caught.value.regions[0].need_bytes == 112
    with_more = tuple(
        make_buffer(n, s, (0, 1), pools=("small", "large")) for n, s in sizes
    )
    plan = planned(name, with_more, PoolInfo("small", 100), PoolInfo("large"))
    assert dict(plan.pool_bytes) == {"small": 96, "large": 16}


def test_gaps_below_the_highest_conflict_are_used(chain: Callable, name: str) -> None:
    plan = planned(name, chain([490, *[8000] * 9, 64, 64, 12, 12])[0], PoolInfo("sram"))
    assert plan.workspace_bytes == 16000


def test_offset_has_the_alignment_of_its_own_buffer(
    make_buffer: Callable, name: str
) -> None:
    buffers = (
        make_buffer("large", 21, (0, 1), alignment=16),
        make_buffer("small", 7, (0, 1), alignment=1),
        make_buffer("aligned", 6, (0, 1), alignment=2),
    )
    plan = planned(name, buffers, PoolInfo("sram"))
    assert plan.placements["large"].offset == 0
    assert plan.workspace_bytes <= 35  # 32 would require another buffer order


def test_bound_ignores_constants_in_a_separate_pool(
    make_buffer: Callable, name: str
) -> None:
    # 300 bytes of constants, 120 bytes of activations at other times: the bound is 420.
    buffers = (
        make_buffer("weights", 200, (0, 1), pools=("const",)),
        make_buffer("bias", 100, (0, 1), pools=("const",)),
        make_buffer("x", 70, (2, 4), pools=("sram",)),
        make_buffer("y", 50, (3, 5), pools=("sram",)),
    )
    plan = planned(name, buffers, PoolInfo("const"), PoolInfo("sram"))
    assert plan.lower_bound_bytes == plan.workspace_bytes == 420


def test_buffer_with_adjacent_ranges_does_not_conflict_with_itself(
    make_buffer: Callable, name: str
) -> None:
    buffers = (
        make_buffer("again", 40, (0, 2), (2, 4)),
        make_buffer("other", 24, (1, 3)),
    )
    assert planned(name, buffers, PoolInfo("sram")).workspace_bytes == 64


def test_first_layout_that_meets_the_bound_is_kept(chain: Callable, name: str) -> None:
    buffers, conflicts, pools = chain([100, 400, 600, 80], alignment=4)
    problem = build_problem(buffers, conflicts, pools)
    layout = place_first_fit(problem, size_order(problem))
    assert layout.cost[1] == problem.lower_bound_bytes
    assert planned(name, buffers, *pools).workspace_bytes == layout.cost[1]
