"""Matrix multiplication of int8 or float32 layers: a few columns times a few rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, Array, DType
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, as_expr
from firmwright.ops.conv2d import bias_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, apply_activation, per_tensor_quant
from firmwright.schedules.epilogue import (
    FormPreference,
    accumulator_bounds,
    by_arithmetic,
    fold_zero_point_into_bias,
    make_epilogue,
)
from firmwright.schedules.epilogue_forms import FinishElement

# Sums of int8 layers are int32, begin with the bias (input zero point folded in) and
# end in requantization. Sums of float32 layers begin at 0 and the bias is added last,
# in the order of the reference kernels (docs/reference/numerics.md).

SUPPORTED_DTYPES = (INT8, FLOAT32)


class SumEpilogue(Protocol):
    """Converts an output channel's sum to the output element."""

    def bind_channel(self, b: Kernel, index: ArithExpr) -> FinishElement:
        """Bind the parameters of channel `index`; return the conversion function."""


@dataclass(frozen=True, slots=True)
class ScalarLayerPlan:
    """The constants of a layer; `factors` [channel] scale the weights.

    `bias` is None if the epilogue adds it.
    """

    dtype: DType
    sum_dtype: DType
    zero_point: int
    bias: tir.Buffer | None
    epilogue: SumEpilogue
    factors: Array

    def start(self, b: Kernel, index: ArithExpr) -> ArithExpr:
        if self.bias is None:
            return ArithExpr(as_expr(0.0, FLOAT32))
        return b.load(self.bias, [index])


def plan_scalar_layer(
    b: Kernel,
    op: OpCall,
    weights: Array,
    params: Requantization | None,
    channels: Sequence[int] | None = None,
    *,
    may_bake: bool = False,
    in_32_bits: bool = False,
) -> ScalarLayerPlan:
    """Plan `op` with `weights` [output channels, taps]; only int8 has `params`.

    `channels` selects rows; `params` then covers only these. With `may_bake`, the left
    shift of requantization is folded into int16 weights.
    """
    chosen = list(range(len(weights)) if channels is None else channels)
    if params is None:
        bias = b.constant("bias", bias_of(op, "float32"), FLOAT32)
        activation = op.attributes(ActivationAttrs).activation
        ending = _FloatEpilogue(bias, activation)
        ones = np.ones(len(chosen), np.int64)
        return ScalarLayerPlan(FLOAT32, FLOAT32, 0, None, ending, ones)
    zero_point = per_tensor_quant(op.input(0)).zero_point
    selected = weights[chosen]
    folded = fold_zero_point_into_bias(op, weights)[chosen]
    bounds = accumulator_bounds(folded, selected)
    bake = selected.astype(np.int64) if may_bake else None
    preference = FormPreference.NARROW if in_32_bits else FormPreference.FITTED
    epilogue = make_epilogue(
        b, params, bounds, INT8, len(selected), bake, preference=preference
    )
    factors = np.array(epilogue.factors, np.int64)
    bias = b.constant("bias", folded * factors, INT32)
    return ScalarLayerPlan(INT8, INT32, zero_point, bias, epilogue, factors)


@dataclass(frozen=True, slots=True)
class _FloatEpilogue:
    bias: tir.Buffer
    activation: str

    def bind_channel(self, b: Kernel, index: ArithExpr) -> FinishElement:
        bias = b.let("channel_bias", b.load(self.bias, [index]))
        return lambda total: apply_activation(total + bias, self.activation)


# y[p, o] = epilogue(start[o] + sum over k of column[p, k] * w[o, k]). Weights are
# packed in groups of output channels, element k of a group contiguous; the last group
# may be narrower. Every load feeds several multiplications, and accumulators stay in
# registers.

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
    b: Kernel,
    layer: ScalarLayerPlan,
    weights: Array,
    lanes: int,
    unroll: int = DEFAULT_UNROLL,
) -> PackedMatrix:
    rows, depth = weights.shape
    groups = []
    for start in range(0, rows, lanes):
        groups.append(weights[start : start + lanes].T.reshape(-1))
    dtype = INT16 if weights.dtype == INT16.np else layer.dtype
    packed = b.constant("weights", np.concatenate(groups), dtype)
    return PackedMatrix(layer, rows, depth, lanes, packed, unroll)


def multiply_columns(
    b: Kernel, matrix: PackedMatrix, columns: tir.Buffer, store: StoreOutput
) -> None:
    """Multiply all rows by `columns` [count, depth]; store by (row, column, value)."""
    lanes = matrix.lanes
    full, remainder = divmod(matrix.rows, lanes)
    if full:
        with b.for_("group", full) as group:
            _multiply_group(b, matrix, columns, group * lanes, lanes, store)
    if remainder:
        first = ArithExpr(as_expr(full * lanes))
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
        start = b.let("start", matrix.layer.start(b, first + lane))
        for column in range(count):
            b.store(acc, [lane * count + column], start)
    shape = (matrix.depth, lanes)
    w = b.view("w", matrix.weights, first * matrix.depth, shape)
    steps, remainder = divmod(matrix.depth, matrix.unroll)
    if steps:
        with b.for_("j", steps) as j, b.for_("u", matrix.unroll, kind="unrolled") as u:
            _step(b, acc, columns, w, j * matrix.unroll + u)
    for k in range(matrix.depth - remainder, matrix.depth):
        _step(b, acc, columns, w, ArithExpr(as_expr(k)))
    for lane in range(lanes):
        row = b.let("row", first + lane)
        finish = matrix.layer.epilogue.bind_channel(b, row)
        for form in by_arithmetic(b, finish):
            for column in range(count):
                store(row, column, form(b.load(acc, [lane * count + column])))


def _step(
    b: Kernel, acc: tir.Buffer, columns: tir.Buffer, w: tir.Buffer, k: ArithExpr
) -> None:
    count, lanes = columns.shape[0], w.shape[1]
    inputs = []
    for column in range(count):
        value = b.load(columns, [column, k]).cast(acc.dtype)
        inputs.append(b.let("x", value))
    for lane in range(lanes):
        weight = b.let("weight", b.load(w, [k, lane]).cast(acc.dtype))
        for column, value in enumerate(inputs):
            at = lane * count + column
            b.store(acc, [at], b.load(acc, [at]) + value * weight)
