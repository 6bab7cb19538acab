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
from firmwright.ir.graph.opdef import Array, Case, NumericsCell, OpCall, OpDef
from firmwright.ir.tir.builder import E, immediate, maximum
from firmwright.ops.fixed_point import Requant, per_tensor, requant, requantized
from firmwright.ops.kernel import Kernel
from firmwright.ops.unary import (
    BOTH,
    Meaning,
    computed,
    float_case,
    in_both,
    in_float32,
    quantized_case,
    symmetric_int16,
    tabulated,
    unary_op,
)


def _requant(call: OpCall) -> Requant:
    x, y = (np.float32(per_tensor(kind).scale) for kind in (call.input(0), call.output))
    return requant([float(x / y)], Rounding.TWICE, call.output, "none")


def _abs_quantized(call: OpCall, x: Array) -> Array:
    distance = np.abs(x.astype(np.int64) - per_tensor(call.input(0)).zero_point)
    return _requant(call).apply(distance, call.output.dtype)


def _abs_int16(call: OpCall, b: Kernel, x: E) -> E:
    params, value = _requant(call), x.cast(INT32)
    size = maximum(value, 0 - value)
    return requantized(size, params.multipliers[0], params.shifts[0], params, INT16)


def _abs(x: E) -> E:
    return maximum(x, _zero(x) - x)


def _negative(x: E) -> E:
    return _zero(x) - x


def _negative_narrow(x: E) -> E:
    """Of the stored value, as LiteRT has it; the least one is its own."""
    return (E(immediate(0, INT32)) - x.cast(INT32)).cast(x.expr.dtype)


def _sign(x: E) -> E:
    one = 1.0 if x.expr.dtype == FLOAT32 else 1
    return (x > _zero(x)).cast(x.expr.dtype) * one - (x < _zero(x)).cast(x.expr.dtype) * one


def _zero(x: E) -> E:
    return E(immediate(0, x.expr.dtype))


def _cases(builtin: str) -> Iterator[Case]:
    oracles = ("litert",) if builtin == "SIGN" else BOTH
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


def _whole(function: Callable[[Array], Array], value: Callable[[E], E]) -> Meaning:
    return computed(lambda call, x: function(x), lambda call, b, x: value(x))


_CELL = in_both(NumericsCell(None, "exact", "elementwise"))
_ABS = in_both(NumericsCell(Rounding.TWICE, "int32", "elementwise AbsEvalQuantized"))

OPDEFS: tuple[OpDef, ...] = (
    unary_op(
        "abs",
        {
            INT8: tabulated(_abs_quantized),
            INT16: computed(_abs_quantized, _abs_int16, symmetric_int16),
            INT32: _whole(np.abs, _abs),
            FLOAT32: in_float32(np.abs, _abs),
        },
        lambda: _cases("ABS"),
        _ABS,
    ),
    unary_op(
        "neg",
        dict.fromkeys((INT8, INT16), _whole(np.negative, _negative_narrow))
        | {INT32: _whole(np.negative, _negative), FLOAT32: in_float32(np.negative, _negative)},
        lambda: _cases("NEG"),
        _CELL,
    ),
    unary_op(
        "sign",
        {INT32: _whole(np.sign, _sign), FLOAT32: in_float32(np.sign, _sign)},
        lambda: _cases("SIGN"),
        {"litert": _CELL["litert"]},
    ),
    unary_op(
        "square", {FLOAT32: in_float32(np.square, lambda x: x * x)}, lambda: _cases("SQUARE"), _CELL
    ),
)
