"""int16 conv2d over packed columns: two pixels times two channels, whatever multiplies them.

The windows of two output pixels are packed as runs of int16, zeros outside of the input and behind
the last tap; a pixel of a pointwise convolution is its own column. Applies where sums provably have
32 bits, to any number of channels. A `Block` of a family of cores is the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from firmwright.base.dtypes import INT16, INT32, UINT32, DType
from firmwright.ir.graph.opdef import Array, OpCall
from firmwright.ir.tir.builder import E, minimum
from firmwright.ir.tir.nodes import Buffer
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv2d import bias_of, requant_of, weights_of
from firmwright.ops.conv_shapes import Window, window_of
from firmwright.ops.int16x8 import accumulator_dtype
from firmwright.ops.kernel import Kernel
from firmwright.schedules.epilogue import Epilogue, accumulator_bounds, make_epilogue
from firmwright.schedules.fpu.columns import FloatPacker

_PIXELS = 2
_ROWS = 2


class Block(Protocol):
    """Products of one step of a column: `taps` values in elements of `dtype`."""

    @property
    def taps(self) -> int: ...

    @property
    def dtype(self) -> DType: ...

    def weights(self, b: Kernel, flat: Array, rows: int) -> Buffer:
        """[group, step, channel...] of int8 weights [channel, tap], whole steps of them."""

    def add(
        self, b: Kernel, acc: Buffer, columns: Buffer, weights: Buffer, at: tuple[E, E]
    ) -> None:
        """Adds step `at` (group, step) of [pixel, step, element] to sums [pixel, channel]."""


def configs(op: OpCall) -> Sequence[Config]:
    if op.input(0).dtype != INT16 or accumulator_dtype(op, 0) != INT32:
        return ()
    return ({"pixels": min(_PIXELS, op.output.elements // op.output.shape[3])},)


class HalfPacker(FloatPacker):
    """Writes windows to columns [pixel, element] of int16."""

    @property
    def pixels(self) -> int:
        return self.columns.shape[0]

    def points(self, at: E) -> None:
        depth = self.x.shape[3]
        with self.b.for_("p", self.pixels) as p:
            self._move((at + p) * depth, p * self.columns.shape[1], depth)

    def copy(self, source: tuple[E, E, E], first: E, pixel: E, count: int) -> None:
        _, rows, cols, channels = self.x.shape
        offset = ((source[0] * rows + source[1]) * cols + source[2]) * channels
        self._move(offset, pixel * self.columns.shape[1] + first, count)

    def zero(self, first: E, pixel: E, count: int) -> None:
        b, place = self.b, pixel * self.columns.shape[1] + first
        with (
            b.window("zeros", self.columns, place, (count,), access="w") as column,
            b.for_("c", count) as c,
        ):
            b.store(column, [c], 0)

    def _move(self, offset: E, place: E, count: int) -> None:
        """In words where pixels are whole words."""
        b, even = self.b, self.x.shape[3] % 2 == 0
        dtype, steps = (UINT32, count // 2) if even else (INT16, count)
        alignment = 4 if even else 1
        unroll = next(size for size in (4, 3, 2, 1) if steps % size == 0)
        with (
            b.window("from", self.x, offset, (steps,), dtype=dtype, alignment=alignment) as run,
            b.window("to", self.columns, place, (steps,), dtype=dtype, access="w",
                     alignment=alignment) as column,
            b.for_("i", steps // unroll) as i,
            b.for_("u", unroll, kind="unrolled") as u,
        ):  # fmt: skip
            b.store(column, [i * unroll + u], b.load(run, [i * unroll + u]))


@dataclass(frozen=True, slots=True)
class _Layer:
    """The constants of a layer, and how it is cut."""

    block: Block
    window: Window
    weights: Buffer
    bias: Buffer
    epilogue: Epilogue
    pixels: int
    rows: int
    steps: int

    def products(self, b: Kernel, columns: Buffer, at: E) -> None:
        """The outputs of the pixels from `at` on, by groups of channels."""
        outputs = self.bias.shape[0]
        with (
            b.window("out", b.y, at * outputs, (self.pixels, outputs), access="w") as y,
            b.for_("group", outputs // self.rows) as group,
        ):
            acc = b.reg("acc", INT32, self.pixels * self.rows)
            for row in range(self.rows):
                value = b.load(self.bias, [group * self.rows + row])
                with b.let("bias_here", value) as start:
                    for pixel in range(self.pixels):
                        b.store(acc, [pixel * self.rows + row], start)
            unroll = next(n for n in (max(8 // self.block.taps, 1), 2, 1) if self.steps % n == 0)
            with (
                b.for_("i", self.steps // unroll) as i,
                b.for_("u", unroll, kind="unrolled") as u,
            ):
                self.block.add(b, acc, columns, self.weights, (group, i * unroll + u))
            for row in range(self.rows):
                channel = group * self.rows + row
                with self.epilogue.channel(b, channel) as finish:
                    for pixel in range(self.pixels):
                        total = b.load(acc, [pixel * self.rows + row])
                        b.store(y, [pixel, channel], finish(total))

    def columns(self, b: Kernel, source: Buffer, start: E) -> AbstractContextManager[Buffer]:
        """The columns from element `start` of `source` on, in elements of the block."""
        dtype = self.block.dtype
        shape = (self.pixels, self.steps, self.block.taps * 2 // dtype.size_bytes)
        return b.window("words", source, start, shape, dtype=dtype, alignment=dtype.size_bytes)


def build(block: Block, op: OpCall, config: Config, b: Kernel) -> None:
    kernel = weights_of(op)
    outputs, taps = len(kernel), kernel.size // len(kernel)
    count, rows = int(config["pixels"]), _ROWS if outputs % _ROWS == 0 else 1
    padded = -(-taps // block.taps) * block.taps
    flat = np.pad(kernel.reshape(outputs, taps), ((0, 0), (0, padded - taps)))
    bias = bias_of(op, "int32")
    bounds = accumulator_bounds(bias, kernel, INT16.min, INT16.max)
    layer = _Layer(
        block, window_of(op, kernel.shape[1:3]), block.weights(b, flat, rows),
        b.constant("bias", bias, INT32),
        make_epilogue(b, requant_of(op), bounds, INT16, outputs),
        count, rows, padded // block.taps,
    )  # fmt: skip
    pixels = op.output.elements // outputs
    with ExitStack() as stack:
        columns = None
        if not layer.window.pointwise or padded != taps:
            columns = stack.enter_context(b.allocate("columns", INT16, (count, padded), 4))
            for pixel in range(count):
                for tap in range(taps, padded):
                    b.store(columns, [pixel, tap], 0)
        index = stack.enter_context(b.for_("block", -(-pixels // count)))
        at = stack.enter_context(b.let("at", minimum(index * count, pixels - count)))
        if columns is None:
            x = stack.enter_context(layer.columns(b, b.input(0), at * taps))
        else:
            HalfPacker(b, layer.window, b.input(0), columns).pack(op, at)
            x = stack.enter_context(layer.columns(b, columns, at * 0))
        layer.products(b, x, at)
