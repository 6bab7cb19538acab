"""Layouts of weights: what is packed is unpacked again, if it meets the obligations."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT8, UINT32
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.contract import (
    ChannelGroups,
    InterleavedChannels,
    WeightLayout,
    divide_channels,
)
from firmwright.kernels.dsp.weight_packing import BYTES, INT4, PAIRED, PairedChannels
from firmwright.kernels.mve.dot_products import Weights
from firmwright.kernels.mve.weight_layout import WeightRows

CHANNELS = 16
TAPS = 12
LAYOUTS: dict[str, WeightLayout] = {
    "interleaved": InterleavedChannels(INT8, (8,)),
    "with a rest": InterleavedChannels(INT8, (6, 3)),
    "unsigned": InterleavedChannels(UINT8, (4,), offset=128),
    "words": InterleavedChannels(UINT32, (6, 3), taps_per_step=4),
    "float": InterleavedChannels(FLOAT32, (5,)),
    **{
        f"{name} of {channels} x {rows} x {TAPS // rows}": PairedChannels(
            packing, channels, rows, TAPS // rows
        )
        for name, packing in (("bytes", BYTES), ("paired", PAIRED))
        for channels in (2, 4, 8)
        for rows in (1, 2, 4, 12)
    },
    "int4": PairedChannels(INT4, 2, 3, 4),
}
ROWS = (*(WeightRows(rows, kind) for kind in Weights for rows in (4, 8)),)
"""The layouts of Helium, which pad taps."""


@pytest.mark.parametrize("name", LAYOUTS)
def test_packed_weights_are_unpacked_again(name: str) -> None:
    layout = LAYOUTS[name]
    reach = 8 if name == "int4" else 127
    rng = np.random.default_rng(7)
    weights = rng.integers(-reach, reach, (CHANNELS, TAPS))
    assert layout.do_weights_fit(weights)
    packed = layout.pack(weights)
    assert packed.dtype == layout.element.np
    np.testing.assert_array_equal(layout.unpack(packed, CHANNELS), weights)


@pytest.mark.parametrize("layout", ROWS, ids=repr)
def test_rows_are_unpacked_from_whole_vectors(layout: WeightRows) -> None:
    reach = 7 if layout.weights is Weights.INT4 else 127
    weights = np.random.default_rng(3).integers(-reach, reach + 1, (16, 21))
    assert layout.do_weights_fit(weights)
    packed = layout.pack(weights)
    assert packed.dtype == layout.element.np
    steps = -(-21 // layout.taps_per_step)
    assert packed.size == 16 // layout.rows * steps * layout.step_bytes
    unpacked = layout.unpack(packed, 16)
    np.testing.assert_array_equal(unpacked[:, :21], weights)
    assert not unpacked[:, 21:].any()


def test_the_last_block_overlaps_the_one_before_it() -> None:
    assert ChannelBlocks(5, 4).rows(np.arange(5)).tolist() == [0, 1, 2, 3, 1, 2, 3, 4]
    assert ChannelBlocks(2, 4).rows(np.arange(1, 3)).tolist() == [1, 2, 0, 0]


def test_a_byte_of_int4_rows_holds_no_sum_below_its_range() -> None:
    layout = WeightRows(4, Weights.INT4)
    weights = np.zeros((4, 1), np.int64)
    weights[1] = -8
    assert layout.do_weights_fit(weights)
    weights[0] = -1
    assert not layout.do_weights_fit(weights)
    assert layout.do_sums_fit(np.array([-(1 << 27)]), np.array([(1 << 27) - 1]))
    assert not layout.do_sums_fit(np.array([0]), np.array([1 << 27]))


def test_tables_hold_vectors_of_each_parameter() -> None:
    blocks = ChannelBlocks(10, 8)
    assert (blocks.count, blocks.stored, blocks.last) == (2, 8, 2)
    table = blocks.table(np.arange(10), 100 + np.arange(10))
    assert table[0].tolist() == [
        *(0, 1, 2, 3, 100, 101, 102, 103),
        *(4, 5, 6, 7, 104, 105, 106, 107),
    ]
    assert table[1, :8].tolist() == [2, 3, 4, 5, 102, 103, 104, 105]
    few = ChannelBlocks(3, 4)
    assert few.table(np.arange(1, 4)).tolist() == [[1, 2, 3, 0]]


def test_weights_of_a_tap_are_adjacent_in_a_group() -> None:
    weights = np.arange(10).reshape(5, 2)
    packed = InterleavedChannels(INT8, (2,), offset=1).pack(weights)
    assert packed.tolist() == [1, 3, 2, 4, 5, 7, 6, 8, 9, 10]


def test_a_word_holds_four_taps_of_a_channel_and_ends_with_zeros() -> None:
    weights = np.array([[1, 2, 3, 4, -1], [5, 6, 7, 8, -2]])
    packed = InterleavedChannels(UINT32, (2,), taps_per_step=4).pack(weights)
    assert packed.tolist() == [0x04030201, 0x08070605, 0xFF, 0xFE]


def test_a_step_of_int4_has_twice_the_taps() -> None:
    bytes_, int4 = PairedChannels(BYTES, 2, 2, 8), PairedChannels(INT4, 2, 2, 8)
    weights = np.zeros((2, 16), np.int64)
    assert (bytes_.taps_per_step, int4.taps_per_step) == (2, 4)
    assert bytes_.pack(weights).shape == (1, bytes_.steps, 1) == (1, 8, 1)
    assert int4.pack(weights).shape == (1, int4.steps, 1) == (1, 4, 1)


@pytest.mark.parametrize(
    ("layout", "weights"),
    [
        (LAYOUTS["unsigned"], [[-129], [0], [0], [0]]),
        (LAYOUTS["unsigned"], [[128], [0], [0], [0]]),
        (PairedChannels(PAIRED, 2, 1, 1), [[-1], [-128]]),
        (PairedChannels(INT4, 2, 1, 1), [[8], [0]]),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    layout: WeightLayout, weights: list[list[int]]
) -> None:
    assert not layout.do_weights_fit(np.array(weights))
    assert layout.do_weights_fit(np.clip(weights, -7, 7))


@pytest.mark.parametrize(("packing", "bits"), [(PAIRED, 24), (INT4, 28), (BYTES, 32)])
def test_only_sums_of_odd_channels_are_limited(packing, bits) -> None:
    layout = PairedChannels(packing, 2, 1, 1)
    most = (1 << (bits - 1)) - 1
    high = np.array([INT32.max, most])
    assert layout.do_sums_fit(-high, high)
    if bits < INT32.bits:
        one = np.array([0, 1])
        assert not layout.do_sums_fit(-high, high + one)
        assert not layout.do_sums_fit(-high - one, high)


def test_channels_are_divided_by_the_widest_groups_first() -> None:
    assert divide_channels(23, (8, 4)) == [
        ChannelGroups(0, 2, 8),
        ChannelGroups(16, 1, 4),
        ChannelGroups(20, 1, 3),
    ]
    assert divide_channels(3, (8, 4)) == [ChannelGroups(0, 1, 3)]
    assert divide_channels(8, (8, 4)) == [ChannelGroups(0, 1, 8)]
