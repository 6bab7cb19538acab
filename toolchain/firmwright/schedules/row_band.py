"""Loops over a window's output rows and pixels, and padded copies of input rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr, logical_and, maximum, minimum
from firmwright.ops.conv_window import ConvWindow
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import ScheduleConfig

# Padded layers first copy a band: the input rows needed by one output row, with the
# zero point in the margins and in rows outside the input, so that every window is
# inside. The margins are written once.


@dataclass(frozen=True, slots=True)
class PixelBlock(ScheduleConfig):
    """The configuration of a schedule that chooses only a block's output pixels."""

    pixels: int


@dataclass(frozen=True, slots=True)
class RowMoves:
    """The copies and fills of a run of elements, of an instruction set."""

    copy: Callable[[Kernel, tir.Buffer, ArithExpr, tir.Buffer, ArithExpr, int], None]
    fill: Callable[[Kernel, tir.Buffer, ArithExpr | int, ArithExpr | int, int], None]


@dataclass(frozen=True, slots=True)
class RowBand:
    """A copy of the input rows for one output row, `pitch` elements each."""

    window: ConvWindow
    source: tir.Buffer
    buffer: tir.Buffer
    channels: int
    columns: tuple[int, int, int]  # before, inside and after the input
    moves: RowMoves

    @property
    def pitch(self) -> int:
        return sum(self.columns) * self.channels

    def fill(
        self, b: Kernel, n: ArithExpr, oy: ArithExpr, zero_point: ArithExpr | int
    ) -> None:
        """Copy the rows for output row `oy`; leave the margins unchanged."""
        before, inside, _ = self.columns
        if not inside:
            return
        rows, cols = self.window.input_size
        top = oy * self.window.stride[0] - self.window.padding[0]
        count = inside * self.channels
        with b.for_("ky", self.window.size[0]) as ky:
            iy = b.let("iy", top + ky * self.window.dilation[0])
            to = b.let("to", ky * self.pitch + before * self.channels)
            with b.if_(logical_and(iy >= 0, iy < rows)):
                start = (n * rows + iy) * (cols * self.channels)
                self.moves.copy(b, self.buffer, to, self.source, start, count)
            with b.else_():
                self.moves.fill(b, self.buffer, to, zero_point, count)


def band_width(window: ConvWindow, outputs: int) -> tuple[int, int, int]:
    """Return how many positions the outputs read before, inside and after the input."""
    width = (window.size[1] - 1) * window.dilation[1] + 1
    reach = (outputs - 1) * window.stride[1] + width
    before = min(window.padding[2], reach)
    inside = min(reach - before, window.input_size[1])
    return before, inside, reach - before - inside


def allocate_row_band(
    b: Kernel,
    window: ConvWindow,
    source: tir.Buffer,
    outputs: int,
    zero_point: ArithExpr | int,
    moves: RowMoves,
) -> RowBand:
    columns = band_width(window, outputs)
    channels = source.shape[3]
    size = window.size[0] * sum(columns) * channels
    buffer = b.allocate("band", source.dtype, (size,), 8)
    if columns[0] or columns[2]:
        moves.fill(b, buffer, 0, zero_point, size)
    return RowBand(window, source, buffer, channels, columns, moves)


@contextmanager
def window_rows(
    b: Kernel,
    window: ConvWindow,
    zero_point: ArithExpr | int,
    moves: RowMoves,
    source: tir.Buffer | None = None,
) -> Iterator[tuple[tir.Buffer, ArithExpr, int, ArithExpr]]:
    """Loop over output rows of a tensor; yield the source of their windows.

    The tensor is `source`, by default the first input. Its windows are in a buffer,
    which is a band if windows are padded, the offset of the row's first window, the
    distance of window rows, and the number of the output row.
    """
    x = source or b.input(0)
    _, height, width, _ = b.y.shape
    batch = x.shape[0]
    pitch = window.input_size[1] * x.shape[3]
    band: RowBand | None = None
    if window.guarded(0) or window.guarded(1):
        band = allocate_row_band(b, window, x, width, zero_point, moves)
    with b.for_("row", batch * height) as row:
        n, oy = (row // height, row % height) if batch > 1 else (row * 0, row)
        if band is not None:
            band.fill(b, n, oy, zero_point)
            yield band.buffer, row * 0, band.pitch, row
        else:
            top = n * window.input_size[0] + oy * window.stride[0]
            yield x, top * pitch, window.dilation[0] * pitch, row


@contextmanager
def pixel_blocks(
    b: Kernel, pixels: int, block: int, *, backward: bool = False
) -> Iterator[ArithExpr]:
    """Loop over pixel blocks and yield the first pixel of each.

    The last block overlaps its predecessor if the pixels do not divide evenly. Backward
    order begins with the last pixels, for an output placed above the input that it
    overwrites.
    """
    with b.for_("block", divide_up(pixels, block)) as index:
        last = pixels - block
        start = last - index * block if backward else index * block
        if pixels % block:
            b.note(
                f"{pixels} pixels are no multiple of {block}: the last block computes "
                "some of them again"
            )
            start = maximum(start, 0) if backward else minimum(start, last)
        yield b.let("at", start)
