"""add, sub, mul, div, floor_div, floor_mod, pow, atan2, bitwise_xor and right_shift with broadcasting.

Integer values without quantization: div truncates toward zero, floor_div rounds down, floor_mod has
the sign of the divisor, powers keep the low 32 bits, and shift counts are limited to the number of
bits less one. Where TFLite fails, a divisor of floor_div and floor_mod of 0 counts as 1, and a
power with a negative exponent is 1. Float floor_div rounds down after the division in float32.

Quantized values (add, sub, mul and div, which have a fused `activation`): rescaled_sum.py defines
sums and differences. Products are requantized by scale_0 * scale_1 / y scale. div multiplies the
left-aligned dividend by the reciprocal of the divisor in 32-bit fixed point (with its sign moved to
the dividend) and requantizes by scale_0 / (scale_1 * y scale). LiteRT computes these factors in
float32, TFLM in double; all requantizations round twice. Quotients are 0 where the reference would
shift by more than 31 bits, which is undefined in C. Only LiteRT has int16 div. Division by 0 gives
an unspecified value but no invalid access.
Semantics: TFLite's reference operators of these names.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, UINT8, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import MIN_SHIFT, Rounding, multiply_by_quantized_multiplier
from firmwright.ir.core import Attrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import NumericsSpec, OpCall, OpDef, both_profiles
from firmwright.ir.tir.builder import ArithExpr, binary_expr, logical_and, maximum, minimum, select
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops import elementwise, rescaled_sum
from firmwright.ops.elementwise_binary import BinaryImplementation, binary_op
from firmwright.ops.intrinsics import CLZ, POWER_I32, RECIPROCAL
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import libm_function
from firmwright.ops.requantize import (
    Requantization,
    apply_activation,
    clamp,
    float_activation_range,
    import_activation,
    make_requantization,
    requantize_value,
    store_requantized,
    tensor_quant,
)
from firmwright.ops.row_windows import elementwise_row_window


@dataclass(frozen=True, slots=True)
class _QuantizedImplementation:
    check: Callable[[OpCall], None]
    reference: Callable[[OpCall, Sequence[Array]], tuple[Array, ...]]
    lower: Callable[[OpCall, Kernel], None]


def product_requantization(call: OpCall) -> Requantization:
    a, b, y = (tensor_quant(kind).scale for kind in (call.input(0), call.input(1), call.output))
    if call.numerics == "litert":
        with np.errstate(over="ignore"):  # make_requantization rejects an infinite factor
            factor = float(np.float32(a) * np.float32(b) / np.float32(y))
    else:
        factor = a * b / y
    return make_requantization([factor], Rounding.TWICE, call.output, call.str_attr("activation"))


def _zero_points(call: OpCall) -> tuple[int, int]:
    return tensor_quant(call.input(0)).zero_point, tensor_quant(call.input(1)).zero_point


def _product_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    a, b = (
        array.astype(np.int64) - zero_point
        for array, zero_point in zip(arrays, _zero_points(call), strict=True)
    )
    return (product_requantization(call).apply(a * b, call.output.dtype),)


def _lower_product(call: OpCall, b: Kernel) -> None:
    params = product_requantization(call)
    with elementwise.loop_over_elements(call, b) as (values, store):
        left, right = (
            value.cast(INT32) - zero_point
            for value, zero_point in zip(values, _zero_points(call), strict=True)
        )
        if call.input(0).dtype == INT16:  # 30-bit products need the general step
            step = params.multipliers[0], params.shifts[0]
            store(requantize_value(left * right, *step, params, INT16))
        else:
            store_requantized(b, left * right, params, INT8, store)


def _sum(sign: int) -> _QuantizedImplementation:
    return _QuantizedImplementation(
        rescaled_sum.check,
        lambda call, arrays: rescaled_sum.reference(call, arrays, sign),
        lambda call, b: rescaled_sum.lower(call, b, sign),
    )


def _arithmetic_op(
    name: str,
    compute: Callable[[Any, Any], Any],
    quantized: _QuantizedImplementation,
    numerics: Mapping[str, NumericsSpec],
) -> OpDef:

    def infer(call: OpCall) -> tuple[TensorType, ...]:
        types = elementwise.infer_binary(call)
        quantized.check(call)
        return types

    def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
        if call.input(0).dtype == FLOAT32:
            return elementwise.float_reference(call, arrays, compute)
        if call.input(0).dtype == INT32:
            return elementwise.int32_reference(arrays, compute)
        return quantized.reference(call, arrays)

    def lower(call: OpCall, b: Kernel) -> None:
        if call.input(0).dtype == FLOAT32:
            activate = partial(apply_activation, activation=call.str_attr("activation"))
            elementwise.lower_elementwise(call, b, lambda x: activate(compute(x[0], x[1])))
        elif call.input(0).dtype == INT32:
            elementwise.lower_int32(call, b, compute)
        else:
            quantized.lower(call, b)

    return OpDef(
        name=name,
        infer=infer,
        reference=reference,
        lower=lower,
        imports={f"tflite:{name.upper()}": elementwise.tflite_importer(name)},
        dtypes=elementwise.DTYPES,
        numerics=numerics,
        row_access=elementwise_row_window,
    )


_SUM_ACCUMULATOR = "int32, inputs << 20 (int16: 15)"
_PRODUCT = _QuantizedImplementation(lambda call: None, _product_reference, _lower_product)


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


def _quotient_requantization(call: OpCall) -> Requantization:
    a, b, y = (tensor_quant(kind).scale for kind in (call.input(0), call.input(1), call.output))
    factor = a / (b * y)
    if call.numerics == "litert":
        with np.errstate(over="ignore"):  # make_requantization rejects an infinite factor
            factor = float(np.float32(a) / (np.float32(b) * np.float32(y)))
    return make_requantization([factor], Rounding.TWICE, call.output, call.str_attr("activation"))


def _quotient(call: OpCall, a: Array, b: Array) -> Array:
    params = _quotient_requantization(call)
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


def _lower_quotient(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    params = _quotient_requantization(call)
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


_INTEGERS = (INT8, INT16, INT32)


def _divisor(b: ArithExpr) -> ArithExpr:
    return select(b.equal(0), 1, b)


def _lower_floor_div(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Correct C's quotient, which truncates toward zero, to round down."""
    kind = call.output.dtype
    x, y = a.cast(INT32), _divisor(b.cast(INT32))
    return (x / y - _needs_decrement(x, y).cast(INT32)).cast(kind)


def _lower_floor_mod(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    x, y = a.cast(INT32), _divisor(b.cast(INT32))
    return (x % y + select(_needs_decrement(x, y), y, 0)).cast(call.output.dtype)


def _needs_decrement(x: ArithExpr, y: ArithExpr) -> ArithExpr:
    """Whether the truncated quotient is greater than the one rounded down."""
    left = x % y
    opposite = binary_expr("ne", left < 0, y < 0)
    return logical_and(binary_expr("ne", left, 0), opposite)


def _lower_floor_mod_f32(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    left = intrinsic("fmod_f32", [a, b], FLOAT32)
    opposite = binary_expr("ne", left < 0.0, b < 0.0)
    return select(logical_and(binary_expr("ne", left, 0.0), opposite), left + b, left)


def _integer(function: Any) -> Callable[[OpCall, Array, Array], Array]:
    def run(call: OpCall, a: Array, b: Array) -> Array:
        divisor = np.where(b == 0, 1, b.astype(np.int64))
        return np.asarray(function(a.astype(np.int64), divisor)).astype(call.output.dtype.np)

    return run


def _float32(function: Any) -> Callable[[OpCall, Array, Array], Array]:
    def run(call: OpCall, a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(a, b), np.float32)

    return run


def _in_double(function: Any) -> Callable[[OpCall, Array, Array], Array]:
    return _float32(lambda a, b: function(a.astype(np.float64), b.astype(np.float64)))


def _float_mod(a: Array, b: Array) -> Array:
    left = np.fmod(a, b)
    return np.where((left != 0) & ((left < 0) != (b < 0)), left + b, left)


def _right_shift(call: OpCall, a: Array, b: Array) -> Array:
    most = call.output.dtype.bits - 1
    return np.asarray(a.astype(np.int64) >> np.clip(b.astype(np.int64), 0, most))


def _lower_right_shift(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    kind = call.output.dtype
    return (a.cast(INT32) >> minimum(maximum(b.cast(INT32), 0), kind.bits - 1)).cast(kind)


_EXACT = both_profiles(None, "exact", "reference_ops")
_FLOAT = both_profiles(None, "exact; floats in float32", "reference_ops")
_BITS = (INT8, UINT8, INT16, INT32)


def _litert_only(numerics: Mapping[str, NumericsSpec]) -> Mapping[str, NumericsSpec]:
    return {"litert": numerics["litert"]}


OPDEFS: tuple[OpDef, ...] = (
    _arithmetic_op(
        "add",
        operator.add,
        _sum(1),
        both_profiles(Rounding.TWICE, _SUM_ACCUMULATOR, "reference_integer_ops Add"),
    ),
    _arithmetic_op(
        "sub",
        operator.sub,
        _sum(-1),
        both_profiles(Rounding.TWICE, _SUM_ACCUMULATOR, "reference_ops Sub"),
    ),
    _arithmetic_op(
        "mul",
        operator.mul,
        _PRODUCT,
        both_profiles(Rounding.TWICE, "int32", "reference_integer_ops Mul"),
    ),
    binary_op(
        "div",
        {
            **dict.fromkeys(
                (INT8, INT16), BinaryImplementation(_quotient, _lower_quotient, _check_quantized)
            ),
            INT32: BinaryImplementation(
                _integer_quotient, lambda call, a, b: a / b, _check_no_activation
            ),
            FLOAT32: BinaryImplementation(
                _float_quotient,
                lambda call, a, b: apply_activation(a / b, call.str_attr("activation")),
            ),
        },
        both_profiles(Rounding.TWICE, "int32, by a reciprocal; others exact", "reference_ops Div"),
        None,
        _activation,
    ),
    binary_op(
        "floor_div",
        {
            kind: BinaryImplementation(_integer(np.floor_divide), _lower_floor_div)
            for kind in _INTEGERS
        }
        | {
            FLOAT32: BinaryImplementation(
                _float32(lambda a, b: np.floor(a / b)),
                lambda call, a, b: libm_function("floor")(a / b),
            )
        },
        _FLOAT,
    ),
    binary_op(
        "floor_mod",
        {kind: BinaryImplementation(_integer(np.mod), _lower_floor_mod) for kind in _INTEGERS}
        | {FLOAT32: BinaryImplementation(_float32(_float_mod), _lower_floor_mod_f32)},
        _FLOAT,
    ),
    binary_op(
        "pow",
        {
            INT32: BinaryImplementation(
                lambda call, a, b: POWER_I32.meaning(a, b),
                lambda call, a, b: intrinsic("power_i32", [a, b], INT32),
            ),
            FLOAT32: BinaryImplementation(
                _in_double(np.power), lambda call, a, b: intrinsic("pow_f32", [a, b], FLOAT32)
            ),
        },
        _litert_only(_FLOAT),
    ),
    binary_op(
        "atan2",
        {
            FLOAT32: BinaryImplementation(
                _in_double(np.arctan2), lambda call, a, b: intrinsic("atan2_f32", [a, b], FLOAT32)
            )
        },
        _litert_only(_FLOAT),
    ),
    binary_op(
        "bitwise_xor",
        dict.fromkeys(
            _BITS,
            BinaryImplementation(
                lambda call, a, b: a ^ b,
                lambda call, a, b: binary_expr("xor", a.cast(INT32), b.cast(INT32)).cast(
                    call.output.dtype
                ),
            ),
        ),
        _litert_only(_EXACT),
    ),
    binary_op(
        "right_shift",
        dict.fromkeys(_BITS, BinaryImplementation(_right_shift, _lower_right_shift)),
        _litert_only(_EXACT),
    ),
)
