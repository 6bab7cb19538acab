"""floor_div, floor_mod, pow, bitwise_xor, right_shift and atan2 with broadcasting.

floor_div rounds the quotient down; floor_mod is the remainder with the sign of the divisor.
Integers have no quantization. TFLite fails for a divisor of 0 and for negative exponents; here a
divisor of 0 counts as 1, and a power with a negative exponent is 1. Powers keep the low 32 bits.
Shift counts are limited to the number of bits less one. Float quotients are rounded down after the
division in float32, as in LiteRT. Semantics: TFLite's reference operators of these names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, UINT8, Array
from firmwright.ir.graph.opdef import NumericsSpec, OpCall, OpDef, both_profiles
from firmwright.ir.tir.builder import ArithExpr, binary_expr, logical_and, maximum, minimum, select
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops.elementwise_binary import BinaryImplementation, binary_op
from firmwright.ops.intrinsics import POWER_I32
from firmwright.ops.libm_intrinsics import libm_function

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
