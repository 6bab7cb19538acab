"""Depthwise taps of sixteen channels: the sums of the program for the machine."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.kernels.mve.depthwise import (
    CHANNELS,
    SUMS,
    VisibleTaps,
    depthwise_taps,
    depthwise_taps_in_turn,
)
from firmwright.kernels.program import Program
from firmwright.schedules.helium.depthwise_microkernels_16ch import LANE_ORDER

COLUMN, ROW = 32, 80
TAPS = (VisibleTaps(1, 1, 1), VisibleTaps(3, 3, 3), VisibleTaps(2, 2, 4))


def assert_sums(program: Program, taps: VisibleTaps) -> None:
    rng = np.random.default_rng(taps.count)
    x = rng.integers(-128, 128, ROW * taps.rows + COLUMN * taps.width, np.int8)
    w = rng.integers(-64, 64, taps.rows * taps.width * CHANNELS, np.int8)
    bias = rng.integers(-(1 << 30), 1 << 30, CHANNELS, np.int32)
    back = ROW - (taps.columns - 1) * COLUMN
    numbers = {"column": COLUMN, "row": back, "x_column": COLUMN}
    numbers |= {"i": taps.rows, "j": taps.columns, str(taps.unused): taps.unused}
    numbers[f"x_row - {taps.columns} * x_column"] = back - COLUMN
    starts = bias.reshape(4, 4)
    registers = {name: list(starts[n]) for n, name in enumerate(SUMS)}
    memory = {"x": list(x), "w": list(w), "bias": list(bias)}
    state = run_program(program, evaluate, memory, registers, numbers)
    found = np.array([state.registers[name] for name in SUMS]).reshape(CHANNELS)
    channels = np.array(LANE_ORDER)
    expected = bias.astype(np.int64)
    for i in range(taps.rows):
        for j in range(taps.columns):
            values = x[i * ROW + j * COLUMN + channels].astype(np.int64)
            expected += values * w[CHANNELS * (i * taps.width + j) + channels]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("taps", TAPS, ids=lambda taps: taps.name)
def test_programs_are_sums_of_products(taps: VisibleTaps) -> None:
    assert_sums(depthwise_taps(taps), taps)
    assert_sums(depthwise_taps_in_turn(taps), taps)
