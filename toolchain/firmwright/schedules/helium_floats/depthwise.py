"""float32 depthwise_conv2d on Helium: strips of a row of outputs, four channels at a time.

Rows of outputs that see the same rows of their windows are one loop. A row is cut into strips
(strips.py); where it is long, a loop of strips stands between its ends. Taps outside of the input
are left out, as in the default loops. The last four channels start early where they are no multiple
of four. No scratch is needed; each output is written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import E, minimum
from firmwright.ir.tir.nodes import Buffer
from firmwright.ir.tir.schedule import Config, Rule
from firmwright.ops.conv2d import bias_of, weights_of
from firmwright.ops.conv_shapes import Window, window_of
from firmwright.ops.depthwise_conv2d import multiplier_of
from firmwright.ops.kernel import Kernel
from firmwright.schedules.helium_floats import strips
from firmwright.schedules.helium_floats.blocks import VECTOR
from firmwright.schedules.helium_floats.strips import Strip
from firmwright.schedules.helium_floats.terms import ACTIVATION_CODES, STYLES, Style
from firmwright.schedules.spans import Span, spans_of

_MOST_SPANS = 5
"""Kinds of rows, and of strips in them: what code it may take."""


@dataclass(frozen=True, slots=True)
class _Run:
    """`times` strips that follow each other from output `first` on."""

    strip: Strip
    first: int
    times: int


def _runs(style: Style, window: Window, outputs: int) -> list[_Run]:
    """How a row of outputs is cut; empty where some strip is not known."""
    most = strips.most_outputs(style, window.size[1]) if window.stride[1] in strips.STRIDES else 1
    count = -(-outputs // most)
    sizes = [most] * (count - 1) + [outputs - most * (count - 1)]
    if count == 2:
        sizes = [-(-outputs // 2), outputs // 2]
    runs: list[_Run] = []
    for first, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
        strip = _strip(style, window, first, size)
        if strip.name not in strips.STRIP_INTRINSICS:
            return []
        if runs and runs[-1].strip == strip:
            runs[-1] = _Run(strip, runs[-1].first, runs[-1].times + 1)
        else:
            runs.append(_Run(strip, first, 1))
    return runs


def _strip(style: Style, window: Window, first: int, size: int) -> Strip:
    columns, stride = window.size[1], window.stride[1]
    begin = first * stride - window.padding[2]
    end = begin + (size - 1) * stride + columns
    after = max(end - window.input_size[1], 0)
    return Strip(style, size, columns, stride if size > 1 else 1, max(-begin, 0), after)


def _configs(style: Style, op: OpCall) -> Sequence[Config]:
    if op.input(0).dtype != FLOAT32 or multiplier_of(op) != 1 or op.input(0).shape[3] < VECTOR:
        return ()
    window = window_of(op, op.input(1).shape[1:3])
    if window.size[1] > strips.MOST_COLUMNS or window.dilation[1] != 1:
        return ()
    rows = spans_of(window, 0, op.output.shape[1])
    runs = _runs(style, window, op.output.shape[2])
    is_seen = all(span.taps for span in rows)
    return ({},) if is_seen and 0 < len(runs) <= _MOST_SPANS and len(rows) <= _MOST_SPANS else ()


@dataclass(frozen=True, slots=True)
class _Layer:
    """`weights` [block, row, column, four], `bias` [block, four]."""

    window: Window
    weights: Buffer
    bias: Buffer
    activation: int

    def outputs(self, b: Kernel, run: _Run, rows: Span, at: tuple[E, E, E]) -> None:
        """The strip of all channels that begins at output `at`, (n, oy, ox)."""
        window, strip = self.window, run.strip
        _, height, width, channels = b.input(0).shape
        _, out_height, out_width, _ = b.y.shape
        n, oy, ox = at
        top = oy * window.stride[0] + (rows.taps.start * window.dilation[0] - window.padding[0])
        left = ox * window.stride[1] + (strip.before - window.padding[2])
        x_row = window.dilation[0] * width * channels
        reach = (len(rows.taps) - 1) * x_row + (len(strip.reach) - 1) * channels + VECTOR
        size, width_taps = self.weights.shape[1] * self.weights.shape[2], window.size[1]
        with (
            b.let("source", ((n * height + top) * width + left) * channels) as source,
            b.let("target", ((n * out_height + oy) * out_width + ox) * channels) as target,
            b.for_("block", self.bias.shape[0]) as block,
            b.let("channel", minimum(block * VECTOR, channels - VECTOR)) as channel,
        ):
            taps = (block * size + rows.taps.start * width_taps) * VECTOR
            b.evaluate(
                strip.name,
                [
                    b.pointer(b.input(0), source + channel, reach),
                    b.pointer(self.weights, taps, len(rows.taps) * width_taps * VECTOR),
                    b.pointer(self.bias, block * VECTOR, VECTOR),
                    *(
                        b.pointer(b.y, target + channel + p * channels, VECTOR, "w")
                        for p in range(strip.outputs)
                    ),
                    self.activation, len(rows.taps), x_row, channels,
                ],
            )  # fmt: skip


def _build(style: Style, op: OpCall, config: Config, b: Kernel) -> None:
    kernel = weights_of(op)[0]
    channels = kernel.shape[2]
    starts = [min(c, channels - VECTOR) for c in range(0, channels, VECTOR)]
    bias = bias_of(op, "float32")
    window = window_of(op, kernel.shape[:2])
    layer = _Layer(
        window,
        b.constant("weights", np.stack([kernel[..., c : c + VECTOR] for c in starts]), FLOAT32),
        b.constant("bias", np.stack([bias[c : c + VECTOR] for c in starts]), FLOAT32),
        ACTIVATION_CODES[op.str_attr("activation")],
    )
    for rows in spans_of(window, 0, op.output.shape[1]):
        with (
            b.for_("n", op.output.shape[0]) as n,
            b.for_("oy", len(rows.outputs), rows.outputs.start) as oy,
        ):
            for run in _runs(style, window, op.output.shape[2]):
                for ox in _places(b, run):
                    layer.outputs(b, run, rows, (n, oy, ox))


def _places(b: Kernel, run: _Run) -> Iterator[E]:
    """The first output of a strip, in a loop over the run's."""
    with b.for_("strip", run.times) as strip:
        yield strip * run.strip.outputs + run.first


RULES = tuple(
    Rule(
        f"helium.depthwise.{style}",
        "depthwise_conv2d",
        frozenset({"mvefp"}),
        partial(_configs, style),
        partial(_build, style),
        keeps_order=True,
        fuses=style == "fused",
    )
    for style in STYLES
)
