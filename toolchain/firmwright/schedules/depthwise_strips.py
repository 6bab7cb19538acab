"""depthwise_conv2d by strips: a few outputs of a row, a few neighbouring channels, all of a window.

A tap's weights serve some outputs of a row, a value of the input all of them that see it. Outputs
of a row are grouped by which columns of taps lie inside of the input; rows of taps are asked. The
`TapOperations` of a family of cores are the loads and products.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from firmwright.base.dtypes import INT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, logical_and
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.depthwise_conv2d import channel_multiplier_of
from firmwright.ops.kernel import Kernel
from firmwright.schedules.int16_accumulation import Int16Accumulation
from firmwright.schedules.window_bounds import ValidTapRun, split_by_valid_taps

_PIXELS = (3, 1)
_MOST_UNROLLED = 8
"""Columns of a window whose taps stand in line."""
_MOST_GROUPS = 7


class TapOperations(Protocol):
    """`channels` neighbouring ones, block by block."""

    @property
    def channels(self) -> int: ...

    def weights(self, b: Kernel, ky: ArithExpr, kx: int, block: ArithExpr) -> ArithExpr:
        """Those of a tap."""

    def value(self, b: Kernel, at: Sequence[ArithExpr], block: ArithExpr) -> ArithExpr:
        """The input at (n, y, x)."""

    def product(
        self, total: ArithExpr, value: ArithExpr, weights: ArithExpr, channel: int
    ) -> ArithExpr:
        """The sum of that one of the block's channels after this tap."""


def strip_configs(op: OpCall) -> Sequence[Config]:
    if op.input(1).shape[2] > _MOST_UNROLLED or channel_multiplier_of(op) != 1:
        return ()
    groups = _groups(op)
    if len(groups) > _MOST_GROUPS or not all(each.taps for each in groups):
        return ()
    width = max(len(across.outputs) for across in groups)
    return [{"pixels": count} for count in _PIXELS if count <= width]


def _groups(op: OpCall) -> list[ValidTapRun]:
    return split_by_valid_taps(window_of(op, op.input(1).shape[1:3]), 1, op.output.shape[2])


@dataclass(frozen=True, slots=True)
class _Strips:
    window: ConvWindow
    taps: TapOperations
    sums: Int16Accumulation

    def pixels(
        self, b: Kernel, columns: range, at: tuple[ArithExpr, ArithExpr, ArithExpr], count: int
    ) -> None:
        """All channels of `count` outputs of a row from `at` (n, oy, ox) on."""
        n, oy, ox = at
        _, height, width, channels = b.y.shape
        start, together = ((n * height + oy) * width + ox) * channels, self.taps.channels
        with (
            b.view("out", b.y, start, (count, channels), access="w") as y,
            b.for_("block", channels // together) as block,
        ):
            acc = b.reg("acc", INT32, together * count)
            for c in range(together):
                with b.let("bias_here", self.sums.start(b, block * together + c)) as bias:
                    for pixel in range(count):
                        b.store(acc, [pixel * together + c], bias)
            self._window(b, acc, columns, at, block)
            for c in range(together):
                with self.sums.channel(b, block * together + c) as finish:
                    for pixel in range(count):
                        total = b.load(acc, [pixel * together + c])
                        b.store(y, [pixel, block * together + c], finish(total))

    def _window(
        self,
        b: Kernel,
        acc: tir.Buffer,
        columns: range,
        at: tuple[ArithExpr, ArithExpr, ArithExpr],
        block: ArithExpr,
    ) -> None:
        window = self.window
        n, oy, ox = at
        top = oy * window.stride[0] - window.padding[0]
        left = ox * window.stride[1] + (columns.start * window.dilation[1] - window.padding[2])
        with (
            b.for_("ky", window.size[0]) as ky,
            b.let("iy", top + ky * window.dilation[0]) as iy,
            ExitStack() as stack,
        ):
            if window.guarded(0):
                stack.enter_context(b.if_(logical_and(iy >= 0, iy < window.input_size[0])))
            self._row(b, acc, columns, (n, iy, left), (ky, block))

    def _row(
        self,
        b: Kernel,
        acc: tir.Buffer,
        columns: range,
        origin: tuple[ArithExpr, ArithExpr, ArithExpr],
        at: tuple[ArithExpr, ArithExpr],
    ) -> None:
        """A row of the window, whose first tap inside looks at `origin`."""
        n, iy, left = origin
        ky, block = at
        stride, dilation = self.window.stride[1], self.window.dilation[1]
        together = self.taps.channels
        known: dict[int, ArithExpr] = {}
        with ExitStack() as stack:
            for tap in columns:
                weights = stack.enter_context(b.let("w", self.taps.weights(b, ky, tap, block)))
                for pixel in range(acc.shape[0] // together):
                    place = pixel * stride + (tap - columns.start) * dilation
                    if place not in known:
                        value = self.taps.value(b, [n, iy, left + place], block)
                        known[place] = stack.enter_context(b.let("x", value))
                    for c in range(together):
                        total = b.load(acc, [pixel * together + c])
                        product = self.taps.product(total, known[place], weights, c)
                        b.store(acc, [pixel * together + c], product)


def build_strips(
    op: OpCall, config: Config, b: Kernel, taps: TapOperations, sums: Int16Accumulation
) -> None:
    strips = _Strips(window_of(op, op.input(1).shape[1:3]), taps, sums)
    for across in _groups(op):
        count = min(int(config["pixels"]), len(across.outputs))
        whole, rest = divmod(len(across.outputs), count)
        with b.for_("n", op.output.shape[0]) as n, b.for_("oy", op.output.shape[1]) as oy:
            with b.for_("ox", whole) as i:
                at = (n, oy, i * count + across.outputs.start)
                strips.pixels(b, across.taps, at, count)
            if rest:
                last = n * 0 + (across.outputs.stop - rest)
                strips.pixels(b, across.taps, (n, oy, last), rest)
