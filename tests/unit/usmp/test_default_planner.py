"""Planners as a whole: every plan is valid, and chains reach their known results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import pytest

from firmwright.base.errors import DoesNotFitError, RegionOverflow
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo
from firmwright.usmp.branch_and_bound import search_planner
from firmwright.usmp.heuristics import candidate_orders, place_first_fit
from firmwright.usmp.interference import build_interference
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planner_registry import BUILTIN_PLANNERS, find_planner
from firmwright.usmp.planning_problem import (
    Layout,
    PlanningProblem,
    build_problem,
    make_planner,
)

PLANNERS = list(BUILTIN_PLANNERS)
KWS = [490, *[8000] * 9, 64, 64, 12, 12]
ANOMALY = [640, *[128] * 4, 8, *[128] * 4, 640]
WAKE_WORD = [1200, *[3328] * 2, *[2304] * 2, *[1536] * 4, 64, 3, 3]
VWW = [
    27648,
    18432,
    18432,
    36864,
    9216,
    18432,
    18432,
    18432,
    4608,
    9216,
    9216,
    9216,
    2304,
    *[4608] * 11,
    1152,
    2304,
    2304,
    2304,
    256,
    256,
    2,
    2,
]


@pytest.mark.parametrize(
    ("sizes", "figure"), [(KWS, 16000), (ANOMALY, 768), (WAKE_WORD, 6656), (VWW, 55296)]
)
def test_chains_reach_their_bound(
    chain: Callable, sizes: Sequence[int], figure: int
) -> None:
    problem = chain(sizes)
    plan = search_planner(*problem)
    check_plan(plan, *problem)
    assert (plan.workspace_bytes, plan.lower_bound_bytes) == (figure, figure)


def test_chains_with_residuals_reach_their_bound(residual_chain: Callable) -> None:
    for every, seed in product((2, 3, 5), range(20)):
        sizes = [64 * (1 + (seed * 7 + i * (seed + 3)) % 40) for i in range(30)]
        problem = residual_chain(sizes, every)
        plan = search_planner(*problem)
        check_plan(plan, *problem)
        assert plan.optimality_gap_bytes == 0


@pytest.mark.parametrize("name", ["greedy_by_size", "greedy_by_conflicts"])
def test_plans_of_random_problems_are_valid(
    random_problem: Callable, name: str, deep: bool
) -> None:
    _solve_all([random_problem(seed) for seed in range(3000 if deep else 250)], name)


@pytest.mark.parametrize("name", ["hill_climb", "search", "exact"])
def test_plans_of_small_random_problems_are_valid(
    random_problem: Callable, name: str, deep: bool
) -> None:
    seeds = range(2000, 2500 if deep else 2030)
    _solve_all([random_problem(seed, most=10) for seed in seeds], name)


def _solve_all(problems: Sequence[tuple], name: str) -> None:
    planned = 0
    for problem in problems:
        try:
            check_plan(BUILTIN_PLANNERS[name](*problem), *problem)
            planned += 1
        except DoesNotFitError:
            continue
    assert planned > len(problems) // 2


@pytest.mark.parametrize("name", PLANNERS)
def test_the_same_problem_gives_the_same_plan(
    random_problem: Callable, name: str
) -> None:
    problem = random_problem(17, most=12)
    assert find_planner(name)(*problem) == find_planner(name)(*problem)


def test_search_is_never_worse_than_the_greedy_planners(
    random_problem: Callable,
) -> None:
    for seed in range(15):
        buffers, conflicts, _ = random_problem(seed, most=12)
        pools = (PoolInfo("dtcm"), PoolInfo("sram"))
        best = search_planner(buffers, conflicts, pools).workspace_bytes
        for name in ("greedy_by_size", "greedy_by_conflicts"):
            assert best <= find_planner(name)(buffers, conflicts, pools).workspace_bytes


def test_local_search_beats_all_fixed_orders(
    buffers_with_gaps: Sequence[BufferInfo],
) -> None:
    buffers = buffers_with_gaps
    conflicts = build_interference(buffers)
    pools = (PoolInfo("sram"),)
    problem = build_problem(buffers, conflicts, pools)
    best_order = min(
        place_first_fit(problem, order).cost for order in candidate_orders(problem)
    )
    plan = search_planner(buffers, conflicts, pools)
    check_plan(plan, buffers, conflicts, pools)
    assert best_order > (0, plan.workspace_bytes)
    assert plan.workspace_bytes == plan.lower_bound_bytes


@pytest.mark.parametrize("name", PLANNERS)
def test_error_has_the_missing_bytes_and_the_largest_buffers(
    chain: Callable, name: str
) -> None:
    buffers, conflicts, _ = chain([100, 400, 600, 80], alignment=4)
    with pytest.raises(DoesNotFitError) as caught:
        find_planner(name)(buffers, conflicts, (PoolInfo("sram", 900),))
    error = caught.value
    assert error.regions == (RegionOverflow("sram", 1000, 900),)
    assert error.lowest_bytes == 1000
    assert error.peak == (("t2", 600), ("t1", 400))
    assert str(error) == (
        "the workspace does not fit: pool sram needs 1,000 bytes and has 900 (100 too few). "
        "The best plan found takes 1,000 bytes and none can take less than 1,000; alive at the "
        "peak are t2 600, t1 400 bytes. Try: a board with more RAM, or further memory by --pool."
    )


def test_pools_below_the_lower_bound_are_not_searched(chain: Callable) -> None:
    """Only the plan for the message is made; it shows what the program needs."""
    limits: list[int | None] = []

    @make_planner("counting")
    def planner(problem: PlanningProblem) -> Layout:
        limits.append(problem.limits["sram"])
        return place_first_fit(problem, range(len(problem.buffers)))

    buffers, conflicts, _ = chain([100, 400, 600, 80], alignment=4)
    for size, is_proven in ((900, True), (1000, False)):
        with pytest.raises(DoesNotFitError) as caught:
            planner(buffers, conflicts, (PoolInfo("sram", size),))
        assert caught.value.is_proven == is_proven
    assert limits == [None, 1000]


def test_error_names_every_pool_that_is_too_small(make_buffer: Callable) -> None:
    buffers = (
        make_buffer("hot", 80, (0, 2), pools=("fast", "slow")),
        make_buffer("cold", 300, (1, 3), pools=("slow",)),
        make_buffer("pinned", 90, (0, 3), pools=("tight",)),
    )
    pools = (PoolInfo("fast", 100), PoolInfo("slow", 250), PoolInfo("tight", 64))
    with pytest.raises(DoesNotFitError) as caught:
        search_planner(buffers, build_interference(buffers), pools)
    error = caught.value
    assert error.regions == (
        RegionOverflow("slow", 300, 250),
        RegionOverflow("tight", 90, 64),
    )
    assert error.lowest_bytes == 470
    assert error.peak == (("cold", 300), ("pinned", 90), ("hot", 80))
    assert error.what == (
        "the workspace does not fit: pool slow needs 300 bytes and has 250 (50 too few), pool "
        "tight needs 90 bytes and has 64 (26 too few). The best plan found takes 470 bytes and "
        "none can take less than 470; alive at the peak are cold 300, pinned 90, hot 80 bytes."
    )


def test_buffers_are_distributed_over_two_pools(make_buffer: Callable) -> None:
    names = ("fast", "slow")
    buffers = tuple(make_buffer(f"b{i}", 60, (0, 1), pools=names) for i in range(3))
    pools = (PoolInfo("fast", 64), PoolInfo("slow", 128))
    plan = search_planner(buffers, build_interference(buffers), pools)
    check_plan(plan, buffers, build_interference(buffers), pools)
    assert dict(plan.pool_bytes) == {"fast": 60, "slow": 120}


def test_unused_pools_are_not_in_the_plan(chain: Callable) -> None:
    buffers, conflicts, pools = chain([16, 16])
    plan = search_planner(buffers, conflicts, (*pools, PoolInfo("ccm", 100)))
    assert dict(plan.pool_bytes) == {"sram": 32}


def test_plan_without_buffers_is_empty() -> None:
    plan = search_planner((), (), (PoolInfo("sram"),))
    assert (plan.workspace_bytes, dict(plan.placements)) == (0, {})
