"""conv2d on the DSP extension: a register-blocked product over packed columns.

Blocks of four output pixels: their windows are packed as columns (columns.py), then every pair of
output channels takes 2 x 4 accumulators through the column with SMLAD. The input's zero point is
folded into the bias, which is exact because padding is written as the zero point. The last block
starts early where the pixels are no multiple of four, so it computes some outputs twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import E, call, minimum
from firmwright.ir.tir.nodes import Buffer
from firmwright.ir.tir.schedule import Config, RowRange, Rule
from firmwright.ops.conv2d import bias_of, requant_of
from firmwright.ops.conv_shapes import window_of
from firmwright.ops.fixed_point import per_tensor
from firmwright.ops.kernel import Kernel
from firmwright.schedules.cortex_m_dsp.columns import ColumnLayout, pack_pixel, pack_run
from firmwright.schedules.cortex_m_dsp.mac_blocks import MOST_STEPS
from firmwright.schedules.epilogue import Epilogue, accumulator_bounds, make_epilogue

_PIXELS = 4
_UNROLL = 4


def _configs(op: OpCall) -> Sequence[Config]:
    """Four pixels a block, or two where RAM counts; int8 without horizontal dilation."""
    if op.input(0).dtype != INT8 or op.ints_attr("dilation")[1] != 1:
        return ()
    pixels = op.output.shape[0] * op.output.shape[1] * op.output.shape[2]
    return tuple({"pixels": count} for count in (4, 2, 1) if count <= pixels)


def _build(op: OpCall, config: Config, b: Kernel, rows: RowRange | None) -> None:
    weights = op.constants[1]
    assert weights is not None
    kernel = np.asarray(weights.array())
    window = window_of(op, kernel.shape[1:3])
    layout = ColumnLayout(window, kernel.shape[3])
    zero_point = per_tensor(op.input(0)).zero_point
    flat = kernel.reshape(kernel.shape[0], -1).astype(np.int64)
    bias = bias_of(op, "int32").astype(np.int64) - zero_point * flat.sum(axis=1)
    bounds = accumulator_bounds(bias, flat, INT8.min, INT8.max)
    pairs = -(-kernel.shape[0] // 2)
    epilogue = make_epilogue(b, requant_of(op), bounds, INT8, 2 * pairs)
    bias_table = b.constant("bias", np.resize(bias, 2 * pairs), INT32)
    packed = b.constant("weights", layout.pack_weights(kernel), UINT32)
    _, out_height, out_width, channels = op.output.shape
    first, last = (rows.start, rows.end) if rows else (0, op.output.shape[0] * out_height)
    pixels = (last - first) * out_width
    block = min(int(config["pixels"]), pixels)
    with ExitStack() as stack:
        at = _block_start(b, stack, pixels, block, first * out_width)
        columns = stack.enter_context(b.allocate("columns", UINT32, (layout.words, block), 8))
        with b.for_("p", block) as p, b.let("pixel", at + p) as pixel:
            _pack(b, layout, columns, pixel, p, op.output.shape)
        with b.for_("pair", pairs) as pair:
            acc = _multiply(b, columns, packed, bias_table, pair)
            _store(b, epilogue, acc, at, pair, channels)


def _pack(
    b: Kernel, layout: ColumnLayout, columns: Buffer, pixel: E, p: E, shape: tuple[int, ...]
) -> None:
    """The column of output `pixel` (flat over batch, rows, columns) into place `p`."""
    window = layout.window
    if window.pointwise:
        pack_run(b, layout, columns, b.input(0), pixel * layout.channels, pixel * 0, p)
        return
    batch, height, width, _ = shape
    n = pixel // (height * width) if batch > 1 else pixel * 0
    top = ((pixel // width) % height) * window.stride[0] - window.padding[0]
    left = (pixel % width) * window.stride[1] - window.padding[2]
    with b.let("top", top) as y0, b.let("left", left) as x0:
        pack_pixel(b, layout, columns, b.input(0), (n, y0, x0), p)


def _block_start(b: Kernel, stack: ExitStack, pixels: int, block: int, first: int) -> E:
    """The first pixel of each block; the last block ends at the last pixel."""
    index = stack.enter_context(b.for_("block", -(-pixels // block)))
    start = index * block + first
    if pixels % block:
        start = minimum(start, first + pixels - block)
    return stack.enter_context(b.let("at", start))


def _multiply(b: Kernel, columns: Buffer, packed: Buffer, bias: Buffer, pair: E) -> Buffer:
    """acc[channel * block + pixel] of one pair of channels: the inner product over the column."""
    words, block = columns.shape
    acc = b.reg("acc", INT32, 2 * block)
    for channel in (0, 1):
        with b.let("start", b.load(bias, [pair * 2 + channel])) as start:
            for pixel in range(block):
                b.store(acc, [channel * block + pixel], start)
    if block == _PIXELS:
        _multiply_blocks(b, acc, columns, packed, pair * words)
    else:
        _multiply_steps(b, acc, columns, packed, pair * words)
    return acc


def _multiply_blocks(b: Kernel, acc: Buffer, columns: Buffer, packed: Buffer, start: E) -> None:
    """Four pixels: blocks of steps that use every register."""
    words, block = columns.shape
    steps = max(n for n in range(1, MOST_STEPS + 1) if words % n == 0)
    registers = [b.load(acc, [i]) for i in range(2 * block)]
    with b.for_("j", words // steps) as j:
        w = b.pointer(packed, start + j * steps, steps)
        x = b.pointer(columns, j * (steps * block), steps * block)
        b.evaluate(f"mac_2x4_{steps}", [w, x, *registers])


def _multiply_steps(b: Kernel, acc: Buffer, columns: Buffer, packed: Buffer, start: E) -> None:
    """Fewer pixels: step by step, left to the compiler."""
    words = columns.shape[0]
    unroll = _UNROLL if words % _UNROLL == 0 else 2
    with (
        b.window("w", packed, start, (words,), alignment=4) as w,
        b.for_("j", words // unroll) as j,
        b.for_("u", unroll, kind="unrolled") as u,
        b.let("both", b.load(w, [j * unroll + u])) as both,
    ):
        _step(b, acc, columns, j * unroll + u, both)


def _step(b: Kernel, acc: Buffer, columns: Buffer, step: E, both: E) -> None:
    """Two taps of two channels for each pixel of the block."""
    block = columns.shape[1]
    with (
        b.let("even", call("sxtb16", [both], UINT32)) as even,
        b.let("odd", call("sxtb16_ror8", [both], UINT32)) as odd,
    ):
        for pixel in range(block):
            with b.let("a", b.load(columns, [step, pixel])) as a:
                for channel, lanes in enumerate((even, odd)):
                    at = channel * block + pixel
                    b.store(acc, [at], call("smlad", [lanes, a, b.load(acc, [at])], INT32))


def _store(b: Kernel, epilogue: Epilogue, acc: Buffer, at: E, pair: E, channels: int) -> None:
    """Requantise and write both channels of every pixel; an odd last channel has no partner."""
    block = acc.shape[0] // 2
    for parity in (0, 1):
        with ExitStack() as stack:
            channel = stack.enter_context(b.let("channel", pair * 2 + parity))
            if parity and channels % 2:
                stack.enter_context(b.if_(channel < channels))
            finish = stack.enter_context(epilogue.channel(b, channel))
            y = stack.enter_context(
                b.window(
                    "out", b.y, at * channels + channel, (block,), strides=(channels,), access="w"
                )
            )
            for pixel in range(block):
                b.store(y, [pixel], finish(b.load(acc, [parity * block + pixel])))


RULES = (
    Rule("dsp.conv2d.columns", "conv2d", frozenset({"dsp"}), _configs, _build, keeps_order=True),
)
