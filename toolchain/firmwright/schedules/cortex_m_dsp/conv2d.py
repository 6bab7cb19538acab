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
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.conv2d import bias_of, requantization_of
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import tensor_quant
from firmwright.schedules.cortex_m_dsp.gemm_kernel import GemmKernel, plan_gemm
from firmwright.schedules.cortex_m_dsp.im2col import Im2colLayout, Im2colPacker
from firmwright.schedules.cortex_m_dsp.microkernels import alternative_unrolls

CHANNELS_BY_PIXELS = {4: 2, 2: 4, 1: 8}
"""Pixels of a block -> output channels of it: always eight accumulators."""


def _configs(op: OpCall) -> Sequence[Config]:
    """Four pixels a block, or two where RAM counts; int8 without horizontal dilation."""
    if op.input(0).dtype != INT8 or op.ints_attr("dilation")[1] != 1:
        return ()
    pixels = op.output.shape[0] * op.output.shape[1] * op.output.shape[2]
    found: list[Config] = []
    for count in CHANNELS_BY_PIXELS:
        if count <= pixels:
            found.append({"pixels": count})
        if count < pixels and count > 1:
            found.append({"pixels": count, "order": "backward"})
    return found


def _space(op: OpCall) -> Sequence[Config]:
    """Shorter and longer blocks of assembly: loops against code, and what divides the column."""
    kernel = op.input(1).shape
    words = Im2colLayout(window_of(op, kernel[1:3]), kernel[3]).words
    return [{**own, "steps": steps} for own in _configs(op) for steps in alternative_unrolls(words)]


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    weights = op.constants[1]
    assert weights is not None
    kernel = np.asarray(weights.array())
    window = window_of(op, kernel.shape[1:3])
    layout = Im2colLayout(window, kernel.shape[3])
    zero_point = tensor_quant(op.input(0)).zero_point
    flat = kernel.reshape(kernel.shape[0], -1).astype(np.int64)
    bias = bias_of(op, "int32").astype(np.int64) - zero_point * flat.sum(axis=1)
    pixels = op.output.elements // op.output.shape[3]
    block = block_pixels(int(config["pixels"]), pixels)
    product = plan_gemm(
        b, layout, kernel, bias, requantization_of(op), CHANNELS_BY_PIXELS[block], block
    )
    backward = config.get("order") == "backward"
    if "steps" in config:
        product = replace(product, steps=int(config["steps"]))
    convolve_in_blocks(
        b, Im2colSource(b.input(0), layout, zero_point), product, op.output.shape, backward=backward
    )


def block_pixels(wanted: int, pixels: int) -> int:
    """Pixels of a block where an output has `pixels` and `wanted` are asked for."""
    return next(count for count in CHANNELS_BY_PIXELS if count <= min(wanted, pixels))


@dataclass(frozen=True, slots=True)
class Im2colSource:
    """An int8 input, how its windows are packed, and what stands for 0 in it."""

    x: tir.Buffer
    layout: Im2colLayout
    zero_point: int | ArithExpr


def convolve_in_blocks(
    b: Kernel,
    source: Im2colSource,
    product: GemmKernel,
    shape: tuple[int, ...],
    first: ArithExpr | int = 0,
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
        packer = Im2colPacker(b, layout, columns, source.x, source.zero_point)
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
    b: Kernel, window: ConvWindow, row: ArithExpr, column: ArithExpr, shape: tuple[int, ...]
) -> Iterator[tuple[ArithExpr, ArithExpr, ArithExpr]]:
    """Where the window of an output begins in the input; `row` counts through the batch."""
    batch, height, _, _ = shape
    n, oy = (row // height, row % height) if batch > 1 else (row * 0, row)
    top = oy * window.stride[0] - window.padding[0]
    left = column * window.stride[1] - window.padding[2]
    with b.let("top", top) as y0, b.let("left", left) as x0:
        yield n, y0, x0


def _counted(b: Kernel, stack: ExitStack, name: str, count: int, *, backward: bool) -> ArithExpr:
    """Counts from 0 to `count`, or down."""
    index = stack.enter_context(b.for_(name, count))
    if not backward:
        return index
    return stack.enter_context(b.let(f"{name}_down", (count - 1) - index))


def _block_start(
    b: Kernel, stack: ExitStack, pixels: int, block: int, *, backward: bool
) -> ArithExpr:
    """The first pixel of each block; the last block done is whole too.

    Forward that one ends at the last pixel, backward it begins at the first.
    """
    index = stack.enter_context(b.for_("block", -(-pixels // block)))
    start = (pixels - block) - index * block if backward else index * block
    if pixels % block:
        start = maximum(start, 0) if backward else minimum(start, pixels - block)
    return stack.enter_context(b.let("at", start))


RULES = (
    Schedule(
        "dsp.conv2d.columns",
        "conv2d",
        frozenset({"dsp"}),
        _configs,
        _build,
        disable_scheduling=True,
        space=_space,
    ),
)
