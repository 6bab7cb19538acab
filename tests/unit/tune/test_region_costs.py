"""Counts of operators whose indices have gaps, because views have an index but no kernel."""

from __future__ import annotations

import pytest

from firmwright.device.session import OperatorCount
from firmwright.flows.compilation import compile_for
from firmwright.flows.model import load_model
from firmwright.tune.region_costs import counts_by_operator


def test_counts_are_found_by_operator_index(digits: str) -> None:
    compiled = compile_for(load_model(digits), "host")
    indices = [operator.index for operator in compiled.summary.operators]
    count = max(indices) + 1
    assert len(indices) < count
    records = [OperatorCount(100 + index, 1, 0) for index in range(count)]
    assert counts_by_operator(compiled, records) == {index: 100 + index for index in indices}


@pytest.fixture(name="digits")
def _digits() -> str:
    from firmwright.base.resources import digits_dir

    return str(digits_dir() / "digits.tflite")
