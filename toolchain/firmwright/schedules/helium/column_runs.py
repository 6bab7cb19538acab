"""Columns of a convolution on Helium that lie in memory as they are multiplied.

The values of a window are adjacent if it has one row. Those of several rows are in a
band of input rows side by side, from which the windows of an output row overlap:

    band:  | column 0: row 0, row 1, row 2 | column 1: row 0, row 1, row 2 | ...
           |<------------- window 0 ------------- ...
                                           |<------------- window 1 ------ ...

Taps are then in the order [column, row, channel]. A vector of bytes is stored to the
places of its pixels by one scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import INT8, UINT8, Array
from firmwright.base.rounding import divide_up, round_up
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr, as_expr, logical_and, minimum
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.mve.moves import COPY, spread_text
from firmwright.kernels.mve.weight_layout import padded_taps
from firmwright.ops.conv_window import ConvWindow
from firmwright.ops.kernel import Kernel
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium.im2col import ROW_MOVES, fill_bytes
from firmwright.schedules.row_band import allocate_row_band, band_width

_BYTES = COPY.lanes
_OFFSET_MAX = 255
_PIXELS = range(8, 129)
_RUN_BYTES = 1024
"""Limits of the outputs of a run of 1x1 windows, behind which they overwrite inputs."""


@dataclass(frozen=True, slots=True)
class ConvolutionInput:
    """An int8 tensor, its window, and its zero point."""

    x: tir.Buffer
    window: ConvWindow
    zero_point: ArithExpr | int

    @property
    def channels(self) -> int:
        return self.x.shape[3]


@dataclass(frozen=True, slots=True)
class ColumnRun:
    """Columns of `count` adjacent output pixels, from `pixel` on.

    Each has `taps` values and begins `step` bytes behind the one before it. Taps beyond
    those of the window have weights of 0.
    """

    buffer: tir.Buffer
    start: ArithExpr
    step: int
    taps: int
    pixel: ArithExpr
    count: int

    def columns(self, b: Kernel, first: ArithExpr | int, count: int) -> tir.AccessPtr:
        """Return a pointer to the columns of some pixels."""
        size = (count - 1) * self.step + self.taps
        return b.pointer(self.buffer, self.start + first * self.step, size)


def are_columns_adjacent(window: ConvWindow, channels: int) -> bool:
    """Return whether columns need no copies of their own."""
    height, width = window.size
    if window.dilation[1] > 1 and width > 1:
        return False
    return height == 1 or _are_rows_spread(window, channels)


def _are_rows_spread(window: ConvWindow, channels: int) -> bool:
    """Return whether a vector of an input row has several pixels to spread."""
    reach = _BYTES // channels * window.size[0] * channels if channels else 0
    return 2 * channels <= _BYTES and reach <= _OFFSET_MAX


def adjacent_weights(kernel: Array) -> Array:
    """Return weights [channel, row, column, input] as [channel, tap]."""
    return kernel.swapaxes(1, 2).reshape(len(kernel), -1)


EmitRun: TypeAlias = Callable[[ColumnRun], None]


def for_column_runs(
    b: Kernel, source: ConvolutionInput, shape: Sequence[int], emit: EmitRun
) -> None:
    """Emit the kernels of all runs of output pixels, whose columns are adjacent."""
    if source.window.pointwise:
        _for_points(b, source, shape, emit)
    else:
        _for_rows(b, source, shape, emit)


def _for_points(
    b: Kernel, source: ConvolutionInput, shape: Sequence[int], emit: EmitRun
) -> None:
    """Emit runs of 1x1 windows.

    All but the last one may read vectors beyond their columns, without predicates.
    """
    batch, height, width, outputs = shape
    pixels, taps = batch * height * width, source.channels
    count = _run_pixels(pixels, outputs)
    runs, last = divide_up(pixels, count), pixels - count
    rest = (pixels - (runs - 1) * count) * taps
    padded = padded_taps(taps)
    is_apart = taps < padded <= taps + rest and runs > 2

    def run(first: ArithExpr, taps_read: int) -> ColumnRun:
        return ColumnRun(source.x, first * taps, taps, taps_read, first, count)

    with b.for_("run", runs - is_apart) as number:
        start = number * count if is_apart else minimum(number * count, last)
        emit(run(b.let("first", start), padded if is_apart else taps))
    if is_apart:
        emit(run(ArithExpr(as_expr(last)), taps))


def _for_rows(
    b: Kernel, source: ConvolutionInput, shape: Sequence[int], emit: EmitRun
) -> None:
    """Emit a run for each output row."""
    batch, height, width, _ = shape
    window, channels = source.window, source.channels
    step = window.stride[1] * channels
    taps = window.size[0] * window.size[1] * channels
    is_padded = window.guarded(0) or window.guarded(1)
    if window.size[0] > 1:
        spread = _allocate_column_band(b, source, width)
        taps, step = padded_taps(taps), step * window.size[0]
    elif is_padded:
        zero_point = source.zero_point
        copy = allocate_row_band(b, window, source.x, width, zero_point, ROW_MOVES)
    with b.for_("row", batch * height) as row:
        n, oy = (row // height, row % height) if batch > 1 else (row * 0, row)
        if window.size[0] > 1:
            spread.fill(b, n, oy)
            buffer, start = spread.buffer, row * 0
        elif is_padded:
            copy.fill(b, n, oy, source.zero_point)
            buffer, start = copy.buffer, row * 0
        else:
            top = n * window.input_size[0] + oy * window.stride[0]
            buffer, start = source.x, top * (window.input_size[1] * channels)
        emit(ColumnRun(buffer, start, step, taps, row * width, width))


def _run_pixels(pixels: int, channels: int) -> int:
    """Return the pixels of a run of 1x1 windows, even unless it is the only one.

    The last run overlaps the one before it. Few pixels are computed twice.
    """
    most = max(_PIXELS[0], min(_PIXELS[-1], _RUN_BYTES // channels))
    if pixels <= most:
        return pixels
    counts = range(round_up(most // 2, 2), most + 1, 2)
    return min(counts, key=lambda count: (divide_up(pixels, count) * count, -count))


# ---- bands of rows side by side ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ColumnBand:
    """The input rows for one output row, side by side.

    `outside` is a vector of zero points, if there are rows outside the input.
    """

    source: ConvolutionInput
    buffer: tir.Buffer
    columns: tuple[int, int, int]  # before, inside and after the input
    offsets: tir.Buffer
    outside: tir.Buffer | None

    def fill(self, b: Kernel, n: ArithExpr, oy: ArithExpr) -> None:
        """Spread the rows for output row `oy`; leave the margins unchanged."""
        window, channels = self.source.window, self.source.channels
        before, inside, _ = self.columns
        height = window.size[0]
        if not inside:
            return
        rows, cols = window.input_size
        top = oy * window.stride[0] - window.padding[0]
        with b.for_("ky", height) as ky:
            iy = b.let("iy", top + ky * window.dilation[0])
            to = b.let("to", (ky + before * height) * channels)
            if self.outside is None:
                start = (n * rows + iy) * (cols * channels)
                self._spread(b, to, self.source.x, start)
                return
            with b.if_(logical_and(iy >= 0, iy < rows)):
                start = (n * rows + iy) * (cols * channels)
                self._spread(b, to, self.source.x, start)
            with b.else_():
                self._spread(b, to, self.outside, iy * 0)

    def _spread(
        self, b: Kernel, to: ArithExpr, source: tir.Buffer, start: ArithExpr
    ) -> None:
        """Spread a row of the input, or the same vector for all its pixels."""
        channels, inside = self.source.channels, self.columns[1]
        pitch, pixels = self.source.window.size[0] * channels, _BYTES // channels
        count = inside * channels
        is_row = source is self.source.x
        b.evaluate(
            SPREAD.name,
            [
                b.pointer(self.buffer, to, (inside - 1) * pitch + channels, "rw"),
                b.pointer(source, start, count if is_row else _BYTES),
                b.pointer(self.offsets, 0, _BYTES),
                pixels * channels,
                pixels * channels if is_row else 0,
                pixels * pitch,
                count,
            ],
        )


def _allocate_column_band(
    b: Kernel, source: ConvolutionInput, outputs: int
) -> _ColumnBand:
    """Return a band with a vector behind it, for columns that are padded."""
    window, channels = source.window, source.channels
    columns = band_width(window, outputs)
    height = window.size[0]
    size = sum(columns) * height * channels
    buffer = b.allocate("band", INT8, (size + _BYTES,), 8)
    if columns[0] or columns[2]:
        fill_bytes(b, buffer, 0, source.zero_point, size + _BYTES)
    else:
        fill_bytes(b, buffer, size, source.zero_point, _BYTES)
    outside = None
    if window.guarded(0):
        outside = b.allocate("outside", INT8, (_BYTES,), 8)
        fill_bytes(b, outside, 0, source.zero_point, _BYTES)
    pixel, channel = np.divmod(np.arange(_BYTES), channels)
    offsets = b.constant("offsets", pixel * (height * channels) + channel, UINT8)
    return _ColumnBand(source, buffer, columns, offsets, outside)


def _spread_meaning(
    y: Array,
    x: Array,
    offsets: Array,
    group: int,
    advance: int,
    distance: int,
    count: int,
) -> Array:
    vector, lane = np.divmod(np.arange(int(count)), int(group))
    places = np.asarray(offsets).reshape(len(offsets), -1)[:, 0].astype(np.int64)
    result = np.array(y)
    values = np.asarray(x)[vector * int(advance) + lane]
    result[vector * int(distance) + places[lane]] = values
    return result


SPREAD = Intrinsic(
    "mve_spread",
    (
        *pointers(INT8, "rw", y=1),
        *pointers(INT8, x=1),
        *pointers(UINT8, offsets=_BYTES),
        *immediates("group", "advance", "distance", "count"),
    ),
    _spread_meaning,
    "for (int32_t i = 0; i < count; ++i) {\n"
    "    const int32_t vector = i / group, lane = i % group;\n"
    "    y[vector * distance + offsets[lane]] = x[vector * advance + lane];\n"
    "}",
    "Stores groups of `group` of `count` bytes at offsets, `distance` bytes apart.",
    requires="mve",
    text={"gnu": spread_text()},
    definitions=(KEEP_STORES,),
    count=lambda args: 10 + divide_up(args[-1], max(args[3], 1)) * 5,
)
INTRINSICS = (SPREAD,)
