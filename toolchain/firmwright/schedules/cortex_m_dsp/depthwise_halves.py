"""int16 depthwise_conv2d on the DSP extension: two channels of a few pixels at a time.

Two neighbouring channels are a word of the input and, as int16, a word of the weights: SMLABB and
SMLATT are a tap of both. A word of weights serves some outputs of a row, a word of the input all of
them that see it. Outputs of a row are grouped by which columns of taps lie inside of the input;
rows of taps are asked. Applies where the channels are even, each gives one output, and sums
provably have 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT16, INT32, UINT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import E, call, logical_and
from firmwright.ir.tir.nodes import Buffer
from firmwright.ir.tir.schedule import Config, Rule
from firmwright.ops.conv2d import bias_of, requant_of, weights_of
from firmwright.ops.conv_shapes import Window, window_of
from firmwright.ops.depthwise_conv2d import multiplier_of
from firmwright.ops.int16x8 import accumulator_dtype
from firmwright.ops.kernel import Kernel
from firmwright.schedules.epilogue import Epilogue, accumulator_bounds, make_epilogue
from firmwright.schedules.spans import Span, spans_of

_PAIR = 2
_PIXELS = (3, 1)
_MOST_UNROLLED = 6
"""Columns of a window whose taps stand in line."""
_MOST_GROUPS = 5


def _configs(op: OpCall) -> Sequence[Config]:
    if op.input(0).dtype != INT16 or op.input(1).shape[2] > _MOST_UNROLLED:
        return ()
    groups = _groups(op)
    even = op.output.shape[3] % _PAIR == 0 and multiplier_of(op) == 1
    fits = (
        even
        and all(each.taps for each in groups)
        and len(groups) <= _MOST_GROUPS
        and accumulator_dtype(op, 3) == INT32
    )
    width = max(len(across.outputs) for across in groups)
    return [{"pixels": count} for count in _PIXELS if count <= width] if fits else ()


def _groups(op: OpCall) -> list[Span]:
    return spans_of(window_of(op, op.input(1).shape[1:3]), 1, op.output.shape[2])


@dataclass(frozen=True, slots=True)
class _Layer:
    """`weights` is [row, column, pair of channels], a word each; so is the input, by `x`."""

    window: Window
    weights: Buffer
    bias: Buffer
    epilogue: Epilogue
    x: Buffer

    def pixels(self, b: Kernel, taps: range, at: tuple[E, E, E], count: int) -> None:
        """All channels of `count` outputs of a row from `at` (n, oy, ox) on."""
        n, oy, ox = at
        _, out_height, out_width, channels = b.y.shape
        start = ((n * out_height + oy) * out_width + ox) * channels
        with (
            b.window("out", b.y, start, (count, channels), access="w") as y,
            b.for_("pair", channels // _PAIR) as pair,
        ):
            acc = b.reg("acc", INT32, _PAIR * count)
            for half in range(_PAIR):
                with b.let("bias_here", b.load(self.bias, [pair * _PAIR + half])) as bias:
                    for pixel in range(count):
                        b.store(acc, [pixel * _PAIR + half], bias)
            self._window(b, acc, taps, at, pair)
            for half in range(_PAIR):
                channel = pair * _PAIR + half
                with self.epilogue.channel(b, channel) as finish:
                    for pixel in range(count):
                        total = b.load(acc, [pixel * _PAIR + half])
                        b.store(y, [pixel, channel], finish(total))

    def _window(self, b: Kernel, acc: Buffer, taps: range, at: tuple[E, E, E], pair: E) -> None:
        window = self.window
        n, oy, ox = at
        top = oy * window.stride[0] - window.padding[0]
        left = ox * window.stride[1] + (taps.start * window.dilation[1] - window.padding[2])
        with (
            b.for_("ky", window.size[0]) as ky,
            b.let("iy", top + ky * window.dilation[0]) as iy,
            ExitStack() as stack,
        ):
            if window.guarded(0):
                stack.enter_context(b.if_(logical_and(iy >= 0, iy < window.input_size[0])))
            self._row(b, acc, taps, (n, iy, left), (ky, pair))

    def _row(
        self, b: Kernel, acc: Buffer, taps: range, origin: tuple[E, E, E], at: tuple[E, E]
    ) -> None:
        """A row of the window, whose first tap inside looks at `origin`."""
        n, iy, left = origin
        ky, pair = at
        stride, dilation = self.window.stride[1], self.window.dilation[1]
        known: dict[int, E] = {}
        with ExitStack() as stack:
            for tap in taps:
                weights = stack.enter_context(b.let("w", b.load(self.weights, [ky, tap, pair])))
                for pixel in range(acc.shape[0] // _PAIR):
                    place = pixel * stride + (tap - taps.start) * dilation
                    if place not in known:
                        value = b.load(self.x, [n, iy, left + place, pair])
                        known[place] = stack.enter_context(b.let("x", value))
                    for half, name in enumerate(("smlabb", "smlatt")):
                        total = b.load(acc, [pixel * _PAIR + half])
                        product = call(name, [known[place], weights, total], INT32)
                        b.store(acc, [pixel * _PAIR + half], product)


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    kernel = weights_of(op)[0]
    bias = bias_of(op, "int32")
    by_channel = np.moveaxis(kernel, 2, 0)
    bounds = accumulator_bounds(bias, by_channel, INT16.min, INT16.max)
    batch, height, width, channels = op.input(0).shape
    image = (batch, height, width, channels // _PAIR)
    with b.window("words", b.input(0), 0, image, dtype=UINT32, alignment=4) as x:
        layer = _Layer(
            window_of(op, kernel.shape[:2]),
            b.constant("weights", np.ascontiguousarray(kernel, np.int16).view(np.uint32), UINT32),
            b.constant("bias", bias, INT32),
            make_epilogue(b, requant_of(op), bounds, INT16, channels),
            x,
        )
        for across in _groups(op):
            count = min(int(config["pixels"]), len(across.outputs))
            with b.for_("n", batch) as n, b.for_("oy", op.output.shape[1]) as oy:
                _across(b, layer, across, (n, oy), count)


def _across(b: Kernel, layer: _Layer, across: Span, row: tuple[E, E], count: int) -> None:
    """The outputs of a row that see the same columns, `count` at a time."""
    whole, rest = divmod(len(across.outputs), count)
    with b.for_("ox", whole) as i:
        layer.pixels(b, across.taps, (*row, i * count + across.outputs.start), count)
    if rest:
        last = row[0] * 0 + (across.outputs.stop - rest)
        layer.pixels(b, across.taps, (*row, last), rest)


RULES = (
    Rule(
        "dsp.depthwise.halves",
        "depthwise_conv2d",
        frozenset({"dsp"}),
        _configs,
        _build,
        keeps_order=True,
    ),
)
