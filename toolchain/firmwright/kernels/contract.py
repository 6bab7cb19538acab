"""The contract between tiles of a matrix product and the schedules that call them.

A tile is a micro-kernel of some output channels times some pixels. Its result is stated
here in numpy, whatever its instructions are.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from firmwright.base.dtypes import INT8, Array, DType
from firmwright.base.rounding import divide_up


class WeightLayout(Protocol):
    """How memory holds the weights [channel, tap] that micro-kernels read.

    A proof of a micro-kernel assumes that weights and sums meet the obligations of the
    layout; a schedule checks them before it selects it.
    """

    @property
    def element(self) -> DType:
        """The type of an element of memory."""

    @property
    def widths(self) -> tuple[int, ...]:
        """The channels of groups (`divide_channels`)."""

    @property
    def taps_per_step(self) -> int:
        """The taps of a channel that a step of the micro-kernel multiplies."""

    def pack(self, weights: Array) -> Array:
        """Return the elements of memory that hold weights."""

    def unpack(self, packed: Array, channels: int) -> Array:
        """Return the weights of `channels` channels that elements hold."""

    def do_weights_fit(self, weights: Array) -> bool:
        """Whether weights meet their obligation."""

    def do_sums_fit(self, low: Array, high: Array) -> bool:
        """Whether sums of a channel in [low, high], with bias, meet theirs."""


class WrappingSums:
    """A layout whose sums have no obligation: they are exact modulo 2^32."""

    __slots__ = ()

    def do_sums_fit(self, low: Array, high: Array) -> bool:
        return True


def fits_element(values: Array, element: DType) -> bool:
    """Return whether elements hold values; floats always do."""
    if element.is_float:
        return True
    return bool(element.min <= values.min() and values.max() <= element.max)


class BiasAdder(enum.Enum):
    """Who adds the bias to sums."""

    SCHEDULE = enum.auto()
    """The schedule: sums are operands of the micro-kernel that begin with the bias, or
    with zero if there is none."""
    MICROKERNEL = enum.auto()
    """The micro-kernel: it loads the start of each sum."""
    EPILOGUE = enum.auto()
    """The epilogue: the micro-kernel begins with zero."""


class Requantizer(enum.Enum):
    """Who converts sums to the elements of the output."""

    SCHEDULE = enum.auto()
    MICROKERNEL = enum.auto()


class SumPlace(enum.Enum):
    """Where a micro-kernel leaves sums."""

    REGISTERS = enum.auto()
    MEMORY = enum.auto()


@dataclass(frozen=True, slots=True)
class TileContract:
    """The size of a tile, its weights in memory, and which part computes what."""

    channels: int
    pixels: int
    layout: WeightLayout
    bias: BiasAdder = BiasAdder.SCHEDULE
    requantization: Requantizer = Requantizer.SCHEDULE
    sums: SumPlace = SumPlace.REGISTERS


@dataclass(frozen=True, slots=True)
class ChannelGroups:
    """Groups of `channels` adjacent channels, `count` of them, from channel `first`."""

    first: int
    count: int
    channels: int


def divide_channels(channels: int, widths: Sequence[int]) -> list[ChannelGroups]:
    """Divide channels into groups: all that fit of the first width, then of the next.

    What remains is a group of its own.
    """
    groups: list[ChannelGroups] = []
    first = 0
    for width in widths:
        count = (channels - first) // width
        if count:
            groups.append(ChannelGroups(first, count, width))
        first += count * width
    if first < channels:
        groups.append(ChannelGroups(first, 1, channels - first))
    return groups


@dataclass(frozen=True, slots=True)
class InterleavedChannels(WrappingSums):
    """The layout of groups of channels: for each tap, the weights of the group.

        | tap 0: channel 0, 1, 2, 3 | tap 1: channel 0, 1, 2, 3 | ...

    If a step multiplies several taps, they are the bytes of an element of each channel;
    the last step is filled with zeros. Groups have as many channels as `widths` permits
    (`divide_channels`). Weights are stored with `offset` added.
    """

    element: DType
    widths: tuple[int, ...]
    offset: int = 0
    taps_per_step: int = 1

    @property
    def tap(self) -> DType:
        """The type of a tap in memory."""
        return INT8 if self.taps_per_step > 1 else self.element

    def pack(self, weights: Array) -> Array:
        channels, taps = weights.shape
        steps = divide_up(taps, self.taps_per_step)
        filling = steps * self.taps_per_step - taps
        stored = np.pad(weights + self.offset, ((0, 0), (0, filling)))
        by_step = stored.astype(self.tap.np).reshape(channels, steps, -1)
        parts: list[Array] = []
        for group in divide_channels(channels, self.widths):
            end = group.first + group.count * group.channels
            rows = by_step[group.first : end]
            by_group = rows.reshape(group.count, group.channels, steps, -1)
            parts.append(by_group.swapaxes(1, 2).ravel())
        return np.concatenate(parts).view(self.element.np)

    def unpack(self, packed: Array, channels: int) -> Array:
        taps = packed.view(self.tap.np)
        steps = packed.size // channels
        parts: list[Array] = []
        for group in divide_channels(channels, self.widths):
            size = group.count * group.channels
            place = slice(group.first * steps, (group.first + size) * steps)
            elements = taps.reshape(-1, self.taps_per_step)[place]
            by_step = elements.reshape(group.count, steps, group.channels, -1)
            parts.append(by_step.swapaxes(1, 2).reshape(size, -1))
        stored = np.concatenate(parts)
        if self.element.is_float:
            return stored
        return stored.astype(np.int64) - self.offset

    def do_weights_fit(self, weights: Array) -> bool:
        return fits_element(weights + self.offset, self.tap)


def sums_of_products(
    weights: Array, taps: Array, starts: Array | Sequence[Array | int]
) -> tuple[Array, ...]:
    """Return the sums of a tile, modulo 2^32: those of a channel are adjacent.

    Weights are [tap, channel, lane], taps [tap, pixel, lane]. Each sum has a start.
    """
    wide, columns = np.asarray(weights, np.int64), np.asarray(taps, np.int64)
    products = wide[:, :, None] * columns[:, None]
    totals = products.sum(axis=0).reshape(-1, *products.shape[3:])
    results: list[Array] = []
    for start, total in zip(starts, totals, strict=True):
        exact = np.asarray(start, np.int64) + total
        results.append(exact.astype(np.uint32).astype(np.int32))
    return tuple(results)
