"""GEMM over im2col columns for int16 conv2d and fully_connected."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, INT64, UINT32, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, minimum
from firmwright.ops.conv2d import weights_of
from firmwright.ops.conv_window import kernel_window
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.schedule import Schedule
from firmwright.schedules.epilogue_forms import FinishElement
from firmwright.schedules.im2col import RowIm2colPacker
from firmwright.schedules.int16_accumulation import (
    Int16Accumulation,
    longest_dividing_chunk,
    plan_int16_accumulation,
)
from firmwright.schedules.row_band import PixelBlock, pixel_blocks

# The windows of two output pixels are packed as int16 columns, zero-padded outside the
# input and after the last tap. A pixel of a pointwise convolution and a row of a fully
# connected layer serve as columns directly. A tile has two channels and two pixels, or
# all of up to three pixels and one or four channels; the last tile overlaps its
# predecessor. On RISC-V, whose registers hold eight sums, it has twice the channels.
# Sums of 64 bits are accumulated in 32-bit chunks (int16_accumulation.py).
#
# On the DSP extension a word holds four weights of a channel, which SXTB16 widens once
# for all pixels, and SMLAD multiplies two taps; other cores multiply tap by tap.

_TAPS = 4
_HALVES = ("sxtb16", "sxtb16_ror8")
_PIXELS, _MAX_PIXELS = 2, 3
_SUMS, _MANY_SUMS = 4, 8
_SHORT = 4
"""Steps of a loop that is unrolled whole."""
_MATRIX = 2
"""Rank of fully connected weights."""


def _configs(op: OpCall) -> Sequence[PixelBlock]:
    if op.input(0).dtype != INT16:
        return ()
    pixels = op.output.elements // op.input(1).shape[0]
    return (PixelBlock(pixels if pixels <= _MAX_PIXELS else _PIXELS),)


_AddStep = Callable[
    [Kernel, tir.Buffer, tir.Buffer, tir.Buffer, ArithExpr, ArithExpr], None
]


@dataclass(frozen=True, slots=True)
class _Int16Microkernel:
    """Multiplies and accumulates steps of `taps` values, stored as elements of `dtype`.

    `pack` converts int8 weights [channel, tap] to elements [group, step, row] of
    `weight_dtype`. `add(b, acc, columns, weights, group, step)` adds one step to the
    sums [pixel, row], of which there are at most `sums`.
    """

    taps: int
    sums: int
    dtype: DType
    weight_dtype: DType
    pack: Callable[[Array, int], Array]
    add: _AddStep


def _pack_words(flat: Array, rows: int) -> Array:
    """Pack four taps to a word, in the order in which SXTB16 extracts them."""
    by_row = flat.astype(np.int8).reshape(len(flat) // rows, rows, -1, _TAPS)
    ordered = by_row.swapaxes(1, 2)[..., [0, 2, 1, 3]]
    words: Array = np.ascontiguousarray(ordered).view(np.uint32)[..., 0]
    return words


def _pack_rows(flat: Array, rows: int) -> Array:
    by_row = flat.reshape(-1, rows, flat.shape[1])
    return np.ascontiguousarray(by_row.swapaxes(1, 2))


def _add_four_taps(
    b: Kernel,
    acc: tir.Buffer,
    columns: tir.Buffer,
    weights: tir.Buffer,
    group: ArithExpr,
    step: ArithExpr,
) -> None:
    pixels = range(columns.shape[0])
    rows = weights.shape[2]
    halves = range(len(_HALVES))
    pairs: dict[tuple[int, int], ArithExpr] = {}
    for pixel, half in product(pixels, halves):
        pairs[pixel, half] = b.let("x", b.load(columns, [pixel, step, half]))
    for row in range(rows):
        word = b.let("w", b.load(weights, [group, step, row]))
        for half, name in enumerate(_HALVES):
            spread = b.let("spread", call_intrinsic(name, [word], UINT32))
            for pixel in pixels:
                at = [pixel * rows + row]
                operands = [pairs[pixel, half], spread, b.load(acc, at)]
                b.store(acc, at, call_intrinsic("smlad", operands, INT32))


def _add_tap(
    b: Kernel,
    acc: tir.Buffer,
    columns: tir.Buffer,
    weights: tir.Buffer,
    group: ArithExpr,
    step: ArithExpr,
) -> None:
    pixels = range(columns.shape[0])
    rows = weights.shape[2]
    x = [b.let("x", b.load_i32(columns, [pixel, step, 0])) for pixel in pixels]
    for row in range(rows):
        w = b.let("w", b.load_i32(weights, [group, step, row]))
        for pixel in pixels:
            at = [pixel * rows + row]
            b.store(acc, at, b.load(acc, at) + x[pixel] * w)


_FOUR_TAPS = _Int16Microkernel(
    _TAPS, _SUMS, UINT32, UINT32, _pack_words, _add_four_taps
)
_SINGLE_TAP = _Int16Microkernel(1, _SUMS, INT16, INT8, _pack_rows, _add_tap)
_MORE_SUMS = replace(_SINGLE_TAP, sums=_MANY_SUMS)


@dataclass(frozen=True, slots=True)
class _Int16Gemm:
    microkernel: _Int16Microkernel
    weights: tir.Buffer
    sums: Int16Accumulation
    outputs: int
    pixels: int
    rows: int
    steps: int
    chunk: int

    def emit(self, b: Kernel, columns: tir.Buffer, at: ArithExpr) -> None:
        shape = (self.pixels, self.outputs)
        y = b.view("out", b.y, at * self.outputs, shape, access="w")
        with b.for_("group", divide_up(self.outputs, self.rows)) as group:
            first = group * self.rows
            if self.outputs % self.rows:
                first = minimum(first, self.outputs - self.rows)
            if self.chunk < self.steps:
                self._emit_chunks(b, columns, y, group, first)
                return
            acc = b.reg("acc", INT32, self.pixels * self.rows)
            for row in range(self.rows):
                bias = self.sums.start(b, first + row)
                self._set(b, acc, row, b.let("channel_bias", bias))
            self._accumulate(b, acc, columns, group)
            for row in range(self.rows):
                finish = self.sums.bind_channel(b, first + row)
                self._store(b, y, acc, first, row, finish)

    def _emit_chunks(
        self,
        b: Kernel,
        columns: tir.Buffer,
        y: tir.Buffer,
        group: ArithExpr,
        first: ArithExpr,
    ) -> None:
        total = b.reg("total", INT64, self.pixels * self.rows)
        for row in range(self.rows):
            bias = b.load(self.sums.bias, [first + row])
            self._set(b, total, row, b.let("channel_bias", bias))
        with b.for_("chunk", self.steps // self.chunk) as chunk:
            acc = b.reg("acc", INT32, self.pixels * self.rows)
            for row in range(self.rows):
                self._set(b, acc, row, 0)
            self._accumulate(b, acc, columns, group, chunk * self.chunk)
            for i in range(self.pixels * self.rows):
                chunk_sum = b.load(acc, [i]).cast(INT64)
                b.store(total, [i], b.load(total, [i]) + chunk_sum)
        for row in range(self.rows):
            finish = self.sums.bind_wide_channel(b, first + row)
            self._store(b, y, total, first, row, finish)

    def _set(
        self, b: Kernel, sums: tir.Buffer, row: int, value: ArithExpr | int
    ) -> None:
        for pixel in range(self.pixels):
            b.store(sums, [pixel * self.rows + row], value)

    def _store(
        self,
        b: Kernel,
        y: tir.Buffer,
        sums: tir.Buffer,
        first: ArithExpr,
        row: int,
        finish: FinishElement,
    ) -> None:
        for pixel in range(self.pixels):
            total = b.load(sums, [pixel * self.rows + row])
            b.store(y, [pixel, first + row], finish(total))

    def _accumulate(
        self,
        b: Kernel,
        acc: tir.Buffer,
        columns: tir.Buffer,
        group: ArithExpr,
        start: ArithExpr | None = None,
    ) -> None:
        longest = max(8 // self.microkernel.taps, 1)
        factors = (self.chunk,) if self.chunk <= _SHORT else (longest, 2)
        with b.unrolled("i", self.chunk, *factors) as step:
            place = step if start is None else start + step
            self.microkernel.add(b, acc, columns, self.weights, group, place)

    def columns(self, b: Kernel, source: tir.Buffer, start: ArithExpr) -> tir.Buffer:
        """View `source` from element `start` as columns of micro-kernel elements."""
        dtype = self.microkernel.dtype
        size = dtype.size_bytes
        shape = (self.pixels, self.steps, self.microkernel.taps * 2 // size)
        return b.view("words", source, start, shape, dtype=dtype, alignment=size)


def _plan_gemm(
    microkernel: _Int16Microkernel, op: OpCall, kernel: Array, pixels: int, b: Kernel
) -> _Int16Gemm:
    outputs = len(kernel)
    taps = kernel.size // len(kernel)
    rows = min(max(microkernel.sums // pixels, 1), outputs)
    steps = divide_up(taps, microkernel.taps)
    padding = ((0, 0), (0, steps * microkernel.taps - taps))
    flat = np.pad(kernel.reshape(outputs, taps), padding)
    starts = np.minimum(np.arange(0, outputs, rows), outputs - rows)
    channels = starts[:, None] + np.arange(rows)  # [group, row]
    packed = microkernel.pack(flat[channels.reshape(-1)], rows)
    return _Int16Gemm(
        microkernel=microkernel,
        weights=b.constant("weights", packed, microkernel.weight_dtype),
        sums=plan_int16_accumulation(b, op, kernel),
        outputs=outputs,
        pixels=pixels,
        rows=rows,
        steps=steps,
        chunk=longest_dividing_chunk(flat, steps),
    )


def _build(
    microkernel: _Int16Microkernel, op: OpCall, config: PixelBlock, b: Kernel
) -> None:
    kernel = weights_of(op)
    taps = kernel.size // len(kernel)
    count = config.pixels
    gemm = _plan_gemm(microkernel, op, kernel, count, b)
    padded = gemm.steps * microkernel.taps
    window = kernel_window(op)
    pixels = op.output.elements // len(kernel)
    with Nest() as enter:
        columns = None
        if not window.pointwise or padded != taps:
            columns = b.allocate("columns", INT16, (count, padded), 4)
            for pixel in range(count):
                for tap in range(taps, padded):
                    b.store(columns, [pixel, tap], 0)
        at = enter(pixel_blocks(b, pixels, count))
        if columns is None:
            x = gemm.columns(b, b.input(0), at * taps)
        else:
            image = b.input(0)
            if kernel.ndim == _MATRIX:
                image = b.view("image", image, 0, (pixels, 1, 1, taps), alignment=4)
            RowIm2colPacker(b, window, image, columns).pack(op, at)
            x = gemm.columns(b, columns, at * 0)
        gemm.emit(b, x, at)


_OPERATORS = ("conv2d", "fully_connected")
_KINDS = (
    ("dsp", frozenset({"dsp"}), _FOUR_TAPS),
    ("scalar", frozenset[str](), _SINGLE_TAP),
    ("rvm", frozenset({"rvm"}), _MORE_SUMS),
)
SCHEDULES = tuple(
    Schedule(
        f"{name}.{op}.int16_im2col",
        op,
        requires,
        _configs,
        partial(_build, microkernel),
        disable_scheduling=True,
    )
    for name, requires, microkernel in _KINDS
    for op in _OPERATORS
)
