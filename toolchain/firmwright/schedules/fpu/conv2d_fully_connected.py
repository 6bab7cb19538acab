"""float32 conv2d, fully_connected and transpose_conv: GEMM over im2col columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, immediate
from firmwright.ir.tir.schedule import Config
from firmwright.ops import transpose_conv
from firmwright.ops.conv2d import bias_of, weights_of
from firmwright.ops.conv_window import OutputPosition, kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.schedules.fpu.microkernels import (
    FPU_TILES,
    SOFT_TILE,
    STEPS_PER_ITERATION,
    FpuTile,
    MultiplyAddStyle,
    activated,
    make_schedules,
    microkernel_name,
)
from firmwright.schedules.im2col import FloatIm2colPacker
from firmwright.schedules.row_band import pixel_blocks

# y[p, o] = activation(sum over k of column[k, p] * w[o, k], + bias[o]), in that order. Weights are
# packed in channel groups, element k of a group contiguous. The last groups are smaller.


@dataclass(frozen=True, slots=True)
class FloatGemmKernel:
    """Constants of a layer of `outputs` x `depth`, its tile, and strides of pixels and outputs."""

    style: MultiplyAddStyle
    tile: FpuTile
    outputs: int
    depth: int
    weights: tir.Buffer
    bias: tir.Buffer
    activation: str
    strides: tuple[int, int]

    def emit(self, b: Kernel, columns: tir.Buffer, at: ArithExpr) -> None:
        """Compute all channels of the pixels starting at `at`; `columns` is [depth, pixels]."""
        for first, count, lanes in channel_groups(self.outputs, self.tile.lanes):
            tile = FpuTile(lanes, self.tile.pixels)
            with b.for_("group", count) as group:
                self._multiply(b, tile, columns, at, group * lanes + first)

    def _multiply(
        self, b: Kernel, tile: FpuTile, columns: tir.Buffer, at: ArithExpr, channel: ArithExpr
    ) -> None:
        sums = b.reg("sum", FLOAT32, tile.sums)
        w = b.pointer(self.weights, channel * self.depth, tile.lanes * self.depth)
        x = b.pointer(columns, 0, tile.pixels * self.depth)
        registers = [b.load(sums, [i]) for i in range(tile.sums)]
        steps = ArithExpr(immediate(self.depth, INT32))
        name = microkernel_name(self.style, tile, self.depth)
        b.evaluate(name, [w, x, steps, *registers])
        first = b.let("first", channel)
        y = b.view(
            "out", b.y, at * self.strides[0] + first * self.strides[1], (tile.pixels, tile.lanes),
            strides=self.strides, access="w",
        )  # fmt: skip
        for lane in range(tile.lanes):
            bias = b.let("channel_bias", b.load(self.bias, [first + lane]))
            for pixel in range(tile.pixels):
                total = b.load(sums, [pixel * tile.lanes + lane]) + bias
                b.store(y, [pixel, lane], activated(total, self.activation))


def channel_groups(outputs: int, lanes: int) -> list[tuple[int, int, int]]:
    """Return (first, count, lanes) of equal groups: whole ones, then at most 4 and 3 channels."""
    whole, rest = outputs // lanes * lanes, outputs % lanes
    groups = [
        (0, outputs // lanes, lanes),
        (whole, rest // 4, 4),
        (outputs - rest % 4, 1, rest % 4),
    ]
    return [group for group in groups if group[1] * group[2]]


def _plan_gemm(op: OpCall, b: Kernel, style: MultiplyAddStyle, config: Config) -> FloatGemmKernel:
    """Return a layer's constants, with weights [outputs, depth] packed for the tile in `config`."""
    tile = FpuTile(int(config["lanes"]), int(config["pixels"]))
    weights = weights_of(op)
    weights = np.moveaxis(weights[0], 2, 0) if op.op == "depthwise_conv2d" else weights
    weights = weights.reshape(len(weights), -1)
    outputs, depth = weights.shape
    groups = [
        weights[first : first + count * lanes].reshape(count, lanes, depth).swapaxes(1, 2).ravel()
        for first, count, lanes in channel_groups(outputs, tile.lanes)
    ]
    return FloatGemmKernel(
        style, tile, outputs, depth, b.constant("weights", np.concatenate(groups), FLOAT32),
        b.constant("bias", bias_of(op, "float32"), FLOAT32), op.str_attr("activation"),
        (outputs, 1),
    )  # fmt: skip


def cheapest_tiles(
    style: MultiplyAddStyle, outputs: int, pixels: int, depth: int, overhead: int = 0
) -> Sequence[FpuTile]:
    """Return the cheapest tile and, if it differs, the cheapest tile of one pixel.

    `overhead` is the cost of packing a pixel, in instructions per element.
    """
    if style == "soft":
        return (SOFT_TILE,)
    fitting = [tile for tile in FPU_TILES if tile.pixels <= pixels]

    def cost(tile: FpuTile) -> tuple[float, int]:
        blocks = -(-pixels // tile.pixels)
        steps = sum(
            count * len(FpuTile(lanes, tile.pixels).steps("separate", STEPS_PER_ITERATION))
            for _, count, lanes in channel_groups(outputs, tile.lanes)
        )
        packing = 0 if tile.pixels == 1 and not overhead else max(overhead, 2) * tile.pixels
        work = (steps / STEPS_PER_ITERATION + packing) * depth + 5 * outputs * tile.pixels
        return blocks * work, -tile.sums

    best = min(fitting, key=cost)
    single = min((tile for tile in fitting if tile.pixels == 1), key=cost)
    return (best,) if best == single else (best, single)


# The columns of a few output pixels are packed (im2col.py) and multiplied by every channel group
# (`FloatGemmKernel`). A single pixel of a pointwise convolution and a row of a matrix need no
# packing. The last block overlaps its predecessor if the pixels do not divide evenly.

_COPY = 4
"""Approximate instructions to pack one element of a window."""


def _configs(style: MultiplyAddStyle, op: OpCall) -> Sequence[Config]:
    if op.input(0).dtype != FLOAT32:
        return ()
    outputs = op.input(1).shape[0]
    pixels = op.output.elements // outputs if op.op == "conv2d" else 1
    overhead = 0 if kernel_window(op).pointwise else _COPY
    tiles = cheapest_tiles(style, outputs, pixels, op.input(1).elements // outputs, overhead)
    return [{"lanes": tile.lanes, "pixels": tile.pixels} for tile in tiles]


def _soft_configs(style: MultiplyAddStyle, op: OpCall) -> Sequence[Config]:
    is_fit = op.op == "transpose_conv" or op.input(0).shape[3] == 1
    is_fit = is_fit and op.input(0).dtype == FLOAT32
    return ({"lanes": SOFT_TILE.lanes, "pixels": SOFT_TILE.pixels},) if is_fit else ()


def _build(style: MultiplyAddStyle, op: OpCall, config: Config, b: Kernel) -> None:
    gemm = _plan_gemm(op, b, style, config)
    pixels, block = op.output.elements // gemm.outputs, gemm.tile.pixels
    with pixel_blocks(b, pixels, block) as at:
        if op.op == "transpose_conv":
            columns = b.allocate("columns", FLOAT32, (gemm.depth, 1))
            _pack_taps(op, b, columns, at)
            gemm.emit(b, columns, at)
            return
        window = kernel_window(op)
        if window.pointwise and block == 1:
            x = b.view("column", b.input(0), at * gemm.depth, (gemm.depth, 1))
            gemm.emit(b, x, at)
            return
        columns = b.allocate("columns", FLOAT32, (gemm.depth, block))
        FloatIm2colPacker(b, window, b.input(0), columns).pack(op, at)
        gemm.emit(b, columns, at)


def _pack_taps(op: OpCall, b: Kernel, columns: tir.Buffer, at: ArithExpr) -> None:
    """Pack the inputs of a transposed convolution's output, with zeros at taps between them."""
    (_, height, width, _), channels = op.output.shape, op.input(0).shape[3]
    with b.unrolled("i", columns.elements, 8, 4, 3, 2) as i:
        b.store(columns, [i, 0], 0.0)
    places = b.view("places", columns, 0, (*op.input(1).shape[1:3], channels), access="w")
    position = OutputPosition(at // (height * width), at // width % height, at % width)
    taps = transpose_conv.taps(op, b, position)
    with taps as (ky, kx, iy, ix), b.unrolled("c", channels, 8, 4, 3, 2) as c:
        b.store(places, [ky, kx, c], b.load(b.input(0), [position.n, iy, ix, c]))


SCHEDULES = (
    *make_schedules(_configs, _build, "conv2d", "fully_connected"),
    *make_schedules(_soft_configs, _build, "transpose_conv", "depthwise_conv2d")[-2:],
)
