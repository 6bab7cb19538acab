"""Depthwise convolution in strips of a few outputs of a row times a few channels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from firmwright.base.dtypes import INT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, logical_and
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv2d import channel_multiplier_of
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel, Nest, Position
from firmwright.schedules.int16_accumulation import Int16Accumulation
from firmwright.schedules.window_bounds import ValidTapRun, split_by_valid_taps

# A tap's weights serve every output of the strip; an input value serves every output that uses it.
# Outputs of a row are grouped by the tap columns that fall inside the input; tap rows are checked
# at run time. Each core family supplies its loads and multiplies as `TapOperations`.

_PIXELS = (3, 1)
_MAX_UNROLLED = 8
"""Maximum window width; its taps are unrolled."""
_MAX_GROUPS = 7


class TapOperations(Protocol):
    """Loads and multiply-accumulates for blocks of `channels` adjacent channels."""

    @property
    def channels(self) -> int: ...

    def weights(self, b: Kernel, ky: ArithExpr, kx: int, block: ArithExpr) -> ArithExpr:
        """Load the weights of tap (ky, kx) for channel block `block`."""

    def value(self, b: Kernel, at: Sequence[ArithExpr], block: ArithExpr) -> ArithExpr:
        """Load the input of channel block `block` at (n, y, x)."""

    def product(
        self, total: ArithExpr, value: ArithExpr, weights: ArithExpr, channel: int
    ) -> ArithExpr:
        """Return `total` plus the product for one channel of the block."""


def strip_configs(op: OpCall) -> Sequence[Config]:
    if op.input(1).shape[2] > _MAX_UNROLLED or channel_multiplier_of(op) != 1:
        return ()
    groups = _groups(op)
    if len(groups) > _MAX_GROUPS or not all(each.taps for each in groups):
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

    def pixels(self, b: Kernel, columns: range, at: Position, count: int) -> None:
        """Compute all channels of `count` outputs of a row from `at` (n, oy, ox)."""
        n, oy, ox = at
        _, height, width, channels = b.y.shape
        start, lanes = ((n * height + oy) * width + ox) * channels, self.taps.channels
        with (
            b.view("out", b.y, start, (count, channels), access="w") as y,
            b.for_("block", channels // lanes) as block,
        ):
            acc = b.reg("acc", INT32, lanes * count)
            for c in range(lanes):
                with b.let("channel_bias", self.sums.start(b, block * lanes + c)) as bias:
                    for pixel in range(count):
                        b.store(acc, [pixel * lanes + c], bias)
            self._window(b, acc, columns, at, block)
            for c in range(lanes):
                with self.sums.bind_channel(b, block * lanes + c) as finish:
                    for pixel in range(count):
                        total = b.load(acc, [pixel * lanes + c])
                        b.store(y, [pixel, block * lanes + c], finish(total))

    def _window(
        self, b: Kernel, acc: tir.Buffer, columns: range, at: Position, block: ArithExpr
    ) -> None:
        window = self.window
        n, oy, ox = at
        top = oy * window.stride[0] - window.padding[0]
        left = ox * window.stride[1] + (columns.start * window.dilation[1] - window.padding[2])
        with (
            b.for_("ky", window.size[0]) as ky,
            b.let("iy", top + ky * window.dilation[0]) as iy,
            Nest() as enter,
        ):
            if window.guarded(0):
                enter(b.if_(logical_and(iy >= 0, iy < window.input_size[0])))
            self._row(b, acc, columns, (n, iy, left), (ky, block))

    def _row(
        self,
        b: Kernel,
        acc: tir.Buffer,
        columns: range,
        origin: Position,
        at: tuple[ArithExpr, ArithExpr],
    ) -> None:
        """Accumulate one window row; `origin` is the input of its first valid tap."""
        n, iy, left = origin
        ky, block = at
        stride, dilation = self.window.stride[1], self.window.dilation[1]
        lanes = self.taps.channels
        inputs: dict[int, ArithExpr] = {}
        with Nest() as enter:
            for tap in columns:
                weights = enter(b.let("w", self.taps.weights(b, ky, tap, block)))
                for pixel in range(acc.shape[0] // lanes):
                    offset = pixel * stride + (tap - columns.start) * dilation
                    if offset not in inputs:
                        value = self.taps.value(b, [n, iy, left + offset], block)
                        inputs[offset] = enter(b.let("x", value))
                    for c in range(lanes):
                        total = b.load(acc, [pixel * lanes + c])
                        product = self.taps.product(total, inputs[offset], weights, c)
                        b.store(acc, [pixel * lanes + c], product)


def build_strips(
    op: OpCall, config: Config, b: Kernel, taps: TapOperations, sums: Int16Accumulation
) -> None:
    strips = _Strips(window_of(op, op.input(1).shape[1:3]), taps, sums)
    for across in _groups(op):
        count = min(int(config["pixels"]), len(across.outputs))
        whole, remainder = divmod(len(across.outputs), count)
        with b.for_("n", op.output.shape[0]) as n, b.for_("oy", op.output.shape[1]) as oy:
            with b.for_("ox", whole) as i:
                at = (n, oy, i * count + across.outputs.start)
                strips.pixels(b, across.taps, at, count)
            if remainder:
                last = n * 0 + (across.outputs.stop - remainder)
                strips.pixels(b, across.taps, (n, oy, last), remainder)
