"""The bench of commands measures each in a new process, in one version or two."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.bench import verb_cost
from firmwright.bench.verb_cost import VerbCost, measure_verb_costs

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows reports no CPU time"
)


def fake_version(folder: Path, source: str) -> Path:
    package = folder / "firmwright"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(source)
    return folder


def test_each_command_is_measured(digits_path: Path) -> None:
    rows = measure_verb_costs([digits_path], ["mps2-an386"], runs=1)
    assert [(row.verb, row.model, row.board) for row in rows] == [
        ("ops", "", ""),
        ("inspect", "digits.tflite", ""),
        ("compile", "digits.tflite", "mps2-an386"),
    ]
    assert all(
        row.cpu_seconds > 0 and not row.problem and row.ratio is None for row in rows
    )


def test_the_versions_take_turns_and_the_least_times_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = fake_version(tmp_path, "")
    times = iter([3.0, 8.0, 2.0, 4.0, 5.0, 9.0])
    versions = list[Path | None]()

    def run(command: object, version: Path | None) -> tuple[float, str]:
        versions.append(version)
        return next(times), ""

    monkeypatch.setattr(verb_cost, "_run", run)
    (row,) = measure_verb_costs([], [], other, runs=3)
    assert versions == 3 * [None, other]
    assert row == VerbCost("ops", cpu_seconds=2.0, other_seconds=4.0)
    assert row.ratio == 0.5


def test_the_package_of_the_other_version_runs(tmp_path: Path) -> None:
    source = "import sys\nsys.exit(f'ran {sys.argv[1]}')\n"
    (row,) = measure_verb_costs([], [], fake_version(tmp_path, source), runs=1)
    assert row.problem == f"{tmp_path}: exit status 1: ran ops"
    assert row.cpu_seconds > 0


def test_a_folder_without_the_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the folder has no package firmwright"):
        measure_verb_costs([], [], tmp_path)
