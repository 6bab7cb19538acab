"""exp, log, sqrt, rsqrt, sin, cos, floor, ceil, round: real functions, element by element.

int8 (exp, log): the 256 results computed in float32, which only LiteRT takes; int16 by an
interpolated table. The logarithm of what is not positive is the output's least value. sqrt of
integers in float32, cut towards zero; of what is negative it is 0. rsqrt of integers in fixed point
(inverse_root.py), with 20 bits more in between, rounded twice; of what is not positive it is the
greatest value. round takes halves to the even number. Float inputs outside of a function's domain
give NaN.
Source of the semantics: TFLite's elementwise operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, DType
from firmwright.base.quant import MIN_SHIFT, Rounding, multiply_by_quantized_multiplier
from firmwright.ir.graph.opdef import (
    Array,
    Case,
    CaseTensor,
    Numerics,
    NumericsCell,
    OpCall,
    OpDef,
)
from firmwright.ir.tir.builder import E, immediate, maximum, minimum, select
from firmwright.ir.tir.builder import call as intrinsic
from firmwright.ops.fixed_point import Requant, per_tensor, requant, requantized
from firmwright.ops.float_functions import float_function
from firmwright.ops.inverse_root import INVERSE_ROOT, INVERSE_ROOT_SHIFT
from firmwright.ops.kernel import Kernel
from firmwright.ops.unary import (
    BOTH,
    Meaning,
    by_float_table,
    computed,
    float_case,
    in_both,
    in_float32,
    interpolated_int16,
    quantized_case,
    rounded,
    symmetric_int16,
    tabulated,
    unary_op,
)

_LITERT: tuple[Numerics, ...] = ("litert",)
_TFLM: tuple[Numerics, ...] = ("tflm",)


def _exp_f32(x: E) -> E:
    return intrinsic("exp_f32", [x], FLOAT32)


def _exp(call: OpCall, x: Array) -> Array:
    return np.asarray(np.exp(x))


def _log(call: OpCall, x: Array) -> Array:
    """The least value that the output can say stands for what has no logarithm."""
    quant = per_tensor(call.output)
    least = (call.output.dtype.min - quant.zero_point) * np.float32(quant.scale)
    return np.where(x > 0, np.log(np.where(x > 0, x, 1)), least)


# ---- roots of integers ---------------------------------------------------------------------------

_MORE_BITS = 20


def _root_requant(call: OpCall) -> Requant:
    """How 2^20 inverse roots of stored values become the output."""
    x, y = per_tensor(call.input(0)).scale, per_tensor(call.output).scale
    params = requant([1 / (math.sqrt(x) * y)], Rounding.TWICE, call.output, "none")
    return replace(params, shifts=(max(params.shifts[0] - _MORE_BITS, MIN_SHIFT),))


def _rsqrt_quantized(call: OpCall, x: Array) -> Array:
    value = x.astype(np.int64) - per_tensor(call.input(0)).zero_point
    shift = INVERSE_ROOT_SHIFT.meaning(value).astype(np.int64) + _MORE_BITS
    root = multiply_by_quantized_multiplier(1, INVERSE_ROOT.meaning(value), shift, Rounding.TWICE)
    found = _root_requant(call).apply(root, call.output.dtype)
    return np.where(value > 0, found, call.output.dtype.max).astype(call.output.dtype.np)


def _rsqrt_int16(call: OpCall, b: Kernel, x: E) -> E:
    value, params = maximum(x.cast(INT32), 1), _root_requant(call)
    factor = intrinsic("inverse_root", [value], INT32)
    shift = intrinsic("inverse_root_shift", [value], INT32) + _MORE_BITS
    root = intrinsic("requantize_twice", [E(immediate(1, INT32)), factor, shift], INT32)
    found = requantized(root, params.multipliers[0], params.shifts[0], params, INT16)
    return select(x > 0, found, E(immediate(INT16.max, INT16)))


def _sqrt_quantized(call: OpCall, x: Array) -> Array:
    quant, kind = per_tensor(call.output), call.output.dtype
    value = np.maximum(x.astype(np.int64) - per_tensor(call.input(0)).zero_point, 0)
    real = np.sqrt(value.astype(np.float32) * np.float32(per_tensor(call.input(0)).scale))
    whole = np.trunc(real / np.float32(quant.scale)).astype(np.float64) + quant.zero_point
    return np.asarray(np.clip(whole, kind.min, kind.max), kind.np)


def _sqrt_int16(call: OpCall, b: Kernel, x: E) -> E:
    real = maximum(x.cast(INT32), 0).cast(FLOAT32) * per_tensor(call.input(0)).scale
    steps = float_function("sqrt")(real) / per_tensor(call.output).scale
    return minimum(steps, float(INT16.max)).cast(INT32).cast(INT16)


def _root_cases(builtin: str, oracle: tuple[Numerics, ...]) -> Iterator[Case]:
    """Of what is not negative; `oracle` has int16, and LiteRT int8."""
    yield float_case(builtin)
    oracles = BOTH if builtin == "RSQRT" else _LITERT
    yield quantized_case(builtin, "low", "int8", (0.02, -128), (0.03, -128), oracles)
    yield quantized_case(builtin, "coarse", "int8", (0.7, -128), (0.01, 5), oracles)
    x, y = (
        CaseTensor((3, 29), "int16", (float(np.float32(scale)),), (0,)) for scale in (0.002, 0.0031)
    )
    yield Case("int16", builtin, (replace(x, limits=(0, 32767)),), (y,), oracles=oracle)


_ROOTS = {
    "rsqrt": (
        {
            INT8: tabulated(_rsqrt_quantized),
            INT16: computed(_rsqrt_quantized, _rsqrt_int16, symmetric_int16),
        },
        partial(_root_cases, "RSQRT", _TFLM),
        NumericsCell(Rounding.TWICE, "int32", "elementwise RsqrtEvalQuantized"),
    ),
    "sqrt": (
        {
            INT8: tabulated(_sqrt_quantized),
            INT16: computed(_sqrt_quantized, _sqrt_int16, symmetric_int16),
        },
        partial(_root_cases, "SQRT", _LITERT),
        NumericsCell(None, "float32, cut towards zero", "elementwise"),
    ),
}


# ---- tables ------------------------------------------------------------------------------------


def _int8(function: Callable[[OpCall, Array], Array]) -> Meaning:
    return tabulated(
        lambda call, x: by_float_table(call, x, rounded(lambda real: function(call, real)))
    )


def _cases(name: str, quantized: bool, oracles: tuple[Numerics, ...]) -> Iterator[Case]:
    builtin = name.upper()
    yield float_case(builtin, oracles)
    if quantized:
        yield quantized_case(builtin, "mid", "int8", (0.05, -3), (0.06, 5), _LITERT)
        yield quantized_case(builtin, "low", "int8", (0.02, -128), (0.3, -128), _LITERT)
        yield quantized_case(builtin, "mid", "int16", (0.0001, 0), (0.001, 0), _LITERT)


_ROWS: tuple[
    tuple[
        str,
        Callable[[Array], Array],
        Callable[[E], E],
        Callable[[OpCall, Array], Array] | None,
        tuple[Numerics, ...],
    ],
    ...,
] = (
    # name, in double, in TIR, of quantised values, the oracles that have it
    ("ceil", np.ceil, float_function("ceil"), None, ("tflm",)),
    ("cos", np.cos, float_function("cos"), None, BOTH),
    ("exp", np.exp, _exp_f32, _exp, BOTH),
    ("floor", np.floor, float_function("floor"), None, BOTH),
    ("log", np.log, float_function("log"), _log, BOTH),
    ("round", np.rint, float_function("rint"), None, ("tflm",)),
    ("rsqrt", lambda x: 1 / np.sqrt(x), float_function("rsqrt"), None, BOTH),
    ("sin", np.sin, float_function("sin"), None, BOTH),
    ("sqrt", np.sqrt, float_function("sqrt"), None, BOTH),
)


def _opdefs() -> Iterator[OpDef]:
    for name, exact, value, quantized, oracles in _ROWS:
        meanings: dict[DType, Meaning] = {FLOAT32: in_float32(exact, value)}
        if quantized is not None:
            meanings = {INT8: _int8(quantized), INT16: interpolated_int16(quantized)} | meanings
        cell = NumericsCell(None, "float32", "elementwise")
        cases = partial(_cases, name, quantized is not None, oracles)
        if name in _ROOTS:
            whole, cases, cell = _ROOTS[name]
            meanings = {**whole, **meanings}
        yield unary_op(name, meanings, cases, in_both(cell))


OPDEFS: tuple[OpDef, ...] = tuple(_opdefs())
