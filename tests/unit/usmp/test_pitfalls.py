"""What planners of this kind are known to get wrong holds here for every planner of ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from firmwright.base.errors import DoesNotFitError
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import Plan
from firmwright.usmp.first_fit import place_first_fit
from firmwright.usmp.heuristics import size_order
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


def test_a_pool_that_was_full_for_a_buffer_is_not_entered_below_a_later_conflict(
    make_buffer: Callable, name: str
) -> None:
    sizes = (("a", 64), ("b", 32), ("c", 16))
    buffers = tuple(make_buffer(n, size, (0, 1), pools=("small",)) for n, size in sizes)
    for conflicts in (build_interference(buffers), build_interference(buffers)[::-1]):
        with pytest.raises(DoesNotFitError) as caught:
            BUILTIN_PLANNERS[name](buffers, conflicts, (PoolInfo("small", 100),))
        assert caught.value.regions[0].need_bytes == 112
    with_more = tuple(make_buffer(n, s, (0, 1), pools=("small", "large")) for n, s in sizes)
    plan = planned(name, with_more, PoolInfo("small", 100), PoolInfo("large"))
    assert dict(plan.pool_bytes) == {"small": 96, "large": 16}


def test_gaps_below_the_highest_conflict_are_used(chain: Callable, name: str) -> None:
    plan = planned(name, chain([490, *[8000] * 9, 64, 64, 12, 12])[0], PoolInfo("sram"))
    assert plan.workspace_bytes == 16000


def test_an_offset_has_its_own_alignment_not_that_of_a_conflict(
    make_buffer: Callable, name: str
) -> None:
    buffers = (
        make_buffer("large", 21, (0, 1), alignment=16),
        make_buffer("small", 7, (0, 1), alignment=1),
        make_buffer("aligned", 6, (0, 1), alignment=2),
    )
    plan = planned(name, buffers, PoolInfo("sram"))
    assert plan.placements["large"].offset == 0
    assert plan.workspace_bytes <= 35  # 32 would have to be passed by the first of the others


def test_the_bound_is_not_loosened_by_constants_in_a_pool_of_their_own(
    make_buffer: Callable, name: str
) -> None:
    # Constants of 300 at once, activations of 120 at another time: 420 is where to stop.
    buffers = (
        make_buffer("weights", 200, (0, 1), pools=("const",)),
        make_buffer("bias", 100, (0, 1), pools=("const",)),
        make_buffer("x", 70, (2, 4), pools=("sram",)),
        make_buffer("y", 50, (3, 5), pools=("sram",)),
    )
    plan = planned(name, buffers, PoolInfo("const"), PoolInfo("sram"))
    assert plan.lower_bound_bytes == plan.workspace_bytes == 420


def test_a_buffer_with_ranges_that_touch_is_in_no_conflict_with_itself(
    make_buffer: Callable, name: str
) -> None:
    buffers = (make_buffer("again", 40, (0, 2), (2, 4)), make_buffer("other", 24, (1, 3)))
    assert planned(name, buffers, PoolInfo("sram")).workspace_bytes == 64


def test_what_meets_the_bound_is_left_as_the_first_order_gave_it(
    chain: Callable, name: str
) -> None:
    buffers, conflicts, pools = chain([100, 400, 600, 80], alignment=4)
    problem = build_problem(buffers, conflicts, pools)
    layout = place_first_fit(problem, size_order(problem))
    assert layout.cost[1] == problem.lower_bound_bytes
    assert planned(name, buffers, *pools).workspace_bytes == layout.cost[1]
