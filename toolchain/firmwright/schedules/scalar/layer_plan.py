"""What the rules need to know of an int8 or float32 layer with weights, in one form.

int8: sums are int32 and start from the bias, in which the input's zero point is folded; they end
in the requantise step. float32: sums start from nothing and the bias comes last, which is the
order of the reference kernels (docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, DType
from firmwright.ir import tir
from firmwright.ir.graph.opdef import Array, OpCall
from firmwright.ir.tir.builder import ArithExpr, as_expr
from firmwright.ops.conv2d import bias_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, apply_activation, tensor_quant
from firmwright.schedules.epilogue import FinishElement, accumulator_bounds, make_epilogue

SUPPORTED_DTYPES = (INT8, FLOAT32)


class SumEpilogue(Protocol):
    """From the sum of an output channel to its element."""

    def channel(self, b: Kernel, index: ArithExpr) -> AbstractContextManager[FinishElement]:
        """Binds the parameters of channel `index`."""


@dataclass(frozen=True, slots=True)
class ScalarLayerPlan:
    """`zero_point` is what stands for 0 in the input; `bias` is None where sums start from 0.

    `factors` [channel] are what the weights must be multiplied with.
    """

    dtype: DType
    sum_dtype: DType
    zero_point: int
    bias: tir.Buffer | None
    ending: SumEpilogue
    factors: Array

    def start(self, b: Kernel, index: ArithExpr) -> ArithExpr:
        """What the sum of channel `index` starts from."""
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
) -> ScalarLayerPlan:
    """The layer of `op` with `weights` as [output channels, taps]; `params` only for int8.

    With `channels` its rows are these alone, and `params` theirs. Where the schedule `may_bake`,
    the left shift of the requantise step goes into weights of int16.
    """
    chosen = list(range(len(weights)) if channels is None else channels)
    if params is None:
        bias = b.constant("bias", bias_of(op, "float32"), FLOAT32)
        ending = _FloatEpilogue(bias, op.str_attr("activation"))
        return ScalarLayerPlan(FLOAT32, FLOAT32, 0, None, ending, np.ones(len(chosen), np.int64))
    zero_point = tensor_quant(op.input(0)).zero_point
    wide = weights[chosen].astype(np.int64)
    folded = bias_of(op, "int32").astype(np.int64)[chosen] - zero_point * wide.sum(axis=1)
    bounds = accumulator_bounds(folded, wide, INT8.min, INT8.max)
    bake = wide if may_bake else None
    epilogue = make_epilogue(b, params, bounds, INT8, len(wide), bake)
    factors = np.array(epilogue.factors, np.int64)
    bias = b.constant("bias", folded * factors, INT32)
    return ScalarLayerPlan(INT8, INT32, zero_point, bias, epilogue, factors)


@dataclass(frozen=True, slots=True)
class _FloatEpilogue:
    bias: tir.Buffer
    activation: str

    @contextmanager
    def channel(self, b: Kernel, index: ArithExpr) -> Iterator[FinishElement]:
        with b.let("bias_here", b.load(self.bias, [index])) as bias:
            yield lambda total: apply_activation(total + bias, self.activation)
