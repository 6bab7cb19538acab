"""The constants of int8 or float32 layers whose products the compiler sees."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array, DType
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
    fold_zero_point_into_bias,
    make_epilogue,
)
from firmwright.schedules.gemm import ChannelEpilogue, FloatEpilogue

# Sums of int8 layers are int32, begin with the bias (input zero point folded in) and
# end in requantization. Sums of float32 layers begin at 0 and the bias is added last,
# in the order of the reference kernels (docs/reference/numerics.md).

SUPPORTED_DTYPES = (INT8, FLOAT32)


@dataclass(frozen=True, slots=True)
class ScalarLayerPlan:
    """The constants of a layer; `factors` [channel] scale the weights.

    `bias` is None if the epilogue adds it.
    """

    dtype: DType
    sum_dtype: DType
    zero_point: int
    bias: tir.Buffer | None
    epilogue: ChannelEpilogue
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
        ending = FloatEpilogue(bias, lambda sum_: apply_activation(sum_, activation))
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
