"""depthwise_conv2d for scalar cores: one channel at a time, its weights in registers.

Rows (and columns) of the output whose windows leave the input alike form a class with unrolled
taps of its own; a tap outside is the zero point, so its share is added to the bias once a row. With
a horizontal stride of 1 the input's columns are visited once each: a column ends one output and
goes on with those that follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import E
from firmwright.ir.tir.nodes import Buffer
from firmwright.ir.tir.schedule import Config, RowRange, Rule
from firmwright.ops.conv2d import weights_of
from firmwright.ops.conv_shapes import Window, window_of
from firmwright.ops.depthwise_conv2d import bias_of, multiplier_of, requant_of
from firmwright.ops.fixed_point import per_tensor
from firmwright.ops.kernel import Kernel
from firmwright.schedules.epilogue import Finish, accumulator_bounds, make_epilogue

_MOST_UNROLLED_TAPS = 120


@dataclass(frozen=True, slots=True)
class _Span:
    """Output positions start .. end along one axis, and the taps of theirs that are inside."""

    start: int
    end: int
    taps: range


def _spans(window: Window, axis: int, first: int, last: int) -> list[_Span]:
    """Output positions first .. last in runs of equal taps."""
    found: list[_Span] = []
    for position in range(first, last):
        begin = position * window.stride[axis] - window.padding[2 * axis]
        inside = [
            tap
            for tap in range(window.size[axis])
            if 0 <= begin + tap * window.dilation[axis] < window.input_size[axis]
        ]
        taps = range(inside[0], inside[-1] + 1) if inside else range(0)
        if found and found[-1].taps == taps:
            found[-1] = _Span(found[-1].start, position + 1, taps)
        else:
            found.append(_Span(position, position + 1, taps))
    return found


def _configs(op: OpCall) -> Sequence[Config]:
    """int8 where the unrolled taps of all classes are a modest amount of code."""
    if op.input(0).dtype != INT8:
        return ()
    window = window_of(op, op.input(1).shape[1:3])
    _, height, width, _ = op.output.shape
    rows, columns = _spans(window, 0, 0, height), _spans(window, 1, 0, width)
    if not all(span.taps for span in (*rows, *columns)):
        return ()
    unrolled = len(rows) * len(columns) * window.size[0] * window.size[1]
    return ({},) if unrolled <= _MOST_UNROLLED_TAPS else ()


@dataclass(frozen=True, slots=True)
class _Channel:
    """One channel's registers: its weights by tap, its bias with the zero point folded in."""

    window: Window
    zero_point: int
    weights: Sequence[Sequence[E]]
    bias: E
    finish: Finish


def _build(op: OpCall, config: Config, b: Kernel, rows: RowRange | None) -> None:
    kernel = weights_of(op)
    window = window_of(op, kernel.shape[1:3])
    flat = np.ascontiguousarray(kernel.reshape(-1, kernel.shape[3]).T)
    wide = flat.astype(np.int64)
    zero_point = per_tensor(op.input(0)).zero_point
    folded = bias_of(op, "int32").astype(np.int64) - zero_point * wide.sum(axis=1)
    bounds = accumulator_bounds(folded, wide, INT8.min, INT8.max)
    epilogue = make_epilogue(b, requant_of(op), bounds, INT8, len(flat))
    packed = b.constant("weights", flat, INT8)
    bias = b.constant("bias", folded, INT32)
    batch, height, _, channels = op.output.shape
    first, last = (rows.start, rows.end) if rows else (0, height)
    with ExitStack() as stack:
        c = stack.enter_context(b.for_("c", channels))
        finish = stack.enter_context(epilogue.channel(b, c))
        taps = [
            [
                stack.enter_context(
                    b.let(f"w{ky}{kx}", b.load_i32(packed, [c, ky * window.size[1] + kx]))
                )
                for kx in range(window.size[1])
            ]
            for ky in range(window.size[0])
        ]
        base = stack.enter_context(b.let("base", b.load(bias, [c])))
        n = stack.enter_context(b.for_("n", batch)) if batch > 1 else c * 0
        channel = _Channel(window, zero_point, taps, base, finish)
        for span in _spans(window, 0, first, last):
            with b.for_("oy", span.end - span.start, span.start) as oy:
                _row(b, op, channel, (n, oy, c), span.taps)


def _row(b: Kernel, op: OpCall, channel: _Channel, at: tuple[E, E, E], rows: range) -> None:
    """One output row of one channel; `rows` are the taps' rows that lie inside."""
    window, (n, oy, c) = channel.window, at
    _, height, width, depth = op.input(0).shape
    _, out_height, out_width, channels = op.output.shape
    top = oy * window.stride[0] - window.padding[0] + rows.start * window.dilation[0]
    source = ((n * height + top) * width) * depth + c // multiplier_of(op)
    target = ((n * out_height + oy) * out_width) * channels + c
    shape, strides = (len(rows), width), (window.dilation[0] * width * depth, depth)
    with (
        b.window("in", b.input(0), source, shape, strides=strides) as x,
        b.window("out", b.y, target, (out_width,), strides=(channels,), access="w") as y,
        b.let("start", _with_missing(channel, _outside(window, 0, rows), channel.bias)) as start,
    ):
        row = _Row(channel, rows, x, y, start)
        if window.stride[1] == window.dilation[1] == 1 and window.size[1] > 1:
            _slide(b, row, out_width)
        else:
            _stand(b, row, out_width)


@dataclass(frozen=True, slots=True)
class _Row:
    """One output row: input rows that count, the output row, what every sum starts from."""

    channel: _Channel
    rows: range
    x: Buffer
    y: Buffer
    start: E

    def add(self, b: Kernel, total: E, ix: E | int | None, kx: int) -> E:
        """`total` plus the taps of column `kx`, at input column `ix` (None: outside)."""
        for place, ky in enumerate(self.rows):
            weight = self.channel.weights[ky][kx]
            if ix is None:
                total = total + weight * self.channel.zero_point
            else:
                total = total + b.load_i32(self.x, [place, ix]) * weight
        return total


def _outside(window: Window, axis: int, inside: range) -> Iterator[tuple[int, int]]:
    """The taps (ky, kx) of rows (axis 0) that are not `inside`."""
    for ky in range(window.size[0]):
        if ky not in inside:
            for kx in range(window.size[1]):
                yield ky, kx


def _with_missing(channel: _Channel, taps: Iterator[tuple[int, int]], total: E) -> E:
    for ky, kx in taps:
        total = total + channel.weights[ky][kx] * channel.zero_point
    return total


def _stand(b: Kernel, row: _Row, out_width: int) -> None:
    """Output by output, all of its taps at once."""
    window = row.channel.window
    for span in _spans(window, 1, 0, out_width):
        start = row.start
        for kx in range(window.size[1]):
            if kx not in span.taps:
                start = row.add(b, start, None, kx)
        with (
            b.let("begin", start) as begin,
            b.for_("ox", span.end - span.start, span.start) as ox,
        ):
            left = ox * window.stride[1] - window.padding[2]
            total = begin
            for kx in span.taps:
                total = row.add(b, total, left + kx * window.dilation[1], kx)
            b.store(row.y, [ox], row.channel.finish(total))


def _slide(b: Kernel, row: _Row, out_width: int) -> None:
    """Column by column. acc[j] belongs to the output that is complete j columns from now."""
    window = row.channel.window
    reach, left = window.size[1], window.padding[2]
    width = window.input_size[1]
    acc = b.reg("acc", INT32, reach)
    for j in range(reach - 1):
        b.store(acc, [j], row.start)
    for column in range(reach - 1):  # until the first output is complete
        inside = column - left if 0 <= column - left < width else None
        for j in range(column + 1):
            b.store(acc, [j], row.add(b, b.load(acc, [j]), inside, column - j))
    complete = min(out_width, width + left - reach + 1)
    with b.for_("ox", complete) as ox:
        _next_column(b, row, acc, ox + (reach - 1 - left))
        b.store(row.y, [ox], row.channel.finish(b.load(acc, [reach - 1])))
    for last in range(complete, out_width):  # columns to the right of the input
        _next_column(b, row, acc, None)
        b.store(row.y, [last], row.channel.finish(b.load(acc, [reach - 1])))


def _next_column(b: Kernel, row: _Row, acc: Buffer, ix: E | None) -> None:
    """Takes input column `ix`; the sum that it completes is left in the last of `acc`."""
    reach = row.channel.window.size[1]
    with ExitStack() as stack:
        values: list[E | None] = [
            None if ix is None else stack.enter_context(b.let("x", b.load_i32(row.x, [place, ix])))
            for place in range(len(row.rows))
        ]
        sums = []
        for j in range(reach):
            total = b.load(acc, [j]) if j < reach - 1 else row.start
            for ky, value in zip(row.rows, values, strict=True):
                factor: E | int = row.channel.zero_point if value is None else value
                total = total + row.channel.weights[ky][reach - 1 - j] * factor
            sums.append(stack.enter_context(b.let("sum", total)))
        b.store(acc, [reach - 1], sums[0])
        for j in range(reach - 1):
            b.store(acc, [j], sums[j + 1])


RULES = (Rule("scalar.depthwise.channel", "depthwise_conv2d", frozenset(), _configs, _build),)
