"""logistic: y = 1 / (1 + e^-x), and tanh, computed as 2 logistic(2 x) - 1.

int8: a table of 256 results, computed by LiteRT in float32 and by TFLM in fixed point
with 4 integer bits. int16, both profiles: |x| is scaled to steps of 1/12288, a table of
logistic(i / 24) with 16 fraction bits is interpolated, and the sign is restored.
float32: below -9, logistic is e^x. Semantics: TFLite's activations and its reference
integer Logistic and Tanh.
"""

import math

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import (
    Rounding,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_divide_by_pot,
)
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    binary_expr,
    call_intrinsic,
    maximum,
    minimum,
    select,
)
from firmwright.ops import elementwise, fixed_point
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import libm_function
from firmwright.ops.lookup_tables import (
    evaluate_int8_lut,
    lookup_int8,
    round_to_float32,
)
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import check_zero_points, per_tensor_quant

_INTEGER_BITS = 4
_LAST = 255
_ROUNDED_UP = (
    4,
    8,
    12,
    14,
    15,
    16,
    17,
    19,
    20,
    21,
    22,
    25,
    27,
    28,
    29,
    30,
    31,
    33,
    34,
    35,
    37,
    39,
    40,
    41,
    43,
    44,
    45,
    46,
    49,
    50,
    54,
    62,
    63,
    64,
    66,
    82,
    86,
    93,
    100,
    103,
    112,
    116,
    135,
    255,
)
"""Entries of the reference's int16 table that exceed the nearest integer by one."""
_LOG2_TOLERANCE = 1e-3
_INPUT_SCALE_LIMIT = 32767 / (3 << 12)
"""With a larger scale, the reference's multiplier exceeds 16 bits."""


def sigmoid_table() -> Array:
    """Return logistic(i / 24) * 2^16 for i in [0, 255]; the last entry is repeated."""
    exact = 65536 / (1 + np.exp(-np.arange(_LAST + 1) / 24))
    table = np.floor(exact + 0.5).astype(np.int64)
    table[list(_ROUNDED_UP)] += 1
    return np.append(table, table[-1])


def centered_sigmoid_table() -> Array:
    """Return the table less 2^15, the value at 0: these numbers have 16 bits."""
    return sigmoid_table() - (1 << 15)


def _int8(call: OpCall, x: Array) -> Array:
    if call.numerics != "tflm":
        return evaluate_int8_lut(call, x, _FUNCTIONS[call.op])
    return _int8_in_fixed_point(call, x)


def _logistic_in_float32(x: Array) -> Array:
    one = np.float32(1)
    return np.asarray(one / (one + round_to_float32(np.exp)(-x)))


_FUNCTIONS = {"logistic": _logistic_in_float32, "tanh": round_to_float32(np.tanh)}


def _int8_in_fixed_point(call: OpCall, x: Array) -> Array:
    quant = per_tensor_quant(call.input(0))
    multiplier, left = quantize_multiplier(quant.scale * (1 << (31 - _INTEGER_BITS)))
    greatest = ((1 << _INTEGER_BITS) - 1) * (1 << (31 - _INTEGER_BITS))
    radius = math.floor(greatest / 2.0**left)
    offset = x.astype(np.int64) - quant.zero_point
    inside = np.abs(offset) < radius
    x = np.where(inside, offset, 0)
    scaled = multiply_by_quantized_multiplier(x, multiplier, left, Rounding.TWICE)
    if call.op == "tanh":
        y = rounding_divide_by_pot(fixed_point.tanh(scaled, _INTEGER_BITS), 24)
    else:
        result = fixed_point.logistic(scaled, _INTEGER_BITS)
        y = rounding_divide_by_pot(result, 23) - 128
    ends = np.where(offset < 0, INT8.min, INT8.max)
    return np.where(inside, np.clip(y, INT8.min, INT8.max), ends).astype(np.int8)


def _check_int8(call: OpCall) -> None:
    quant = per_tensor_quant(call.output)
    if call.op == "logistic" and (quant.scale, quant.zero_point) != (1 / 256, -128):
        raise NotSupportedError(
            "an int8 result must have scale 1/256 and zero point -128"
        )


def _check_int16(call: OpCall) -> None:
    x = per_tensor_quant(call.input(0))
    y = per_tensor_quant(call.output)
    check_zero_points(call.input(0), call.output)
    if abs(math.log2(y.scale) + 15) >= _LOG2_TOLERANCE:
        raise NotSupportedError("an int16 result must have scale 2^-15")
    if x.scale >= _INPUT_SCALE_LIMIT:
        raise NotSupportedError(f"an int16 input scale of {x.scale}")


def step_multiplier(call: OpCall) -> tuple[int, int]:
    """Return the (multiplier, shift) that converts int16 values to steps of 1/12288."""
    scale = per_tensor_quant(call.input(0)).scale
    exponent = math.log2(scale)
    left = 12 + round(exponent)
    near = abs(exponent - round(exponent)) < _LOG2_TOLERANCE
    if near and left in ((0, 1) if call.op == "tanh" else (0,)):
        return 3 << left, 0
    multiplier = scale * 4096.0 * 3.0
    shift = 0
    while multiplier <= 32767.0 / 2.0 and shift <= 30:
        multiplier = multiplier * 2.0
        shift = shift + 1
    return int(multiplier), shift


def _fraction_bits(is_tanh: bool) -> int:
    return 8 if is_tanh else 9


def _int16(call: OpCall, x: Array) -> Array:
    multiplier, shift = step_multiplier(call)
    value = (x.astype(np.int64) * multiplier + (1 << shift >> 1)) >> shift
    return np.asarray(lookup_sigmoid_array(value, call.op == "tanh"), np.int16)


def lookup_sigmoid_array(value: Array, is_tanh: bool) -> Array:
    """Map arguments in steps of 1/12288 to results with 15 fraction bits."""
    table = sigmoid_table()
    bits = _fraction_bits(is_tanh)
    distance = np.minimum(np.abs(value), _LAST << bits)
    entry = distance >> bits
    part = distance & ((1 << bits) - 1)
    raised = (table[entry] << bits) + part * (table[entry + 1] - table[entry])
    if is_tanh:
        y = np.where(value >= 0, raised - (1 << 23) + 128, (1 << 23) + 127 - raised)
        y = y >> 8
    else:
        raised = np.minimum(raised, INT16.max << 10)
        y = np.where(value >= 0, raised + 512, (1 << 25) + 511 - raised) >> 10
    return np.asarray(y)


def _greatest_distance(is_tanh: bool) -> int:
    """Return a distance from which on results are equal, or that of the last entry.

    That of logistic is the last one whose sum does not exceed the limit of the results.
    """
    bits = _fraction_bits(is_tanh)
    if is_tanh:
        return _LAST << bits
    table = sigmoid_table()
    distance = np.arange(_LAST << bits)
    entry, part = distance >> bits, distance & ((1 << bits) - 1)
    raised = (table[entry] << bits) + part * (table[entry + 1] - table[entry])
    return int(np.flatnonzero(raised <= INT16.max << 10)[-1])


def _lower_int16(call: OpCall, b: Kernel) -> None:
    table = b.constant("sigmoid", centered_sigmoid_table(), INT16)
    multiplier, shift = step_multiplier(call)
    half = 1 << shift >> 1
    with elementwise.loop_over_elements(b) as (values, store):
        value = b.let("value", (values[0].cast(INT32) * multiplier + half) >> shift)
        store(lookup_sigmoid(b, table, value, call.op == "tanh").cast(INT16))


def lookup_sigmoid(b: Kernel, table: tir.Buffer, x: ArithExpr, tanh: bool) -> ArithExpr:
    """Emit the steps of `lookup_sigmoid_array`; `x` should be a variable.

    The table is the centered one, so that a function of -x is that of x with all bits
    inverted before it is rounded.
    """
    bits = _fraction_bits(tanh)
    greatest = _greatest_distance(tanh)
    distance = b.let("distance", minimum(maximum(x, 0 - x), greatest))
    entry = b.let("entry", ((distance >> bits) & _LAST).cast(INDEX))
    low = b.let("low", b.load_i32(table, [entry]))
    part = distance & ((1 << bits) - 1)
    step = b.load_i32(table, [entry + 1]) - low
    raised = low * (1 << bits) + part * step
    mirrored = binary_expr("xor", raised, x >> 31)
    if tanh:
        return (mirrored + 128) >> 8
    return (mirrored + ((1 << 24) + 512)) >> 10


_EXP_BELOW = -9.0


def _logistic(x: Array) -> Array:
    power: Array = np.exp(-np.abs(x))
    return np.where(x < _EXP_BELOW, power, np.where(x < 0, power, 1) / (1 + power))


def _lower_logistic(call: OpCall, b: Kernel) -> None:
    """Emit quotients with denominator 1 + e^-|x|, which never overflows."""
    with elementwise.loop_over_elements(b) as (values, store):
        x = b.let("x", values[0])
        below = minimum(x, 0.0 - x)
        power = b.let("power", call_intrinsic("exp_f32", [below], FLOAT32))
        quotient = select(x < 0.0, power, 1.0) / (power + 1.0)
        store(select(x < _EXP_BELOW, power, quotient))


_INTEGERS = {
    "int8": lookup_int8(_int8, _check_int8),
    "int16": elementwise.ElementwiseKernel(_int16, _lower_int16, _check_int16),
}

OPDEFS: tuple[OpDef, ...] = (
    elementwise.unary_op(
        "logistic",
        "each",
        **_INTEGERS,
        float32=elementwise.ElementwiseKernel(
            lambda call, x: _logistic(x.astype(np.float64)).astype(np.float32),
            _lower_logistic,
        ),
    ),
    elementwise.unary_op(
        "tanh",
        "each",
        **_INTEGERS,
        float32=elementwise.compute_float32(np.tanh, libm_function("tanh")),
    ),
)
