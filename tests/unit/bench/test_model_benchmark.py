"""Every model and board has a row, also if nothing can be measured."""

from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.bench.model_benchmark import (
    BenchmarkRow,
    PeerResult,
    find_models,
    measure_models,
)
from firmwright.bench.peer_figures import read_peers


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


@pytest.mark.host_c
def test_the_host_is_measured_in_nanoseconds(digits_path: Path):
    (row,) = measure_models([digits_path], ["host"], ())
    assert row.unit == "ns"
    assert row.workspace_bytes
    assert row.flash_bytes
    assert not row.problem
