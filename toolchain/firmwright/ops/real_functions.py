"""exp, log, sqrt, rsqrt, sin, cos, floor, ceil, round: real functions, element by element.

int8 (exp, log): the 256 results computed in float32, which only LiteRT takes; int16 by an
interpolated table. The logarithm of what is not positive is the output's least value. round takes
halves to the even number. Float inputs outside of a function's domain give NaN.
Source of the semantics: TFLite's elementwise operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, DType
from firmwright.ir.graph.opdef import Array, Case, Numerics, NumericsCell, OpCall, OpDef
from firmwright.ir.tir.builder import E
from firmwright.ir.tir.builder import call as intrinsic
from firmwright.ops.fixed_point import per_tensor
from firmwright.ops.float_functions import float_function
from firmwright.ops.unary import (
    BOTH,
    Meaning,
    by_float_table,
    float_case,
    in_both,
    in_float32,
    interpolated_int16,
    quantized_case,
    rounded,
    tabulated,
    unary_op,
)

_LITERT: tuple[Numerics, ...] = ("litert",)


def _exp_f32(x: E) -> E:
    return intrinsic("exp_f32", [x], FLOAT32)


def _exp(call: OpCall, x: Array) -> Array:
    return np.asarray(np.exp(x))


def _log(call: OpCall, x: Array) -> Array:
    """The least value that the output can say stands for what has no logarithm."""
    quant = per_tensor(call.output)
    least = (call.output.dtype.min - quant.zero_point) * np.float32(quant.scale)
    return np.where(x > 0, np.log(np.where(x > 0, x, 1)), least)


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
        yield unary_op(name, meanings, cases, in_both(cell))


OPDEFS: tuple[OpDef, ...] = tuple(_opdefs())
