"""Packings whose optimum is known: cut rectangles, and the hard set of MiniMalloc."""

from __future__ import annotations

import csv
import os
import random
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from firmwright.ir.tir.plan import BufferInfo, Plan
from firmwright.usmp import skyline
from firmwright.usmp.branch_and_bound import search_planner
from firmwright.usmp.heuristics import best_first_fit_order
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planning_problem import build_problem
from firmwright.usmp.skyline import lower_skyline
from tests.planner_benchmarks.synthetic_graphs import (
    FAMILIES,
    PlanningProblem,
    crowded,
    cut_rectangle,
    intervals,
    log_uniform,
    problem_of,
)

HARD_SET = "MINIMALLOC_PATH"
MINIMALLOC = "MINIMALLOC_EXECUTABLE"
HARD_SET_BYTES = 1_048_576
GAP_MAX = {"I": 4_096, "J": 50_000}
"""Gaps of the instances that are not solved to the optimum."""


def test_cut_rectangle_is_packed_without_waste() -> None:
    for seed in range(4):
        problem, height = cut_rectangle(random.Random(seed), 60)
        start = build_problem(*problem)
        first_fits = best_first_fit_order(start)[1]
        layout = lower_skyline(start, first_fits)
        assert start.lower_bound_bytes == height
        assert layout.cost == (0, height) < first_fits.cost, seed


def test_crowded_buffers_reach_the_lower_bound() -> None:
    for seed in (2, 3):
        start = build_problem(*crowded(random.Random(seed), 100))
        first_fits = best_first_fit_order(start)[1]
        layout = lower_skyline(start, first_fits)
        assert layout.cost == (0, start.lower_bound_bytes) < first_fits.cost, seed


def test_parts_separate_in_time_are_packed_separately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[tuple[int, int, int]] = []
    for seed in range(2):
        buffers = cut_rectangle(random.Random(seed), 40)[0][0]
        lives = [buffer.live[0] for buffer in buffers]
        sizes = [buffer.size_bytes for buffer in buffers]
        after = max((end for _, _, end in rows), default=0)
        rows += [
            (size, after + live.first, after + live.end)
            for size, live in zip(sizes, lives, strict=True)
        ]
    searched: list[int] = []
    lowest = skyline._Packing.lowest

    def counted(packing: skyline._Packing, *arguments: Any) -> Sequence[int]:
        searched.append(len(packing.members))
        return lowest(packing, *arguments)

    monkeypatch.setattr(skyline._Packing, "lowest", counted)
    start = build_problem(*problem_of(rows))
    layout = lower_skyline(start, best_first_fit_order(start)[1])
    assert layout.cost == (0, start.lower_bound_bytes)
    assert len(searched) > 1
    assert sum(searched) == len(rows)


def test_work_is_limited_and_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skyline, "_WORK_PER_BUFFER", 2_000)
    valleys = skyline._valleys
    for count in (40, 120):
        problem = build_problem(*cut_rectangle(random.Random(50), count)[0])
        columns: list[int] = []

        def counted(top: Any, slack: Any, columns: list[int] = columns) -> Any:
            columns.append(top.size)
            return valleys(top, slack)

        with monkeypatch.context() as patch:
            patch.setattr(skyline, "_valleys", counted)
            start = best_first_fit_order(problem)[1]
            assert lower_skyline(problem, start).cost <= start.cost
        assert 0 < sum(columns) < 4 * 2_000 * count


def test_proven_layouts_are_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skyline, "_Packing", None)
    problem = build_problem(*problem_of([(16, 0, 2), (32, 1, 3), (16, 2, 4)]))
    start = best_first_fit_order(problem)[1]
    assert start.is_proven(problem)
    assert lower_skyline(problem, start) is start


@pytest.mark.deep
@pytest.mark.parametrize(
    "name", [*FAMILIES, "intervals", "log_uniform", "crowded", "rectangle"]
)
def test_gaps_of_a_thousand_buffers_are_small(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others: dict[str, Callable[[random.Random, int], PlanningProblem]] = {
        "intervals": intervals,
        "log_uniform": log_uniform,
        "crowded": crowded,
        "rectangle": lambda rng, count: cut_rectangle(rng, count)[0],
    }
    problem = {**FAMILIES, **others}[name](random.Random(f"{name} 1000"), 1000)
    plan, seconds = planned(problem)
    assert plan.workspace_bytes <= 1.2 * plan.lower_bound_bytes
    peer = solve_with_minimalloc(problem[0], plan.workspace_bytes, tmp_path)
    with capsys.disabled():
        print(
            f"\n{name} {plan.workspace_bytes:,} gap {plan.optimality_gap_bytes:,} {seconds:.1f} s,"
            f" MiniMalloc {peer}"
        )


def planned(problem: PlanningProblem) -> tuple[Plan, float]:
    start = time.process_time()
    plan = search_planner(*problem)
    seconds = time.process_time() - start
    check_plan(plan, *problem)
    return plan, seconds


def solve_with_minimalloc(
    buffers: Sequence[BufferInfo], capacity: int, folder: Path
) -> str:
    """Return MiniMalloc's outcome at the capacity and its CPU seconds, at most 20."""
    executable = os.environ.get(MINIMALLOC)
    if not executable:
        return f"not measured: {MINIMALLOC} names no executable"
    lines = ["id,lower,upper,size"]
    for buffer in buffers:
        size = -(-buffer.size_bytes // buffer.alignment) * buffer.alignment
        lines.append(
            f"{buffer.name},{buffer.live[0].first},{buffer.live[0].end},{size}"
        )
    (folder / "in.csv").write_text("\n".join(lines) + "\n")
    options = [f"--{kind}put={folder / kind}.csv" for kind in ("in", "out")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    ran = subprocess.run(
        [executable, f"--capacity={capacity}", "--timeout=20s", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return f"{'open' if ran.returncode else 'solved'} after {seconds:.1f} s"


@pytest.mark.deep
@pytest.mark.skipif(HARD_SET not in os.environ, reason=f"{HARD_SET} names no checkout")
@pytest.mark.parametrize("name", "ABCDEFGHIJK")
def test_hard_set_has_small_gaps(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(os.environ[HARD_SET]) / "benchmarks" / "challenging"
    with (folder / f"{name}.{HARD_SET_BYTES}.csv").open() as lines:
        rows = [
            [int(row[key]) for key in ("size", "lower", "upper")]
            for row in csv.DictReader(lines)
        ]
    problem = problem_of([(size, first, end) for size, first, end in rows])
    plan, seconds = planned(problem)
    assert plan.optimality_gap_bytes <= GAP_MAX.get(name, 0)
    peer = solve_with_minimalloc(problem[0], HARD_SET_BYTES, tmp_path)
    with capsys.disabled():
        print(
            f"\n{name} {plan.workspace_bytes:,} gap {plan.optimality_gap_bytes:,} {seconds:.1f} s,"
            f" MiniMalloc {peer}"
        )
