"""im2col packing for the DSP extension: int16 pairs, adjacent pixels interleaved."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from firmwright.base.dtypes import INT16, INT32, UINT32
from firmwright.ir import tir
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    call_intrinsic,
    immediate,
    logical_and,
)
from firmwright.kernels.dsp.weight_packing import PairedChannels, PairPacking
from firmwright.ops.conv_window import ConvWindow
from firmwright.ops.kernel import Kernel, Nest, Position
from firmwright.schedules.row_band import RowMoves

# A column is the kernel window of one output pixel, flattened and cut into groups of
# four int8 values k0..k3. SXTB16 widens a group to the words (k0, k2) and (k1, k3).
# Word j of pixel p is `columns[j, p]`, so one multiply-accumulate step reads a row of
# the buffer:
#
#     columns[j]:   | pixel 0: k2 k0 | pixel 1: k2 k0 | ...      one word per pixel
#
# A window row (its columns and channels) is contiguous in an NHWC input. Its remainder
# after the last group is one word (k0, k1) or two, (k0, k1) and (k2, 0); the weights
# have a zero there. Outside the input, columns hold the zero point.

_UNROLL: Mapping[int, tuple[int, ...]] = {4: (2,), 2: (3, 2), 1: ()}
"""Pixels packed side by side -> preferred unroll factors over groups."""
_COPIED_WORDS = (8, 6, 5, 4, 3, 2)
"""Preferred unroll factors of copies of words."""
_GROUP = 4
_FEW_GROUPS = 4
"""Loops of at most this many groups are unrolled only where their code occurs once."""


@dataclass(frozen=True, slots=True)
class Im2colLayout:
    """The layout of a column: window rows of `row_elements` values.

    These are the channels of every kernel column.
    """

    window: ConvWindow
    channels: int

    @property
    def row_elements(self) -> int:
        return self.window.size[1] * self.channels

    @property
    def words_per_row(self) -> int:
        groups, tail = divmod(self.row_elements, 4)
        return 2 * groups + (tail + 1) // 2

    @property
    def words(self) -> int:
        return self.window.size[0] * self.words_per_row

    def of_weights(
        self, channels: int, packing: PairPacking, offset: int = 0
    ) -> PairedChannels:
        """Return how weights are packed for these columns, in groups of channels."""
        rows, run = self.window.size[0], self.row_elements
        return PairedChannels(packing, channels, rows, run, offset)


@dataclass(frozen=True, slots=True)
class Im2colPacker:
    """Packs windows of the input `x` into `columns` [word, pixel] of a `Gemm`."""

    b: Kernel
    layout: Im2colLayout
    columns: tir.Buffer
    x: tir.Buffer
    zero_point: int | ArithExpr
    is_shared: bool = False

    def block(self, position: Position) -> None:
        """Pack adjacent pixels of an output row; the first window begins at `position`.

        Window rows that are inside the input for every pixel are packed together.
        """
        b = self.b
        window = self.layout.window
        pixels = self.columns.shape[1]
        n, top, left = position
        height, width = window.input_size
        step = window.stride[1]
        with self._rows(top) as (iy, word):
            offset = ((n * height + iy) * width + left) * self.layout.channels
            distance = step * self.layout.channels
            offsets = [offset + p * distance for p in range(pixels)]
            if not window.guarded(0) and not window.guarded(1):
                self._runs(offsets, self.layout.row_elements, word, range(pixels))
                return
            reach = (pixels - 1) * step + window.size[1]
            inside = logical_and(iy >= 0, iy < height, left >= 0, left <= width - reach)
            with b.if_(inside):
                self._runs(offsets, self.layout.row_elements, word, range(pixels))
            with b.else_(), b.for_("p", pixels) as p:
                x0 = b.let("x0", left + p * step)
                if self.layout.row_elements < _GROUP:
                    self._border((n, iy, x0), word, p)
                    return
                across = logical_and(x0 >= 0, x0 <= width - window.size[1])
                with b.if_(logical_and(iy >= 0, iy < height, across)):
                    start = ((n * height + iy) * width + x0) * self.layout.channels
                    self._runs([start], self.layout.row_elements, word, [p])
                with b.else_():
                    self._border((n, iy, x0), word, p)

    def pixel(self, position: Position, pixel: ArithExpr) -> None:
        b, window = self.b, self.layout.window
        n, top, left = position
        height, width = window.input_size
        with self._rows(top) as (iy, word):
            offset = ((n * height + iy) * width + left) * self.layout.channels
            if not (self.is_shared or window.guarded(0) or window.guarded(1)):
                self._runs([offset], self.layout.row_elements, word, [pixel])
                return
            last = width - window.size[1]
            inside = logical_and(iy >= 0, iy < height, left >= 0, left <= last)
            with b.if_(inside):
                self._runs([offset], self.layout.row_elements, word, [pixel])
            with b.else_():
                self._border((n, iy, left), word, pixel)

    def inside(self, offsets: Sequence[ArithExpr], pitch: int) -> None:
        """Pack windows from `offsets` whose rows are `pitch` apart and in the input."""
        with self.b.for_("ky", self.layout.window.size[0]) as ky:
            rows = [offset + ky * pitch for offset in offsets]
            word = ky * self.layout.words_per_row
            run, pixels = self.layout.row_elements, range(len(rows))
            self._runs(rows, run, word, pixels, are_few_unrolled=True)

    def points(self, offsets: Sequence[ArithExpr]) -> None:
        """Pack one-element windows, that is, the channels at each pixel's offset."""
        first = ArithExpr(immediate(0, INDEX))
        self._runs(offsets, self.layout.row_elements, first, range(len(offsets)))

    @contextmanager
    def _rows(self, top: ArithExpr) -> Iterator[tuple[ArithExpr, ArithExpr]]:
        """Loop over the rows of the window at `top`; yield (input row, first word)."""
        window = self.layout.window
        rows = self.b.extent("rows", window.size[0], self.is_shared)
        with self.b.for_("ky", rows) as ky:
            iy = self.b.let("iy", top + ky * window.dilation[0])
            yield iy, ky * self.layout.words_per_row

    def _runs(
        self,
        offsets: Sequence[ArithExpr],
        run: int,
        word: ArithExpr,
        pixels: Sequence[ArithExpr | int],
        *,
        are_few_unrolled: bool = False,
    ) -> None:
        groups, tail = divmod(run, 4)
        if groups:
            few = (groups,) if are_few_unrolled else ()
            factors = few if groups <= _FEW_GROUPS else _UNROLL[len(offsets)]
            self._groups(offsets, groups, word, pixels, factors)
        if tail:
            for at, pixel in zip(offsets, pixels, strict=True):
                self._tail(at + groups * 4, tail, word + groups * 2, pixel)

    def _groups(
        self,
        offsets: Sequence[ArithExpr],
        groups: int,
        word: ArithExpr,
        pixels: Sequence[ArithExpr | int],
        unroll: tuple[int, ...],
    ) -> None:
        b = self.b
        size = 4 if self.layout.channels % 4 == 0 else 1
        runs: list[tir.Buffer] = []
        for at, pixel in zip(offsets, pixels, strict=True):
            name = _name("window", pixel)
            run = b.view(name, self.x, at, (groups,), dtype=UINT32, alignment=size)
            runs.append(run)
        preferred = (2,) if self.is_shared else unroll
        with b.unrolled("i", groups, *preferred) as group:
            groups_of_bytes: list[ArithExpr] = []
            for run, pixel in zip(runs, pixels, strict=True):
                value = b.load(run, [group])
                groups_of_bytes.append(b.let(_name("bytes", pixel), value))
            for half, name in enumerate(("sxtb16", "sxtb16_ror8")):
                for bytes_word, pixel in zip(groups_of_bytes, pixels, strict=True):
                    place = [word + group * 2 + half, pixel]
                    pair = call_intrinsic(name, [bytes_word], UINT32)
                    b.store(self.columns, place, pair)

    def _tail(
        self, offset: ArithExpr, tail: int, word: ArithExpr, pixel: ArithExpr | int
    ) -> None:
        b = self.b
        tail_bytes = b.view(_name("tail", pixel), self.x, offset, (tail,))
        lanes = [b.load_i32(tail_bytes, [i]) for i in range(tail)]
        lanes.append(ArithExpr(immediate(0, INT32)))
        for i in range((tail + 1) // 2):
            pair = call_intrinsic("pkhbt", lanes[2 * i : 2 * i + 2], UINT32)
            b.store(self.columns, [word + i, pixel], pair)

    def _fill(
        self,
        word: ArithExpr,
        words: ArithExpr | int,
        pixels: Sequence[ArithExpr | int],
    ) -> None:
        point = self.zero_point
        pair: ArithExpr | int
        if isinstance(point, ArithExpr):
            pair = call_intrinsic("pkhbt", [point, point], UINT32)
        else:
            pair = (point & 0xFFFF) * 0x10001
        with self.b.for_("j", words) as j:
            for pixel in pixels:
                self.b.store(self.columns, [word + j, pixel], pair)

    def _border(self, at: Position, word: ArithExpr, pixel: ArithExpr) -> None:
        """Pack a window row of which some elements are outside the input."""
        b, layout, window = self.b, self.layout, self.layout.window
        _, iy, _ = at
        with Nest() as enter:
            if self.is_shared or window.guarded(0):
                inside = logical_and(iy >= 0, iy < window.input_size[0])
                if self.is_shared or window.guarded(1):
                    with b.if_(inside):
                        self._border_taps(at, word, pixel)
                    enter(b.else_())
                words = b.extent("words", layout.words_per_row, self.is_shared)
                self._fill(word, words, [pixel])
            else:
                self._border_taps(at, word, pixel)

    def _border_taps(self, at: Position, word: ArithExpr, pixel: ArithExpr) -> None:
        b, layout = self.b, self.layout
        n, iy, left = at
        height, width = layout.window.input_size
        if layout.channels % 4:
            self._border_elements(at, word, pixel)
            return
        taps = b.extent("columns", layout.window.size[1], self.is_shared)
        with b.for_("kx", taps) as kx:
            ix = b.let("ix", left + kx)
            first = word + kx * (layout.channels // 2)
            with b.if_(logical_and(ix >= 0, ix < width)):
                offset = ((n * height + iy) * width + ix) * layout.channels
                self._runs([offset], layout.channels, first, [pixel])
            with b.else_():
                self._fill(first, layout.channels // 2, [pixel])

    def _border_elements(self, at: Position, word: ArithExpr, pixel: ArithExpr) -> None:
        b = self.b
        layout = self.layout
        pixels = self.columns.shape[1]
        groups = layout.row_elements // 4
        halves = b.view(
            "halves",
            self.columns,
            word * pixels + pixel,
            (layout.words_per_row, 2),
            dtype=INT16,
            strides=(2 * pixels, 1),
            access="w",
            alignment=4,
        )
        if groups:
            with b.for_("k", 4 * groups) as k:
                # k0 to k3 of a group are in words 0, 1, 0, 1 and lanes 0, 0, 1, 1.
                place = ((k >> 2) * 2 + (k & 1), (k >> 1) & 1)
                kx = k // layout.channels
                c = k % layout.channels
                self._element(at, halves, place, kx, c)
        for tap in range(4 * groups, layout.row_elements + layout.row_elements % 2):
            word_at = 2 * groups + (tap - 4 * groups) // 2
            lane = tap % 2
            if tap == layout.row_elements:
                b.store(halves, [word_at, lane], 0)
            else:
                kx, c = map(_index, divmod(tap, layout.channels))
                self._element(at, halves, (_index(word_at), _index(lane)), kx, c)

    def _element(
        self,
        at: Position,
        halves: tir.Buffer,
        place: tuple[ArithExpr, ArithExpr],
        kx: ArithExpr,
        c: ArithExpr,
    ) -> None:
        b = self.b
        n, iy, left = at
        width = self.layout.window.input_size[1]
        ix = b.let("ix", left + kx)
        with b.if_(logical_and(ix >= 0, ix < width)):
            b.store(halves, place, b.load(self.x, [n, iy, ix, c]).cast(INT16))
        with b.else_():
            point = self.zero_point
            if isinstance(point, ArithExpr):
                point = point.cast(INT16)
            b.store(halves, place, point)


def _copy_row(
    b: Kernel,
    target: tir.Buffer,
    to: ArithExpr,
    source: tir.Buffer,
    start: ArithExpr,
    count: int,
) -> None:
    """Copy bytes as words, which may have any address."""
    words, rest = divmod(count, _GROUP)
    if words:
        shape = (words,)
        x = b.view("from", source, start, shape, dtype=UINT32)
        y = b.view("to", target, to, shape, dtype=UINT32, access="w")
        with b.unrolled("i", words, *_COPIED_WORDS) as i:
            b.store(y, [i], b.load(x, [i]))
    if rest:
        x = b.view("rest", source, start + (count - rest), (rest,))
        y = b.view("end", target, to + (count - rest), (rest,), access="w")
        for place in range(rest):
            b.store(y, [place], b.load(x, [place]))


def _fill_row(
    b: Kernel,
    target: tir.Buffer,
    to: ArithExpr | int,
    value: ArithExpr | int,
    count: int,
) -> None:
    y = b.view("margin", target, to, (count,), access="w")
    with b.for_("i", count) as i:
        b.store(y, [i], value)


ROW_MOVES = RowMoves(_copy_row, _fill_row)


def _index(value: int) -> ArithExpr:
    return ArithExpr(immediate(value, INDEX))


def _name(stem: str, pixel: ArithExpr | int) -> str:
    return f"{stem}{pixel}" if isinstance(pixel, int) else stem
