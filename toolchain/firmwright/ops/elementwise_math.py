"""Mathematical functions of each element.

The operators are abs, neg, sign, square, exp, log, sqrt, rsqrt, sin, cos, floor, ceil
and round.

int8 exp and log (LiteRT only) are tables computed in float32; int16 ones interpolate a
table. The log of an input <= 0 is the minimum of the output type. Integer sqrt is
computed in float32 and truncated; it is 0 for negative inputs. Integer rsqrt is
computed in fixed point with 20 extra bits, rounding twice, or in LiteRT's int16 by a
table; it is the maximum for inputs <= 0. Quantized abs requantizes, rounding twice, by
the quotient of the scales in float32. round rounds halves to even. Float inputs outside
the domain give NaN. Semantics: TFLite's elementwise operators, Neg and Sign.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT16, INT32, Array
from firmwright.base.quant import MIN_SHIFT, Rounding, multiply_by_quantized_multiplier
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, immediate, maximum, minimum, select
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops import lookup_tables
from firmwright.ops.elementwise import (
    ElementwiseKernel,
    by_profile,
    check_symmetric_int16,
    compute_elements,
    compute_float32,
    unary_op,
)
from firmwright.ops.fixed_point import inverse_root, inverse_root_shift
from firmwright.ops.integer_arithmetic import wrapped_expr
from firmwright.ops.libm_intrinsics import libm_function
from firmwright.ops.opdef import DefinedIn, OpDef
from firmwright.ops.requantize import (
    Requantization,
    make_requantization,
    per_tensor_quant,
)


def _log(call: OpCall, x: Array) -> Array:
    quant = per_tensor_quant(call.output)
    least = (call.output.dtype.min - quant.zero_point) * np.float32(quant.scale)
    return np.where(x > 0, np.log(np.where(x > 0, x, 1)), least)


_EXTRA_BITS = 20


def _root_requant(call: OpCall) -> Requantization:
    """Return the requantization of 2^20 / sqrt(raw input) to the output's scale."""
    x = np.float32(per_tensor_quant(call.input(0)).scale)
    y = np.float32(per_tensor_quant(call.output).scale)
    factor = 1 / float(np.sqrt(x) * y)
    params = make_requantization([factor], Rounding.TWICE, call.output, "none")
    return replace(params, shifts=(max(params.shifts[0] - _EXTRA_BITS, MIN_SHIFT),))


def _rsqrt_of_table(call: OpCall, real: Array) -> Array:
    """Compute as LiteRT fills its int16 table: every operation rounds to float32."""
    x = real.astype(np.float32)
    scale = np.float32(per_tensor_quant(call.output).scale)
    return np.where(x > 0, 1 / np.sqrt(x), INT16.max * scale)


def _rsqrt_quantized(call: OpCall, x: Array) -> Array:
    value = x.astype(np.int64) - per_tensor_quant(call.input(0)).zero_point
    shift = inverse_root_shift(value).astype(np.int64) + _EXTRA_BITS
    factor = inverse_root(value)
    root = multiply_by_quantized_multiplier(1, factor, shift, Rounding.TWICE)
    kind = call.output.dtype
    scaled = _root_requant(call).apply(root, kind)
    return np.where(value > 0, scaled, kind.max).astype(kind.np)


def _lower_rsqrt_int16(call: OpCall, x: ArithExpr) -> ArithExpr:
    value = maximum(x.cast(INT32), 1)
    factor = intrinsic("inverse_root", [value], INT32)
    shift = intrinsic("inverse_root_shift", [value], INT32) + _EXTRA_BITS
    one = ArithExpr(immediate(1, INT32))
    root = intrinsic("requantize_twice", [one, factor, shift], INT32)
    scaled = _root_requant(call).lower(root, INT16)
    return select(x > 0, scaled, ArithExpr(immediate(INT16.max, INT16)))


def _sqrt_quantized(call: OpCall, x: Array) -> Array:
    x_quant = per_tensor_quant(call.input(0))
    quant = per_tensor_quant(call.output)
    kind = call.output.dtype
    value = np.maximum(x.astype(np.int64) - x_quant.zero_point, 0)
    real = np.sqrt(value.astype(np.float32) * np.float32(x_quant.scale))
    steps = np.trunc(real / np.float32(quant.scale))
    whole = steps.astype(np.float64) + quant.zero_point
    return np.asarray(np.clip(whole, kind.min, kind.max), kind.np)


def _lower_sqrt_int16(call: OpCall, x: ArithExpr) -> ArithExpr:
    scale = per_tensor_quant(call.input(0)).scale
    real = maximum(x.cast(INT32), 0).cast(FLOAT32) * scale
    steps = libm_function("sqrt")(real) / per_tensor_quant(call.output).scale
    return minimum(steps, float(INT16.max)).cast(INT32).cast(INT16)


def _abs_requant(call: OpCall) -> Requantization:
    x = np.float32(per_tensor_quant(call.input(0)).scale)
    y = np.float32(per_tensor_quant(call.output).scale)
    return make_requantization([float(x / y)], Rounding.TWICE, call.output, "none")


def _abs_quantized(call: OpCall, x: Array) -> Array:
    distance = np.abs(x.astype(np.int64) - per_tensor_quant(call.input(0)).zero_point)
    return _abs_requant(call).apply(distance, call.output.dtype)


def _abs_int16(call: OpCall, x: ArithExpr) -> ArithExpr:
    value = x.cast(INT32)
    return _abs_requant(call).lower(maximum(value, 0 - value), INT16)


def _abs(x: ArithExpr) -> ArithExpr:
    return maximum(x, wrapped_expr("sub", 0, x))


def _negative(x: ArithExpr) -> ArithExpr:
    return _zero(x) - x


def _negative_or_least(x: ArithExpr) -> ArithExpr:
    """Negate integers of 32 or 64 bits; the least of the type maps to itself."""
    return wrapped_expr("sub", 0, x)


def _sign(x: ArithExpr) -> ArithExpr:
    kind = x.expr.dtype
    one = 1.0 if kind == FLOAT32 else 1
    negative_or_self = select(x < _zero(x), ArithExpr(immediate(-one, kind)), x)
    return select(x > _zero(x), ArithExpr(immediate(one, kind)), negative_or_self)


def _zero(x: ArithExpr) -> ArithExpr:
    return ArithExpr(immediate(0, x.expr.dtype))


def _wrapping_negative(x: ArithExpr) -> ArithExpr:
    """Negate as LiteRT does; the minimum of the type maps to itself."""
    return (ArithExpr(immediate(0, INT32)) - x.cast(INT32)).cast(x.expr.dtype)


def _whole(
    function: Callable[[Array], Array], value: Callable[[ArithExpr], ArithExpr]
) -> ElementwiseKernel:
    return compute_elements(lambda call, x: function(x), lambda call, x: value(x))


def _real_op(
    name: str,
    exact: Callable[[Array], Array],
    function: str = "",
    numerics: DefinedIn = "both",
    /,
    **integers: ElementwiseKernel,
) -> OpDef:
    kernel = compute_float32(exact, libm_function(function or name))
    return unary_op(name, numerics, **integers, float32=kernel)


def _interpolated(
    function: Callable[[OpCall, Array], Array],
) -> dict[str, ElementwiseKernel]:
    return {
        "int8": lookup_tables.lookup_int8_float32(function),
        "int16": lookup_tables.interpolate_int16(function, np.float32),
    }


OPDEFS: tuple[OpDef, ...] = (
    _real_op("ceil", np.ceil),
    _real_op("cos", np.cos),
    _real_op("exp", np.exp, **_interpolated(lambda call, x: np.exp(x))),
    _real_op("floor", np.floor),
    _real_op("log", np.log, **_interpolated(_log)),
    _real_op("round", np.rint, "rint"),
    _real_op("sin", np.sin),
    _real_op(
        "rsqrt",
        lambda x: 1 / np.sqrt(x),
        "rsqrt",
        "each",
        int8=lookup_tables.lookup_int8(_rsqrt_quantized),
        int16=by_profile(
            lookup_tables.interpolate_int16(_rsqrt_of_table, np.float32),
            tflm=compute_elements(
                _rsqrt_quantized, _lower_rsqrt_int16, check_symmetric_int16
            ),
        ),
    ),
    _real_op(
        "sqrt",
        np.sqrt,
        "sqrt",
        int8=lookup_tables.lookup_int8(_sqrt_quantized),
        int16=compute_elements(
            _sqrt_quantized, _lower_sqrt_int16, check_symmetric_int16
        ),
    ),
    unary_op(
        "abs",
        int8=lookup_tables.lookup_int8(_abs_quantized),
        int16=compute_elements(_abs_quantized, _abs_int16, check_symmetric_int16),
        int32=_whole(np.abs, _abs),
        float32=compute_float32(np.abs, _abs),
    ),
    unary_op(
        "neg",
        **dict.fromkeys(("int8", "int16"), _whole(np.negative, _wrapping_negative)),
        **dict.fromkeys(("int32", "int64"), _whole(np.negative, _negative_or_least)),
        float32=compute_float32(np.negative, _negative),
    ),
    unary_op(
        "sign",
        "litert",
        int32=_whole(np.sign, _sign),
        float32=compute_float32(np.sign, _sign),
    ),
    unary_op("square", float32=compute_float32(np.square, lambda x: x * x)),
)
