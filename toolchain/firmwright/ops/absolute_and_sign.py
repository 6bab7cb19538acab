"""abs, neg, sign and square.

abs of int8 and int16: the distance from the zero point, requantised with both roundings by the
scales' quotient in float32. The others are exact: of floats, and of int32 as plain numbers.
Source of the semantics: TFLite's elementwise operators, Neg and Sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32
from firmwright.base.quant import Rounding
from firmwright.ir.graph.opdef import Array, ConformanceCase, NumericsSpec, OpCall, OpDef
from firmwright.ir.tir.builder import ArithExpr, immediate, maximum
from firmwright.ops.elementwise_unary import (
    BOTH_PROFILES,
    UnaryImplementation,
    both_profiles,
    check_symmetric_int16,
    compute_elements,
    compute_float32,
    float_case,
    lookup_int8,
    quantized_case,
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
    """Of the stored value, as LiteRT has it; the least one is its own."""
    return (ArithExpr(immediate(0, INT32)) - x.cast(INT32)).cast(x.expr.dtype)


def _sign(x: ArithExpr) -> ArithExpr:
    one = 1.0 if x.expr.dtype == FLOAT32 else 1
    return (x > _zero(x)).cast(x.expr.dtype) * one - (x < _zero(x)).cast(x.expr.dtype) * one


def _zero(x: ArithExpr) -> ArithExpr:
    return ArithExpr(immediate(0, x.expr.dtype))


def _cases(builtin: str) -> Iterator[ConformanceCase]:
    oracles = ("litert",) if builtin == "SIGN" else BOTH_PROFILES
    yield float_case(builtin, oracles)
    if builtin in ("ABS", "NEG", "SIGN"):
        yield float_case(builtin, ("litert",), dtype="int32")
    if builtin == "NEG":
        for dtype in ("int8", "int16"):
            yield float_case(builtin, ("litert",), dtype=dtype)
    if builtin == "ABS":
        yield quantized_case(builtin, "mid", "int8", (0.05, 3), (0.07, -9))
        yield quantized_case(builtin, "same", "int8", (0.05, -128), (0.05, -128))
        yield quantized_case(builtin, "mid", "int16", (0.001, 0), (0.0013, 0))


def _whole(
    function: Callable[[Array], Array], value: Callable[[ArithExpr], ArithExpr]
) -> UnaryImplementation:
    return compute_elements(lambda call, x: function(x), lambda call, b, x: value(x))


_CELL = both_profiles(NumericsSpec(None, "exact", "elementwise"))
_ABS = both_profiles(NumericsSpec(Rounding.TWICE, "int32", "elementwise AbsEvalQuantized"))

OPDEFS: tuple[OpDef, ...] = (
    unary_op(
        "abs",
        {
            INT8: lookup_int8(_abs_quantized),
            INT16: compute_elements(_abs_quantized, _abs_int16, check_symmetric_int16),
            INT32: _whole(np.abs, _abs),
            FLOAT32: compute_float32(np.abs, _abs),
        },
        lambda: _cases("ABS"),
        _ABS,
    ),
    unary_op(
        "neg",
        dict.fromkeys((INT8, INT16), _whole(np.negative, _negative_narrow))
        | {INT32: _whole(np.negative, _negative), FLOAT32: compute_float32(np.negative, _negative)},
        lambda: _cases("NEG"),
        _CELL,
    ),
    unary_op(
        "sign",
        {INT32: _whole(np.sign, _sign), FLOAT32: compute_float32(np.sign, _sign)},
        lambda: _cases("SIGN"),
        {"litert": _CELL["litert"]},
    ),
    unary_op(
        "square",
        {FLOAT32: compute_float32(np.square, lambda x: x * x)},
        lambda: _cases("SQUARE"),
        _CELL,
    ),
)
