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

from firmwright.base.dtypes import INT8, UINT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import E, minimum
from firmwright.ir.tir.nodes import Buffer
from firmwright.ir.tir.schedule import Config, RowRange, Rule
from firmwright.ops.conv2d import bias_of, requant_of
from firmwright.ops.conv_shapes import window_of
from firmwright.ops.fixed_point import per_tensor
from firmwright.ops.kernel import Kernel
from firmwright.schedules.cortex_m_dsp.columns import ColumnLayout, pack_pixel, pack_run
from firmwright.schedules.cortex_m_dsp.product import plan_product

_BLOCKS = {4: 2, 2: 4, 1: 8}
"""Pixels of a block -> output channels of it: always eight accumulators."""


def _configs(op: OpCall) -> Sequence[Config]:
    """Four pixels a block, or two where RAM counts; int8 without horizontal dilation."""
    if op.input(0).dtype != INT8 or op.ints_attr("dilation")[1] != 1:
        return ()
    pixels = op.output.shape[0] * op.output.shape[1] * op.output.shape[2]
    return tuple({"pixels": count} for count in _BLOCKS if count <= pixels)


def _build(op: OpCall, config: Config, b: Kernel, rows: RowRange | None) -> None:
    weights = op.constants[1]
    assert weights is not None
    kernel = np.asarray(weights.array())
    window = window_of(op, kernel.shape[1:3])
    layout = ColumnLayout(window, kernel.shape[3])
    zero_point = per_tensor(op.input(0)).zero_point
    flat = kernel.reshape(kernel.shape[0], -1).astype(np.int64)
    bias = bias_of(op, "int32").astype(np.int64) - zero_point * flat.sum(axis=1)
    _, out_height, out_width, _ = op.output.shape
    first, last = (rows.start, rows.end) if rows else (0, op.output.shape[0] * out_height)
    pixels = (last - first) * out_width
    block = next(n for n in _BLOCKS if n <= min(int(config["pixels"]), pixels))
    product = plan_product(b, layout, kernel, bias, requant_of(op), _BLOCKS[block], block)
    with ExitStack() as stack:
        at = _block_start(b, stack, pixels, block, first * out_width)
        columns = stack.enter_context(b.allocate("columns", UINT32, (layout.words, block), 8))
        with b.for_("p", block) as p, b.let("pixel", at + p) as pixel:
            _pack(b, layout, columns, pixel, p, op.output.shape)
        product.run(b, columns, at)


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


RULES = (
    Rule("dsp.conv2d.columns", "conv2d", frozenset({"dsp"}), _configs, _build, keeps_order=True),
)
