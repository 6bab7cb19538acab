"""conv2d on the DSP extension: im2col and register-blocked GEMM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import INT8, UINT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv2d import requantization_of
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import tensor_quant
from firmwright.schedules.cortex_m_dsp.gemm_kernel import GemmKernel, plan_gemm
from firmwright.schedules.cortex_m_dsp.im2col import Im2colLayout, Im2colPacker
from firmwright.schedules.cortex_m_dsp.microkernels import alternative_unrolls
from firmwright.schedules.epilogue import fold_zero_point_into_bias
from firmwright.schedules.schedule_factories import dsp_schedule

# A block of output pixels is packed as columns (im2col.py); the GEMM kernel then multiplies each
# channel block by all of them with SMLAD. The input's zero point is folded into the bias, which is
# exact because padding holds the zero point. The last block overlaps its predecessor if the pixels
# do not divide evenly. Backward order computes blocks from the end, for an output placed above the
# input that it overwrites.

CHANNELS_BY_PIXELS = {4: 2, 2: 4, 1: 8}
"""Pixels per block -> output channels per block; always eight accumulators."""


def _configs(op: OpCall) -> Sequence[Config]:
    if op.input(0).dtype != INT8 or op.ints_attr("dilation")[1] != 1:
        return ()
    pixels = op.output.shape[0] * op.output.shape[1] * op.output.shape[2]
    configs: list[Config] = []
    for count in CHANNELS_BY_PIXELS:
        if count <= pixels:
            configs.append({"pixels": count})
        if count < pixels and count > 1:
            configs.append({"pixels": count, "order": "backward"})
    return configs


def _space(op: OpCall) -> Sequence[Config]:
    kernel = op.input(1).shape
    words = Im2colLayout(window_of(op, kernel[1:3]), kernel[3]).words
    return [
        {**config, "steps": steps}
        for config in _configs(op)
        for steps in alternative_unrolls(words)
    ]


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    weights = op.constants[1]
    assert weights is not None
    kernel = np.asarray(weights.array())
    window = window_of(op, kernel.shape[1:3])
    layout = Im2colLayout(window, kernel.shape[3])
    zero_point = tensor_quant(op.input(0)).zero_point
    bias = fold_zero_point_into_bias(op, kernel)
    pixels = op.output.elements // op.output.shape[3]
    block = block_pixels(int(config["pixels"]), pixels)
    gemm = plan_gemm(
        b, layout, kernel, bias, requantization_of(op), CHANNELS_BY_PIXELS[block], block
    )
    backward = config.get("order") == "backward"
    if "steps" in config:
        gemm = replace(gemm, steps=int(config["steps"]))
    convolve_in_blocks(
        b, Im2colSource(b.input(0), layout, zero_point), gemm, op.output.shape, backward=backward
    )


def block_pixels(requested: int, pixels: int) -> int:
    return next(count for count in CHANNELS_BY_PIXELS if count <= min(requested, pixels))


@dataclass(frozen=True, slots=True)
class Im2colSource:
    """An int8 input, its column layout, and its zero point."""

    x: tir.Buffer
    layout: Im2colLayout
    zero_point: int | ArithExpr


def convolve_in_blocks(
    b: Kernel,
    source: Im2colSource,
    gemm: GemmKernel,
    shape: tuple[int, ...],
    first: ArithExpr | int = 0,
    *,
    backward: bool = False,
) -> None:
    """Convolve block by block; the output of `shape` begins at output pixel `first`."""
    layout, window, block = source.layout, source.layout.window, gemm.pixels
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
        gemm.emit(b, columns, at + first)


@contextmanager
def _position(
    b: Kernel, window: ConvWindow, row: ArithExpr, column: ArithExpr, shape: tuple[int, ...]
) -> Iterator[tuple[ArithExpr, ArithExpr, ArithExpr]]:
    """Yield the origin (n, y, x) of an output's window; `row` counts through the batch."""
    batch, height, _, _ = shape
    n, oy = (row // height, row % height) if batch > 1 else (row * 0, row)
    top = oy * window.stride[0] - window.padding[0]
    left = column * window.stride[1] - window.padding[2]
    with b.let("top", top) as y0, b.let("left", left) as x0:
        yield n, y0, x0


def _counted(b: Kernel, stack: ExitStack, name: str, count: int, *, backward: bool) -> ArithExpr:
    index = stack.enter_context(b.for_(name, count))
    if not backward:
        return index
    return stack.enter_context(b.let(f"{name}_down", (count - 1) - index))


def _block_start(
    b: Kernel, stack: ExitStack, pixels: int, block: int, *, backward: bool
) -> ArithExpr:
    """Yield the first pixel of each block; the last block is moved back so that it is whole."""
    index = stack.enter_context(b.for_("pixel_block", -(-pixels // block)))
    start = (pixels - block) - index * block if backward else index * block
    if pixels % block:
        start = maximum(start, 0) if backward else minimum(start, pixels - block)
    return stack.enter_context(b.let("at", start))


SCHEDULES = (
    dsp_schedule("dsp.conv2d.im2col", "conv2d", configs=_configs, build=_build, space=_space),
)
