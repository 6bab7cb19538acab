"""float32 conv2d and fully_connected with an FPU: GEMM over im2col columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import INDEX, ArithExpr, immediate
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.conv2d import bias_of, weights_of
from firmwright.ops.conv_window import ConvWindow, kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.schedules.fpu.microkernels import (
    COPIED_MAX,
    DIRECT_MIN,
    DIRECT_TILES,
    FPU_TILES,
    STEPS_PER_ITERATION,
    STYLE_FEATURES,
    FpuTile,
    MultiplyAddStyle,
    activated,
    microkernel_name,
)
from firmwright.schedules.im2col import FloatIm2colPacker
from firmwright.schedules.row_band import RowMoves, band_width, pixel_blocks, window_rows

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

    def emit(self, b: Kernel, columns: tir.Buffer, at: ArithExpr, *args: ArithExpr | int) -> None:
        """Compute all channels of the pixels starting at `at`.

        `columns` is [depth, pixels], or for a direct tile `args` are the place of the first window,
        the elements of its rows, the distance of windows, the number of rows and the gaps of rows.
        """
        for first, count, lanes in channel_groups(self.outputs, self.tile.lanes):
            tile = replace(self.tile, lanes=lanes)
            with b.for_("group", count) as group:
                self._multiply(b, tile, (columns, *args), at, group * lanes + first)

    def _multiply(
        self, b: Kernel, tile: FpuTile, source: tuple[Any, ...], at: ArithExpr, channel: ArithExpr
    ) -> None:
        sums = b.reg("sum", FLOAT32, tile.sums)
        w = b.pointer(self.weights, channel * self.depth, tile.lanes * self.depth)
        columns, start, steps, *shape = source if tile.direct else (*source, 0, self.depth)
        extent = tile.pixels * self.depth
        if tile.direct:
            pitch, rows, jump = shape
            extent = (tile.pixels - 1) * pitch + rows * (steps + jump) - jump
        x = b.pointer(columns, start, extent)
        registers = [b.load(sums, [i]) for i in range(tile.sums)]
        name = microkernel_name(self.style, tile, steps)
        integers = [ArithExpr(immediate(n, INT32)) for n in (steps, *shape)]
        b.evaluate(name, [w, x, *integers, *registers])
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
    tile, (_, depth) = tile_of(config), _matrix_shape(op)
    weights = weights_of(op)
    if op.op == "transpose_conv":
        weights = np.moveaxis(weights, 2, 0)
    weights = weights.reshape(-1, depth)
    outputs = len(weights)
    bias = bias_of(op, "float32")
    groups = [
        weights[first : first + count * lanes].reshape(count, lanes, depth).swapaxes(1, 2).ravel()
        for first, count, lanes in channel_groups(outputs, tile.lanes)
    ]
    return FloatGemmKernel(
        style, tile, outputs, depth, b.constant("weights", np.concatenate(groups), FLOAT32),
        b.constant("bias", np.tile(bias, outputs // len(bias)), FLOAT32), op.str_attr("activation"),
        (outputs, 1),
    )  # fmt: skip


def cheapest_tiles(
    outputs: int, pixels: int, depth: int, packing: float, row: int = 0, rows: int = 1,
    band: float = 0.0,
) -> Sequence[FpuTile]:  # fmt: skip
    """Return the cheapest tile and, if it differs, the cheapest tile of one pixel.

    `packing` is the cost of packing a pixel, in cycles. If windows can be multiplied in
    place, `row` is the number of pixels in a row of the output, `rows` the number of rows of a
    window and `band` the cost of copying the input for a pixel.
    """
    direct = [tile for tile in DIRECT_TILES if tile.pixels <= row]
    fitting = [*direct, *(tile for tile in FPU_TILES if tile.pixels <= pixels)]

    def cost(tile: FpuTile) -> tuple[float, int]:
        blocks = -(-pixels // tile.pixels)
        work = tile.pixels * (band if tile.direct else packing)
        if tile.direct:
            blocks = pixels // row * -(-row // tile.pixels)
        for _, count, lanes in channel_groups(outputs, tile.lanes):
            steps = replace(tile, lanes=lanes).steps("separate", STEPS_PER_ITERATION)
            per_element = len(steps) / STEPS_PER_ITERATION + lanes + tile.pixels
            work += count * (per_element * depth + 8 + 14 * (rows + 1) * tile.direct)
        return blocks * (work + 5 * outputs * tile.pixels), -tile.sums

    best = min(fitting, key=cost)
    single = min((tile for tile in fitting if tile.pixels == 1), key=cost)
    return (best,) if best == single else (best, single)


def tile_config(tile: FpuTile) -> Config:
    return {"lanes": tile.lanes, "pixels": tile.pixels, **({"direct": 1} if tile.direct else {})}


def tile_of(config: Config) -> FpuTile:
    return FpuTile(int(config["lanes"]), int(config["pixels"]), "direct" in config)


# The columns of a few output pixels are packed (im2col.py) and multiplied by every channel group
# (`FloatGemmKernel`). A single pixel of a pointwise convolution and a row of a matrix need no
# packing. The last block overlaps its predecessor if the pixels do not divide evenly. For few
# outputs, packing takes longer than loading from several windows, which is `direct`: windows in the
# input or, if padded, in a band, a copy of the input rows of an output row.

_COPY, _COPY_ROW, _COPY_BAND = 3.0, 10.0, 2.5
"""Approximate cycles to pack an element of a window, and in addition a row; to copy to a band."""
_POINT = ConvWindow((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
_BAND_MAX = 1.5
"""The largest band, relative to packed columns of four pixels."""


def _copy_row(
    b: Kernel, y: tir.Buffer, to: ArithExpr, x: tir.Buffer, start: ArithExpr, count: int
) -> None:
    for first in range(0, count, COPIED_MAX):
        size = min(COPIED_MAX, count - first)
        target = b.pointer(y, to + first, size, "w")
        b.evaluate(f"copy_f32_{size}", [target, b.pointer(x, start + first, size)])


def _zero(b: Kernel, y: tir.Buffer, to: ArithExpr, zero: ArithExpr | int, count: int) -> None:
    with b.unrolled("i", count, 8, 4, 3, 2) as i:
        b.store(y, [to + i], 0.0)


_MOVES = RowMoves(
    _copy_row,
    _zero,
    lambda b, y, zero, count: _zero(b, y, ArithExpr(immediate(0, INDEX)), zero, count),
)


def _window(op: OpCall) -> ConvWindow:
    return _POINT if op.op == "transpose_conv" else kernel_window(op)


def _matrix_shape(op: OpCall) -> tuple[int, int]:
    """Return (outputs, depth). A transposed convolution without overlap has one output per tap."""
    w = op.input(1)
    depth = w.shape[3] if op.op == "transpose_conv" else w.elements // w.shape[0]
    return w.elements // depth, depth


def _is_matrix(op: OpCall) -> bool:
    """Return whether each input pixel of a transposed convolution has output pixels of its own."""
    (_, height, width, _), (_, rows, columns, _) = op.input(0).shape, op.input(1).shape
    fits = op.output.shape[1:3] == (height, width * columns) and op.ints_attr("before") == (0, 0)
    return fits and rows == 1 and op.ints_attr("stride") == (1, columns)


def _configs(op: OpCall) -> Sequence[Config]:
    if op.input(0).dtype != FLOAT32 or (op.op == "transpose_conv" and not _is_matrix(op)):
        return ()
    (outputs, depth), window = _matrix_shape(op), _window(op)
    pixels = op.output.elements // outputs
    run = window.size[1] * op.input(1).shape[-1]
    row, band, packing = pixels, 0, _COPY * depth
    if not window.pointwise:
        row, packing = op.output.shape[2], packing + _COPY_ROW * (window.size[0] + 1)
        if window.guarded(0) or window.guarded(1):
            band = window.size[0] * sum(band_width(window, row)) * op.input(1).shape[-1]
    in_place = run >= DIRECT_MIN and window.dilation[1] == 1 and band <= _BAND_MAX * 4 * depth
    tiles = cheapest_tiles(
        outputs, pixels, depth, packing, row * in_place, window.size[0], _COPY_BAND * band / row
    )
    return [tile_config(tile) for tile in tiles]


def _build(style: MultiplyAddStyle, op: OpCall, config: Config, b: Kernel) -> None:
    window, gemm = _window(op), _plan_gemm(op, b, style, config)
    pixels, block = op.output.elements // gemm.outputs, gemm.tile.pixels
    if gemm.tile.direct:
        _build_direct(b, window, gemm, pixels)
        return
    with pixel_blocks(b, pixels, block) as at:
        if window.pointwise and block == 1:
            x = b.view("column", b.input(0), at * gemm.depth, (gemm.depth, 1))
            gemm.emit(b, x, at)
            return
        columns = b.allocate("columns", FLOAT32, (gemm.depth, block))
        FloatIm2colPacker(b, window, b.input(0), columns).pack(op, at)
        gemm.emit(b, columns, at)


def _build_direct(b: Kernel, window: ConvWindow, gemm: FloatGemmKernel, pixels: int) -> None:
    block, depth = gemm.tile.pixels, gemm.depth
    if window.pointwise:
        with pixel_blocks(b, pixels, block) as at:
            gemm.emit(b, b.input(0), at, at * depth, depth, depth, 1, 0)
        return
    width, channels = b.y.shape[2], b.input(0).shape[3]
    run, pitch = window.size[1] * channels, window.stride[1] * channels
    rows = window_rows(b, window, 0, _MOVES)
    with rows as (source, start, distance, row), pixel_blocks(b, width, block) as at:
        gemm.emit(
            b, source, row * width + at, start + at * pitch, run, pitch, window.size[0],
            distance - run,
        )  # fmt: skip


SCHEDULES = tuple(
    Schedule(
        f"fpu.{op}.{style}", op, requires, _configs, partial(_build, style), disable_scheduling=True
    )
    for style, requires in STYLE_FEATURES.items()
    for op in ("conv2d", "fully_connected", "transpose_conv")
)
