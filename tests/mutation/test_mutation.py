"""Tests that a checker catches each planted defect: a sample, or all with --deep.

`python -m tests.mutation.run_mutation_testing` prints the table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation import (
    mutate_devices,
    mutate_kernels,
    mutate_plans,
    mutate_sources,
    run_mutation_testing,
)
from tests.mutation.mutants import SURVIVED, Mutant, Outcome, Row, judged, table
from tests.mutation.source_edits import EDITS, Edit
from tests.mutation.subjects import check_sound, models_file, subject

LEAST, LEAST_DEEP = 40, 200
KINDS = ("saturation removed", "call dropped")
"""Kernel defects tested in every run; each is compiled and run under sanitizers."""


def assert_none_survives(rows: list[Row], least: int) -> None:
    planted = [row for row in rows if not row.outcome.same]
    assert not any(row.outcome.survived for row in planted), table(rows)
    assert len(planted) >= least, table(rows)


def test_uncaught_mutants_are_listed_as_survivors() -> None:
    mutants = [
        Mutant("a defect", "here", lambda: SURVIVED),
        Mutant("a defect", "there", lambda: Outcome("a checker", "what it said")),
        Mutant("a defect", "nowhere", lambda: Outcome(same="the same bytes")),
    ]
    rows = judged(mutants)
    assert "2 planted, 1 caught, 1 survived; 1 more changed nothing" in table(rows)
    assert "  survived: a defect: here" in table(rows)
    with pytest.raises(AssertionError):
        assert_none_survives(rows, 0)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.kind)
def test_each_source_edit_matches_exactly_once(edit: Edit) -> None:
    assert (mutate_sources.ROOT / edit.file).read_text().count(edit.old) == 1
    assert edit.old != edit.new


def test_every_mutated_plan_is_rejected(tmp_path: Path) -> None:
    made = subject(
        "digits", "c", tmp_path, samples=2, pools=run_mutation_testing.SMALL_POOLS
    )
    assert_none_survives(judged(mutate_plans.plan_mutants(made, 3)), LEAST)


def test_every_mutated_async_call_is_rejected(tmp_path: Path) -> None:
    made = subject("digits", "", tmp_path, samples=1, devices=mutate_devices.CORES)
    assert_none_survives(judged(mutate_devices.mutants(made, 3)), 20)


@pytest.mark.deep
@pytest.mark.host_c
def test_mutated_kernels_and_live_ranges_are_caught(tmp_path: Path) -> None:
    made = subject("digits", run_mutation_testing.M4, tmp_path, samples=40)
    check_sound(made)
    wrong = [*mutate_kernels.mutants(made, 1), *mutate_plans.problem_mutants(made, 1)]
    chosen = [m for m in wrong if m.kind in KINDS or m.kind in mutate_plans.OVERLAPS]
    assert_none_survives(judged(chosen), 5)


@pytest.mark.deep
@pytest.mark.host_c
def test_no_mutant_survives() -> None:
    names = [
        n
        for n in run_mutation_testing.PARTS
        if "kws" not in n or models_file("kws").is_file()
    ]
    assert_none_survives(
        [row for name in names for row in run_mutation_testing.run_part(name)],
        LEAST_DEEP,
    )
