"""im2col packing without SIMD instructions, with the zero point outside the input."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from firmwright.base.dtypes import UINT32, DType
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, logical_and, logical_not
from firmwright.ops.conv_window import ConvWindow
from firmwright.ops.kernel import Kernel, Nest, Position

_UNROLL = 4
_MAX_UNROLLED_COPIES = 16
_WORD = 4


def _factors(count: int) -> tuple[int, ...]:
    return (count,) if count <= _MAX_UNROLLED_COPIES else (8, _UNROLL, 3, 2)


@dataclass(frozen=True, slots=True)
class WindowPacker(ABC):
    """Packs windows into `columns`."""

    b: Kernel
    window: ConvWindow
    x: tir.Buffer
    columns: tir.Buffer

    @property
    @abstractmethod
    def pixels(self) -> int:
        """The number of columns."""

    @abstractmethod
    def points(self, at: ArithExpr) -> None:
        """Pack one-element windows, that is, the channels of the pixels from `at`."""

    @abstractmethod
    def move(
        self, offset: ArithExpr, first: ArithExpr, pixel: ArithExpr, count: int
    ) -> None:
        """Copy input elements from `offset` to column `pixel` from element `first`."""

    @abstractmethod
    def zero(self, first: ArithExpr, pixel: ArithExpr, count: int) -> None: ...

    def pack(self, op: OpCall, at: ArithExpr) -> None:
        b, window = self.b, self.window
        if window.pointwise:
            self.points(at)
            return
        batch, height, width, _ = op.output.shape
        with b.for_("p", self.pixels) as p:
            pixel = b.let("pixel", at + p)
            n = pixel // (height * width) if batch > 1 else pixel * 0
            row = (pixel // width) % height if batch > 1 else pixel // width
            top = row * window.stride[0] - window.padding[0]
            left = (pixel % width) * window.stride[1] - window.padding[2]
            y0 = b.let("top", top)
            x0 = b.let("left", left)
            self.pixel((n, y0, x0), p)

    def pixel(self, position: Position, pixel: ArithExpr) -> None:
        """Pack the window with origin `position` (n, y, x) as column `pixel`."""
        b, window = self.b, self.window
        n, top, left = position
        rows, cols = window.input_size
        run = window.size[1] * self.x.shape[3]
        guarded = window.guarded(0) or window.guarded(1)
        with Nest() as enter:
            ky = enter(b.for_("ky", window.size[0]))
            iy = b.let("iy", top + ky * window.dilation[0])
            whole = window.dilation[1] == 1 and window.size[1] <= cols
            if whole and not guarded:
                self.copy((n, iy, left), ky * run, pixel, run)
                return
            if window.guarded(0):
                with b.if_(logical_not(logical_and(iy >= 0, iy < rows))):
                    self.zero(ky * run, pixel, run)
                enter(b.else_())
            if whole:
                with b.if_(logical_and(left >= 0, left <= cols - window.size[1])):
                    self.copy((n, iy, left), ky * run, pixel, run)
                if not window.guarded(1):
                    return
                enter(b.else_())
            self._taps((n, iy, left), ky * run, pixel)

    def _taps(self, origin: Position, first: ArithExpr, pixel: ArithExpr) -> None:
        b = self.b
        window = self.window
        channels = self.x.shape[3]
        n, iy, left = origin
        with b.for_("kx", window.size[1]) as kx:
            ix = b.let("ix", left + kx * window.dilation[1])
            start = first + kx * channels
            with b.if_(logical_and(ix >= 0, ix < window.input_size[1])):
                self.copy((n, iy, ix), start, pixel, channels)
            with b.else_():
                self.zero(start, pixel, channels)

    def copy(
        self, source: Position, first: ArithExpr, pixel: ArithExpr, count: int
    ) -> None:
        _, rows, cols, channels = self.x.shape
        place = (source[0] * rows + source[1]) * cols + source[2]
        self.move(place * channels, first, pixel, count)


@dataclass(frozen=True, slots=True)
class RowIm2colPacker(WindowPacker):
    """Packs windows into `columns` [pixel, element].

    Words are copied if channels fill them, or if the core reads and writes words of
    bytes at any address.
    """

    zero_point: int = 0
    has_unaligned_words: bool = False

    @property
    def pixels(self) -> int:
        return self.columns.shape[0]

    def points(self, at: ArithExpr) -> None:
        depth = self.x.shape[3]
        with self.b.for_("p", self.pixels) as p:
            self.move((at + p) * depth, p * 0, p, depth)

    def zero(self, first: ArithExpr, pixel: ArithExpr, count: int) -> None:
        b = self.b
        place = pixel * self.columns.shape[1] + first
        column = b.view("zeros", self.columns, place, (count,), access="w")
        with b.for_("c", count) as c:
            b.store(column, [c], self.zero_point)

    def move(
        self, offset: ArithExpr, first: ArithExpr, pixel: ArithExpr, count: int
    ) -> None:
        place = pixel * self.columns.shape[1] + first
        lanes = _WORD // self.x.dtype.size_bytes
        words, rest = divmod(count, lanes)
        if self.x.shape[3] % lanes == 0 and self.columns.shape[1] % lanes == 0:
            self._copy(offset, place, words, UINT32, _WORD)
        elif self.has_unaligned_words and words:
            self._copy(offset, place, words, UINT32, 1)
            if rest:
                done = words * lanes
                self._copy(offset + done, place + done, rest, self.x.dtype)
        else:
            self._copy(offset, place, count, self.x.dtype)

    def _copy(
        self,
        offset: ArithExpr,
        place: ArithExpr,
        steps: int,
        dtype: DType,
        alignment: int | None = None,
    ) -> None:
        """Copy elements of `dtype`, which are aligned to their size by default."""
        b, size = self.b, alignment or dtype.size_bytes
        run = b.view("from", self.x, offset, (steps,), dtype=dtype, alignment=size)
        column = b.view(
            "to", self.columns, place, (steps,), dtype=dtype, access="w", alignment=size
        )
        with b.unrolled("i", steps, *_factors(steps)) as i:
            b.store(column, [i], b.load(run, [i]))
