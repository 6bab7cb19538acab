"""Products of constant int8 weights and one or two vectors by the int8 GEMM."""

from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from firmwright.base.dtypes import INT8, UINT32, Array
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.dsp.weight_packing import PAIRED
from firmwright.ops.conv_window import ConvWindow
from firmwright.ops.kernel import Kernel
from firmwright.ops.lstm import Index
from firmwright.schedules.computed_channels import ComputedChannels
from firmwright.schedules.cortex_m_dsp.gemm_tiles import (
    ByteColumnTile,
    PairTile,
    plan_dsp_sums,
)
from firmwright.schedules.cortex_m_dsp.im2col import Im2colLayout, Im2colPacker
from firmwright.schedules.epilogue import BindGroup
from firmwright.schedules.epilogue_forms import FinishElement

ROWS = 8
"""Rows of weights are computed in groups of that size."""
PAIR_ROWS = 4
"""The same if they are multiplied by two columns."""
_PAIR = 2
_GROUP = 4
_UNROLL = (4, 2)
_POINT = ConvWindow((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1))

Convert = Callable[[ArithExpr, ArithExpr, int], ArithExpr]
"""Converts a sum to an element, given the row and its place in the group."""


class VectorProduct:
    """Weights [rows, columns], whose rows are a multiple of eight, and a padded column.

    Zeros pad the column to whole groups.
    """

    def __init__(
        self,
        b: Kernel,
        weights: Array,
        bias: Array,
        convert: Convert,
    ) -> None:
        self.size = weights.shape[1]
        depth = self.size + -self.size % _GROUP
        padded = np.pad(weights, ((0, 0), (0, depth - self.size)))
        end = partial(_end, convert)
        self.column: tir.Buffer | None = None
        if depth > self.size:
            self.column = b.allocate("column", INT8, (depth,))
        layout = Im2colLayout(_POINT, depth)
        self.gemm = plan_dsp_sums(b, layout, padded, ROWS, ByteColumnTile, end, bias)
        if self.column is not None:
            for place in range(self.size, depth):
                b.store(self.column, [place], 0)

    def emit(self, b: Kernel, x: tir.Buffer, at: Index, y: tir.Buffer) -> None:
        column = x
        first = reduce(lambda sum_, part: sum_ * x.shape[1] + part, at) * self.size
        if self.column is not None:
            column, first = self.column, 0
            with b.unrolled("i", self.size, *_UNROLL) as i:
                b.store(column, [i], b.load(x, [*at, i]))
        size = divide_up(self.size, _GROUP)
        words = b.view("words", column, first, (size,), dtype=UINT32, alignment=4)
        self.gemm.emit(b, words, 0, y)


class PairProduct:
    """The same weights and two rows of values, of which columns hold both."""

    def __init__(
        self, b: Kernel, x: tir.Buffer, weights: Array, bias: Array, convert: Convert
    ) -> None:
        layout = Im2colLayout(_POINT, weights.shape[1])
        columns = b.allocate("columns", UINT32, (layout.words, _PAIR))
        self.packer = Im2colPacker(b, layout, columns, x, 0)
        tile = partial(PairTile, pixels=_PAIR)
        end = partial(_end, convert)
        self.gemm = plan_dsp_sums(b, layout, weights, PAIR_ROWS, tile, end, bias)

    def emit(self, b: Kernel, offsets: Sequence[ArithExpr], y: tir.Buffer) -> None:
        """Multiply the rows from two offsets; y is [row of x, row of weights]."""
        self.packer.points(offsets)
        self.gemm.emit(b, self.packer.columns, 0, y)


def _end(convert: Convert, rows: ComputedChannels, is_paired: bool) -> BindGroup:
    return lambda b: partial(_bind_row, convert, is_paired)


def _bind_row(
    convert: Convert, is_paired: bool, index: ArithExpr, place: int
) -> FinishElement:
    """Return the function that converts a sum of a row."""
    is_odd = is_paired and place % 2 == 1

    def finish(total: ArithExpr) -> ArithExpr:
        return convert(total >> PAIRED.odd_shift if is_odd else total, index, place)

    return finish
