"""Schedules are chosen with the cycles that tensors in slow pools add."""

from __future__ import annotations

from pathlib import Path

import pytest

from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.verification import verify
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.memory_traffic import count_traffic
from firmwright.pipeline import Compilation

DIGITS = (
    Path(__file__).resolve().parents[3] / "examples" / "01_digits" / "digits.tflite"
)
CORE = "cortex-m -mcpu=cortex-m4"


def pool(name: str, bandwidth: float, latency: int) -> PoolInfo:
    return PoolInfo(name, None, "rw", (), bandwidth, bandwidth, latency, latency)


POOLS = (pool("dtcm", 8, 0), pool("psram", 0.5, 20))


def compiled(place: str) -> Compilation:
    given = {"pools": POOLS, "pool_assignments": (("max_pool_2d_2", place),)}
    return compile_for(
        load_model(DIGITS), target=CORE, planner="greedy_by_size", **given
    )


def fully_connected(done: Compilation) -> tuple[str, int]:
    """Return the layer's schedule, and how often it accesses the tensor."""
    (row,) = (
        row for row in done.metadata["operators"] if row["kind"] == "fully_connected"
    )
    (kernel,) = (
        f
        for f in done.module.functions.values()
        if f.attrs.get("op") == "fully_connected"
    )
    return row["schedule"], count_traffic(kernel, {})["x"].reads


@pytest.mark.host_c
@pytest.mark.deep
def test_an_input_in_psram_is_read_fewer_times() -> None:
    near, far = compiled("dtcm"), compiled("psram")
    assert fully_connected(near)[0] == "dsp.fully_connected.rows rows=8 input=bytes"
    assert fully_connected(far)[0] == "dsp.fully_connected.rows rows=8"
    assert fully_connected(far)[1] < fully_connected(near)[1]
    assert verify(far, samples=3).exact
