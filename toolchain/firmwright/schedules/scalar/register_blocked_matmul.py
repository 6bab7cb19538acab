"""Register-blocked matrix multiplication: a few columns times a few weight rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr, as_expr
from firmwright.ops.kernel import Kernel
from firmwright.schedules.scalar.layer_plan import ScalarLayerPlan

# y[p, o] = epilogue(start[o] + sum over k of column[p, k] * w[o, k]). Weights are packed in groups
# of output channels, element k of a group contiguous; the last group may be narrower. Every load
# feeds several multiplications, and accumulators stay in registers.

DEFAULT_UNROLL = 4
"""Unrolled steps of a column."""

StoreOutput = Callable[[ArithExpr, int, ArithExpr], None]


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """The weights of a layer, `rows` x `depth`, in groups of `lanes` rows."""

    layer: ScalarLayerPlan
    rows: int
    depth: int
    lanes: int
    weights: tir.Buffer
    unroll: int


def pack_matrix(
    b: Kernel, layer: ScalarLayerPlan, weights: Array, lanes: int, unroll: int = DEFAULT_UNROLL
) -> PackedMatrix:
    rows, depth = weights.shape
    groups = [weights[start : start + lanes].T.reshape(-1) for start in range(0, rows, lanes)]
    packed = b.constant("weights", np.concatenate(groups), layer.dtype)
    return PackedMatrix(layer, rows, depth, lanes, packed, unroll)


def multiply_columns(
    b: Kernel, matrix: PackedMatrix, columns: tir.Buffer, store: StoreOutput
) -> None:
    """Multiply all rows by `columns` [count, depth]; `store` takes (row, column, value)."""
    full, remainder = divmod(matrix.rows, matrix.lanes)
    if full:
        with b.for_("group", full) as group:
            _multiply_group(b, matrix, columns, group * matrix.lanes, matrix.lanes, store)
    if remainder:
        first = ArithExpr(as_expr(full * matrix.lanes))
        _multiply_group(b, matrix, columns, first, remainder, store)


def _multiply_group(
    b: Kernel,
    matrix: PackedMatrix,
    columns: tir.Buffer,
    first: ArithExpr,
    lanes: int,
    store: StoreOutput,
) -> None:
    count = columns.shape[0]
    acc = b.reg("acc", matrix.layer.sum_dtype, lanes * count)
    for lane in range(lanes):
        with b.let("start", matrix.layer.start(b, first + lane)) as start:
            for column in range(count):
                b.store(acc, [lane * count + column], start)
    shape = (matrix.depth, lanes)
    with b.view("w", matrix.weights, first * matrix.depth, shape) as w:
        steps, remainder = divmod(matrix.depth, matrix.unroll)
        if steps:
            with b.for_("j", steps) as j, b.for_("u", matrix.unroll, kind="unrolled") as u:
                _step(b, acc, columns, w, j * matrix.unroll + u)
        for k in range(matrix.depth - remainder, matrix.depth):
            _step(b, acc, columns, w, ArithExpr(as_expr(k)))
    for lane in range(lanes):
        with (
            b.let("row", first + lane) as row,
            matrix.layer.epilogue.bind_channel(b, row) as finish,
        ):
            for column in range(count):
                store(row, column, finish(b.load(acc, [lane * count + column])))


def _step(b: Kernel, acc: tir.Buffer, columns: tir.Buffer, w: tir.Buffer, k: ArithExpr) -> None:
    count, lanes = columns.shape[0], w.shape[1]
    with ExitStack() as stack:
        inputs = [
            stack.enter_context(b.let("x", b.load(columns, [column, k]).cast(acc.dtype)))
            for column in range(count)
        ]
        for lane in range(lanes):
            with b.let("weight", b.load(w, [k, lane]).cast(acc.dtype)) as weight:
                for column, value in enumerate(inputs):
                    at = lane * count + column
                    b.store(acc, [at], b.load(acc, [at]) + value * weight)
