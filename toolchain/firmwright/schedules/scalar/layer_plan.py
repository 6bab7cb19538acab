"""Constants of int8 and float32 layers with weights, in a common form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array, DType
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, as_expr
from firmwright.ops.conv2d import bias_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, apply_activation, tensor_quant
from firmwright.schedules.epilogue import (
    FinishElement,
    accumulator_bounds,
    fold_zero_point_into_bias,
    make_epilogue,
)

# int8: sums are int32, begin with the bias (input zero point folded in) and end in requantization.
# float32: sums begin at 0 and the bias is added last, in the order of the reference kernels
# (docs/numerics.md).

SUPPORTED_DTYPES = (INT8, FLOAT32)


class SumEpilogue(Protocol):
    """Converts an output channel's sum to the output element."""

    def bind_channel(self, b: Kernel, index: ArithExpr) -> AbstractContextManager[FinishElement]:
        """Bind the parameters of channel `index`; yield the conversion function."""


@dataclass(frozen=True, slots=True)
class ScalarLayerPlan:
    """Constants of a layer; `bias` is None if sums begin at 0.

    `factors` [channel] scale the weights.
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
) -> ScalarLayerPlan:
    """Plan `op` with `weights` [output channels, taps]; only int8 has `params`.

    `channels` selects rows, with `params` for them alone. With `may_bake`, the left shift of
    requantization is folded into int16 weights.
    """
    chosen = list(range(len(weights)) if channels is None else channels)
    if params is None:
        bias = b.constant("bias", bias_of(op, "float32"), FLOAT32)
        epilogue: SumEpilogue = _FloatEpilogue(bias, op.str_attr("activation"))
        return ScalarLayerPlan(FLOAT32, FLOAT32, 0, None, epilogue, np.ones(len(chosen), np.int64))
    zero_point = tensor_quant(op.input(0)).zero_point
    wide = weights[chosen].astype(np.int64)
    folded = fold_zero_point_into_bias(op, weights)[chosen]
    bounds = accumulator_bounds(folded, wide)
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
    def bind_channel(self, b: Kernel, index: ArithExpr) -> Iterator[FinishElement]:
        with b.let("channel_bias", b.load(self.bias, [index])) as bias:
            yield lambda total: apply_activation(total + bias, self.activation)
