"""Packings whose optimum is known: cut rectangles, and the hard set of MiniMalloc."""

from __future__ import annotations

import csv
import os
import random
import time
from pathlib import Path

import pytest
from synthetic_graphs import cut_rectangle, problem_of

from firmwright.usmp import skyline
from firmwright.usmp.branch_and_bound import search_planner
from firmwright.usmp.heuristics import best_first_fit_order
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planning_problem import build_problem
from firmwright.usmp.skyline import lower_skyline

HARD_SET = "MINIMALLOC_PATH"
HARD_SET_BYTES = 1_048_576


def test_cut_rectangle_is_packed_without_waste() -> None:
    for seed in range(2):
        problem, height = cut_rectangle(random.Random(seed), 60)
        start = build_problem(*problem)
        first_fits = best_first_fit_order(start)[1]
        layout = lower_skyline(start, first_fits)
        assert start.lower_bound_bytes == height
        assert layout.cost == (0, height) < first_fits.cost, seed


def test_work_for_large_problems_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skyline, "_CELLS_MAX", 0)
    problem = build_problem(*cut_rectangle(random.Random(1), 40)[0])
    widths: list[int] = []
    valleys = skyline._valleys

    def counted(beam: skyline._Beam) -> tuple[skyline.Ints, ...]:
        widths.append(len(beam.top))
        return valleys(beam)

    monkeypatch.setattr(skyline, "_valleys", counted)
    start = best_first_fit_order(problem)[1]
    assert lower_skyline(problem, start).cost <= start.cost
    assert widths
    assert max(widths) < 300


@pytest.mark.deep
@pytest.mark.parametrize("count", [300, 1000])
def test_large_cut_rectangles_have_small_gaps(
    count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    problem, height = cut_rectangle(random.Random(count), count)
    start = time.process_time()
    plan = search_planner(*problem)
    seconds = time.process_time() - start
    check_plan(plan, *problem)
    assert plan.lower_bound_bytes == height
    assert plan.workspace_bytes <= 1.2 * height
    with capsys.disabled():
        print(f"\n{count}: {plan.workspace_bytes / height:.3f} of the optimum, {seconds:.1f} s")


@pytest.mark.deep
@pytest.mark.skipif(HARD_SET not in os.environ, reason=f"{HARD_SET} names no checkout")
@pytest.mark.parametrize("name", "ABCDEFGHIJK")
def test_hard_set_fits(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(os.environ[HARD_SET]) / "benchmarks" / "challenging"
    with (folder / f"{name}.{HARD_SET_BYTES}.csv").open() as lines:
        rows = [
            [int(row[key]) for key in ("size", "lower", "upper")] for row in csv.DictReader(lines)
        ]
    problem = problem_of([(size, first, end) for size, first, end in rows])
    start = time.process_time()
    plan = search_planner(*problem)
    seconds = time.process_time() - start
    check_plan(plan, *problem)
    assert plan.workspace_bytes <= HARD_SET_BYTES
    with capsys.disabled():
        print(
            f"\n{name} {plan.workspace_bytes:,} gap {plan.optimality_gap_bytes:,} {seconds:.1f} s"
        )
