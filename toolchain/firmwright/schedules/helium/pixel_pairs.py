"""Convolutions on Helium as products of the columns of two pixels at a time.

Columns that are adjacent in memory are multiplied there (column_runs.py). Other windows
are packed as columns (im2col.py). Outside the input is the zero point, so that it can
be folded into the bias. If the number of pixels is odd, the last pair overlaps the one
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol, Self

from firmwright.base.dtypes import INT8, INT16, Array
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, minimum
from firmwright.ops.conv2d import weights_of
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel, Nest
from firmwright.schedules.block_gemm import BlockGemm
from firmwright.schedules.helium.column_runs import (
    ColumnRun,
    ConvolutionInput,
    adjacent_weights,
    are_columns_adjacent,
    for_column_runs,
)
from firmwright.schedules.helium.im2col import (
    ROW_MOVES,
    VectorIm2colPacker,
    make_im2col_packer,
)
from firmwright.schedules.row_band import allocate_row_band

_PIXELS = 2
_MAX_PACKED = 8
"""The most pixels of odd rows that are packed, since one of them is computed twice."""


class ColumnGemm(Protocol):
    """Computes all channels of some pixels."""

    @property
    def taps(self) -> int: ...

    def with_taps(self, taps: int) -> Self:
        """Return a copy for columns that are padded to `taps` values."""

    def emit(
        self, b: Kernel, columns: Sequence[tir.AccessPtr], pixels: Sequence[ArithExpr]
    ) -> None:
        """Multiply the columns of `pixels`, and store these."""


def convolve_two_pixels(
    b: Kernel, source: ConvolutionInput, gemm: ColumnGemm, shape: Sequence[int]
) -> None:
    window = source.window
    is_point = window.size == (1, 1) and not window.is_padded
    is_adjacent = has_adjacent_columns(window, source.channels, shape)
    has_runs = isinstance(gemm, BlockGemm) and gemm.run_microkernel is not None
    if is_point and not (has_runs and (window.pointwise or is_adjacent)):
        _direct(b, source, gemm, shape)
    elif window.pointwise or is_adjacent:
        for_column_runs(b, source, shape, partial(_emit_run, b, gemm))
    else:
        _packed(b, source, gemm, shape)


def _emit_run(b: Kernel, gemm: ColumnGemm, run: ColumnRun) -> None:
    if isinstance(gemm, BlockGemm) and gemm.run_microkernel and run.count > 1:
        gemm.emit_run(b, run)
        return
    with _pair(b, run.count) as pixels:
        columns = [run.columns(b, pixel, 1) for pixel in pixels]
        places = [run.pixel + pixel for pixel in pixels]
        gemm.with_taps(run.taps).emit(b, columns, places)


def has_adjacent_columns(
    window: ConvWindow, channels: int, shape: Sequence[int]
) -> bool:
    """Return whether pairs in rows of their own are faster than packed columns."""
    batch, height, width, _ = shape
    wastes_little = width % _PIXELS == 0 or width > _MAX_PACKED or batch * height == 1
    return wastes_little and are_columns_adjacent(window, channels)


def flat_weights(op: OpCall) -> Array:
    """Return the weights of a convolution as [channel, tap of a column]."""
    kernel = weights_of(op)
    window = window_of(op, kernel.shape[1:3])
    channels = kernel.shape[3] * (2 if op.input(0).dtype == INT16 else 1)
    if has_adjacent_columns(window, channels, op.output.shape):
        return adjacent_weights(kernel)
    return kernel.reshape(len(kernel), -1)


def _direct(
    b: Kernel, source: ConvolutionInput, gemm: ColumnGemm, shape: Sequence[int]
) -> None:
    batch, height, width, _ = shape
    window = source.window
    in_rows, in_cols = window.input_size

    def column(pixel: ArithExpr) -> ArithExpr:
        if window.pointwise:
            return pixel * gemm.taps
        image = pixel // (height * width)
        oy = pixel // width % height
        row = image * in_rows + oy * window.stride[0]
        return (row * in_cols + pixel % width * window.stride[1]) * gemm.taps

    with _pair(b, batch * height * width) as pixels:
        places = [b.let("column", column(pixel)) for pixel in pixels]
        gemm.emit(b, [b.pointer(source.x, at, gemm.taps) for at in places], pixels)


def _packed(
    b: Kernel, source: ConvolutionInput, gemm: ColumnGemm, shape: Sequence[int]
) -> None:
    """Pack and multiply two pixels at a time, or two whole rows of an odd width."""
    batch, height, width, _ = shape
    count = batch * height
    rows_per_group = min(1 + width % 2, count)
    pixels_per_group = _PIXELS if width % 2 == 0 else rows_per_group * width
    with Nest() as enter:
        rows_of, packer = _source(b, source, shape)
        gemm = gemm.with_taps(packer.taps)
        columns = b.allocate("columns", INT8, (pixels_per_group * gemm.taps,), 8)
        step = source.window.stride[1] * packer.channels
        group = enter(b.for_("group", divide_up(count, rows_per_group)))
        row = b.let("row", minimum(group * rows_per_group, count - rows_per_group))
        if width % 2 == 0:
            origin = rows_of(row)
            pair = enter(b.for_("pair", width // _PIXELS))
            for p in range(_PIXELS):
                ox = pair * _PIXELS + p
                packer.pack(b, columns, group * 0 + p * gemm.taps, origin + ox * step)
            pixel = row * width + pair * _PIXELS
            places = [pair * 0, pair * 0 + gemm.taps]
            pointers = [b.pointer(columns, place, gemm.taps) for place in places]
            gemm.emit(b, pointers, [pixel, pixel + 1])
            return
        with b.for_("r", rows_per_group) as r:
            origin = rows_of(row + r)
            with b.for_("ox", width) as ox:
                place = (r * width + ox) * gemm.taps
                packer.pack(b, columns, place, origin + ox * step)
        pixels = enter(_pair(b, pixels_per_group))
        places = [pixel * gemm.taps for pixel in pixels]
        pointers = [b.pointer(columns, place, gemm.taps) for place in places]
        gemm.emit(b, pointers, [row * width + pixel for pixel in pixels])


def _source(
    b: Kernel, source: ConvolutionInput, shape: Sequence[int]
) -> tuple[Callable[[ArithExpr], ArithExpr], VectorIm2colPacker]:
    """Return a function from output row to its first window's offset, and a packer."""
    batch, height, width, _ = shape
    _, in_rows, in_cols, channels = source.x.shape
    window = source.window
    vertical = window.dilation[0]
    if not window.guarded(0) and not window.guarded(1):
        pitch = in_cols * channels
        packer = make_im2col_packer(b, window, channels, source.x, pitch, vertical)

        def inside(row: ArithExpr) -> ArithExpr:
            n, oy = (row // height, row % height) if batch > 1 else (row * 0, row)
            return (n * in_rows + oy * window.stride[0]) * pitch

        return inside, packer
    zero_point = source.zero_point
    band = allocate_row_band(b, window, source.x, width, zero_point, ROW_MOVES)

    def filled(row: ArithExpr) -> ArithExpr:
        n, oy = (row // height, row % height) if batch > 1 else (row * 0, row)
        band.fill(b, n, oy, zero_point)
        return row * 0

    return filled, make_im2col_packer(b, window, channels, band.buffer, band.pitch, 1)


@contextmanager
def _pair(b: Kernel, pixels: int) -> Iterator[list[ArithExpr]]:
    with b.for_("pair", divide_up(pixels, _PIXELS)) as index:
        at = b.let("at", minimum(index * _PIXELS, max(pixels - _PIXELS, 0)))
        yield [at, at + min(1, pixels - 1)]
