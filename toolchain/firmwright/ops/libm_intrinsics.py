"""Functions of C's math library in float32 as intrinsics, as accurate as the library.

They give NaN outside the domain.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.ir.tir.intrinsic import Intrinsic, inputs

_COST = 40
_RINT = "fabsf(x) < 8388608.0f ? copysignf(fabsf(x) + 8388608.0f - 8388608.0f, x) : x"
"""rintf, an instruction on few cores: sums of this size have no fractional bits."""


def _evaluate_in_double(function: Callable[..., Array]) -> Callable[..., Array]:

    def run(*values: Array) -> Array:
        with np.errstate(all="ignore"):
            wide = (np.asarray(x, np.float64) for x in values)
            return np.asarray(function(*wide)).astype(np.float32)

    return run


erfc = np.vectorize(math.erfc, otypes=[np.float64])
erf = np.vectorize(math.erf, otypes=[np.float64])


class _LibmFunction(NamedTuple):
    """A function: its C expression, and the numpy function for arrays of doubles."""

    name: str
    text: str
    function: Callable[..., Array]
    doc: str


_FUNCTIONS = (
    _LibmFunction("log_f32", "logf(x)", np.log, "The natural logarithm of x."),
    _LibmFunction("sqrt_f32", "sqrtf(x)", np.sqrt, "The square root of x."),
    _LibmFunction(
        "rsqrt_f32", "1.0f / sqrtf(x)", lambda x: 1 / np.sqrt(x), "1 / sqrt(x)."
    ),
    _LibmFunction("sin_f32", "sinf(x)", np.sin, "The sine of x radians."),
    _LibmFunction("cos_f32", "cosf(x)", np.cos, "The cosine of x radians."),
    _LibmFunction("expm1_f32", "expm1f(x)", np.expm1, "e to the power of x, minus 1."),
    _LibmFunction("erfc_f32", "erfcf(x)", erfc, "1 minus the error function of x."),
    _LibmFunction("floor_f32", "floorf(x)", np.floor, "The greatest integer <= x."),
    _LibmFunction("ceil_f32", "ceilf(x)", np.ceil, "The least integer >= x."),
    _LibmFunction("rint_f32", _RINT, np.rint, "The nearest integer, halves to even."),
    _LibmFunction("erf_f32", "erff(x)", erf, "The error function of x."),
    _LibmFunction(
        "log1p_f32", "log1pf(x)", np.log1p, "The natural logarithm of 1 + x."
    ),
    _LibmFunction("tan_f32", "tanf(x)", np.tan, "The tangent of x radians."),
    _LibmFunction("asin_f32", "asinf(x)", np.arcsin, "The arc sine of x."),
    _LibmFunction("acos_f32", "acosf(x)", np.arccos, "The arc cosine of x."),
    _LibmFunction("atan_f32", "atanf(x)", np.arctan, "The arc tangent of x."),
    _LibmFunction("sinh_f32", "sinhf(x)", np.sinh, "The hyperbolic sine of x."),
    _LibmFunction("cosh_f32", "coshf(x)", np.cosh, "The hyperbolic cosine of x."),
    _LibmFunction(
        "asinh_f32", "asinhf(x)", np.arcsinh, "The inverse hyperbolic sine of x."
    ),
    _LibmFunction(
        "acosh_f32", "acoshf(x)", np.arccosh, "The inverse hyperbolic cosine of x."
    ),
    _LibmFunction(
        "atanh_f32", "atanhf(x)", np.arctanh, "The inverse hyperbolic tangent of x."
    ),
)

_OF_TWO = (
    _LibmFunction(
        "atan2_f32",
        "atan2f(x, y)",
        np.arctan2,
        "The angle of the point (y, x), in radians.",
    ),
    _LibmFunction(
        "fmod_f32", "fmodf(x, y)", np.fmod, "The remainder of x / y with the sign of x."
    ),
    _LibmFunction("pow_f32", "powf(x, y)", np.power, "x to the power of y."),
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
    instructions=_COST,
)


def _intrinsic(function: _LibmFunction, args: str) -> Intrinsic:
    return Intrinsic(
        name=function.name,
        operands=inputs(FLOAT32, *args),
        result=FLOAT32,
        meaning=_evaluate_in_double(function.function),
        portable=f"return {function.text};",
        doc=function.doc,
        instructions=12 if function.text == _RINT else _COST,
    )


FLOAT_FUNCTIONS: Mapping[str, Intrinsic] = {
    **{function.name: _intrinsic(function, "x") for function in _FUNCTIONS},
    **{function.name: _intrinsic(function, "xy") for function in _OF_TWO},
    _FUSED.name: _FUSED,
}


def libm_function(name: str) -> Callable[[ArithExpr], ArithExpr]:
    """Return the TIR builder of function `name`, such as "log"."""
    return lambda x: call_intrinsic(f"{name}_f32", [x], FLOAT32)
