"""Integer Winograd F(2x2, 3x3): transformed weights, proof and input patches."""

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, immediate, logical_and
from firmwright.ops.conv2d import requantization_of, weights_of
from firmwright.ops.kernel import Kernel, Nest, Position
from firmwright.ops.requantize import tensor_quant
from firmwright.schedules.epilogue import (
    FinishElement,
    RequantizeEpilogue,
    accumulator_bounds,
    fold_zero_point_into_bias,
    make_epilogue,
)
from firmwright.schedules.folded_requantize import fold_requantize

# A tile of 4x4 inputs d gives 2x2 outputs: Y = A' [(G g G') * (B' d B)] A, elementwise in between.
# G has halves, so 2 G is used and every value is an integer: the result is exactly four times the
# convolution, which requantization absorbs as two bits of its left shift. The remaining shift is
# folded into the transformed weights.
#
# `plan_winograd` checks that requantization folds, that the scaled weights fit int16, and that the
# sum of the magnitudes of all products fits int32. Transformed inputs are sums of four int8 and
# fit.

TILES = 4
COLUMNS = 2 * TILES
"""Outputs of a row of tiles."""
_LEAST_CHANNELS = 8
POINTS = 16
"""Elements of a transformed tile, that is, products per input channel."""
_G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.int64)
_LEFT = 2
"""log2 of the factor by which 2 G in both directions scales the result."""
_INPUT_REACH = 512
"""Bound of an element of B' d B: four times the greatest magnitude of an int8."""


@dataclass(frozen=True, slots=True)
class WinogradPlan:
    """Transformed weights [oc, point, ic] and bias [oc], with the whole left shift folded in."""

    weights: Array
    bias: Array


def plan_winograd(op: OpCall) -> WinogradPlan | None:
    """Return the transformed weights and bias, or None if a proof fails."""
    kernel = weights_of(op).astype(np.int64)
    bias = fold_zero_point_into_bias(op, kernel)
    folded = fold_requantize(requantization_of(op), *accumulator_bounds(bias, kernel))
    if folded is None:
        return None
    left = np.array(folded.left)
    transformed = np.einsum("ia,jb,oabc->oijc", _G, _G, kernel).reshape(len(kernel), POINTS, -1)
    baked = transformed << np.maximum(left - _LEFT, 0)[:, None, None]
    if min(folded.left) < _LEFT or np.abs(baked).max() > INT16.max:
        return None
    baked_bias = bias << left
    reach = _INPUT_REACH * np.abs(baked).sum(axis=(1, 2)) + np.abs(baked_bias)
    return WinogradPlan(baked, baked_bias) if reach.max() <= INT32.max else None


def supports_winograd(op: OpCall, channel_block: int) -> bool:
    outputs, kh, kw, channels = op.input(1).shape
    _, height, width, _ = op.output.shape
    fits = (
        op.input(0).dtype == INT8
        and (kh, kw) == (3, 3)
        and op.ints_attr("stride") == op.ints_attr("dilation") == (1, 1)
        and channels % 4 == 0
        and channels >= _LEAST_CHANNELS
        and outputs % channel_block == 0
        and height % 2 == 0
        and width % COLUMNS == 0
    )
    return fits and plan_winograd(op) is not None


def make_winograd_epilogue(b: Kernel, op: OpCall) -> RequantizeEpilogue:
    """Build the epilogue for transformed weights, which include the whole left shift."""
    kernel = weights_of(op)
    bounds = accumulator_bounds(fold_zero_point_into_bias(op, kernel), kernel)
    shift_is_folded = np.zeros((len(kernel), 1), np.int64)
    params = requantization_of(op)
    return make_epilogue(b, params, bounds, INT8, len(kernel), shift_is_folded)


def store_output_tiles(
    b: Kernel,
    products: tir.Buffer,
    bias: ArithExpr,
    at: Position,
    channel: ArithExpr,
    start: ArithExpr | int,
    finish: FinishElement,
) -> None:
    """Store Y = A' M A of the tiles of one output channel, from `products` [point, start + tile].

    `at` (n, y, x) is the output of the first tile.
    """
    n, row, column = at
    with Nest() as enter:
        tile = enter(b.for_("t", TILES))
        halves: list[list[ArithExpr]] = [[], []]
        for j in range(4):
            values = [b.load(products, [4 * i + j, start + tile]) for i in range(4)]
            m0, m1, m2, m3 = (enter(b.let("m", value)) for value in values)
            if j == 1:
                m1 = enter(b.let("m", m1 + bias))
            halves[0].append(enter(b.let("y", m0 + m1 + m2)))
            halves[1].append(enter(b.let("y", m1 - m2 - m3)))
        for dy, (y0, y1, y2, y3) in enumerate(halves):
            for dx, total in enumerate((y0 + y1 + y2, y1 - y2 - y3)):
                value = enter(b.let("total", total))
                b.store(b.y, [n, row + dy, column + tile * 2 + dx, channel], finish(value))


def copy_input_patch(b: Kernel, patch: tir.Buffer, at: Position) -> None:
    """Copy the inputs needed from output `at` (n, y, x) to `patch` [4, columns, channels / 4].

    The patch holds the zero point outside the input. Channels are copied as words.
    """
    n, row, column = at
    x = b.input(0)
    _, height, width, channels = x.shape
    top, _, left, _ = b.call.ints_attr("padding")
    point = tensor_quant(b.call.input(0)).zero_point & 0xFF
    outside = ArithExpr(immediate(point * 0x01010101, UINT32))
    words = channels // 4
    columns = patch.shape[1]
    with b.for_("r", 4) as r, b.let("iy", row + r - top) as iy, b.let("x0", column - left) as x0:
        whole = logical_and(iy >= 0, iy < height, x0 >= 0, x0 <= width - columns)
        with b.if_(whole):
            start = ((n * height + iy) * width + x0) * channels
            window = b.view("run", x, start, (columns, words), dtype=UINT32, alignment=4)
            with window as run, b.for_("i", columns) as i, b.for_("c", words) as c:
                b.store(patch, [r, i, c], b.load(run, [i, c]))
        with b.else_(), b.for_("i", columns) as i, b.let("ix", x0 + i) as ix:
            with b.if_(logical_and(iy >= 0, iy < height, ix >= 0, ix < width)):
                start = ((n * height + iy) * width + ix) * channels
                window = b.view("run", x, start, (words,), dtype=UINT32, alignment=4)
                with window as run, b.for_("c", words) as c:
                    b.store(patch, [r, i, c], b.load(run, [c]))
            with b.else_(), b.for_("c", words) as c:
                b.store(patch, [r, i, c], outside)
