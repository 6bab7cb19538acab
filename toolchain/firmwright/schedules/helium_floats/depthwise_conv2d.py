"""float32 depthwise_conv2d on Helium: strips of an output row, four channels at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np

from firmwright.base.dtypes import FLOAT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, minimum
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv2d import bias_of, channel_multiplier_of, weights_of
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel, Position
from firmwright.schedules.helium_floats import depthwise_strip_microkernels
from firmwright.schedules.helium_floats.accumulate_f32 import (
    ACCUMULATE_STYLES,
    ACTIVATION_CODES,
    AccumulateStyle,
)
from firmwright.schedules.helium_floats.depthwise_strip_microkernels import Strip
from firmwright.schedules.helium_floats.microkernels import VECTOR_LANES
from firmwright.schedules.schedule_factories import helium_float_schedule
from firmwright.schedules.window_bounds import ValidTapRun, split_by_valid_taps

# Output rows with equal valid tap rows share a loop. A row is cut into strips
# (depthwise_strip_microkernels.py); a long row is a loop of strips between two border strips. Taps
# outside the input are omitted as in the default loops. The last four channels overlap their
# predecessors. No scratch memory is needed.

_MAX_SPANS = 5
"""Maximum kinds of rows, and of strips in a row, to bound code size."""


@dataclass(frozen=True, slots=True)
class _StripRun:
    strip: Strip
    first: int
    times: int


def _runs(style: AccumulateStyle, window: ConvWindow, outputs: int) -> list[_StripRun]:
    max_per_strip = (
        depthwise_strip_microkernels.max_outputs(style, window.size[1])
        if window.stride[1] in depthwise_strip_microkernels.STRIDES
        else 1
    )
    count = -(-outputs // max_per_strip)
    sizes = [max_per_strip] * (count - 1) + [outputs - max_per_strip * (count - 1)]
    if count == 2:
        sizes = [-(-outputs // 2), outputs // 2]
    runs: list[_StripRun] = []
    for first, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
        strip = _strip(style, window, first, size)
        if strip.name not in depthwise_strip_microkernels.STRIP_NAMES:
            return []
        if runs and runs[-1].strip == strip:
            runs[-1] = _StripRun(strip, runs[-1].first, runs[-1].times + 1)
        else:
            runs.append(_StripRun(strip, first, 1))
    return runs


def _strip(style: AccumulateStyle, window: ConvWindow, first: int, size: int) -> Strip:
    columns, stride = window.size[1], window.stride[1]
    begin = first * stride - window.padding[2]
    end = begin + (size - 1) * stride + columns
    after = max(end - window.input_size[1], 0)
    return Strip(style, size, columns, stride if size > 1 else 1, max(-begin, 0), after)


def _configs(style: AccumulateStyle, op: OpCall) -> Sequence[Config]:
    if (
        op.input(0).dtype != FLOAT32
        or channel_multiplier_of(op) != 1
        or op.input(0).shape[3] < VECTOR_LANES
    ):
        return ()
    window = window_of(op, op.input(1).shape[1:3])
    if window.size[1] > depthwise_strip_microkernels.MAX_COLUMNS or window.dilation[1] != 1:
        return ()
    rows = split_by_valid_taps(window, 0, op.output.shape[1])
    runs = _runs(style, window, op.output.shape[2])
    is_seen = all(span.taps for span in rows)
    return ({},) if is_seen and 0 < len(runs) <= _MAX_SPANS and len(rows) <= _MAX_SPANS else ()


@dataclass(frozen=True, slots=True)
class _FloatDepthwiseLayer:
    """Constants: `weights` [block, row, column, four], `bias` [block, four]."""

    window: ConvWindow
    weights: tir.Buffer
    bias: tir.Buffer
    activation: int

    def outputs(self, b: Kernel, run: _StripRun, rows: ValidTapRun, at: Position) -> None:
        window, strip = self.window, run.strip
        _, height, width, channels = b.input(0).shape
        _, out_height, out_width, _ = b.y.shape
        n, oy, ox = at
        top = oy * window.stride[0] + (rows.taps.start * window.dilation[0] - window.padding[0])
        left = ox * window.stride[1] + (strip.before - window.padding[2])
        x_row = window.dilation[0] * width * channels
        reach = (len(rows.taps) - 1) * x_row + (len(strip.reach) - 1) * channels + VECTOR_LANES
        size, width_taps = self.weights.shape[1] * self.weights.shape[2], window.size[1]
        source = b.let("source", ((n * height + top) * width + left) * channels)
        target = b.let("target", ((n * out_height + oy) * out_width + ox) * channels)
        with b.for_("block", self.bias.shape[0]) as block:
            channel = b.let("channel", minimum(block * VECTOR_LANES, channels - VECTOR_LANES))
            taps = (block * size + rows.taps.start * width_taps) * VECTOR_LANES
            b.evaluate(
                strip.name,
                [
                    b.pointer(b.input(0), source + channel, reach),
                    b.pointer(self.weights, taps, len(rows.taps) * width_taps * VECTOR_LANES),
                    b.pointer(self.bias, block * VECTOR_LANES, VECTOR_LANES),
                    *(
                        b.pointer(b.y, target + channel + p * channels, VECTOR_LANES, "w")
                        for p in range(strip.outputs)
                    ),
                    self.activation, len(rows.taps), x_row, channels,
                ],
            )  # fmt: skip


def _build(style: AccumulateStyle, op: OpCall, config: Config, b: Kernel) -> None:
    kernel = weights_of(op)[0]
    channels = kernel.shape[2]
    starts = [min(c, channels - VECTOR_LANES) for c in range(0, channels, VECTOR_LANES)]
    bias = bias_of(op, "float32")
    window = window_of(op, kernel.shape[:2])
    layer = _FloatDepthwiseLayer(
        window,
        b.constant(
            "weights", np.stack([kernel[..., c : c + VECTOR_LANES] for c in starts]), FLOAT32
        ),
        b.constant("bias", np.stack([bias[c : c + VECTOR_LANES] for c in starts]), FLOAT32),
        ACTIVATION_CODES[op.str_attr("activation")],
    )
    for rows in split_by_valid_taps(window, 0, op.output.shape[1]):
        with (
            b.for_("n", op.output.shape[0]) as n,
            b.for_("oy", len(rows.outputs), rows.outputs.start) as oy,
        ):
            for run in _runs(style, window, op.output.shape[2]):
                for ox in _places(b, run):
                    layer.outputs(b, run, rows, (n, oy, ox))


def _places(b: Kernel, run: _StripRun) -> Iterator[ArithExpr]:
    with b.for_("strip", run.times) as strip:
        yield strip * run.strip.outputs + run.first


SCHEDULES = tuple(
    helium_float_schedule(
        f"helium.depthwise.{style}", "depthwise_conv2d", configs=partial(_configs, style),
        build=partial(_build, style), fuses=style == "fused",
    )
    for style in ACCUMULATE_STYLES
)  # fmt: skip
