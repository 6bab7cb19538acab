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
    """Weights [channel, y, x, input channel], their window, and the outputs of its
    positions.
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
            count = min(
                _PIXELS if lanes == 1 else (1,),
                key=lambda n: divide_up(size, n) * (1 + n),
            )
            with Nest() as enter:
                extents = (
                    x.shape[0],
                    len(self.rows),
                    divide_up(size, count),
                    divide_up(channels, lanes),
                )
                numbers = [ArithExpr(immediate(i, INDEX)) for i in range(lanes)]
                bound = (
                    [sums.bind_channel(b, i) for i in numbers]
                    if lanes == channels
                    else []
                )
                n, row, block, group = enter(b.loops("n row block group", extents))
                column = (
                    minimum(block * count, size - count)
                    if size % count
                    else block * count
                )
                first = group * lanes
                first = minimum(first, channels - lanes) if channels % lanes else first
                acc = b.reg("acc", INT32, count * lanes)
                for i in range(count * lanes):
                    b.store(acc, [i], sums.start(b, first + i % lanes))
                at = n, row, b.let("column", column + across.outputs.start)
                if flat.size and across.taps:
                    self._rows(b, _Tile(acc, lanes, x, weights), at, first, across.taps)
                y = row * self.rows.step + self.rows.start
                for lane in range(lanes):
                    finish = (
                        bound[lane] if bound else sums.bind_channel(b, first + lane)
                    )
                    for p in range(count):
                        y_x = (at[2] + p) * self.columns.step + self.columns.start
                        total = b.load(acc, [p * lanes + lane])
                        b.store(b.y, [n, y, y_x, first + lane], finish(total))

    def _rows(
        self, b: Kernel, tile: "_Tile", at: Position, first: ArithExpr, taps: range
    ) -> None:
        """Add the products of tap columns `taps`: outputs from `at`, channels from
        `first`.
        """
        window, (_, height, width, depth) = self.window, tile.x.shape
        n, row, column = at
        is_short = self.kernel[0].size <= _UNROLLED_TAPS and not window.guarded(0)
        with Nest() as enter:
            ky = enter(
                b.unrolled("ky", window.size[0], window.size[0] if is_short else 1)
            )
            iy = b.let(
                "iy",
                row * window.stride[0] - window.padding[0] + ky * window.dilation[0],
            )
            if window.guarded(0):
                enter(b.if_(logical_and(iy >= 0, iy < height)))
            left, step = (
                column * window.stride[1] - window.padding[2],
                window.dilation[1],
            )
            for tap in taps if step > 1 else taps[:1]:
                x = ((n * height + iy) * width + left + tap * step) * depth
                w = first * self.kernel[0].size + (ky * window.size[1] + tap) * depth
                count = depth if step > 1 else len(taps) * depth
                tile.multiply(
                    b, (x, window.stride[1] * depth), (w, self.kernel[0].size), count
                )


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
            alignment = 2 if self.x.shape[3] % 2 else dtype.size_bytes
            runs = [
                b.view(
                    "run",
                    source,
                    start + at,
                    (steps,),
                    dtype=dtype,
                    alignment=alignment,
                )
                for source, start in starts
                if steps
            ]
            is_short = 0 < steps * self.acc.elements <= _UNROLLED_PRODUCTS
            with b.unrolled("i", steps, *((steps,) if is_short else (4, 3, 2))) as i:
                values = [b.let("v", b.load(run, [i]).cast(UINT32)) for run in runs]
                for place, (value, word) in enumerate(
                    product(values[:pixels], values[pixels:])
                ):
                    total = call_intrinsic(
                        name, [value, word, b.load(self.acc, [place])], INT32
                    )
                    b.store(self.acc, [place], total)


def _parts(op: OpCall) -> Iterator[_Part]:
    weights, (_, height, width, _) = weights_of(op), op.input(0).shape
    if op.op == "conv2d":
        yield _Part(weights, kernel_window(op), *map(range, op.output.shape[1:3]))
        return
    for (rows, ky, vertical), (columns, kx, horizontal) in product(
        _phases(op, 0), _phases(op, 1)
    ):
        padding, size = (*vertical, *horizontal), (len(ky), len(kx))
        window = ConvWindow(size, (1, 1), (1, 1), padding, (height, width))
        yield _Part(weights[:, ky][:, :, kx], window, rows, columns)


def _phases(op: OpCall, axis: int) -> Iterator[tuple[range, range, tuple[int, int]]]:
    """Yield the outputs of each phase, their taps in the order of the input, and the
    padding.
    """
    attrs = op.attributes(TransposeConvAttrs)
    step, before = attrs.stride[axis], attrs.before[axis]
    length, size, end = (
        kind.shape[1 + axis] for kind in (op.input(0), op.input(1), op.output)
    )
    for phase in range(step):
        outputs, taps = (
            range((phase - before) % step, end, step),
            range(phase, size, step)[::-1],
        )
        start = len(taps) - 1 - (outputs.start + before) // step
        if outputs:
            yield outputs, taps, (start, len(outputs) - 1 + len(taps) - length - start)


@dataclass(frozen=True, slots=True)
class ChannelRows(ScheduleConfig):
    """The configuration of direct dot products: the output channels that are summed at
    once.
    """

    rows: int


def _configs(op: OpCall) -> Sequence[ChannelRows]:
    channels, kind, parts = op.output.shape[3], op.input(0).dtype, list(_parts(op))
    if kind not in _DTYPES[op.op] or (
        kind == INT16 and not has_32_bit_products(weights_of(op))
    ):
        return ()
    loops = [
        len(split_by_valid_taps(part.window, 1, len(part.columns))) for part in parts
    ]
    is_short = max(part.kernel[0, :1].size for part in parts) <= _SHORT_RUN
    counts = range(min(2 * _LANES if is_short else _LANES, channels), 0, -1)
    rows = min(counts, key=lambda rows: divide_up(channels, rows) * (1 + 2 * rows))
    return (ChannelRows(rows),) if sum(loops) <= _MAX_LOOPS else ()


def _build(op: OpCall, config: ChannelRows, b: Kernel) -> None:
    x, sums = b.input(0), plan_int16_accumulation(b, op, weights_of(op))
    if op.input(0).dtype == INT8:
        zero_point, size = per_tensor_quant(op.input(0)).zero_point, x.elements
        source, x = (
            b.view("source", x, 0, (size,)),
            b.allocate("wide", INT16, x.shape, 4),
        )
        wide = b.view("flat", x, 0, (size,), access="w")
        with b.unrolled("i", size, 4, 3, 2) as i:
            b.store(wide, [i], (b.load_i32(source, [i]) - zero_point).cast(INT16))
    for part in _parts(op):
        part.emit(b, x, sums, config.rows)


SCHEDULES = tuple(
    dsp_schedule(f"dsp.{op}.direct", op, configs=_configs, build=_build)
    for op in _DTYPES
)
