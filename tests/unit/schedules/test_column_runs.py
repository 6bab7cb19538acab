"""Columns on Helium that lie in memory as they are multiplied, and short ones."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.ops.conv_window import ConvWindow
from firmwright.schedules.helium.column_runs import (
    SPREAD,
    adjacent_weights,
    are_columns_adjacent,
)
from firmwright.schedules.helium.short_columns import sums_of_column

LANES = 16


@pytest.mark.parametrize(
    ("size", "dilation", "channels", "is_adjacent"),
    [
        ((1, 3), (1, 1), 40, True),
        ((1, 3), (1, 2), 4, False),
        ((3, 1), (1, 2), 4, True),
        ((3, 3), (2, 1), 8, True),
        ((3, 3), (1, 1), 9, False),
        ((15, 1), (1, 1), 1, True),
        ((16, 1), (1, 1), 1, False),
    ],
)
def test_columns_are_adjacent_in_one_row_or_of_few_channels(
    size: tuple[int, int],
    dilation: tuple[int, int],
    channels: int,
    is_adjacent: bool,
) -> None:
    window = ConvWindow(size, (1, 1), dilation, (0, 0, 0, 0), (40, 40))
    assert are_columns_adjacent(window, channels) == is_adjacent


@pytest.mark.parametrize("channels", [1, 3, 8])
def test_columns_of_a_band_are_the_windows(channels: int) -> None:
    height, width, columns = 3, 2, 11
    rng = np.random.default_rng(channels)
    x = rng.integers(-128, 128, (height, columns, channels)).astype(np.int8)
    kernel = rng.integers(-127, 128, (5, height, width, channels))
    pixels, pitch = LANES // channels, height * channels
    pixel, channel = np.divmod(np.arange(LANES), channels)
    offsets = (pixel * pitch + channel).astype(np.uint8)
    band = np.zeros(columns * pitch, np.int8)
    for row in range(height):
        numbers = [pixels * channels, pixels * channels, pixels * pitch]
        start = row * channels
        band[start:] = SPREAD.meaning(
            band[start:], x[row].reshape(-1), offsets, *numbers, columns * channels
        )
    flat = adjacent_weights(kernel)
    for first in range(columns - width + 1):
        window = x[:, first : first + width].astype(np.int64)
        column = band[first * pitch : (first + width) * pitch].astype(np.int64)
        expected = np.einsum("orci,rci->o", kernel, window)
        np.testing.assert_array_equal(flat @ column, expected)


@pytest.mark.parametrize("taps", [1, 9, 16])
def test_a_short_column_is_multiplied_by_four_channels(taps: int) -> None:
    rng = np.random.default_rng(taps)
    x = rng.choice(np.array([-128, 127, -1, 3], np.int8), (LANES, 2))
    weights = rng.integers(-128, 128, (4, LANES, 2)).astype(np.int8)
    weights[:, taps:] = 0
    registers = {f"w{channel}": tuple(row) for channel, row in enumerate(weights)}
    registers["taps"] = (np.full(2, taps, np.int32),)
    registers["inside"] = tuple(np.full(2, lane < taps) for lane in range(LANES))
    memory = {"x": list(x)}
    state = run_program(
        sums_of_column().chosen({"taps": taps}), evaluate, memory, registers
    )
    expected = np.einsum("olc,lc->oc", weights.astype(np.int64), x.astype(np.int64))
    np.testing.assert_array_equal(np.array(state.registers["total"]), expected)
