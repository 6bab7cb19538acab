"""Register-blocked int8 products: a few columns times a few rows of the weight matrix at a time.

y[p, o] = finish(bias[o] + sum over k of column[p, k] * w[o, k]). Weights lie in groups of output
channels, element k of all channels of a group side by side, so that one address walks through a
group; the last group may be narrower. Every load feeds several multiplications, accumulators stay
in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.graph.opdef import Array
from firmwright.ir.tir.builder import E, expr
from firmwright.ir.tir.nodes import Buffer
from firmwright.ops.fixed_point import Requant
from firmwright.ops.kernel import Kernel
from firmwright.schedules.epilogue import Epilogue, accumulator_bounds, make_epilogue

_UNROLL = 4


@dataclass(frozen=True, slots=True)
class Matrix:
    """The weights of a layer in groups of `lanes` rows, its biases and its requantise step."""

    rows: int
    depth: int
    lanes: int
    weights: Buffer
    bias: Buffer
    epilogue: Epilogue


def make_matrix(
    b: Kernel, weights: Array, bias: Array, zero_point: int, params: Requant, lanes: int
) -> Matrix:
    """`weights` is [rows, depth] int8; the input's zero point is folded into the bias."""
    rows, depth = weights.shape
    wide = weights.astype(np.int64)
    folded = bias.astype(np.int64) - zero_point * wide.sum(axis=1)
    bounds = accumulator_bounds(folded, wide, INT8.min, INT8.max)
    groups = [weights[start : start + lanes].T.reshape(-1) for start in range(0, rows, lanes)]
    return Matrix(
        rows,
        depth,
        lanes,
        b.constant("weights", np.concatenate(groups), INT8),
        b.constant("bias", folded, INT32),
        make_epilogue(b, params, bounds, INT8, rows),
    )


def multiply(
    b: Kernel, matrix: Matrix, columns: Buffer, store: Callable[[E, int, E], None]
) -> None:
    """All rows times all `columns` ([count, depth]); `store(row, column, value)` takes results."""
    full, rest = divmod(matrix.rows, matrix.lanes)
    if full:
        with b.for_("group", full) as group:
            _multiply_group(b, matrix, columns, group * matrix.lanes, matrix.lanes, store)
    if rest:
        first = E(expr(full * matrix.lanes))
        _multiply_group(b, matrix, columns, first, rest, store)


def _multiply_group(
    b: Kernel,
    matrix: Matrix,
    columns: Buffer,
    first: E,
    lanes: int,
    store: Callable[[E, int, E], None],
) -> None:  # fmt: skip
    count = columns.shape[0]
    acc = b.reg("acc", INT32, lanes * count)
    for lane in range(lanes):
        with b.let("start", b.load(matrix.bias, [first + lane])) as start:
            for column in range(count):
                b.store(acc, [lane * count + column], start)
    shape = (matrix.depth, lanes)
    with b.window("w", matrix.weights, first * matrix.depth, shape) as w:
        steps, rest = divmod(matrix.depth, _UNROLL)
        if steps:
            with b.for_("j", steps) as j, b.for_("u", _UNROLL, kind="unrolled") as u:
                _step(b, acc, columns, w, j * _UNROLL + u)
        for k in range(matrix.depth - rest, matrix.depth):
            _step(b, acc, columns, w, E(expr(k)))
    for lane in range(lanes):
        with (
            b.let("row", first + lane) as row,
            matrix.epilogue.channel(b, row) as finish,
        ):
            for column in range(count):
                store(row, column, finish(b.load(acc, [lane * count + column])))


def _step(b: Kernel, acc: Buffer, columns: Buffer, w: Buffer, k: E) -> None:
    """Element `k` of every column and every row of the group."""
    count, lanes = columns.shape[0], w.shape[1]
    with ExitStack() as stack:
        inputs = [
            stack.enter_context(b.let("x", b.load_i32(columns, [column, k])))
            for column in range(count)
        ]
        for lane in range(lanes):
            with b.let("weight", b.load_i32(w, [k, lane])) as weight:
                for column, value in enumerate(inputs):
                    at = lane * count + column
                    b.store(acc, [at], b.load(acc, [at]) + value * weight)
