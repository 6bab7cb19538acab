"""elu, gelu, hard_swish, leaky_relu (`alpha` * x for x < 0), relu and bounded relus.

gelu is x times the normal CDF of x, or its tanh approximation with `approximate`. int8
forms, except relus, are lookup tables, computed in float32 for elu and gelu, in 16-bit
fixed point for hard_swish, and by requantizing twice (factors in float32) for
leaky_relu.

Quantized relus subtract the zero point, requantize by x scale / y scale, rounding
twice, and clamp. LiteRT divides the scales in float32, TFLM in double. TFLM's relu6
only clamps raw values, which is equivalent with equal quantizations. TFLM lacks
relu_n1_to_1 and relu_0_to_1. Semantics: the reference kernels of TFLite and TFLM.
"""

import math
import operator

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import quantize_multiplier, rounding_divide_by_pot
from firmwright.ir.graph.attributes.values import GeluAttrs, LeakyReluAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    call_intrinsic,
    maximum,
    minimum,
    select,
)
from firmwright.ops import elementwise, requantize
from firmwright.ops.elementwise import ElementwiseKernel
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import erf, erfc, libm_function
from firmwright.ops.lookup_tables import (
    interpolate_int16,
    lookup_int8,
    lookup_int8_float32,
)
from firmwright.ops.opdef import DefinedIn, OpDef

_ROOT_HALF = math.sqrt(0.5)


def _elu(x: Array) -> Array:
    return np.where(x < 0, np.expm1(np.minimum(x, 0)), x)


def _gelu(call: OpCall, x: Array) -> Array:
    if call.attributes(GeluAttrs).approximate:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)))
    return np.asarray(0.5 * x * (1 + erf(x * _ROOT_HALF)))


def _gelu_of_table(call: OpCall, real: Array) -> Array:
    """Compute as LiteRT fills its tables: every operation rounds to float32."""
    x = real.astype(np.float32)
    if call.attributes(GeluAttrs).approximate:
        polynomial = x + np.float32(0.044715) * x * x * x
        inner = np.float32(math.sqrt(2 / math.pi)) * polynomial
        factor = 1 + np.tanh(inner.astype(np.float64)).astype(np.float32)
    else:
        inner = x * np.float32(-_ROOT_HALF)
        factor = erfc(inner.astype(np.float64)).astype(np.float32)
    return np.asarray(np.float32(0.5) * x * factor)


def _lower_gelu(call: OpCall, x: ArithExpr) -> ArithExpr:
    if call.attributes(GeluAttrs).approximate:
        inner = (x * x * x * 0.044715 + x) * math.sqrt(2 / math.pi)
        return (call_intrinsic("tanh_f32", [inner], FLOAT32) + 1.0) * (x * 0.5)
    return libm_function("erfc")(x * -_ROOT_HALF) * (x * 0.5)


def _hard_swish_int8(call: OpCall, x: Array) -> Array:
    """Compute in 16-bit fixed point, as TFLite's HardSwish does."""
    quant = requantize.per_tensor_quant(call.input(0))
    y = requantize.per_tensor_quant(call.output)
    fine = np.float32(1 / 128) * np.float32(quant.scale)
    out_multiplier, out_shift = _int16_multiplier(float(fine / np.float32(y.scale)))
    gate_multiplier, gate_shift = _int16_multiplier(
        float(fine / (np.float32(3) / 32768))
    )
    value = (x.astype(np.int64) - quant.zero_point) << 7
    gate = _saturated(value << max(gate_shift - 1, 0))
    gate = _high_mul(gate, gate_multiplier)
    gate = _saturated(gate << 1) if gate_shift > 0 else gate
    gate = rounding_divide_by_pot(gate, max(-gate_shift, 0))
    product = ((gate + (1 << 15)) >> 1) * _high_mul(value, out_multiplier)
    halved = np.sign(product) * (np.abs(product) >> 15)
    total = rounding_divide_by_pot(halved, -out_shift) + y.zero_point
    return np.asarray(np.clip(total, INT8.min, INT8.max), np.int8)


def _check_hard_swish(call: OpCall) -> None:
    x_scale = requantize.per_tensor_quant(call.input(0)).scale
    if x_scale / 128 >= requantize.per_tensor_quant(call.output).scale:
        raise NotSupportedError(
            "a hard_swish with an output scale below 1/128 of the input scale"
        )


def _int16_multiplier(real: float) -> tuple[int, int]:
    multiplier, shift = quantize_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, INT16.max), shift


def _saturated(x: Array) -> Array:
    return np.asarray(np.clip(x, INT16.min, INT16.max))


def _high_mul(x: Array, multiplier: int) -> Array:
    """Return the high 16 bits of 2 * x * multiplier, rounded half up, saturated."""
    return _saturated((x * multiplier + (1 << 14)) >> 15)


def _alpha(call: OpCall) -> float:
    return call.attributes(LeakyReluAttrs).alpha


def _requantize_factors(call: OpCall) -> tuple[tuple[int, int], tuple[int, int]]:
    x = np.float32(requantize.per_tensor_quant(call.input(0)).scale)
    y = np.float32(requantize.per_tensor_quant(call.output).scale)
    below = x * np.float32(_alpha(call)) / y
    return quantize_multiplier(float(x / y)), quantize_multiplier(float(below))


def _leaky_relu(call: OpCall, x: requantize.ArrayOrExpr) -> requantize.ArrayOrExpr:
    kind, (value,) = call.output.dtype, elementwise.subtract_zero_points(call, x)
    factor, factor_below = _requantize_factors(call)
    above = requantize.requantize_twice(value, *factor)
    below = requantize.requantize_twice(value, *factor_below)
    scaled = elementwise.choose(value >= 0, above, below)
    zero_point = requantize.per_tensor_quant(call.output).zero_point
    return requantize.clamp(scaled + zero_point, kind.min, kind.max, kind)


def _leaky_relu_float32(call: OpCall, x: Array) -> Array:
    return np.where(x > 0, x, x * np.float32(_alpha(call))).astype(np.float32)


def _check_leaky(call: OpCall) -> None:
    if not (math.isfinite(_alpha(call)) and _alpha(call) >= 0):
        raise NotSupportedError(f"alpha {_alpha(call)} for integers")


def _check_leaky_int16(call: OpCall) -> None:
    _check_leaky(call)
    elementwise.check_symmetric_int16(call)


def _clamps_raw_values(call: OpCall) -> bool:
    return call.numerics == "tflm" and call.op == "relu6"


def _reference_relu(call: OpCall, x: Array) -> Array:
    if _clamps_raw_values(call):
        low, high = requantize.quantized_activation_range(call.op, call.input(0))
        return np.clip(x, low, high).astype(x.dtype)
    (offset,) = elementwise.subtract_zero_points(call, x)
    params = requantize.requant_by_scales(call, operator.truediv, call.op)
    return params.apply(offset, call.output.dtype)


def _lower_relu(call: OpCall, b: Kernel) -> None:
    kind = call.input(0)
    with elementwise.loop_over_elements(b) as (values, store):
        if _clamps_raw_values(call):
            low, high = requantize.quantized_activation_range(call.op, kind)
            store(requantize.clamp(values[0].cast(INT32), low, high, kind.dtype))
        else:
            (offset,) = elementwise.subtract_zero_points(call, values[0])
            params = requantize.requant_by_scales(call, operator.truediv, call.op)
            store(params.lower(offset, kind.dtype))


def _relu_float32(call: OpCall, x: requantize.ArrayOrExpr) -> requantize.ArrayOrExpr:
    return requantize.apply_activation(x, call.op)


def _relu_op(name: str, numerics: DefinedIn, **kernels: ElementwiseKernel) -> OpDef:
    float32 = elementwise.compute_elements(_relu_float32, _relu_float32)
    int8 = ElementwiseKernel(_reference_relu, _lower_relu, elementwise.check_per_tensor)
    return elementwise.unary_op(name, numerics, int8=int8, **kernels, float32=float32)


_RELU_INT16 = ElementwiseKernel(
    _reference_relu, _lower_relu, elementwise.check_symmetric_int16
)
OPDEFS: tuple[OpDef, ...] = (
    elementwise.unary_op(
        "elu",
        int8=lookup_int8_float32(lambda call, x: _elu(x)),
        float32=elementwise.compute_float32(
            _elu, lambda x: select(x < 0.0, libm_function("expm1")(minimum(x, 0.0)), x)
        ),
    ),
    elementwise.unary_op(
        "gelu",
        "litert",
        int8=lookup_int8_float32(_gelu_of_table),
        int16=interpolate_int16(_gelu_of_table, np.float32),
        float32=elementwise.compute_elements(
            lambda call, x: _gelu(call, x.astype(np.float64)).astype(np.float32),
            _lower_gelu,
        ),
    ),
    elementwise.unary_op(
        "hard_swish",
        int8=lookup_int8(_hard_swish_int8, _check_hard_swish),
        float32=elementwise.compute_float32(
            lambda x: np.asarray(x * np.clip(x + 3, 0, 6) / 6),
            lambda x: x * minimum(6.0, maximum(0.0, x + 3.0)) / 6.0,
        ),
    ),
    elementwise.unary_op(
        "leaky_relu",
        int8=lookup_int8(_leaky_relu, _check_leaky),
        int16=elementwise.compute_elements(
            _leaky_relu, _leaky_relu, _check_leaky_int16
        ),
        float32=elementwise.compute_elements(
            _leaky_relu_float32, lambda call, x: select(x > 0.0, x, x * _alpha(call))
        ),
    ),
    _relu_op("relu", "both", int16=_RELU_INT16),
    _relu_op("relu6", "both", int16=_RELU_INT16),
    _relu_op("relu_n1_to_1", "litert"),
    _relu_op("relu_0_to_1", "litert"),
)
