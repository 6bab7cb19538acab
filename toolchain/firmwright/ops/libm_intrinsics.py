"""Functions of C's math library as intrinsics of float32 and of float64.

They are as accurate as the library, and give NaN outside the domain.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from firmwright.base.dtypes import FLOAT32, FLOAT64, Array, DType
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.ir.tir.intrinsic import Intrinsic, inputs

_COST = {FLOAT32: 40, FLOAT64: 1200}
"""Instructions of a function; without an FPU for doubles, each operation is a call."""
_RINT = "fabs(x) < LIMIT ? copysign(fabs(x) + LIMIT - LIMIT, x) : x"
"""rint, an instruction on few cores: sums of this size have no fractional bits."""
_RINT_LIMITS = {FLOAT32: "8388608.0f", FLOAT64: "4503599627370496.0"}
_RINT_COST = {FLOAT32: 12, FLOAT64: 120}
_CALL_OR_LITERAL = re.compile(r"\b[a-z]\w*(?=\()|\b\d+\.\d+\b")


def _evaluate_in_double(
    function: Callable[..., Array], dtype: DType
) -> Callable[..., Array]:

    def run(*values: Array) -> Array:
        with np.errstate(all="ignore"):
            wide = (np.asarray(x, np.float64) for x in values)
            return np.asarray(function(*wide)).astype(dtype.np)

    return run


erfc = np.vectorize(math.erfc, otypes=[np.float64])
erf = np.vectorize(math.erf, otypes=[np.float64])


class _LibmFunction(NamedTuple):
    """A function: its C expression for doubles, and the numpy function for them."""

    name: str
    text: str
    function: Callable[..., Array]
    doc: str


_FUNCTIONS = (
    _LibmFunction("log", "log(x)", np.log, "The natural logarithm of x."),
    _LibmFunction("sqrt", "sqrt(x)", np.sqrt, "The square root of x."),
    _LibmFunction("rsqrt", "1.0 / sqrt(x)", lambda x: 1 / np.sqrt(x), "1 / sqrt(x)."),
    _LibmFunction("sin", "sin(x)", np.sin, "The sine of x radians."),
    _LibmFunction("cos", "cos(x)", np.cos, "The cosine of x radians."),
    _LibmFunction("expm1", "expm1(x)", np.expm1, "e to the power of x, minus 1."),
    _LibmFunction("erfc", "erfc(x)", erfc, "1 minus the error function of x."),
    _LibmFunction("floor", "floor(x)", np.floor, "The greatest integer <= x."),
    _LibmFunction("ceil", "ceil(x)", np.ceil, "The least integer >= x."),
    _LibmFunction("rint", _RINT, np.rint, "The nearest integer, halves to even."),
    _LibmFunction("erf", "erf(x)", erf, "The error function of x."),
    _LibmFunction("log1p", "log1p(x)", np.log1p, "The natural logarithm of 1 + x."),
    _LibmFunction("tan", "tan(x)", np.tan, "The tangent of x radians."),
    _LibmFunction("asin", "asin(x)", np.arcsin, "The arc sine of x."),
    _LibmFunction("acos", "acos(x)", np.arccos, "The arc cosine of x."),
    _LibmFunction("atan", "atan(x)", np.arctan, "The arc tangent of x."),
    _LibmFunction("sinh", "sinh(x)", np.sinh, "The hyperbolic sine of x."),
    _LibmFunction("cosh", "cosh(x)", np.cosh, "The hyperbolic cosine of x."),
    _LibmFunction("asinh", "asinh(x)", np.arcsinh, "The inverse hyperbolic sine of x."),
    _LibmFunction(
        "acosh", "acosh(x)", np.arccosh, "The inverse hyperbolic cosine of x."
    ),
    _LibmFunction(
        "atanh", "atanh(x)", np.arctanh, "The inverse hyperbolic tangent of x."
    ),
)
_ONLY_DOUBLE = (
    _LibmFunction("exp", "exp(x)", np.exp, "The exponential of x."),
    _LibmFunction("tanh", "tanh(x)", np.tanh, "The hyperbolic tangent of x."),
)
"""Those of float32 have bodies for some cores (`intrinsics.c.in`)."""

_OF_TWO = (
    _LibmFunction(
        "atan2",
        "atan2(x, y)",
        np.arctan2,
        "The angle of the point (y, x), in radians.",
    ),
    _LibmFunction(
        "fmod", "fmod(x, y)", np.fmod, "The remainder of x / y with the sign of x."
    ),
    _LibmFunction("pow", "pow(x, y)", np.power, "x to the power of y."),
)


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c in float32, rounded once."""
    # The product is exact in double precision. The sum is rounded to odd, using its
    # error term, so that rounding it again to single precision is exact.
    with np.errstate(all="ignore"):
        product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
        addend = np.asarray(c, np.float64)
        wide = np.asarray(product + addend)
        part = wide - product
        error = (product - (wide - part)) + (addend - part)
        is_even = (wide.view(np.int64) & 1) == 0
        odd = np.isfinite(wide) & (error != 0) & is_even
        nearer = np.nextafter(wide, np.where(error > 0, np.inf, -np.inf))
        return np.where(odd, nearer, wide).astype(np.float32)


_FUSED = Intrinsic(
    name="fma_f32",
    operands=inputs(FLOAT32, *"abc"),
    result=FLOAT32,
    meaning=fused_multiply_add,
    portable="return fmaf(a, b, c);",
    doc="a * b + c, rounded once.",
    instructions=_COST[FLOAT32],
)


def _intrinsic(function: _LibmFunction, args: str, dtype: DType) -> Intrinsic:
    text = function.text
    if dtype == FLOAT32:
        text = _CALL_OR_LITERAL.sub(r"\g<0>f", text)
    costs = _RINT_COST if function.text is _RINT else _COST
    return Intrinsic(
        name=f"{function.name}_{dtype.short}",
        operands=inputs(dtype, *args),
        result=dtype,
        meaning=_evaluate_in_double(function.function, dtype),
        portable=f"return {text.replace('LIMIT', _RINT_LIMITS[dtype])};",
        doc=function.doc,
        instructions=costs[dtype],
    )


def _intrinsics() -> Iterator[Intrinsic]:
    for function in _FUNCTIONS:
        yield _intrinsic(function, "x", FLOAT32)
    for function in _OF_TWO:
        yield _intrinsic(function, "xy", FLOAT32)
    yield _FUSED
    for function in (*_FUNCTIONS, *_ONLY_DOUBLE):
        yield _intrinsic(function, "x", FLOAT64)
    for function in _OF_TWO:
        yield _intrinsic(function, "xy", FLOAT64)


FLOAT_FUNCTIONS: Mapping[str, Intrinsic] = {item.name: item for item in _intrinsics()}


def libm_function(name: str) -> Callable[[ArithExpr], ArithExpr]:
    """Return the TIR builder of the float32 function `name`, such as "log"."""
    return lambda x: call_intrinsic(f"{name}_f32", [x], FLOAT32)
