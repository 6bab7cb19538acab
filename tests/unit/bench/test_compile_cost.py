"""The bench of compilations measures time and memory in a new process."""

import sys
from pathlib import Path

import pytest

from firmwright.bench.compile_cost import measure_compile_costs


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows does not report peak memory"
)
def test_time_and_memory_of_a_compilation_are_measured(digits_path: Path) -> None:
    (row,) = measure_compile_costs([digits_path], ["mps2-an386"])
    assert not row.problem
    assert row.operators == 9
    assert row.model_bytes == digits_path.stat().st_size
    assert row.seconds_per_operator == row.cpu_seconds / 9 > 0
    assert row.memory_ratio == row.peak_bytes / row.model_bytes > 0
