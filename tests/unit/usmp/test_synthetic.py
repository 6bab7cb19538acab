"""The default planner reaches the lower bound on all 185 synthetic problems."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from firmwright.usmp import heuristics
from firmwright.usmp.branch_and_bound import search_planner
from firmwright.usmp.heuristics import place_first_fit
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planning_problem import Layout
from tests.planner_benchmarks.synthetic_graphs import (
    FAMILIES,
    PLAIN_SEEDS,
    large_graphs,
    small_graph,
)

SMALLER = (20, 60, 200, 600)
PLACED_BUFFERS_MAX = 60_000
"""Work limit of a large problem: a fifth of the search's own limit."""


@pytest.mark.parametrize("family", FAMILIES)
def test_optimum_of_forty_graphs(family: str) -> None:
    for seed in range(PLAIN_SEEDS):
        problem = small_graph(family, seed)
        plan = search_planner(*problem)
        check_plan(plan, *problem)
        assert plan.optimality_gap_bytes == 0, seed


@pytest.fixture(name="placed")
def _placed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that counts the buffers placed since its last call."""
    counts: list[int] = []

    def counted(
        problem: object, order: list[int], known: Layout | None = None, kept: int = 0
    ) -> Layout:
        counts.append(len(order) - kept)
        return place_first_fit(problem, order, known, kept)

    monkeypatch.setattr(heuristics, "place_first_fit", counted)

    def so_far() -> int:
        total = sum(counts)
        counts.clear()
        return total

    return so_far


def test_optimum_of_twenty_larger_problems(placed: Callable[[], int]) -> None:
    for name, problem in large_graphs(SMALLER):
        plan = search_planner(*problem)
        check_plan(plan, *problem)
        assert (plan.optimality_gap_bytes, name) == (0, name)
        assert placed() <= PLACED_BUFFERS_MAX, name


@pytest.mark.deep
def test_optimum_of_five_problems_with_two_thousand_buffers(
    placed: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = []
    for name, problem in large_graphs():
        start = time.perf_counter()
        plan = search_planner(*problem)
        seconds = time.perf_counter() - start
        check_plan(plan, *problem)
        assert (plan.optimality_gap_bytes, name) == (0, name)
        work = placed()
        assert work <= PLACED_BUFFERS_MAX, name
        lines.append(
            f"{name:20} {plan.workspace_bytes:>9,} bytes {work:>6} placed {seconds:.3f} s"
        )
    with capsys.disabled():
        print("", *lines, sep="\n")
