"""relu, relu6, relu_n1_to_1 and relu_0_to_1: clamp to [0, inf), [0, 6], [-1, 1] or [0, 1].

int8: the zero point is subtracted, and the difference requantized by x scale / y scale, rounding
twice, then clamped to the quantized range. LiteRT divides the scales in float32, TFLM in double.
TFLM's relu6 only clamps raw values to the input's range, which is equivalent if both tensors have
the same quantization. TFLM has no relu_n1_to_1 and relu_0_to_1.
Semantics: the reference kernels of TFLite and TFLM.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, Array, DType
from firmwright.base.quant import Rounding
from firmwright.ir.graph.opdef import OpCall, both_profiles
from firmwright.ops.constant_requantize import store_requantized
from firmwright.ops.elementwise import loop_over_elements
from firmwright.ops.elementwise_unary import (
    UnaryImplementation,
    check_symmetric_int16,
    compute_elements,
    unary_op,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import (
    Requantization,
    apply_activation,
    clamp,
    float_activation_range,
    make_requantization,
    quantized_activation_range,
    tensor_quant,
)


def _clamps_raw_values(call: OpCall) -> bool:
    return call.numerics == "tflm" and call.op == "relu6"


def requantization_of(call: OpCall) -> Requantization:
    x_scale, y_scale = tensor_quant(call.input(0)).scale, tensor_quant(call.output).scale
    factor = x_scale / y_scale
    if call.numerics == "litert":
        with np.errstate(over="ignore"):  # make_requantization rejects an infinite factor
            factor = float(np.float32(x_scale) / np.float32(y_scale))
    return make_requantization([factor], Rounding.TWICE, call.output, call.op)


def _reference(call: OpCall, x: Array) -> Array:
    if _clamps_raw_values(call):
        return np.clip(x, *quantized_activation_range(call.op, call.input(0))).astype(x.dtype)
    offset = x.astype(np.int64) - tensor_quant(call.input(0)).zero_point
    return requantization_of(call).apply(offset, call.output.dtype)


def _lower(call: OpCall, b: Kernel) -> None:
    kind = call.input(0)
    with loop_over_elements(call, b) as (values, store):
        if _clamps_raw_values(call):
            low, high = quantized_activation_range(call.op, kind)
            store(clamp(values[0].cast(INT32), low, high, kind.dtype))
        else:
            offset = values[0].cast(INT32) - tensor_quant(kind).zero_point
            store_requantized(b, offset, requantization_of(call), kind.dtype, store)


def _check_per_tensor(call: OpCall) -> None:
    tensor_quant(call.input(0))
    tensor_quant(call.output)


_INT8 = UnaryImplementation(_reference, _lower, _check_per_tensor)
_FLOAT32 = compute_elements(
    lambda call, x: np.clip(x, *float_activation_range(call.op)).astype(np.float32),
    lambda call, b, x: apply_activation(x, call.op),
)
_INT8_AND_FLOAT32: Mapping[DType, UnaryImplementation] = {INT8: _INT8, FLOAT32: _FLOAT32}
_ALL: Mapping[DType, UnaryImplementation] = {
    INT8: _INT8,
    INT16: UnaryImplementation(_reference, _lower, check_symmetric_int16),
    FLOAT32: _FLOAT32,
}
_NUMERICS = both_profiles(Rounding.TWICE, "int32", "reference_ops ReluX")
_LITERT_ONLY = {"litert": _NUMERICS["litert"]}

OPDEFS = (
    unary_op("relu", _ALL, _NUMERICS),
    unary_op("relu6", _ALL, _NUMERICS),
    unary_op("relu_n1_to_1", _INT8_AND_FLOAT32, _LITERT_ONLY),
    unary_op("relu_0_to_1", _INT8_AND_FLOAT32, _LITERT_ONLY),
)
