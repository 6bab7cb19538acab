"""im2col packing for Helium: windows as contiguous runs of int8, one column after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, UINT16, Array
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr, logical_and
from firmwright.ops.conv_window import ConvWindow
from firmwright.ops.kernel import Kernel
from firmwright.schedules.helium import vector_copy
from firmwright.schedules.helium.dot_product_loop import BYTES_PER_STEP, pad_tap_count

# Padded layers first copy a band: the input rows needed by one output row, with the zero point in
# the margins and in rows outside the input, so that every window is inside. The margins are written
# once. If a window row is shorter than a vector, the window is gathered through a table of offsets,
# eight values at a time; longer rows are copied.

_OFFSETS = 65535


@dataclass(frozen=True, slots=True)
class VectorIm2colPacker:
    """Packs windows from `source`, with rows `pitch` elements apart."""

    window: ConvWindow
    channels: int
    source: tir.Buffer
    pitch: int
    row_step: int
    offsets: tir.Buffer | None

    @property
    def taps(self) -> int:
        """Return the values per column; gathered columns are padded to a whole step."""
        exact = self.window.size[0] * self.window.size[1] * self.channels
        return exact if self.offsets is None else pad_tap_count(exact)

    def pack(
        self, b: Kernel, columns: tir.Buffer, place: ArithExpr | int, start: ArithExpr
    ) -> None:
        height, width = self.window.size
        if self.offsets is not None:
            reach = int(_reach(self.window, self.channels, self.pitch, self.row_step).max()) + 1
            vector_copy.gather_bytes(
                b, columns, place, self.source, start, reach, self.offsets, self.taps
            )
            return
        whole = self.window.dilation[1] == 1
        run = (width if whole else 1) * self.channels
        for ky in range(height):
            for kx in range(1 if whole else width):
                at = ky * self.row_step * self.pitch + kx * self.window.dilation[1] * self.channels
                to = (ky * width + kx) * self.channels
                vector_copy.copy_bytes(b, columns, place + to, self.source, start + at, run)


def _reach(window: ConvWindow, channels: int, pitch: int, row_step: int) -> Array:
    """Return the offset of each value of a window from its first value."""
    ky = np.arange(window.size[0])[:, None, None] * row_step * pitch
    kx = np.arange(window.size[1])[:, None] * window.dilation[1] * channels
    offsets: Array = (ky + kx + np.arange(channels)).reshape(-1)
    return offsets


def make_im2col_packer(
    b: Kernel, window: ConvWindow, channels: int, source: tir.Buffer, pitch: int, row_step: int
) -> VectorIm2colPacker:
    """Build a packer that gathers if rows are short and offsets fit 16 bits, and else copies."""
    width = window.size[1] if window.dilation[1] == 1 else 1
    reach = _reach(window, channels, pitch, row_step)
    offsets = None
    if width * channels < vector_copy.VECTOR_BYTES and reach.max() <= _OFFSETS:
        padded = np.concatenate([reach, np.zeros(-len(reach) % BYTES_PER_STEP, np.int64)])
        offsets = b.constant("offsets", padded, UINT16)
    return VectorIm2colPacker(window, channels, source, pitch, row_step, offsets)


@dataclass(frozen=True, slots=True)
class RowBand:
    """A copy of the input rows for one output row, `pitch` elements each."""

    window: ConvWindow
    source: tir.Buffer
    buffer: tir.Buffer
    channels: int
    columns: tuple[int, int, int]  # before, inside and after the input

    @property
    def pitch(self) -> int:
        return sum(self.columns) * self.channels

    def fill(self, b: Kernel, n: ArithExpr, oy: ArithExpr, zero_point: ArithExpr | int) -> None:
        """Copy the rows for output row `oy`; leave the margins unchanged."""
        before, inside, _ = self.columns
        rows, cols = self.window.input_size
        top = oy * self.window.stride[0] - self.window.padding[0]
        count = inside * self.channels
        with (
            b.for_("ky", self.window.size[0]) as ky,
            b.let("iy", top + ky * self.window.dilation[0]) as iy,
            b.let("to", ky * self.pitch + before * self.channels) as to,
        ):
            with b.if_(logical_and(iy >= 0, iy < rows)):
                start = (n * rows + iy) * (cols * self.channels)
                vector_copy.copy_bytes(b, self.buffer, to, self.source, start, count)
            with b.else_():
                vector_copy.fill_bytes(b, self.buffer, to, zero_point, count)


def band_width(window: ConvWindow, outputs: int) -> tuple[int, int, int]:
    """Return the positions before, inside and after the input that `outputs` outputs read."""
    reach = (outputs - 1) * window.stride[1] + (window.size[1] - 1) * window.dilation[1] + 1
    before = window.padding[2]
    inside = min(reach - before, window.input_size[1])
    return before, inside, reach - before - inside


@contextmanager
def allocate_row_band(
    b: Kernel, window: ConvWindow, source: tir.Buffer, outputs: int, zero_point: ArithExpr | int
) -> Iterator[RowBand]:
    columns, channels = band_width(window, outputs), source.shape[3]
    size = window.size[0] * sum(columns) * channels
    with b.allocate("band", INT8, (size,), 8) as buffer:
        if columns[0] or columns[2]:
            vector_copy.fill_buffer(b, buffer, zero_point, size)
        yield RowBand(window, source, buffer, channels, columns)
