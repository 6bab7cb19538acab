"""conv2d on the DSP extension: a register-blocked product over packed columns.

Blocks of four output pixels: their windows are packed as columns (columns.py), then every pair of
output channels takes 2 x 4 accumulators through the column with SMLAD. The input's zero point is
folded into the bias, which is exact because padding is written as the zero point. The last block
starts early where the pixels are no multiple of four, so it computes some outputs twice. Backward
the blocks come in descending order, for an output that lies above the input it overwrites.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import INT8, UINT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import E, maximum, minimum
from firmwright.ir.tir.nodes import Buffer
from firmwright.ir.tir.schedule import Config, Rule
from firmwright.ops.conv2d import bias_of, requant_of
from firmwright.ops.conv_shapes import Window, window_of
from firmwright.ops.fixed_point import per_tensor
from firmwright.ops.kernel import Kernel
from firmwright.schedules.cortex_m_dsp.columns import ColumnLayout, Packer
from firmwright.schedules.cortex_m_dsp.mac_blocks import other_blocks
from firmwright.schedules.cortex_m_dsp.product import Product, plan_product

BLOCKS = {4: 2, 2: 4, 1: 8}
"""Pixels of a block -> output channels of it: always eight accumulators."""


def _configs(op: OpCall) -> Sequence[Config]:
    """Four pixels a block, or two where RAM counts; int8 without horizontal dilation."""
    if op.input(0).dtype != INT8 or op.ints_attr("dilation")[1] != 1:
        return ()
    pixels = op.output.shape[0] * op.output.shape[1] * op.output.shape[2]
    found: list[Config] = []
    for count in BLOCKS:
        if count <= pixels:
            found.append({"pixels": count})
        if count < pixels and count > 1:
            found.append({"pixels": count, "order": "backward"})
    return found


def _space(op: OpCall) -> Sequence[Config]:
    """Shorter and longer blocks of assembly: loops against code, and what divides the column."""
    kernel = op.input(1).shape
    words = ColumnLayout(window_of(op, kernel[1:3]), kernel[3]).words
    return [{**own, "steps": steps} for own in _configs(op) for steps in other_blocks(words)]


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    weights = op.constants[1]
    assert weights is not None
    kernel = np.asarray(weights.array())
    window = window_of(op, kernel.shape[1:3])
    layout = ColumnLayout(window, kernel.shape[3])
    zero_point = per_tensor(op.input(0)).zero_point
    flat = kernel.reshape(kernel.shape[0], -1).astype(np.int64)
    bias = bias_of(op, "int32").astype(np.int64) - zero_point * flat.sum(axis=1)
    pixels = op.output.elements // op.output.shape[3]
    block = block_of(int(config["pixels"]), pixels)
    product = plan_product(b, layout, kernel, bias, requant_of(op), BLOCKS[block], block)
    backward = config.get("order") == "backward"
    if "steps" in config:
        product = replace(product, steps=int(config["steps"]))
    sweep(b, Source(b.input(0), layout, zero_point), product, op.output.shape, backward=backward)


def block_of(wanted: int, pixels: int) -> int:
    """Pixels of a block where an output has `pixels` and `wanted` are asked for."""
    return next(count for count in BLOCKS if count <= min(wanted, pixels))


@dataclass(frozen=True, slots=True)
class Source:
    """An int8 input, how its windows are packed, and what stands for 0 in it."""

    x: Buffer
    layout: ColumnLayout
    zero_point: int | E


def sweep(
    b: Kernel,
    source: Source,
    product: Product,
    shape: tuple[int, ...],
    first: E | int = 0,
    *,
    backward: bool = False,
) -> None:
    """Packs and multiplies block by block; the output's `shape` begins at its pixel `first`."""
    layout, window, block = source.layout, source.layout.window, product.pixels
    _, out_height, out_width, _ = shape
    rows = shape[0] * out_height
    pixels = rows * out_width
    in_rows = out_width % block == 0 and not window.pointwise
    with ExitStack() as stack:
        if in_rows:
            row = _counted(b, stack, "row", rows, backward=backward)
            groups = out_width // block
            first_column = _counted(b, stack, "group", groups, backward=backward) * block
            at = stack.enter_context(b.let("at", row * out_width + first_column))
        else:
            at = _block_start(b, stack, pixels, block, backward=backward)
        columns = stack.enter_context(b.allocate("columns", UINT32, (layout.words, block), 8))
        packer = Packer(b, layout, columns, source.x, source.zero_point)
        if window.pointwise:
            packer.points([(at + p) * layout.channels for p in range(block)])
        elif in_rows:
            with _position(b, window, row, first_column, shape) as position:
                packer.block(position)
        else:
            with (
                b.for_("p", block) as p,
                b.let("pixel", at + p) as pixel,
                _position(b, window, pixel // out_width, pixel % out_width, shape) as position,
            ):
                packer.pixel(position, p)
        product.run(b, columns, at + first)


@contextmanager
def _position(
    b: Kernel, window: Window, row: E, column: E, shape: tuple[int, ...]
) -> Iterator[tuple[E, E, E]]:
    """Where the window of an output begins in the input; `row` counts through the batch."""
    batch, height, _, _ = shape
    n, oy = (row // height, row % height) if batch > 1 else (row * 0, row)
    top = oy * window.stride[0] - window.padding[0]
    left = column * window.stride[1] - window.padding[2]
    with b.let("top", top) as y0, b.let("left", left) as x0:
        yield n, y0, x0


def _counted(b: Kernel, stack: ExitStack, name: str, count: int, *, backward: bool) -> E:
    """Counts from 0 to `count`, or down."""
    index = stack.enter_context(b.for_(name, count))
    if not backward:
        return index
    return stack.enter_context(b.let(f"{name}_down", (count - 1) - index))


def _block_start(b: Kernel, stack: ExitStack, pixels: int, block: int, *, backward: bool) -> E:
    """The first pixel of each block; the last block done is whole too.

    Forward that one ends at the last pixel, backward it begins at the first.
    """
    index = stack.enter_context(b.for_("block", -(-pixels // block)))
    start = (pixels - block) - index * block if backward else index * block
    if pixels % block:
        start = maximum(start, 0) if backward else minimum(start, pixels - block)
    return stack.enter_context(b.let("at", start))


RULES = (
    Rule(
        "dsp.conv2d.columns",
        "conv2d",
        frozenset({"dsp"}),
        _configs,
        _build,
        keeps_order=True,
        space=_space,
    ),
)
