"""Agreements of the tiles of depthwise convolutions with the schedules that call them.

A tile is some adjacent outputs of a row of some channels. A channel has one window of
weights, so tiles differ in the way of the inputs, not in that of the weights.
"""

import enum
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array, DType
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.contract import (
    BiasAdder,
    Requantizer,
    SumPlace,
    WeightLayout,
    WrappingSums,
    fits_element,
)


class WindowInputs(enum.Enum):
    """How the inputs of a window arrive in registers."""

    ROTATING = enum.auto()
    """Each input is loaded once, and multiplied into all sums that use it in turn."""
    STRIP = enum.auto()
    """Each input is loaded once for the outputs of a strip, and stays in a register."""
    IN_PLACE = enum.auto()
    """Each output loads its own inputs."""
    PADDED_ROWS = enum.auto()
    """As in place, from a copy of the input rows with their padding."""
    CHANNEL_PLANE = enum.auto()
    """A gather reads the windows of some outputs, from a padded copy of one channel."""


class OutsideTaps(enum.Enum):
    """Where taps outside the input count, whose value is the zero point."""

    OMITTED = enum.auto()
    """Nowhere: they are 0, since values are less the zero point."""
    BIAS_OF_RUN = enum.auto()
    """In the bias, of which each run of outputs with equal valid taps has its own."""
    ADDED = enum.auto()
    """In code that adds their weights times the zero point to the bias."""
    COPIED = enum.auto()
    """In the padding of a copy."""


@dataclass(frozen=True, slots=True)
class DepthwiseContract:
    """The size of a tile, its inputs and weights, and the part that does each step."""

    channels: int
    outputs: int
    inputs: WindowInputs
    outside: OutsideTaps
    layout: WeightLayout
    bias: BiasAdder = BiasAdder.SCHEDULE
    requantization: Requantizer = Requantizer.SCHEDULE
    sums: SumPlace = SumPlace.REGISTERS

    def is_bias_shared(self, zero_point: int) -> bool:
        """Whether all runs of outputs begin with the same bias."""
        return zero_point == 0 or self.outside is not OutsideTaps.BIAS_OF_RUN


@dataclass(frozen=True, slots=True)
class OverlappingBlocks(WrappingSums):
    """The layout of blocks of `lanes` channels: for each tap, the weights of a block.

    The last block begins earlier if it would not be full:

        5 channels, 4 lanes:  | tap 0: 0 1 2 3 | tap 1: 0 1 2 3 |  block 0
                              | tap 0: 1 2 3 4 | tap 1: 1 2 3 4 |  block 1

    `order` is the channel within its block that each lane holds, if not its own.
    """

    element: DType
    lanes: int
    order: tuple[int, ...] | None = None

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.lanes,)

    @property
    def taps_per_step(self) -> int:
        return 1

    def pack(self, weights: Array) -> Array:
        blocks = ChannelBlocks(len(weights), self.lanes)
        packed = blocks.pack(weights.T, self.order)
        return packed.reshape(-1).astype(self.element.np)

    def unpack(self, packed: Array, channels: int) -> Array:
        blocks = ChannelBlocks(channels, self.lanes)
        by_tap = packed.reshape(blocks.count, -1, self.lanes)
        weights = np.empty((channels, by_tap.shape[1]), packed.dtype)
        for block, taps in enumerate(by_tap):
            start = min(block * self.lanes, blocks.last)
            for lane, channel in enumerate(self.order or range(self.lanes)):
                if channel < blocks.stored:
                    weights[start + channel] = taps[:, lane]
        return weights

    def do_weights_fit(self, weights: Array) -> bool:
        return fits_element(weights, self.element)
