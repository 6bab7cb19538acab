"""Depthwise taps of channels in lanes: the sums of the programs for the machine."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT16
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.kernels.mve.depthwise import (
    CHANNELS,
    SUMS,
    VisibleTaps,
    depthwise_taps,
    depthwise_taps_in_turn,
)
from firmwright.kernels.mve.depthwise_lanes import (
    LaneWindow,
    depthwise_lanes,
    depthwise_lanes_in_turn,
)
from firmwright.kernels.program import Program
from firmwright.schedules.helium.depthwise_microkernels import LANE_ORDERS

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
    channels = np.array(LANE_ORDERS[CHANNELS])
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


WINDOWS = (
    LaneWindow(1, 1, INT8, INT8),
    LaneWindow(2, 3, INT8, INT8),
    LaneWindow(2, 2, INT16, INT8),
    LaneWindow(1, 2, INT8, INT16),
    LaneWindow(2, 3, INT16, INT8, is_partial=True),
)
ROWS, PIXEL, LANES = 3, 24, 5


def assert_sums_of_lanes(program: Program, window: LaneWindow) -> None:
    rng = np.random.default_rng(window.columns)
    values, weights = window.values, window.weights
    count = LANES if window.is_partial else 8
    x_end = (ROWS - 1) * ROW + (window.columns - 1) * COLUMN + PIXEL + count
    w_row, w_column = 8 * (window.columns + 1), 8
    w_end = (ROWS - 1) * w_row + (window.columns - 1) * w_column + count
    x = rng.integers(values.min, values.max + 1, x_end + 8, values.np)
    w = rng.integers(weights.min, weights.max + 1, w_end + 8, weights.np)
    bias = rng.integers(-(1 << 20), 1 << 20, 8, np.int32)
    steps = window.columns - 1
    numbers = {
        "x_column": COLUMN,
        "w_column": w_column,
        "x_end": ROW - steps * COLUMN,
        "w_end": w_row - steps * w_column,
        "rows": ROWS,
        "i": ROWS,
        "j": window.columns,
        f"x_row - {window.columns} * x_column": ROW - window.columns * COLUMN,
        f"w_row - {window.columns} * w_column": w_row - window.columns * w_column,
    }
    starts = bias.reshape(2, 4)
    registers = {
        name: list(half)
        for names in window.sums
        for name, half in zip(names, starts, strict=True)
    }
    registers |= {"count": [count], "p0": [True] * 16}
    pixels = dict(zip(window.values_of_pixels, (x, x[PIXEL:]), strict=False))
    memory = {name: list(data) for name, data in pixels.items()}
    memory |= {"w": list(w), "bias": list(bias)}
    state = run_program(program, evaluate, memory, registers, numbers)
    channels = np.array(LANE_ORDERS[8])
    is_used = channels < count
    wide_x, wide_w = x.astype(np.int64), w.astype(np.int64)
    for pixel, names in enumerate(window.sums):
        found = np.array([state.registers[name] for name in names]).reshape(8)
        expected = bias.astype(np.int64)
        for i in range(ROWS):
            for j in range(window.columns):
                first = pixel * PIXEL + i * ROW + j * COLUMN
                seen = wide_x[first + np.minimum(channels, count - 1)]
                tap = wide_w[i * w_row + j * w_column + np.minimum(channels, count - 1)]
                expected += np.where(is_used, seen * tap, 0)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_programs_of_lanes_are_sums_of_products(window: LaneWindow) -> None:
    assert_sums_of_lanes(depthwise_lanes(window), window)
    assert_sums_of_lanes(depthwise_lanes_in_turn(window), window)
