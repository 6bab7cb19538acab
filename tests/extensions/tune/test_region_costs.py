"""Counts of operators with gaps in their indices, left by views without kernels."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from firmwright.device.session import OperatorCount
from firmwright.extensions.tune import kernel_measurement
from firmwright.extensions.tune.kernel_measurement import TIMER, MeasurementSetup
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model


def test_counts_are_found_by_operator_index(
    digits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compile_for(load_model(digits), "host")
    indices = [operator.index for operator in compiled.summary.operators]
    count = max(indices) + 1
    assert len(indices) < count
    records = [OperatorCount(100 + index, 1, 0) for index in range(count)]
    info = SimpleNamespace(counter_unit="ns")
    device = SimpleNamespace(
        measure=lambda sample: 0, profile=lambda: records, info=info
    )
    session = nullcontext(SimpleNamespace(device=device))
    monkeypatch.setattr(kernel_measurement, "build_image", lambda *_: None)
    monkeypatch.setattr(kernel_measurement, "open_session", lambda *_, **__: session)
    counts, unit = kernel_measurement.measure_operators(
        compiled, MeasurementSetup(TIMER), {}
    )
    assert (counts, unit) == ({index: 100 + index for index in indices}, "ns")


@pytest.fixture(name="digits")
def _digits() -> str:
    from firmwright.base.resources import digits_dir

    return str(digits_dir() / "digits.tflite")
