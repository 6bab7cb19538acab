"""The planner that asks OR-Tools: what it proves, and what it says where that is not installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from synthetic_graphs import small_graph

from firmwright.base.errors import DoesNotFitError, ToolMissingError
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import OffsetConstraint
from firmwright.usmp.branch_and_bound import exact_planner
from firmwright.usmp.cp_sat import cp_sat
from firmwright.usmp.interference import build_interference
from firmwright.usmp.plan_validator import check_plan

POOLS = (PoolInfo("sram"),)


@pytest.fixture(name="ortools")
def _ortools() -> None:
    pytest.importorskip("ortools", reason="OR-Tools is not installed: pip install '.[exact]'")


def test_without_ortools_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ortools", "ortools.sat", "ortools.sat.python"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ToolMissingError) as caught:
        cp_sat((), (), POOLS)
    assert str(caught.value) == (
        "the memory planner cpsat needs the Python package ortools, which is not installed. "
        "Try: pip install 'firmwright[exact]', or --planner exact."
    )


@pytest.mark.usefixtures("ortools")
def test_random_problems_end_in_a_right_plan_or_do_not_fit(
    random_problem: Callable, deep: bool
) -> None:
    planned = 0
    seeds = range(200 if deep else 25)
    for seed in seeds:
        problem = random_problem(seed, most=10)
        try:
            check_plan(cp_sat(*problem), *problem)
            planned += 1
        except DoesNotFitError:
            continue
    assert planned > len(seeds) // 2


@pytest.mark.usefixtures("ortools")
def test_it_agrees_with_branch_and_bound_on_relaxed_and_periodic_pairs(
    random_problem: Callable,
) -> None:
    for seed in range(3000, 3015):
        buffers, conflicts, _ = random_problem(seed, most=9)
        single = tuple(replace(buffer, pools=("sram",)) for buffer in buffers)
        ours, theirs = exact_planner(single, conflicts, POOLS), cp_sat(single, conflicts, POOLS)
        check_plan(theirs, single, conflicts, POOLS)
        assert ours.optimality_gap_bytes == theirs.optimality_gap_bytes == 0
        assert ours.workspace_bytes == theirs.workspace_bytes


@pytest.mark.usefixtures("ortools")
def test_a_plan_that_local_search_misses_is_found_and_proven() -> None:
    problem = small_graph("inception", 28)
    plan = cp_sat(*problem)
    check_plan(plan, *problem)
    assert plan.optimality_gap_bytes == 0


@pytest.mark.usefixtures("ortools")
def test_over_two_pools_with_limits_it_finds_the_least_sum(make_buffer: Callable) -> None:
    names = ("fast", "slow")
    sizes = (6, 5, 4, 3, 2)
    buffers = tuple(make_buffer(f"b{i}", s, (0, 1), pools=names) for i, s in enumerate(sizes))
    conflicts = (OffsetConstraint("b0", "b1", -2, 6), *build_interference(buffers)[1:])
    pools = (PoolInfo("fast", 9), PoolInfo("slow", 9))
    plan = cp_sat(buffers, conflicts, pools)
    check_plan(plan, buffers, conflicts, pools)
    # b1 may reach three bytes into b0: together they take 8, else 11, and all others add up.
    assert plan.workspace_bytes == plan.lower_bound_bytes == 17


@pytest.mark.usefixtures("ortools")
def test_pools_that_are_too_small_are_named(make_buffer: Callable) -> None:
    buffers = tuple(make_buffer(n, 60, (0, 1), pools=("fast", "slow")) for n in "abc")
    pools = (PoolInfo("fast", 64), PoolInfo("slow", 100))
    with pytest.raises(DoesNotFitError, match="pool slow needs 120 bytes and has 100"):
        cp_sat(buffers, build_interference(buffers), pools)
