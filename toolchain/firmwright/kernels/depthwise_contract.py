"""Agreements of the tiles of depthwise convolutions with the schedules that call them.

A tile is some adjacent outputs of a row of some channels. A channel has one window of
weights, so tiles differ in the way of the inputs, not in that of the weights.
"""

import enum
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array, DType
from firmwright.base.rounding import divide_up
from firmwright.kernels.contract import (
    BiasAdder,
    Requantizer,
    SumPlace,
    WeightLayout,
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
class LaneBlocks:
    """Channels in blocks of `size` lanes; the last block overlaps its predecessor.

    `order` is the channel within its block that each lane holds.
    """

    channels: int
    size: int
    order: tuple[int, ...]

    @property
    def count(self) -> int:
        return divide_up(self.channels, self.size)

    @property
    def used_lanes(self) -> int:
        """The channels of a block: fewer than its lanes if the layer has no more."""
        return min(self.channels, self.size)

    @property
    def last_start(self) -> int:
        """The first channel of the last block."""
        return self.channels - self.used_lanes

    def pack(self, values: Array) -> Array:
        """Pack [..., channel] as [block, ..., lane]; unused lanes repeat the last."""
        starts = np.minimum(np.arange(self.count) * self.size, self.last_start)
        channels = np.minimum(starts[:, None] + self.order, self.channels - 1)
        return np.ascontiguousarray(np.moveaxis(values[..., channels], -2, 0))


@dataclass(frozen=True, slots=True)
class OverlappingBlocks:
    """The layout of blocks of `lanes` channels: for each tap, the weights of a block.

    The last block begins earlier if it would not be full:

        5 channels, 4 lanes:  | tap 0: 0 1 2 3 | tap 1: 0 1 2 3 |  block 0
                              | tap 0: 1 2 3 4 | tap 1: 1 2 3 4 |  block 1
    """

    element: DType
    lanes: int

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.lanes,)

    @property
    def taps_per_step(self) -> int:
        return 1

    def _blocks(self, channels: int) -> LaneBlocks:
        return LaneBlocks(channels, self.lanes, tuple(range(self.lanes)))

    def pack(self, weights: Array) -> Array:
        packed = self._blocks(len(weights)).pack(weights.T)
        return packed.reshape(-1).astype(self.element.np)

    def unpack(self, packed: Array, channels: int) -> Array:
        blocks = self._blocks(channels)
        by_tap = packed.reshape(blocks.count, -1, self.lanes)
        weights = np.empty((channels, by_tap.shape[1]), packed.dtype)
        for block, taps in enumerate(by_tap):
            start = min(block * self.lanes, blocks.last_start)
            weights[start : start + blocks.used_lanes] = taps.T[: blocks.used_lanes]
        return weights

    def do_weights_fit(self, weights: Array) -> bool:
        if self.element.is_float:
            return True
        return bool((weights == weights.astype(self.element.np)).all())

    def do_sums_fit(self, low: Array, high: Array) -> bool:
        """Return True: sums are exact modulo 2^32, whatever they are."""
        return True
