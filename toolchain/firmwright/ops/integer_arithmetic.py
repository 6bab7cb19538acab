"""floor_div, floor_mod, pow, bitwise_xor, right_shift, atan2: arithmetic of two broadcast inputs.

floor_div is the quotient rounded down, floor_mod what that leaves, with the divisor's sign. Whole
numbers are plain: no scale plays a part. TFLite's run fails on a divisor of 0 and on a power with a
negative exponent; here 0 is taken as 1, and such a power is 1. Powers keep the low 32 bits. A shift
by more bits than there are is one by all but one. float quotients are rounded down as computed in
float32 by LiteRT.
Source of the semantics: TFLite's reference operators of these names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, UINT8, DType
from firmwright.ir.graph.opdef import (
    Array,
    CaseTensor,
    ConformanceCase,
    NumericsProfile,
    NumericsSpec,
    OpCall,
    OpDef,
)
from firmwright.ir.tir.builder import ArithExpr, binary_expr, logical_and, maximum, minimum, select
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops.elementwise_binary import BinaryImplementation, binary_op
from firmwright.ops.elementwise_unary import BOTH_PROFILES
from firmwright.ops.intrinsics import POWER_I32
from firmwright.ops.libm_intrinsics import float_function
from firmwright.ops.strided_copy import LITERT

_WHOLE = (INT8, INT16, INT32)


def _divisor(b: ArithExpr) -> ArithExpr:
    return select(b.equal(0), 1, b)


def _floor_div(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """C's quotient goes towards zero: one less where signs differ and something is left."""
    kind = call.output.dtype
    x, y = a.cast(INT32), _divisor(b.cast(INT32))
    return (x / y - _is_below(x, y).cast(INT32)).cast(kind)


def _floor_mod(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    x, y = a.cast(INT32), _divisor(b.cast(INT32))
    return (x % y + select(_is_below(x, y), y, 0)).cast(call.output.dtype)


def _is_below(x: ArithExpr, y: ArithExpr) -> ArithExpr:
    """Whether the quotient towards zero lies above the one rounded down."""
    left = x % y
    opposite = binary_expr("ne", left < 0, y < 0)
    return logical_and(binary_expr("ne", left, 0), opposite)


def _floor_div_f32(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    return float_function("floor")(a / b)


def _floor_mod_f32(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    left = intrinsic("fmod_f32", [a, b], FLOAT32)
    opposite = binary_expr("ne", left < 0.0, b < 0.0)
    return select(logical_and(binary_expr("ne", left, 0.0), opposite), left + b, left)


def _whole(pick: Any) -> Callable[[OpCall, Array, Array], Array]:
    def run(call: OpCall, a: Array, b: Array) -> Array:
        divisor = np.where(b == 0, 1, b.astype(np.int64))
        return np.asarray(pick(a.astype(np.int64), divisor)).astype(call.output.dtype.np)

    return run


def _real(pick: Any) -> Callable[[OpCall, Array, Array], Array]:
    def run(call: OpCall, a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(pick(a, b), np.float32)

    return run


def _in_double(pick: Any) -> Callable[[OpCall, Array, Array], Array]:
    return _real(lambda a, b: pick(a.astype(np.float64), b.astype(np.float64)))


def _float_mod(a: Array, b: Array) -> Array:
    left = np.fmod(a, b)
    return np.where((left != 0) & ((left < 0) != (b < 0)), left + b, left)


def _shift(call: OpCall, a: Array, b: Array) -> Array:
    most = call.output.dtype.bits - 1
    return np.asarray(a.astype(np.int64) >> np.clip(b.astype(np.int64), 0, most))


def _shift_e(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    kind = call.output.dtype
    places = minimum(maximum(b.cast(INT32), 0), kind.bits - 1)
    return (a.cast(INT32) >> places).cast(kind)


def _xor_e(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    return binary_expr("xor", a.cast(INT32), b.cast(INT32)).cast(call.output.dtype)


def _cases(
    builtin: str, rows: Mapping[str, Any], oracles: Mapping[str, tuple[NumericsProfile, ...]]
) -> Iterator[ConformanceCase]:
    """`rows` gives the limits of the second input for each dtype, () for none."""
    for dtype, limits in rows.items():
        a = CaseTensor((2, 3, 5), dtype)
        b = CaseTensor(
            (3, 5) if "FLOOR" in builtin else (2, 3, 5), dtype, value_range=limits or None
        )
        yield ConformanceCase(dtype, builtin, (a, b), (a,), {}, oracles.get(dtype, LITERT))


def _pow_cases() -> Iterator[ConformanceCase]:
    for dtype, base, exponent in (("float32", (0, 3), (-2, 2)), ("int32", (-9, 9), (0, 7))):
        a = CaseTensor((3, 5), dtype, value_range=base)
        b = CaseTensor((5,), dtype, value_range=exponent)
        yield ConformanceCase(dtype, "POW", (a, b), (a,), {}, LITERT)


_EXACT = NumericsSpec(None, "exact", "reference_ops")
_FLOAT = NumericsSpec(None, "exact; floats in float32", "reference_ops")
_DIVISORS = {"int8": (-100, -1), "int16": (1, 300), "int32": (-1000, -1), "float32": (1, 3)}
_BITS = (INT8, UINT8, INT16, INT32)


def _one_profile(name: str, meanings: Mapping[DType, BinaryImplementation], *rest: Any) -> OpDef:
    """What TFLM does not have."""
    found = binary_op(name, meanings, *rest)
    return replace(found, numerics={"litert": found.numerics["litert"]})


OPDEFS: tuple[OpDef, ...] = (
    binary_op(
        "floor_div",
        {kind: BinaryImplementation(_whole(np.floor_divide), _floor_div) for kind in _WHOLE}
        | {FLOAT32: BinaryImplementation(_real(lambda a, b: np.floor(a / b)), _floor_div_f32)},
        partial(_cases, "FLOOR_DIV", _DIVISORS, {"float32": BOTH_PROFILES}),
        _FLOAT,
    ),
    binary_op(
        "floor_mod",
        {kind: BinaryImplementation(_whole(np.mod), _floor_mod) for kind in _WHOLE}
        | {FLOAT32: BinaryImplementation(_real(_float_mod), _floor_mod_f32)},
        partial(_cases, "FLOOR_MOD", _DIVISORS, {"float32": BOTH_PROFILES}),
        _FLOAT,
    ),
    _one_profile(
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
        _pow_cases,
        _FLOAT,
    ),
    _one_profile(
        "atan2",
        {
            FLOAT32: BinaryImplementation(
                _in_double(np.arctan2),
                lambda call, a, b: intrinsic("atan2_f32", [a, b], FLOAT32),
            )
        },
        partial(_cases, "ATAN2", {"float32": ()}, {}),
        _FLOAT,
    ),
    _one_profile(
        "bitwise_xor",
        dict.fromkeys(_BITS, BinaryImplementation(lambda call, a, b: a ^ b, _xor_e)),
        partial(_cases, "BITWISE_XOR", dict.fromkeys((kind.name for kind in _BITS), ()), {}),
        _EXACT,
    ),
    _one_profile(
        "right_shift",
        dict.fromkeys(_BITS, BinaryImplementation(_shift, _shift_e)),
        partial(_cases, "RIGHT_SHIFT", {kind.name: (0, kind.bits - 1) for kind in _BITS}, {}),
        _EXACT,
    ),
)
