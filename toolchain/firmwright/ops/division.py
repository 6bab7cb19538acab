"""div: y = x_0 / x_1 with broadcasting and a fused `activation`.

int32 quotients truncate toward zero. int8 and int16: the left-aligned dividend is multiplied by the
reciprocal of the divisor in 32-bit fixed point (with its sign moved to the dividend), and the
product is requantized by scale_0 / (scale_1 * y scale), rounding twice. LiteRT computes that factor
in float32, TFLM in double. Where the reference would shift by more than 31 bits, which is undefined
in C, the quotient is 0. Only LiteRT has int16. Division by 0 gives an unspecified value but no
invalid access.
Semantics: TFLite's reference Div.
"""

from __future__ import annotations

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import MIN_SHIFT, Rounding, multiply_by_quantized_multiplier
from firmwright.ir.core import Attrs
from firmwright.ir.graph.opdef import OpCall, both_profiles
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum, select
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops.elementwise_binary import BinaryImplementation, binary_op
from firmwright.ops.intrinsics import CLZ, RECIPROCAL
from firmwright.ops.requantize import (
    Requantization,
    apply_activation,
    clamp,
    float_activation_range,
    import_activation,
    make_requantization,
    tensor_quant,
)

_MAX_LEFT_SHIFT = 30


def _float_quotient(call: OpCall, a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        low, high = float_activation_range(call.str_attr("activation"))
        return np.asarray(np.clip((a / b).astype(np.float32), low, high), np.float32)


def _integer_quotient(call: OpCall, a: Array, b: Array) -> Array:
    wide = np.abs(a.astype(np.int64)) // np.abs(b.astype(np.int64))
    return np.asarray(np.where((a < 0) == (b < 0), wide, -wide))


def _check_no_activation(call: OpCall) -> None:
    if call.str_attr("activation") != "none":
        raise NotSupportedError("an integer division with an activation")


def _requant(call: OpCall) -> Requantization:
    a, b, y = (tensor_quant(kind).scale for kind in (call.input(0), call.input(1), call.output))
    factor = a / (b * y)
    if call.numerics == "litert":
        with np.errstate(over="ignore"):  # make_requantization rejects an infinite factor
            factor = float(np.float32(a) / (np.float32(b) * np.float32(y)))
    return make_requantization([factor], Rounding.TWICE, call.output, call.str_attr("activation"))


def _quantized(call: OpCall, a: Array, b: Array) -> Array:
    params = _requant(call)
    dividend, divisor = (
        x.astype(np.int64) - tensor_quant(call.input(index)).zero_point
        for index, x in enumerate((a, b))
    )
    dividend, size = np.where(divisor < 0, -dividend, dividend), np.maximum(np.abs(divisor), 1)
    lead = CLZ.meaning(size).astype(np.int64)
    # A positive value can be shifted left by one less than its leading zeros; 0 counts as 1.
    left = CLZ.meaning(np.maximum(np.where(dividend < 0, -2 * dividend - 1, 2 * dividend), 1))
    left = np.minimum(left.astype(np.int64), _MAX_LEFT_SHIFT)
    whole = multiply_by_quantized_multiplier(
        dividend, RECIPROCAL.meaning(size, lead), left, Rounding.TWICE
    )
    shift = np.clip(params.shifts[0] - (31 - lead) - left, MIN_SHIFT, _MAX_LEFT_SHIFT)
    scaled = multiply_by_quantized_multiplier(whole, params.multipliers[0], shift, Rounding.TWICE)
    return np.asarray(np.clip(scaled + params.zero_point, params.clamp_min, params.clamp_max))


def _lower_quantized(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    params = _requant(call)
    x, y = (
        value.cast(INT32) - tensor_quant(call.input(index)).zero_point
        for index, value in enumerate((a, b))
    )
    dividend, size = select(y < 0, 0 - x, x), maximum(maximum(y, 0 - y), 1)
    lead = intrinsic("clz", [size], INT32)
    spread = maximum(select(dividend < 0, dividend * -2 - 1, dividend * 2), 1)
    left = minimum(intrinsic("clz", [spread], INT32), _MAX_LEFT_SHIFT)
    inverse = intrinsic("reciprocal", [size, lead], INT32)
    whole = intrinsic("requantize_twice", [dividend, inverse, left], INT32)
    shift = minimum(maximum(lead - left + (params.shifts[0] - 31), MIN_SHIFT), _MAX_LEFT_SHIFT)
    scaled = intrinsic("requantize_twice", [whole, params.multipliers[0], shift], INT32)
    return clamp(scaled + params.zero_point, params.clamp_min, params.clamp_max, call.output.dtype)


def _check_quantized(call: OpCall) -> None:
    for kind in (call.input(0), call.input(1), call.output):
        tensor_quant(kind)


def _activation(options: Attrs) -> Attrs:
    return {"activation": import_activation(options["fused_activation_function"])}


OPDEF = binary_op(
    "div",
    {
        **dict.fromkeys(
            (INT8, INT16), BinaryImplementation(_quantized, _lower_quantized, _check_quantized)
        ),
        INT32: BinaryImplementation(
            _integer_quotient, lambda call, a, b: a / b, _check_no_activation
        ),
        FLOAT32: BinaryImplementation(
            _float_quotient, lambda call, a, b: apply_activation(a / b, call.str_attr("activation"))
        ),
    },
    both_profiles(Rounding.TWICE, "int32, by a reciprocal; others exact", "reference_ops Div"),
    None,
    _activation,
)
