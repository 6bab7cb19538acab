"""Binary arithmetic with broadcasting: a + b, a - b, a * b, a / b and others.

The operators are add, sub, mul, div, floor_div, floor_mod, pow (a to the power of b),
atan2 (the angle of the point with ordinate a and abscissa b), bitwise_xor and
right_shift (arithmetic for signed types). add, sub and mul of integers wrap.

Unquantized integers: div truncates toward zero, floor_div rounds down, floor_mod has
the sign of the divisor, powers beyond 32 bits are the least int32 (with one exponent
for all elements the low 32 bits), and shift counts are clamped to [0, bits - 1]. Where
TFLite fails, integer_arithmetic.py defines quotients, and a power with a negative
exponent is 1. floor_div of floats rounds the float32 quotient down.

Quantized add, sub, mul and div, with a fused `activation`: rescaled_sum.py defines
sums. Products are requantized by scale_0 * scale_1 / y scale. div multiplies the
left-aligned dividend by the reciprocal of the divisor in 32-bit fixed point and
requantizes by scale_0 / (scale_1 * y scale). LiteRT computes these factors in float32,
TFLM in double; all requantizations round twice. Quotients are 0 where the reference
would shift by more than 31 bits (undefined in C). Only LiteRT has int16 div. Division
by 0 gives an unspecified value but no invalid access. Semantics: TFLite's reference
operators of these names.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from firmwright.base.dtypes import (
    FLOAT32,
    INT32,
    INT64,
    UINT32,
    UINT64,
    Array,
    DType,
)
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import MIN_SHIFT, Rounding, multiply_by_quantized_multiplier
from firmwright.ir.graph import OpCall
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.tir.builder import (
    ArithExpr,
    binary_expr,
    logical_and,
    maximum,
    minimum,
    select,
)
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops import elementwise, requantize, rescaled_sum
from firmwright.ops.elementwise import ElementwiseKernel, binary_op, compute_elements
from firmwright.ops.elementwise_binary import ArrayFunction
from firmwright.ops.integer_arithmetic import (
    quotient_expr,
    remainder_expr,
    saturated_quotient,
    saturated_quotient_expr,
)
from firmwright.ops.intrinsics import (
    leading_zeros,
    low_power,
    power,
    reciprocal,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import libm_function
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import (
    ArrayOrExpr,
    Requantization,
    make_requantization,
    requant_by_scales,
)


class ArithmeticFunction(Protocol):
    """A function of Python's operators, for arrays and for expressions."""

    def __call__(self, a: ArrayOrExpr, b: ArrayOrExpr, /) -> ArrayOrExpr: ...


def _check_no_activation(call: OpCall) -> None:
    if call.attributes(ActivationAttrs).activation != "none":
        raise NotSupportedError(f"{call.output.dtype.name} with an activation")


def _float32(function: ArrayFunction) -> Callable[[OpCall, Array, Array], Array]:
    def run(call: OpCall, a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(a, b), np.float32)

    return run


def _activated_float32(function: ArithmeticFunction) -> ElementwiseKernel:
    """Apply `function` to arrays and expressions, then clamp to the activation."""

    def run(call: OpCall, a: ArrayOrExpr, b: ArrayOrExpr) -> ArrayOrExpr:
        attrs = call.attributes(ActivationAttrs)
        with np.errstate(all="ignore"):
            return requantize.apply_activation(function(a, b), attrs.activation)

    return compute_elements(run, run)


# ---- add, sub, mul -------------------------------------------------------------------


def _sum(sign: int, check_tensors: Callable[[OpCall], None]) -> ElementwiseKernel:
    def check(call: OpCall) -> None:
        check_tensors(call)
        rescaled_sum.check(call)

    return ElementwiseKernel(
        lambda call, *arrays: rescaled_sum.reference(call, arrays, sign),
        partial(rescaled_sum.lower, sign=sign),
        check,
    )


def has_zero_scale(call: OpCall) -> bool:
    """Whether an input is not quantized: runtimes read scale 0, so the product is 0."""
    return any(kind is not None and kind.quantization is None for kind in call.inputs)


def _product_kernel(check: Callable[[OpCall], None]) -> ElementwiseKernel:
    def check_output(call: OpCall) -> None:
        scaled = (call.output,) * 2 if has_zero_scale(call) else call.inputs
        check(replace(call, inputs=scaled))

    return ElementwiseKernel(_product, _lower_product, check_output)


def product_requantization(call: OpCall) -> Requantization:
    activation = call.attributes(ActivationAttrs).activation
    if has_zero_scale(call):
        return make_requantization([0.0], Rounding.TWICE, call.output, activation)
    return requant_by_scales(call, lambda a, b, y: a * b / y, activation)


def _product(call: OpCall, a: Array, b: Array) -> Array:
    if has_zero_scale(call):
        product = a.astype(np.int64) * 0 * b
    else:
        left, right = elementwise.subtract_zero_points(call, a, b)
        product = left * right
    return product_requantization(call).apply(product, call.output.dtype)


def _lower_product(call: OpCall, b: Kernel) -> None:
    params = product_requantization(call)
    with elementwise.loop_over_elements(b) as (values, store):
        if has_zero_scale(call):
            first, second = values
            product = first.cast(INT32) * second.cast(INT32)
            store(params.lower(product, call.output.dtype))
            return
        left, right = elementwise.subtract_zero_points(call, *values)
        store(params.lower(left * right, call.output.dtype))


# ---- div -----------------------------------------------------------------------------

_MAX_LEFT_SHIFT = 30


def _quotient_requantization(call: OpCall) -> Requantization:
    attrs = call.attributes(ActivationAttrs)
    return requant_by_scales(call, lambda a, b, y: a / (b * y), attrs.activation)


def _quotient(call: OpCall, a: Array, b: Array) -> Array:
    params = _quotient_requantization(call)
    dividend, divisor = elementwise.subtract_zero_points(call, a, b)
    dividend = np.where(divisor < 0, -dividend, dividend)
    size = np.maximum(np.abs(divisor), 1)
    lead = leading_zeros(size).astype(np.int64)
    # A positive value can be shifted left by one less than its leading zeros; 0 counts
    # as 1.
    doubled = np.where(dividend < 0, -2 * dividend - 1, 2 * dividend)
    left = leading_zeros(np.maximum(doubled, 1))
    left = np.minimum(left.astype(np.int64), _MAX_LEFT_SHIFT)
    whole = multiply_by_quantized_multiplier(
        dividend, reciprocal(size, lead), left, Rounding.TWICE
    )
    shift = np.clip(params.shifts[0] - (31 - lead) - left, MIN_SHIFT, _MAX_LEFT_SHIFT)
    scaled = multiply_by_quantized_multiplier(
        whole, params.multipliers[0], shift, Rounding.TWICE
    )
    shifted = scaled + params.zero_point
    return np.asarray(np.clip(shifted, params.clamp_min, params.clamp_max))


def _lower_quotient(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    params = _quotient_requantization(call)
    x, y = elementwise.subtract_zero_points(call, a, b)
    dividend = select(y < 0, 0 - x, x)
    size = maximum(maximum(y, 0 - y), 1)
    lead = intrinsic("clz", [size], INT32)
    spread = maximum(select(dividend < 0, dividend * -2 - 1, dividend * 2), 1)
    left = minimum(intrinsic("clz", [spread], INT32), _MAX_LEFT_SHIFT)
    inverse = intrinsic("reciprocal", [size, lead], INT32)
    whole = intrinsic("requantize_twice", [dividend, inverse, left], INT32)
    free_shift = lead - left + (params.shifts[0] - 31)
    shift = minimum(maximum(free_shift, MIN_SHIFT), _MAX_LEFT_SHIFT)
    scaled = intrinsic("requantize_twice", [whole, params.multipliers[0], shift], INT32)
    bounds = params.clamp_min, params.clamp_max
    return requantize.clamp(scaled + params.zero_point, *bounds, call.output.dtype)


def _lower_division(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Divide integers; compilers turn a division by a known number into a product."""
    divisor = call.constant(1)
    if divisor is not None and call.input(1).elements == 1:
        number = int(divisor.array().reshape(-1)[0])
        if number not in (0, -1):
            return a / number
    return saturated_quotient_expr(a, b)


# ---- integer operators ---------------------------------------------------------------


def _lower_floor_div(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Round down by correcting C's quotient, which truncates toward zero."""
    x, y = a.cast(INT32), b.cast(INT32)
    too_large = _has_opposite_remainder(x, y).cast(INT32)
    return (quotient_expr(x, y) - too_large).cast(call.output.dtype)


def _lower_floor_mod(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    kind = call.output.dtype
    wide = INT64 if kind == INT64 else INT32
    x, y = a.cast(wide), b.cast(wide)
    rest = remainder_expr(x, y)
    return (rest + select(_has_opposite_remainder(x, y), y, 0)).cast(kind)


def _has_opposite_remainder(x: ArithExpr, y: ArithExpr) -> ArithExpr:
    """Whether the truncated quotient is greater than the one rounded down."""
    left = remainder_expr(x, y)
    opposite = binary_expr("ne", left < 0, y < 0)
    return logical_and(binary_expr("ne", left, 0), opposite)


def _lower_floor_mod_f32(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    left = intrinsic("fmod_f32", [a, b], FLOAT32)
    opposite = binary_expr("ne", left < 0.0, b < 0.0)
    return select(logical_and(binary_expr("ne", left, 0.0), opposite), left + b, left)


def _integer(function: ArrayFunction) -> Callable[[OpCall, Array, Array], Array]:
    def run(call: OpCall, a: Array, b: Array) -> Array:
        divisor = np.where(b == 0, 1, b.astype(np.int64))
        result = np.asarray(function(a.astype(np.int64), divisor))
        return result.astype(call.output.dtype.np)

    return run


def _float_mod(a: Array, b: Array) -> Array:
    left = np.fmod(a, b)
    return np.where((left != 0) & ((left < 0) != (b < 0)), left + b, left)


def _right_shift(call: OpCall, a: Array, b: Array) -> Array:
    most = call.output.dtype.bits - 1
    return np.asarray(a.astype(np.int64) >> np.clip(b.astype(np.int64), 0, most))


def _lower_right_shift(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    kind = call.output.dtype
    count = minimum(maximum(b.cast(INT32), 0), kind.bits - 1)
    return (a.cast(INT32) >> count).cast(kind)


def _xor(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    return binary_expr("xor", a.cast(INT32), b.cast(INT32)).cast(call.output.dtype)


_CHECKS = elementwise.check_per_tensor, elementwise.check_symmetric_int16
_BITS = ("int8", "uint8", "int16", "int32")


def _wrapping_integers(
    function: ArithmeticFunction, unsigned: DType
) -> ElementwiseKernel:
    """Compute in the unsigned type of the elements' size, which wraps in C."""

    def reference(call: OpCall, a: Array, b: Array) -> Array:
        wrapped = function(a.astype(unsigned.np), b.astype(unsigned.np))
        return wrapped.astype(call.output.dtype.np)

    def value(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
        return function(a.cast(unsigned), b.cast(unsigned)).cast(call.output.dtype)

    return compute_elements(reference, value, _check_no_activation)


def _arithmetic_op(
    name: str, function: ArithmeticFunction, quantized: Iterable[ElementwiseKernel]
) -> OpDef:
    int8, int16 = quantized

    return binary_op(
        name,
        int8=int8,
        int16=int16,
        int32=_wrapping_integers(function, UINT32),
        int64=_wrapping_integers(function, UINT64),
        float32=_activated_float32(function),
    )


def _integer_op(
    name: str,
    exact: ArrayFunction,
    value: Callable[..., ArithExpr],
    float32: ElementwiseKernel,
    dtypes: Sequence[str] = ("int8", "int16", "int32"),
) -> OpDef:
    integers = dict.fromkeys(dtypes, compute_elements(_integer(exact), value))
    return binary_op(name, **integers, float32=float32)


def _wraps(call: OpCall) -> bool:
    """Whether LiteRT multiplies integers: by one exponent for a tensor."""
    x, exponent = call.input(0), call.input(1)
    return exponent.elements == 1 and exponent.shape != x.shape


def _libm_op(name: str, function: ArrayFunction) -> ElementwiseKernel:
    return compute_elements(
        _float32(lambda a, b: function(a.astype(np.float64), b.astype(np.float64))),
        lambda call, a, b: intrinsic(f"{name}_f32", [a, b], FLOAT32),
    )


OPDEFS: tuple[OpDef, ...] = (
    _arithmetic_op("add", operator.add, (_sum(1, check) for check in _CHECKS)),
    _arithmetic_op("sub", operator.sub, (_sum(-1, check) for check in _CHECKS)),
    _arithmetic_op("mul", operator.mul, map(_product_kernel, _CHECKS)),
    binary_op(
        "div",
        **dict.fromkeys(
            ("int8", "int16"),
            compute_elements(_quotient, _lower_quotient, elementwise.check_per_tensor),
        ),
        int32=compute_elements(
            lambda call, a, b: saturated_quotient(a, b),
            _lower_division,
            _check_no_activation,
        ),
        float32=_activated_float32(operator.truediv),
    ),
    _integer_op(
        "floor_div",
        np.floor_divide,
        _lower_floor_div,
        compute_elements(
            _float32(lambda a, b: np.floor(a / b)),
            lambda call, a, b: libm_function("floor")(a / b),
        ),
    ),
    _integer_op(
        "floor_mod",
        np.mod,
        _lower_floor_mod,
        compute_elements(_float32(_float_mod), _lower_floor_mod_f32),
        ("int8", "int16", "int32", "int64"),
    ),
    binary_op(
        "pow",
        "litert",
        int32=compute_elements(
            lambda call, a, b: low_power(a, b) if _wraps(call) else power(a, b),
            lambda call, a, b: intrinsic(
                "low_power_i32" if _wraps(call) else "power_i32", [a, b], INT32
            ),
        ),
        float32=_libm_op("pow", np.power),
    ),
    binary_op("atan2", "litert", float32=_libm_op("atan2", np.arctan2)),
    binary_op(
        "bitwise_xor",
        "litert",
        **dict.fromkeys(_BITS, compute_elements(lambda call, a, b: a ^ b, _xor)),
    ),
    binary_op(
        "right_shift",
        "litert",
        **dict.fromkeys(_BITS, compute_elements(_right_shift, _lower_right_shift)),
    ),
)
