"""The constants of int8 or float32 layers whose products the compiler sees."""

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array, DType
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, as_expr
from firmwright.ops.conv2d import bias_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import apply_activation, per_tensor_quant
from firmwright.schedules.computed_channels import ComputedChannels
from firmwright.schedules.epilogue import (
    BindGroup,
    FormPreference,
    make_epilogue,
)
from firmwright.schedules.gemm import float_epilogue

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
    bind_group: BindGroup
    factors: Array

    def start(self, b: Kernel, index: ArithExpr) -> ArithExpr:
        if self.bias is None:
            return ArithExpr(as_expr(0.0, FLOAT32))
        return b.load(self.bias, [index])


def plan_integer_layer(
    b: Kernel,
    op: OpCall,
    found: ComputedChannels,
    *,
    may_bake: bool = False,
    in_32_bits: bool = False,
) -> ScalarLayerPlan:
    """Plan the computed channels of a layer of int8.

    With `may_bake`, the left shift of requantization is folded into int16 weights.
    """
    bake = found.weights if may_bake else None
    preference = FormPreference.NARROW if in_32_bits else FormPreference.FITTED
    epilogue = make_epilogue(
        b,
        found.params,
        found.bounds,
        INT8,
        len(found.bias),
        bake,
        preference=preference,
    )
    factors = np.array(epilogue.factors, np.int64)
    bias = b.constant("bias", found.bias * factors, INT32)
    zero_point = per_tensor_quant(op.input(0)).zero_point
    bind = epilogue.bind_group
    return ScalarLayerPlan(INT8, INT32, zero_point, bias, bind, factors)


def plan_float_layer(b: Kernel, op: OpCall) -> ScalarLayerPlan:
    bias = b.constant("bias", bias_of(op, "float32"), FLOAT32)
    activation = op.attributes(ActivationAttrs).activation
    bind = float_epilogue(bias, lambda total: apply_activation(total, activation))
    ones = np.ones(bias.elements, np.int64)
    return ScalarLayerPlan(FLOAT32, FLOAT32, 0, None, bind, ones)
