"""int16 and transposed convolutions on the DSP extension, without im2col."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32, Array
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import TransposeConvAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    call_intrinsic,
    immediate,
    logical_and,
    minimum,
)
from firmwright.ops.conv2d import weights_of
from firmwright.ops.conv_window import ConvWindow, kernel_window
from firmwright.ops.kernel import Kernel, Nest, Position
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.epilogue_forms import FinishElement
from firmwright.schedules.int16_accumulation import (
    Int16Accumulation,
    has_32_bit_products,
    plan_int16_accumulation,
)
from firmwright.schedules.schedule_factories import dsp_schedule
from firmwright.schedules.window_bounds import split_by_valid_taps

# The taps of a window row inside the input are a run of values. One channel of up to
# four pixels, or up to four channels of a pixel, or eight if runs are short, multiply
# runs by int16 weights, two taps at a time, with loads that need not be aligned. A
# transposed convolution is a convolution of stride 1 for each phase of the outputs
# modulo its strides, with a part of the taps. int8 inputs are first copied as int16,
# less their zero point.

_PIXELS = (4, 3, 2, 1)
_LANES = 4
_SHORT_RUN = 8
_UNROLLED_TAPS = 24
_UNROLLED_PRODUCTS = 64
_MAX_LOOPS = 24
_DTYPES = {"conv2d": (INT16,), "transpose_conv": (INT8, INT16)}


@dataclass(frozen=True, slots=True)
class _Part:
    """Weights [channel, y, x, input channel], their window, and their outputs.

    `rows` and `columns` are the outputs of the window's positions.
    """

    kernel: Array
    window: ConvWindow
    rows: range
    columns: range

    def emit(
        self, b: Kernel, x: tir.Buffer, sums: Int16Accumulation, lanes: int
    ) -> None:
        channels = len(self.kernel)
        flat = self.kernel.reshape(channels, -1).astype(np.int16)
        weights = b.constant("weights", flat, INT16, 4) if flat.size else x
        for across in split_by_valid_taps(self.window, 1, len(self.columns)):
            size = len(across.outputs)
            count = _pixels_of_tile(size) if lanes == 1 else 1
            bound: list[FinishElement] = []
            if lanes == channels:
                numbers = [ArithExpr(immediate(i, INDEX)) for i in range(lanes)]
                bound = [sums.bind_channel(b, i) for i in numbers]
            blocks = divide_up(size, count)
            groups = divide_up(channels, lanes)
            extents = (x.shape[0], len(self.rows), blocks, groups)
            with b.loops("n row block group", extents) as (n, row, block, group):
                column = block * count
                if size % count:
                    column = minimum(column, size - count)
                first = group * lanes
                if channels % lanes:
                    first = minimum(first, channels - lanes)
                acc = b.reg("acc", INT32, count * lanes)
                for i in range(count * lanes):
                    b.store(acc, [i], sums.start(b, first + i % lanes))
                at = n, row, b.let("column", column + across.outputs.start)
                if flat.size and across.taps:
                    self._rows(b, _Tile(acc, lanes, x, weights), at, first, across.taps)
                y = row * self.rows.step + self.rows.start
                for lane in range(lanes):
                    channel = first + lane
                    finish = bound[lane] if bound else sums.bind_channel(b, channel)
                    for p in range(count):
                        y_x = (at[2] + p) * self.columns.step + self.columns.start
                        total = b.load(acc, [p * lanes + lane])
                        b.store(b.y, [n, y, y_x, channel], finish(total))

    def _rows(
        self, b: Kernel, tile: "_Tile", at: Position, first: ArithExpr, taps: range
    ) -> None:
        """Add products of columns `taps`: outputs from `at`, channels from `first`."""
        window = self.window
        _, height, width, depth = tile.x.shape
        n, row, column = at
        size = self.kernel[0].size
        step = window.dilation[1]
        is_short = size <= _UNROLLED_TAPS and not window.guarded(0)
        unroll = window.size[0] if is_short else 1
        with Nest() as enter:
            ky = enter(b.unrolled("ky", window.size[0], unroll))
            top = row * window.stride[0] - window.padding[0]
            iy = b.let("iy", top + ky * window.dilation[0])
            if window.guarded(0):
                enter(b.if_(logical_and(iy >= 0, iy < height)))
            left = column * window.stride[1] - window.padding[2]
            # Without dilation, all taps of a row are one run.
            starts, count = (taps, depth) if step > 1 else (taps[:1], len(taps) * depth)
            for tap in starts:
                x = ((n * height + iy) * width + left + tap * step) * depth
                w = first * size + (ky * window.size[1] + tap) * depth
                tile.multiply(b, (x, window.stride[1] * depth), (w, size), count)


def _pixels_of_tile(size: int) -> int:
    """Return the pixels of a tile with which a row of `size` pixels costs least."""
    return min(_PIXELS, key=lambda count: divide_up(size, count) * (1 + count))


@dataclass(frozen=True, slots=True)
class _Tile:
    """Sums `acc` [pixel, lane] of products of `x` and `weights` [channel, tap]."""

    acc: tir.Buffer
    lanes: int
    x: tir.Buffer
    weights: tir.Buffer

    def multiply(
        self, b: Kernel, x: tuple[ArithExpr, int], w: tuple[ArithExpr, int], count: int
    ) -> None:
        """Add `count` products, two at a time.

        `x` is the first element of the first pixel and the step to the next one, `w`
        the same of the lanes.
        """
        pixels = self.acc.elements // self.lanes
        starts = [(self.x, x[0] + i * x[1]) for i in range(pixels)]
        starts += [(self.weights, w[0] + i * w[1]) for i in range(self.lanes)]
        pairs = (
            (0, count // 2, UINT32, "smlad"),
            (count - 1, count % 2, INT16, "smlabb"),
        )
        for at, steps, dtype, name in pairs:
            size = 2 if self.x.shape[3] % 2 else dtype.size_bytes
            runs: list[tir.Buffer] = []
            for source, start in starts if steps else ():
                run = b.view(
                    "run", source, start + at, (steps,), dtype=dtype, alignment=size
                )
                runs.append(run)
            is_short = 0 < steps * self.acc.elements <= _UNROLLED_PRODUCTS
            factors = (steps,) if is_short else (4, 3, 2)
            with b.unrolled("i", steps, *factors) as i:
                values = [b.let("v", b.load(run, [i]).cast(UINT32)) for run in runs]
                factor_pairs = product(values[:pixels], values[pixels:])
                for place, (value, word) in enumerate(factor_pairs):
                    operands = [value, word, b.load(self.acc, [place])]
                    total = call_intrinsic(name, operands, INT32)
                    b.store(self.acc, [place], total)


def _parts(op: OpCall) -> Iterator[_Part]:
    weights = weights_of(op)
    _, height, width, _ = op.input(0).shape
    if op.op == "conv2d":
        yield _Part(weights, kernel_window(op), *map(range, op.output.shape[1:3]))
        return
    for down, across in product(_phases(op, 0), _phases(op, 1)):
        rows, ky, vertical = down
        columns, kx, horizontal = across
        padding = (*vertical, *horizontal)
        size = (len(ky), len(kx))
        window = ConvWindow(size, (1, 1), (1, 1), padding, (height, width))
        yield _Part(weights[:, ky][:, :, kx], window, rows, columns)


def _phases(op: OpCall, axis: int) -> Iterator[tuple[range, range, tuple[int, int]]]:
    """Yield each phase's outputs, its taps in the input's order, and its padding."""
    attrs = op.attributes(TransposeConvAttrs)
    step = attrs.stride[axis]
    before = attrs.before[axis]
    length = op.input(0).shape[1 + axis]
    size = op.input(1).shape[1 + axis]
    end = op.output.shape[1 + axis]
    for phase in range(step):
        outputs = range((phase - before) % step, end, step)
        taps = range(phase, size, step)[::-1]
        start = len(taps) - 1 - (outputs.start + before) // step
        if outputs:
            yield outputs, taps, (start, len(outputs) - 1 + len(taps) - length - start)


@dataclass(frozen=True, slots=True)
class ChannelRows(ScheduleConfig):
    """The configuration of direct dot products: output channels summed at once."""

    rows: int


def _configs(op: OpCall) -> Sequence[ChannelRows]:
    channels = op.output.shape[3]
    kind = op.input(0).dtype
    parts = list(_parts(op))
    if kind not in _DTYPES[op.op]:
        return ()
    if kind == INT16 and not has_32_bit_products(weights_of(op)):
        return ()
    loops, longest = 0, 0
    for part in parts:
        loops += len(split_by_valid_taps(part.window, 1, len(part.columns)))
        longest = max(longest, part.kernel[0, :1].size)
    is_short = longest <= _SHORT_RUN
    counts = range(min(2 * _LANES if is_short else _LANES, channels), 0, -1)
    rows = min(counts, key=lambda rows: divide_up(channels, rows) * (1 + 2 * rows))
    return (ChannelRows(rows),) if loops <= _MAX_LOOPS else ()


def _build(op: OpCall, config: ChannelRows, b: Kernel) -> None:
    x = b.input(0)
    sums = plan_int16_accumulation(b, op, weights_of(op))
    if op.input(0).dtype == INT8:
        zero_point = per_tensor_quant(op.input(0)).zero_point
        size = x.elements
        source = b.view("source", x, 0, (size,))
        x = b.allocate("wide", INT16, x.shape, 4)
        wide = b.view("flat", x, 0, (size,), access="w")
        with b.unrolled("i", size, 4, 3, 2) as i:
            b.store(wide, [i], (b.load_i32(source, [i]) - zero_point).cast(INT16))
    for part in _parts(op):
        part.emit(b, x, sums, config.rows)


SCHEDULES = tuple(
    dsp_schedule(f"dsp.{op}.direct", op, configs=_configs, build=_build)
    for op in _DTYPES
)
