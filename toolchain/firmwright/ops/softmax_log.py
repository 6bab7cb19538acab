"""log_softmax: y_i = x_i - log(sum_j e^x_j) over the last axis.

int8: exponentials and their sum are those of softmax.py. The logarithm of the sum is
subtracted; the result has scale 1/16 and zero point 127. Differences from the row
maximum beyond 5 integer bits give the minimum. Semantics: TFLite's reference
LogSoftmax.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import (
    INT32_MIN,
    Rounding,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_divide_by_pot,
)
from firmwright.ir import tir
from firmwright.ir.graph import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, maximum
from firmwright.ops.fixed_point import OUT_BITS, logarithm
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import libm_function
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import clamp, per_tensor_quant
from firmwright.ops.softmax import (
    SUM_INTEGER_BITS,
    check_int8_row,
    difference_scaling,
    exponential_table,
    lower_exponential_sum,
    lower_row_maximum,
)

_RIGHT = 31 - OUT_BITS - 4
OUTPUT_ZERO_POINT = 127


def infer_log(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    if x.dtype not in (INT8, FLOAT32) or y.dtype != x.dtype or not x.shape:
        raise NotSupportedError(f"{x.dtype.name} input with {y.dtype.name} output")
    if x.dtype == INT8:
        check_int8_row(call)
        quant = per_tensor_quant(y)
        if (quant.scale, quant.zero_point) != (1 / 16, OUTPUT_ZERO_POINT):
            raise NotSupportedError(
                "an int8 result must have scale 1/16 and zero point 127"
            )
    return (TensorType(x.shape, x.dtype, y.quantization),)


def _log_scaling(call: OpCall) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Return (multiplier, shift) to and from 5 integer bits, and the valid radius.

    The radius is the largest valid difference.
    """
    multiplier, shift, radius = difference_scaling(call, 1.0)
    back = quantize_multiplier(2.0 ** (31 - shift) / multiplier)
    return (multiplier, shift), back, radius


def reference_log(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    if call.input(0).dtype == FLOAT32:
        values = arrays[0].astype(np.float64)
        difference = values - values.max(axis=-1, keepdims=True)
        log_sum = np.log(np.exp(difference).sum(axis=-1, keepdims=True))
        return ((difference - log_sum).astype(np.float32),)
    x, (scale, back, radius) = arrays[0].astype(np.int64), _log_scaling(call)
    below = x - x.max(axis=-1, keepdims=True)
    powers = exponential_table(call).astype(np.int64)[-below]
    total = rounding_divide_by_pot(powers, SUM_INTEGER_BITS).sum(axis=-1, keepdims=True)
    log_total = logarithm(total).astype(np.int64)
    least = multiply_by_quantized_multiplier(
        log_total + INT32_MIN, *back, Rounding.TWICE
    )
    is_near = below > np.maximum(-radius - 1, least)
    scaled = multiply_by_quantized_multiplier(
        np.where(is_near, below, 0), *scale, Rounding.TWICE
    )
    difference = np.where(is_near, scaled - log_total, 0)
    steps = rounding_divide_by_pot(difference, _RIGHT) + OUTPUT_ZERO_POINT
    y = np.where(is_near, steps, INT8.min)
    return (np.clip(y, INT8.min, INT8.max).astype(np.int8),)


def lower_log(call: OpCall, b: Kernel) -> None:
    depth = call.input(0).shape[-1]
    rows = call.input(0).elements // depth
    x, y = b.views("rows out", (rows, depth), b.input(0), b.y)
    with b.for_("row", rows) as row:
        if call.input(0).dtype == FLOAT32:
            _lower_log_float(b, x, y, row)
        else:
            _lower_log_int8(b, x, y, row)


def _lower_log_float(b: Kernel, x: tir.Buffer, y: tir.Buffer, row: ArithExpr) -> None:
    highest, total = lower_row_maximum(b, x, row, FLOAT32, b.load(x, [row, 0]))
    with b.for_("i", x.shape[1]) as i:
        below = b.load(x, [row, i]) - highest.value
        total.add(call_intrinsic("exp_f32", [below], FLOAT32))
    log_total = b.let("logarithm", libm_function("log")(total.value))
    with b.for_("i", x.shape[1]) as i:
        b.store(y, [row, i], b.load(x, [row, i]) - highest.value - log_total)


def _lower_log_int8(b: Kernel, x: tir.Buffer, y: tir.Buffer, row: ArithExpr) -> None:
    scale, back, radius = _log_scaling(b.call)
    highest, total, _ = lower_exponential_sum(b, x, row)
    log_total = b.let("logarithm", call_intrinsic("logarithm", [total.value], INT32))
    lowest = log_total + INT32_MIN
    least = call_intrinsic("requantize_twice", [lowest, *back], INT32)
    lower_bound = b.let("least", maximum(least, -radius - 1))
    with b.for_("i", x.shape[1]) as i:
        below = b.let("below", b.load_i32(x, [row, i]) - highest.value)
        with b.if_(below > lower_bound):
            scaled = call_intrinsic("requantize_twice", [below, *scale], INT32)
            difference = b.let("difference", scaled - log_total)
            half = (1 << (_RIGHT - 1)) - (difference < 0).cast(INT32)
            value = ((difference + half) >> _RIGHT) + OUTPUT_ZERO_POINT
            b.store(y, [row, i], clamp(value, INT8.min, INT8.max, INT8))
        with b.else_():
            b.store(y, [row, i], INT8.min)


OPDEF = OpDef("log_softmax", infer_log, reference_log, lower_log)
