"""conv2d on Helium: four channels times two pixels over columns of int8 (products.py).

A pointwise convolution multiplies straight from its input. Any other one packs the windows of two
output pixels as columns first, writing the zero point where a window leaves the input, so that it
can be folded into the bias. The last pair of pixels starts early where their number is odd, and
the last block of channels where it is no multiple of four: some outputs are computed twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.graph.opdef import Array, OpCall
from firmwright.ir.tir.builder import E, logical_and, minimum
from firmwright.ir.tir.nodes import Buffer
from firmwright.ir.tir.schedule import Config, RowRange, Rule
from firmwright.ops.conv2d import bias_of, requant_of, weights_of
from firmwright.ops.conv_shapes import Window, window_of
from firmwright.ops.fixed_point import per_tensor
from firmwright.ops.kernel import Kernel
from firmwright.schedules.helium import moves, requantize
from firmwright.schedules.helium.products import product_name
from firmwright.schedules.helium.steps import STEP, padded_taps

_PIXELS = 2
_CHANNELS = requantize.CHANNELS


def _configs(op: OpCall) -> Sequence[Config]:
    if op.input(0).dtype != INT8 or not requantize.applies(requant_of(op)):
        return ()
    return ({},)


def _build(op: OpCall, config: Config, b: Kernel, rows: RowRange | None) -> None:
    kernel = weights_of(op)
    window = window_of(op, kernel.shape[1:3])
    flat = kernel.reshape(kernel.shape[0], -1)
    batch, height, width, channels = op.output.shape
    starts = block_starts(channels)
    packed = b.constant("weights", pack_blocks(flat, starts), INT8)
    table = b.constant("parameters", _parameters(op, flat, starts), INT32)
    first, last = (rows.start, rows.end) if rows else (0, batch * height)
    pixels = (last - first) * width
    pair = min(_PIXELS, pixels)
    taps = flat.shape[1]
    settings = requantize.settings(requant_of(op), min(channels, _CHANNELS))
    with (
        _pairs(b, pixels, pair, first * width) as at,
        _columns(b, op, window, at, (pair, taps)) as (columns, column),
        b.for_("block", len(starts)) as block,
        b.let("channel", minimum(block * _CHANNELS, max(channels - _CHANNELS, 0))) as channel,
    ):
        lanes = min(channels, _CHANNELS)
        size = padded_taps(taps) * _CHANNELS
        places = [0, pair - 1]
        b.evaluate(
            product_name(taps),
            [
                b.pointer(packed, block * size, size),
                *(b.pointer(columns, column + taps * p, taps) for p in places),
                b.pointer(table, block * requantize.PARAMETERS, requantize.PARAMETERS),
                *(b.pointer(b.y, (at + p) * channels + channel, lanes, "w") for p in places),
                *settings,
                taps,
            ],
        )


def block_starts(channels: int) -> list[int]:
    """First channel of each block of four; the last block ends at the last channel."""
    return [min(c, max(channels - _CHANNELS, 0)) for c in range(0, channels, _CHANNELS)]


def pack_blocks(flat: Array, starts: list[int]) -> Array:
    """[channel, tap] int8 as [block, step, channel of four, sixteen], zeros where nothing is."""
    channels, taps = flat.shape
    padded = np.zeros((max(channels, _CHANNELS), padded_taps(taps)), np.int8)
    padded[:channels, :taps] = flat
    blocks = np.stack([padded[start : start + _CHANNELS] for start in starts])
    steps = blocks.reshape(len(starts), _CHANNELS, -1, STEP)
    return np.ascontiguousarray(steps.transpose(0, 2, 1, 3))


def _parameters(op: OpCall, flat: Array, starts: list[int]) -> Array:
    zero_point = per_tensor(op.input(0)).zero_point
    bias = bias_of(op, "int32").astype(np.int64) - zero_point * flat.sum(axis=1, dtype=np.int64)
    return requantize.parameter_rows(requant_of(op), bias, starts)


@contextmanager
def _pairs(b: Kernel, pixels: int, pair: int, first: int) -> Iterator[E]:
    """Loop over pairs of output pixels: the first of each; the last pair ends at the end."""
    with b.for_("pair", -(-pixels // pair)) as index:
        start = index * pair + first
        if pixels % pair:
            start = minimum(start, first + pixels - pair)
        with b.let("at", start) as at:
            yield at


@contextmanager
def _columns(
    b: Kernel, op: OpCall, window: Window, at: E, shape: tuple[int, int]
) -> Iterator[tuple[Buffer, E]]:
    """Where the windows of the output pixels from `at` on lie, one after the other."""
    if window.pointwise:
        yield b.input(0), at * shape[1]
        return
    with b.allocate("columns", INT8, shape, 8) as columns:
        with b.for_("p", shape[0]) as p, b.let("pixel", at + p) as pixel:
            _pack(b, op, window, columns, p, pixel)
        yield columns, at * 0


def _pack(b: Kernel, op: OpCall, window: Window, columns: Buffer, p: E, pixel: E) -> None:
    """Column `p` := the window of output `pixel` (flat over batch, rows, columns)."""
    batch, height, width, _ = op.output.shape
    n = pixel // (height * width) if batch > 1 else pixel * 0
    top = ((pixel // width) % height) * window.stride[0] - window.padding[0]
    left = (pixel % width) * window.stride[1] - window.padding[2]
    rows, cols = window.input_size
    channels = op.input(0).shape[3]
    run = window.size[1] * channels
    whole = window.dilation[1] == 1
    with ExitStack() as stack:
        y0 = stack.enter_context(b.let("top", top))
        x0 = stack.enter_context(b.let("left", left))
        ky = stack.enter_context(b.for_("ky", window.size[0]))
        iy = stack.enter_context(b.let("iy", y0 + ky * window.dilation[0]))
        place = stack.enter_context(b.let("place", p * columns.shape[1] + ky * run))
        start = ((n * rows + iy) * cols + x0) * channels
        if whole and not window.guarded(0) and not window.guarded(1):
            moves.copy(b, columns, place, b.input(0), start, run)
            return
        inside = logical_and(iy >= 0, iy < rows)
        if whole:
            across = logical_and(x0 >= 0, x0 <= cols - window.size[1])
            with b.if_(logical_and(inside, across)):
                moves.copy(b, columns, place, b.input(0), start, run)
            stack.enter_context(b.else_())
        _pack_taps(b, window, columns, place, (n, iy, x0), inside)


def _pack_taps(
    b: Kernel, window: Window, columns: Buffer, place: E, origin: tuple[E, E, E], inside: E
) -> None:
    """One row of a window tap by tap, the zero point where a tap is outside."""
    n, iy, x0 = origin
    _, rows, cols, channels = b.call.input(0).shape
    with b.for_("kx", window.size[1]) as kx, b.let("ix", x0 + kx * window.dilation[1]) as ix:
        at_tap = place + kx * channels
        start = ((n * rows + iy) * cols + ix) * channels
        with b.if_(logical_and(inside, ix >= 0, ix < cols)):
            moves.copy(b, columns, at_tap, b.input(0), start, channels)
        with b.else_():
            zero_point = per_tensor(b.call.input(0)).zero_point
            moves.fill(b, columns, at_tap, zero_point, channels)


RULES = (
    Rule("helium.conv2d.columns", "conv2d", frozenset({"mve"}), _configs, _build, keeps_order=True),
)
