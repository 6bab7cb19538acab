"""abs, neg, sign and square.

int8 and int16 abs: the distance from the zero point is requantized, rounding twice, by the quotient
of the scales in float32. All other variants are exact; int32 values have no quantization.
Semantics: TFLite's elementwise operators, Neg and Sign.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, Array
from firmwright.base.quant import Rounding
from firmwright.ir.graph.opdef import OpCall, OpDef, both_profiles
from firmwright.ir.tir.builder import ArithExpr, immediate, maximum
from firmwright.ops.elementwise_unary import (
    UnaryImplementation,
    check_symmetric_int16,
    compute_elements,
    compute_float32,
    lookup_int8,
    unary_op,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import (
    Requantization,
    make_requantization,
    requantize_value,
    tensor_quant,
)


def _requant(call: OpCall) -> Requantization:
    x, y = (np.float32(tensor_quant(kind).scale) for kind in (call.input(0), call.output))
    return make_requantization([float(x / y)], Rounding.TWICE, call.output, "none")


def _abs_quantized(call: OpCall, x: Array) -> Array:
    distance = np.abs(x.astype(np.int64) - tensor_quant(call.input(0)).zero_point)
    return _requant(call).apply(distance, call.output.dtype)


def _abs_int16(call: OpCall, b: Kernel, x: ArithExpr) -> ArithExpr:
    params, value = _requant(call), x.cast(INT32)
    size = maximum(value, 0 - value)
    return requantize_value(size, params.multipliers[0], params.shifts[0], params, INT16)


def _abs(x: ArithExpr) -> ArithExpr:
    return maximum(x, _zero(x) - x)


def _negative(x: ArithExpr) -> ArithExpr:
    return _zero(x) - x


def _negative_narrow(x: ArithExpr) -> ArithExpr:
    """Negate the raw quantized value as LiteRT does; the minimum maps to itself."""
    return (ArithExpr(immediate(0, INT32)) - x.cast(INT32)).cast(x.expr.dtype)


def _sign(x: ArithExpr) -> ArithExpr:
    one = 1.0 if x.expr.dtype == FLOAT32 else 1
    return (x > _zero(x)).cast(x.expr.dtype) * one - (x < _zero(x)).cast(x.expr.dtype) * one


def _zero(x: ArithExpr) -> ArithExpr:
    return ArithExpr(immediate(0, x.expr.dtype))


def _whole(
    function: Callable[[Array], Array], value: Callable[[ArithExpr], ArithExpr]
) -> UnaryImplementation:
    return compute_elements(lambda call, x: function(x), lambda call, b, x: value(x))


_NUMERICS = both_profiles(None, "exact", "elementwise")
_ABS = both_profiles(Rounding.TWICE, "int32", "elementwise AbsEvalQuantized")

OPDEFS: tuple[OpDef, ...] = (
    unary_op(
        "abs",
        {
            INT8: lookup_int8(_abs_quantized),
            INT16: compute_elements(_abs_quantized, _abs_int16, check_symmetric_int16),
            INT32: _whole(np.abs, _abs),
            FLOAT32: compute_float32(np.abs, _abs),
        },
        _ABS,
    ),
    unary_op(
        "neg",
        dict.fromkeys((INT8, INT16), _whole(np.negative, _negative_narrow))
        | {INT32: _whole(np.negative, _negative), FLOAT32: compute_float32(np.negative, _negative)},
        _NUMERICS,
    ),
    unary_op(
        "sign",
        {INT32: _whole(np.sign, _sign), FLOAT32: compute_float32(np.sign, _sign)},
        {"litert": _NUMERICS["litert"]},
    ),
    unary_op("square", {FLOAT32: compute_float32(np.square, lambda x: x * x)}, _NUMERICS),
)
