"""Every model and board has a row, also if nothing can be measured."""

from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.bench import model_benchmark
from firmwright.bench.model_benchmark import (
    BenchmarkRow,
    PeerResult,
    find_models,
    measure_models,
)
from firmwright.bench.peer_figures import read_peers
from firmwright.cli.main import main


def test_models_are_found_in_a_folder_or_bundled(tmp_path: Path, digits_path: Path):
    assert find_models("") == (digits_path,)
    assert find_models(str(digits_path.parent)) == (
        digits_path,
        digits_path.with_name("digits_float.tflite"),
    )
    with pytest.raises(UsageError, match=r"there is no \.tflite, \.onnx or \.pt2 file"):
        find_models(str(tmp_path))
    for name in ("b.onnx", "a.tflite", "c.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in find_models(str(tmp_path))] == ["a.tflite", "b.onnx"]


def test_the_ratio_compares_instructions_only():
    rival = PeerResult(200, None, None)
    row = BenchmarkRow(
        "m", "b", "cortex-m4", unit="instructions", count=100, peer=rival
    )
    assert row.ratio == 0.5
    assert (
        BenchmarkRow("m", "b", "host", unit="ns", count=100, peer=rival).ratio is None
    )
    assert (
        BenchmarkRow("m", "b", "cortex-m4", unit="instructions", count=100).ratio
        is None
    )


@pytest.mark.models
@pytest.mark.deep
def test_row_of_a_model_that_does_not_fit_has_the_problem(model_path):
    (row,) = measure_models(
        [model_path("ad01_int8.tflite")], ["microbit"], read_peers()
    )
    assert row.count is None
    assert "does not fit" in row.problem


def test_a_mode_that_a_model_does_not_have_leaves_the_other_rows(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    digits_path: Path,
) -> None:
    def measure(path: Path, board: str, core: str, mode: str) -> BenchmarkRow:
        if mode == "ram+rows":
            raise UsageError("the input has one row.", hint="omit it.")
        return BenchmarkRow(path.name, board, core, mode, "instructions", 1234)

    monkeypatch.setattr(model_benchmark, "_row", measure)
    selected = ["--boards", "mps2-an386", "--modes", "ram,ram+rows"]
    code = main(["bench", str(digits_path), *selected])
    shown = capsys.readouterr()
    assert code == 1
    assert "1,234" in shown.out
    assert "[1] digits on mps2-an386, ram+rows: the input has one row." in shown.out
    assert "1 of 2 rows could not be measured" in shown.err


@pytest.mark.host_c
def test_the_host_is_measured_in_nanoseconds(digits_path: Path):
    (row,) = measure_models([digits_path], ["host"], ())
    assert row.unit == "ns"
    assert row.workspace_bytes
    assert row.flash_bytes
    assert not row.problem
