"""conv2d on Helium: GEMM tiles of four channels times two pixels over int8 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, Self

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, minimum
from firmwright.ops.conv2d import weight_offsets, weights_of
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.requantize import per_tensor_quant, weight_zero_point
from firmwright.schedules.epilogue import fold_zero_point_into_bias
from firmwright.schedules.helium import dot_product_loop, vector_requantize
from firmwright.schedules.helium.im2col import (
    ROW_MOVES,
    VectorIm2colPacker,
    make_im2col_packer,
)
from firmwright.schedules.row_band import allocate_row_band
from firmwright.schedules.schedule_factories import helium_schedule

# A 1x1 kernel multiplies directly from its input. Other kernels pack windows as columns
# (im2col.py) with the zero point outside the input, so that it can be folded into the
# bias. The last pixel pair and channel block overlap their predecessors if the sizes do
# not divide evenly.

_PIXELS = 2
_CHANNELS = vector_requantize.CHANNELS


def _configs(op: OpCall) -> Sequence[dot_product_loop.WeightConfig]:
    if not vector_requantize.supports_int8_layer(op):
        return ()
    starts = channel_block_starts(op.input(1).shape[0])
    return dot_product_loop.int4_configs(op, starts, _CHANNELS)


def _build(op: OpCall, config: dot_product_loop.WeightConfig, b: Kernel) -> None:
    kernel = weights_of(op)
    window = window_of(op, kernel.shape[1:3])
    flat = kernel.reshape(kernel.shape[0], -1)
    channels = len(flat)
    starts = channel_block_starts(channels)
    params = vector_requantize.layer_parameters(op)
    zero_point = weight_zero_point(op)
    bias = fold_zero_point_into_bias(op, weight_offsets(op))
    table = vector_requantize.parameter_rows(params, bias, starts)
    if config.weights == "int4":
        kind, pack = "int4", dot_product_loop.pack_int4_rows
    else:
        kind = "shares_int8" if zero_point else "int8"
        pack = dot_product_loop.pack_weight_rows
    gemm = BlockGemm(
        f"mve_gemm_{kind}",
        b.constant("weights", pack(flat, starts, _CHANNELS), INT8),
        [b.constant("parameters", table, INT32)],
        channels,
        flat.shape[1],
        vector_requantize.epilogue_settings(params, min(channels, _CHANNELS)),
        weight_zero_point=zero_point,
    )
    convolve_two_pixels(
        b,
        ConvolutionInput(b.input(0), window, per_tensor_quant(op.input(0)).zero_point),
        gemm,
        op.output.shape,
    )


class TwoPixelGemm(Protocol):
    """Computes all channels of two pixels."""

    @property
    def taps(self) -> int: ...

    def with_taps(self, taps: int) -> Self:
        """Return a copy for columns of `taps` values."""

    def emit(
        self,
        b: Kernel,
        source: tir.Buffer,
        columns: Sequence[ArithExpr],
        pixels: Sequence[ArithExpr],
    ) -> None:
        """Multiply the columns at offsets `columns` of `source`; store `pixels`."""


@dataclass(frozen=True, slots=True)
class BlockGemm:
    """Computes two pixels with one micro-kernel call per block of four channels.

    `microkernel` is the intrinsic's name without the loop suffix. `packed` and `tables`
    have a row per block, `settings` are the operands between outputs and `taps`, and
    pixels are relative to output `first`. Weights with a zero point add a share of it
    for each column to the operands.
    """

    microkernel: str
    packed: tir.Buffer
    tables: Sequence[tir.Buffer]
    channels: int
    taps: int
    settings: Sequence[ArithExpr | int]
    first: ArithExpr | None = None
    weight_zero_point: int = 0
    depth: int = 0

    def with_taps(self, taps: int) -> BlockGemm:
        return replace(self, taps=taps, depth=self.depth or self.taps)

    def _share(self, b: Kernel, source: tir.Buffer, column: ArithExpr) -> ArithExpr:
        depth = self.depth or self.taps
        total = b.register("total", INT32)
        b.evaluate(
            dot_product_loop.SUM.name,
            [b.pointer(source, column, depth), depth, total.value],
        )
        total.set(total.value * -self.weight_zero_point)
        return total.value

    def emit(
        self,
        b: Kernel,
        source: tir.Buffer,
        columns: Sequence[ArithExpr],
        pixels: Sequence[ArithExpr],
    ) -> None:
        lanes = min(self.channels, _CHANNELS)
        blocks = self.packed.shape[0]
        if self.first is not None:
            pixels = [self.first + pixel for pixel in pixels]
        shares: list[ArithExpr] = []
        if self.weight_zero_point:
            shares = [self._share(b, source, column) for column in columns]
        loop = dot_product_loop.choose_loop(self.taps)
        with b.for_("block", blocks) as block:
            first = minimum(block * _CHANNELS, self.channels - lanes)
            channel = b.let("channel", first)

            def row_of(table: tir.Buffer) -> tir.AccessPtr:
                size = table.elements // blocks
                return b.pointer(table, block * size, size)

            outputs = []
            for pixel in pixels:
                at = pixel * self.channels + channel
                outputs.append(b.pointer(b.y, at, lanes, "w"))
            b.evaluate(
                f"{self.microkernel}_{loop.suffix}",
                [
                    row_of(self.packed),
                    *[b.pointer(source, column, self.taps) for column in columns],
                    *map(row_of, self.tables),
                    *outputs,
                    *self.settings,
                    *shares,
                    self.taps,
                ],
            )


@dataclass(frozen=True, slots=True)
class ConvolutionInput:
    """An int8 tensor, its window, and its zero point."""

    x: tir.Buffer
    window: ConvWindow
    zero_point: ArithExpr | int


def convolve_two_pixels(
    b: Kernel, source: ConvolutionInput, gemm: TwoPixelGemm, shape: Sequence[int]
) -> None:
    if source.window.size == (1, 1) and not source.window.is_padded:
        _direct(b, source, gemm, shape)
    else:
        _packed(b, source, gemm, shape)


def _direct(
    b: Kernel, source: ConvolutionInput, gemm: TwoPixelGemm, shape: Sequence[int]
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
        columns = [b.let("column", column(pixel)) for pixel in pixels]
        gemm.emit(b, source.x, columns, pixels)


def _packed(
    b: Kernel, source: ConvolutionInput, gemm: TwoPixelGemm, shape: Sequence[int]
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
            gemm.emit(b, columns, [pair * 0, pair * 0 + gemm.taps], [pixel, pixel + 1])
            return
        with b.for_("r", rows_per_group) as r:
            origin = rows_of(row + r)
            with b.for_("ox", width) as ox:
                place = (r * width + ox) * gemm.taps
                packer.pack(b, columns, place, origin + ox * step)
        pixels = enter(_pair(b, pixels_per_group))
        places = [pixel * gemm.taps for pixel in pixels]
        gemm.emit(b, columns, places, [row * width + pixel for pixel in pixels])


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


def channel_block_starts(channels: int) -> list[int]:
    """Return the first channel of each block of four.

    The last block ends at the last channel.
    """
    last = max(channels - _CHANNELS, 0)
    return [min(start, last) for start in range(0, channels, _CHANNELS)]


SCHEDULES = vector_requantize.int8_schedules(
    helium_schedule(
        "helium.conv2d.im2col",
        "conv2d",
        configs=_configs,
        build=_build,
        takes_weight_zero_point=True,
    ),
)
