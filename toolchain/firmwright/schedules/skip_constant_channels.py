"""Channels proven constant at compile time, which kernels store and do not compute."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import INT32, UINT8, UINT16, UINT32, Array
from firmwright.base.quant import Rounding
from firmwright.ir import tir
from firmwright.ir.tir.builder import INDEX, ArithExpr, immediate, minimum
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, output_bounds

# `fold-constant-channels` removes constant channels where their readers allow it.
# Kernels store the values of the others directly; their weights take no flash.

_WORD = 4
_UNROLL = 4
_MANY = 4
"""Skipping pays if at least one channel in this many is constant."""


@dataclass(frozen=True, slots=True)
class ConstantChannels:
    """The outputs of constant channels; `rows` holds a pixel's if they differ."""

    values: Mapping[int, int]
    channels: int
    rows: tir.Buffer | None

    def emit_stores(self, b: Kernel, at: ArithExpr | int, pixels: int) -> None:
        """Store the constants in `pixels` pixels from `at`; other channels follow."""
        if not self.values:
            return
        start = at * self.channels
        if self.channels % _WORD:
            y = b.view("all", b.y, start, (pixels, self.channels), access="w")
            self._bytes(b, y)
            return
        words = self.channels // _WORD
        y = b.view(
            "all",
            b.y,
            start,
            (pixels, words),
            dtype=UINT32,
            access="w",
            alignment=_WORD,
        )
        same = next(iter(self.values.values())) & 0xFF
        with (
            b.for_("pixel", pixels) as pixel,
            b.unrolled("i", words, _UNROLL, 2) as at_word,
        ):
            value = ArithExpr(immediate(same * 0x01010101, UINT32))
            if self.rows is not None:
                value = b.load(self.rows, [at_word])
            b.store(y, [pixel, at_word], value)

    def _bytes(self, b: Kernel, y: tir.Buffer) -> None:
        for channel, value in self.values.items():
            with b.for_("pixel", y.shape[0]) as pixel:
                b.store(y, [pixel, channel], value)


def no_constant_channels(channels: int) -> ConstantChannels:
    return ConstantChannels({}, channels, None)


def skip_channels(
    b: Kernel, values: dict[int, int], channels: int, *, only_if_many: bool = False
) -> ConstantChannels:
    """Return the constant channels with `values`; with `only_if_many`, none if few."""
    if only_if_many and len(values) * _MANY < channels:
        values = {}
    rows = None
    if len(set(values.values())) > 1 and channels % _WORD == 0:
        row = np.zeros(channels, np.int8)
        row[list(values)] = list(values.values())
        rows = b.constant("constant_channels", row.view(np.uint32), UINT32)
    return ConstantChannels(values, channels, rows)


@dataclass(frozen=True, slots=True)
class ChannelOrder:
    """The channel of each row of a kernel's tables; without `table`, the identity."""

    rows: tuple[int, ...]
    channels: int
    table: tir.Buffer | None

    def channel(self, b: Kernel, row: ArithExpr) -> ArithExpr:
        """Return the channel of `row`, clamped so that range analysis knows a bound."""
        if self.table is None:
            return row
        channel = b.load(self.table, [row]).cast(INDEX)
        if self.table.dtype.max < self.channels:
            return channel
        last = self.channels - 1
        return channel & last if self.channels & last == 0 else minimum(channel, last)


def order_all_channels(channels: int) -> ChannelOrder:
    return ChannelOrder(tuple(range(channels)), channels, None)


def order_computed_channels(
    b: Kernel, constants: ConstantChannels, block: int = 1
) -> ChannelOrder:
    """Order the computed channels, at least one; the last one fills up its block."""
    channels = constants.channels
    rows = [channel for channel in range(channels) if channel not in constants.values]
    rows = rows or [0]
    rows += rows[-1:] * (-len(rows) % block)
    table = None
    if rows != list(range(channels)):
        kind = next(kind for kind in (UINT8, UINT16, INT32) if channels - 1 <= kind.max)
        table = b.constant("order", np.array(rows), kind)
        _note_order(b, computed=len(set(rows)), rows=len(rows), channels=channels)
    return ChannelOrder(tuple(rows), channels, table)


def _note_order(b: Kernel, *, computed: int, rows: int, channels: int) -> None:
    """Explain in the C the purpose of the table `order` of `rows` rows."""
    constant = channels - computed
    padding = rows - computed
    if constant:
        b.note(
            f"order: the channel of each row; {constant} channels are constant and "
            "have no row"
        )
    if padding:
        b.note(
            f"order: the channel of each row; {padding} more rows fill the last block "
            "and store the last channel again"
        )


def select_channels(params: Requantization, channels: Sequence[int]) -> Requantization:
    if not params.per_channel:
        return params
    chosen = replace(
        params,
        multipliers=tuple(params.multipliers[channel] for channel in channels),
        shifts=tuple(params.shifts[channel] for channel in channels),
    )
    is_float32 = params.rounding is Rounding.FLOAT32
    if is_float32 and not any(value % 2 for value in chosen.multipliers):
        return replace(chosen, rounding=Rounding.ONCE)
    return chosen


def constant_channel_values(
    params: Requantization, low: Array, high: Array
) -> dict[int, int]:
    """Return the values of constant channels, by channel.

    Accumulators are in [low[c], high[c]].
    """
    least, most = output_bounds(params, low, high)
    constant = np.flatnonzero(least == most).tolist()
    return {channel: int(least[channel]) for channel in constant}
