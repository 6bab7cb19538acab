"""The inner product of conv2d and fully_connected on cores that multiply one pair at a time.

In: columns of int8. Out: requantised outputs. The input's zero point goes into the bias, which is
exact because padding is written as the zero point. Rows of the weight matrix go through a block's
columns a few at a time (blocks.py); channels that are settled (settled.py) are not computed, and
the last block repeats its last row.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.graph.opdef import Array, OpCall
from firmwright.ir.tir.builder import E
from firmwright.ir.tir.nodes import Buffer
from firmwright.ops.conv2d import bias_of
from firmwright.ops.fixed_point import Requant, per_tensor
from firmwright.ops.kernel import Kernel
from firmwright.schedules.epilogue import Epilogue, accumulator_bounds, make_epilogue
from firmwright.schedules.scalar.blocks import Family, Shape
from firmwright.schedules.settled import Order, Settled, only, order_of, settle


@dataclass(frozen=True, slots=True)
class BlockProduct:
    """The constants of one layer, and the form of its blocks."""

    family: Family
    shape: Shape
    outputs: int
    depth: int
    weights: Buffer
    bias: Buffer
    order: Order
    settled: Settled
    epilogue: Epilogue

    def run(self, b: Kernel, columns: Buffer, at: E) -> None:
        """All outputs of the pixels from `at` on; `columns` is [pixels, depth]."""
        shape = self.shape
        self.settled.write(b, at, shape.pixels)
        with b.for_("group", len(self.order.rows) // shape.rows) as group:
            acc = b.reg("acc", INT32, shape.sums)
            w = b.pointer(self.weights, group * (shape.rows * self.depth), shape.rows * self.depth)
            x = b.pointer(columns, 0, shape.pixels * self.depth)
            start = b.pointer(self.bias, group * shape.rows, shape.rows)
            registers = [b.load(acc, [i]) for i in range(shape.sums)]
            name = self.family.block(shape)
            b.evaluate(name, [w, x, start, self.depth, self.depth, *registers])
            for row in range(shape.rows):
                self._store(b, acc, at, group * shape.rows + row, row)

    def _store(self, b: Kernel, acc: Buffer, at: E, index: E, row: int) -> None:
        """Requantises and writes row `row` of the block, row `index` of all."""
        with ExitStack() as stack:
            channel = stack.enter_context(b.let("channel", self.order.channel(b, index)))
            finish = stack.enter_context(self.epilogue.channel(b, index))
            window = b.window(
                "out", b.y, at * self.outputs + channel, (self.shape.pixels,),
                strides=(self.outputs,), access="w",
            )  # fmt: skip
            y = stack.enter_context(window)
            for pixel in range(self.shape.pixels):
                b.store(y, [pixel], finish(b.load(acc, [self.shape.place(row, pixel)])))


def within_reach(family: Family, depth: int, pixels: int) -> bool:
    """Whether a load finds every column of `depth` bytes from the first one."""
    return (pixels - 1) * depth + family.most_unrolled <= family.reach


def plan_product(
    b: Kernel, family: Family, op: OpCall, weights: Array, params: Requant, pixels: int
) -> BlockProduct:
    """Constants for `weights` [outputs, depth] in blocks of `pixels` columns."""
    wide = weights.astype(np.int64)
    zero_point = per_tensor(op.input(0)).zero_point
    bias = bias_of(op, "int32").astype(np.int64) - zero_point * wide.sum(axis=1)
    low, high = accumulator_bounds(bias, wide, INT8.min, INT8.max)
    settled = settle(b, params, low, high)
    outputs, depth = weights.shape
    rows = family.rows(outputs - len(settled.values) or 1, pixels)
    order = order_of(b, settled, rows)
    chosen = list(order.rows)
    packed = weights[chosen].reshape(-1, rows, depth).transpose(0, 2, 1).reshape(-1)
    return BlockProduct(
        family,
        Shape("bytes", rows, pixels, family.unrolled(depth)),
        outputs,
        depth,
        b.constant("weights", np.ascontiguousarray(packed), INT8),
        b.constant("bias", bias[chosen], INT32),
        order,
        settled,
        make_epilogue(b, only(params, chosen), (low[chosen], high[chosen]), INT8, len(chosen)),
    )
