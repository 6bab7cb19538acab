"""Channels that are settled at compile time: their output is the same for every input.

Training leaves dead channels in networks, whose scale is so small, or whose bias so far out, that
no input moves the output. The requantise step never falls as its accumulator grows (multipliers
are not negative, both roundings and the clamp are monotone), so a channel whose least and greatest
possible accumulator give the same output is constant. The proof also needs that neither of them
leaves 32 bits on its way through the step. Kernels write such values without computing anything,
and their weights take no flash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8, UINT16, UINT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import Array
from firmwright.ir.tir.builder import INDEX, ArithExpr, immediate, minimum
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization

_WORD = 4
_UNROLL = 4
_LIMIT = 1 << 30
"""Room for the output's zero point beside a result that no right shift made smaller."""


@dataclass(frozen=True, slots=True)
class ConstantChannels:
    """Channel -> its constant output. `rows` holds a pixel's output where the values differ."""

    values: Mapping[int, int]
    channels: int
    rows: tir.Buffer | None

    def write(self, b: Kernel, at: ArithExpr | int, pixels: int) -> None:
        """Write whole pixels from `at` on: settled values, and anything in the other channels."""
        if not self.values:
            return
        start = at * self.channels
        if self.channels % _WORD:
            with b.view("all", b.y, start, (pixels, self.channels), access="w") as y:
                self._bytes(b, y)
            return
        words = self.channels // _WORD
        unroll = next(n for n in (_UNROLL, 2, 1) if words % n == 0)
        window = b.view(
            "all", b.y, start, (pixels, words), dtype=UINT32, access="w", alignment=_WORD
        )
        same = next(iter(self.values.values())) & 0xFF
        with (
            window as y,
            b.for_("pixel", pixels) as pixel,
            b.for_("i", words // unroll) as i,
            b.for_("u", unroll, kind="unrolled") as u,
        ):
            at_word = i * unroll + u
            value = ArithExpr(immediate(same * 0x01010101, UINT32))
            b.store(y, [pixel, at_word], b.load(self.rows, [at_word]) if self.rows else value)

    def _bytes(self, b: Kernel, y: tir.Buffer) -> None:
        for channel, value in self.values.items():
            with b.for_("pixel", y.shape[0]) as pixel:
                b.store(y, [pixel, channel], value)


def find_constant_channels(
    b: Kernel, params: Requantization, low: Array, high: Array
) -> ConstantChannels:
    """The settled channels of a layer whose accumulators lie in [low[c], high[c]]."""
    values = constant_channel_values(params, low, high)
    channels = len(low)
    rows = None
    if len(set(values.values())) > 1 and channels % _WORD == 0:
        row = np.zeros(channels, np.int8)
        row[list(values)] = list(values.values())
        rows = b.constant("settled", row.view(np.uint32), UINT32)
    return ConstantChannels(values, channels, rows)


@dataclass(frozen=True, slots=True)
class ChannelOrder:
    """Which channel each row of a kernel's tables is for; no `table` where row i is channel i."""

    rows: tuple[int, ...]
    channels: int
    table: tir.Buffer | None

    def channel(self, b: Kernel, row: ArithExpr) -> ArithExpr:
        """The channel of `row`, cut to the channels where only we know that it is one."""
        if self.table is None:
            return row
        channel = b.load(self.table, [row]).cast(INDEX)
        if self.table.dtype.max < self.channels:
            return channel
        last = self.channels - 1
        return channel & last if self.channels & last == 0 else minimum(channel, last)


def order_computed_channels(b: Kernel, settled: ConstantChannels, block: int = 1) -> ChannelOrder:
    """The channels that are computed, the last repeated to fill its block; never none."""
    channels = settled.channels
    rows = [channel for channel in range(channels) if channel not in settled.values] or [0]
    rows += rows[-1:] * (-len(rows) % block)
    table = None
    if rows != list(range(channels)):
        kind = next(kind for kind in (UINT8, UINT16, INT32) if channels - 1 <= kind.max)
        table = b.constant("order", np.array(rows), kind)
    return ChannelOrder(tuple(rows), channels, table)


def select_channels(params: Requantization, channels: Sequence[int]) -> Requantization:
    """The parameters of `channels`, in that order."""
    if not params.per_channel:
        return params
    return replace(
        params,
        multipliers=tuple(params.multipliers[channel] for channel in channels),
        shifts=tuple(params.shifts[channel] for channel in channels),
    )


def constant_channel_values(params: Requantization, low: Array, high: Array) -> dict[int, int]:
    """Channel -> output, for every channel whose bounds give the same output."""
    shifts = np.broadcast_to(np.array(params.shifts, np.int64), len(low))
    reach = np.maximum(np.abs(low), np.abs(high)).tolist()
    fits = np.array(
        [
            value << max(shift, 0) < _LIMIT << (shift < 0)
            for value, shift in zip(reach, shifts.tolist(), strict=True)
        ]
    )
    safe_low, safe_high = np.where(fits, low, 0), np.where(fits, high, 0)
    least, most = (params.apply(bound, INT8) for bound in (safe_low, safe_high))
    return {
        channel: int(least[channel]) for channel in np.flatnonzero(fits & (least == most)).tolist()
    }
