"""A checker catches each planted defect: some in every run, all of them with --deep.

`python tests/mutation/prove.py` prints the table.
"""

from __future__ import annotations

from pathlib import Path

import prove
import pytest
import wrong_devices
import wrong_kernels
import wrong_plans
import wrong_sources
from mutants import SURVIVED, Mutant, Outcome, Row, judged, table
from subjects import check_sound, models_file, subject

LEAST, LEAST_DEEP = 40, 200
KINDS = ("saturation removed", "call dropped")
"""Of kernels, in every run; each is compiled and run under sanitizers."""


def assert_none_survives(rows: list[Row], least: int) -> None:
    planted = [row for row in rows if not row.outcome.same]
    assert not any(row.outcome.survived for row in planted), table(rows)
    assert len(planted) >= least, table(rows)


def test_what_nothing_catches_survives_in_the_table() -> None:
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


@pytest.mark.parametrize("edit", wrong_sources.EDITS, ids=lambda edit: edit.kind)
def test_each_edit_of_a_source_has_its_place(edit: wrong_sources.Edit) -> None:
    assert (wrong_sources.ROOT / edit.file).read_text().count(edit.old) == 1
    assert edit.old != edit.new


def test_every_wrong_plan_is_refused(tmp_path: Path) -> None:
    made = subject("digits", "c", tmp_path, samples=2, pools=prove.SMALL_POOLS)
    assert_none_survives(judged(wrong_plans.plan_mutants(made, 3)), LEAST)


def test_every_wrong_start_and_wait_is_refused(tmp_path: Path) -> None:
    made = subject("digits", "", tmp_path, samples=1, devices=wrong_devices.CORES)
    assert_none_survives(judged(wrong_devices.mutants(made, 3)), 20)


@pytest.mark.host_c
def test_wrong_kernels_and_lives_are_caught(tmp_path: Path) -> None:
    made = subject("digits", prove.M4, tmp_path, samples=40)
    check_sound(made)
    wrong = [*wrong_kernels.mutants(made, 1), *wrong_plans.problem_mutants(made, 1)]
    chosen = [m for m in wrong if m.kind in KINDS or m.kind in wrong_plans.OVERLAPS]
    assert_none_survives(judged(chosen), 5)


@pytest.mark.deep
@pytest.mark.host_c
def test_none_of_all_defects_survives() -> None:
    names = [n for n in prove.PARTS if "kws" not in n or models_file("kws").is_file()]
    assert_none_survives([row for name in names for row in prove.run_part(name)], LEAST_DEEP)
