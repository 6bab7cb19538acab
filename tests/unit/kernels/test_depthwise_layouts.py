"""Layouts of depthwise weights, and the strips that cover a row of outputs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8, INT16
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.contract import BiasAdder, InterleavedChannels, WeightLayout
from firmwright.kernels.depthwise_contract import (
    DepthwiseContract,
    OutsideTaps,
    OverlappingBlocks,
    WindowInputs,
)
from firmwright.kernels.dsp.depthwise_weights import ChannelPairs, LinePairs
from firmwright.ops.conv_window import ConvWindow
from firmwright.schedules.depthwise import strips_of
from firmwright.schedules.window_bounds import ValidTapRun, split_by_valid_taps

LINES = (1, 2, 3)
ACROSS = (1, 2, 3, 4)
LAYOUTS: dict[str, tuple[WeightLayout, int, int]] = {
    "blocks": (OverlappingBlocks(INT8, 16), 20, 9),
    "ordered lanes": (OverlappingBlocks(INT16, 4, (0, 2, 1, 3)), 10, 6),
    "whole blocks": (OverlappingBlocks(FLOAT32, 4), 8, 6),
    "fewer channels than lanes": (OverlappingBlocks(INT8, 16), 5, 2),
    "pairs of channels": (ChannelPairs(4), 8, 3),
    "odd groups of channels": (ChannelPairs(3), 6, 3),
    **{
        f"{lines} lines of {across} as {element.name}": (
            LinePairs(lines, across, element),
            3,
            lines * across,
        )
        for lines, across, element in product(LINES, ACROSS, (INT8, INT16))
    },
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_packed_weights_are_unpacked_again(name: str) -> None:
    layout, channels, taps = LAYOUTS[name]
    weights = np.random.default_rng(taps).integers(-127, 128, (channels, taps))
    assert layout.do_weights_fit(weights)
    packed = layout.pack(weights)
    assert packed.dtype == layout.element.np
    np.testing.assert_array_equal(layout.unpack(packed, channels), weights)


def test_pairs_of_lines_are_as_drawn() -> None:
    weights = np.array([[1, 2, 3, 4, 5, 6, 7, 8, 9]])
    assert LinePairs(3, 3).pack(weights).tolist() == [[1, 2, 4, 5, 7, 8, 3, 6, 9, 0]]
    octets = LinePairs(3, 3, INT8)
    assert octets.pack(weights).tolist() == [[1, 4, 2, 5, 7, 3, 8, 6, 9]]
    assert (octets.words, octets.taps_alone) == (5, 1)


def test_weights_that_fit_no_byte_are_not_packed_as_bytes() -> None:
    weights = np.array([[128, 0]])
    assert not LinePairs(1, 2, INT8).do_weights_fit(weights)
    assert not OverlappingBlocks(INT8, 4).do_weights_fit(weights)
    assert LinePairs(1, 2).do_weights_fit(weights)


def test_the_last_block_of_lanes_overlaps_its_predecessor() -> None:
    order = (0, 2, 1, 3)
    blocks = ChannelBlocks(5, 4)
    assert blocks.pack(np.arange(5), order).tolist() == [[0, 2, 1, 3], [1, 3, 2, 4]]
    few = ChannelBlocks(3, 4)
    assert few.pack(np.arange(3), order).tolist() == [[0, 2, 1, 2]]


def test_runs_have_a_bias_of_their_own_if_the_zero_point_is_in_it() -> None:
    def shared(outside: OutsideTaps, zero_point: int) -> bool:
        layout = InterleavedChannels(INT8, (1,))
        contract = DepthwiseContract(
            1, 1, WindowInputs.IN_PLACE, outside, layout, BiasAdder.MICROKERNEL
        )
        return contract.is_bias_shared(zero_point)

    assert not shared(OutsideTaps.BIAS_OF_RUN, 3)
    assert shared(OutsideTaps.BIAS_OF_RUN, 0)
    assert shared(OutsideTaps.ADDED, 3)


@pytest.mark.parametrize(("width", "outputs"), list(product((1, 2, 5, 7), (1, 2, 3))))
def test_strips_cover_each_output_once_and_reach_its_taps(
    width: int, outputs: int
) -> None:
    window = ConvWindow((1, 3), (1, 2), (1, 2), (0, 0, 2, 2), (1, 2 * width - 1))
    seen: list[int] = []
    for run in split_by_valid_taps(window, 1, width):
        for strips in strips_of(window, run, outputs):
            assert strips.outputs <= outputs
            count = strips.outputs * strips.times
            seen += range(strips.first, strips.first + count)
            assert (strips.skipped, strips.reach) == _columns(run, strips.outputs)
    assert seen == list(range(width))


def _columns(run: ValidTapRun, outputs: int) -> tuple[int, int]:
    """Return the first column of a strip with stride 2 and dilation 2, and its reach."""
    read = {2 * output + 2 * tap for output in range(outputs) for tap in run.taps}
    return min(read), max(read) - min(read)
