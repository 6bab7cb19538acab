"""Loops over the output pixels of pools; the taps of windows inside the input.

Along an axis, windows that cross a border are spans of their own, and those between
them are one span. Of 5 pixels with windows of 3, stride 2 and padding 1:

    input         0 1 2 3 4
    output 0    [ . . ]             span: 1 output of 2 taps, from input 0
    output 1        [ . . . ]       span: 1 output of 3 taps, from input 1
    output 2            [ . . ]     span: 1 output of 2 taps, from input 3

    for each span of rows, and each row of it:
        for each span of columns:
            for each column of it: a window with a number of taps that is constant
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import numpy as np

from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, ExprLike
from firmwright.ir.tir.inplace_distance import excluded_distances
from firmwright.ops.conv_window import ConvWindow, OutputPosition, output_positions
from firmwright.ops.kernel import Kernel
from firmwright.ops.pooling import pool_window

_SPANS_MAX = 9
"""The most parts of an output for which there is code."""


def is_inside(op: OpCall) -> bool:
    """Return whether all windows are inside the input."""
    window = pool_window(op)
    return not (window.guarded(0) or window.guarded(1))


# ---- pixels with whole windows -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PooledPixel:
    """An output pixel: its position, its number, and that of its window's corner."""

    at: OutputPosition
    place: ArithExpr
    corner: ArithExpr


@contextmanager
def pooled_pixels(op: OpCall, b: Kernel) -> Iterator[PooledPixel]:
    """Loop over the output pixels of a pool."""
    window = pool_window(op)
    _, height, width, _ = op.output.shape
    rows, cols = window.input_size
    with output_positions(b, op.output.shape) as at:
        top = at.n * rows + at.oy * window.stride[0]
        corner = top * cols + at.ox * window.stride[1]
        yield PooledPixel(at, (at.n * height + at.oy) * width + at.ox, corner)


# ---- windows without the taps outside of the input -----------------------------------


@dataclass(frozen=True, slots=True)
class TapSpan:
    """Outputs [first, first + count) along an axis, with `taps` inside the input each.

    The first tap of the first output is input `start`.
    """

    first: int
    count: int
    taps: int
    start: int


def spans(window: ConvWindow, axis: int) -> list[TapSpan]:
    """Return the spans along an axis, in the order of the outputs."""
    step, dilation, size = window.stride[axis], window.dilation[axis], window.size[axis]
    outputs = window.output_size(*window.input_size)[axis]
    origins = np.arange(outputs) * step - window.padding[2 * axis]
    # Of each output, the numbers of its first tap inside and of the first one behind.
    inside = np.clip(-(origins // dilation), 0, size)
    behind = np.clip(-((origins - window.input_size[axis]) // dilation), 0, size)
    taps = np.maximum(behind - inside, 0)
    starts = np.where(taps > 0, origins + inside * dilation, 0)
    continues = (np.diff(taps) == 0) & (np.diff(starts) == step)
    firsts = [0, *(np.flatnonzero(~continues) + 1).tolist()]
    found: list[TapSpan] = []
    for first, end in zip(firsts, [*firsts[1:], outputs], strict=True):
        span = TapSpan(first, end - first, int(taps[first]), int(starts[first]))
        found.append(span)
    return found


@dataclass(frozen=True, slots=True)
class PoolWindow:
    """The part of a window inside the input.

    Steps are in elements, from a row of taps and from a tap to the next one, and
    `reach` is the number of elements from the first to the last one that is read.
    """

    taps: tuple[int, int]
    steps: tuple[int, int]
    reach: int

    @property
    def count(self) -> int:
        return self.taps[0] * self.taps[1]

    @property
    def numbers(self) -> list[int]:
        """The operands of `WINDOW_NUMBERS` (kernels/elementwise.py)."""
        return [*self.taps, *self.steps]


def _part_inside(op: OpCall, taps: tuple[int, int]) -> PoolWindow:
    window = pool_window(op)
    channels = op.output.shape[3]
    steps = (
        window.dilation[0] * window.input_size[1] * channels,
        window.dilation[1] * channels,
    )
    reach = (taps[0] - 1) * steps[0] + (taps[1] - 1) * steps[1] + channels
    return PoolWindow(taps, steps, reach)


def pool_windows(op: OpCall) -> list[PoolWindow]:
    """Return the different parts of windows of a pool that are inside the input."""
    window = pool_window(op)
    found: dict[PoolWindow, None] = {}
    for down, across in product(spans(window, 0), spans(window, 1)):
        found[_part_inside(op, (down.taps, across.taps))] = None
    return list(found)


def has_few_spans(op: OpCall) -> bool:
    """Return whether there are few runs of pixels, whose windows all have taps."""
    window = pool_window(op)
    number = len(spans(window, 0)) * len(spans(window, 1))
    return number <= _SPANS_MAX and all(part.count for part in pool_windows(op))


@dataclass(frozen=True, slots=True)
class WindowRun:
    """Pixels with equal windows, of a row, or of a column if rows have one pixel.

    `place` and `corner` are the elements of the first pixel in the output, and of its
    window in the input; `step` is from a window to the next one.
    """

    count: int
    place: ArithExpr
    corner: ArithExpr
    step: int
    window: PoolWindow


def pixel_runs(op: OpCall, b: Kernel) -> Iterator[WindowRun]:
    """Loop over images and rows, and yield the runs of a row; b has their loops."""
    window = pool_window(op)
    batch, height, width, channels = op.output.shape
    rows, cols = window.input_size
    is_column = width == 1
    step = channels * (window.stride[0] * cols if is_column else window.stride[1])
    with b.for_("n", batch) as n:
        for down in spans(window, 0):
            with b.for_("oy", 1 if is_column else down.count) as oy:
                place = (n * height + oy + down.first) * width
                corner = (n * rows + oy * window.stride[0] + down.start) * cols
                for across in spans(window, 1):
                    yield WindowRun(
                        down.count if is_column else across.count,
                        (place + across.first) * channels,
                        (corner + across.start) * channels,
                        step,
                        _part_inside(op, (down.taps, across.taps)),
                    )


@dataclass(frozen=True, slots=True)
class PoolCall:
    """The micro-kernel of a window: its name, and the operands after its window."""

    name: str
    settings: Sequence[ExprLike]


def build_pixels(
    op: OpCall, b: Kernel, choose: Callable[[PoolWindow], PoolCall]
) -> None:
    """Call the micro-kernel that `choose` returns for all channels of each pixel."""
    for run in pixel_runs(op, b):
        call_pixels(op, b, run, choose(run.window))
    state_distances(op, b)


def call_pixels(op: OpCall, b: Kernel, run: WindowRun, call: PoolCall) -> None:
    """Call a micro-kernel for each pixel of a run."""
    channels = op.output.shape[3]
    with b.for_("ox", run.count) as ox:
        y = b.pointer(b.y, run.place + ox * channels, channels, "w")
        corner = run.corner + ox * run.step
        x = b.pointer(b.input(0), corner, run.window.reach)
        b.evaluate(call.name, [y, x, *run.window.numbers, *call.settings, channels])


def state_distances(op: OpCall, b: Kernel) -> None:
    """State the excluded in-place distances, if channels are computed in their order.

    Those of vectors of channels, which are read before they are written, are a part of
    them.
    """
    window = pool_window(op)
    batch, height, width, channels = op.output.shape
    rows, cols = window.input_size
    reads = np.zeros((2, batch, height, width, channels), np.int64)
    for down, across in product(spans(window, 0), spans(window, 1)):
        n, oy, ox, c = np.ix_(
            *map(np.arange, (batch, down.count, across.count, channels))
        )
        top = n * rows + down.start + oy * window.stride[0]
        corner = top * cols + across.start + ox * window.stride[1]
        reach = _part_inside(op, (down.taps, across.taps)).reach - channels + 1
        below = slice(down.first, down.first + down.count)
        beside = slice(across.first, across.first + across.count)
        reads[0, :, below, beside] = corner * channels + c
        reads[1, :, below, beside] = corner * channels + c + reach
    size = op.output.dtype.size_bytes
    first, end = reads.reshape(2, -1) * size
    to = np.arange(op.output.elements) * size
    b.state_inplace_distances(excluded_distances((first, end), (to, to + size)))
