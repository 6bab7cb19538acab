"""float32 functions of C's math library, as accurate, as intrinsics; NaN outside the domain."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.ir.tir.intrinsic import Intrinsic, inputs

_COST = 40
_RINT = "fabsf(x) < 8388608.0f ? copysignf(fabsf(x) + 8388608.0f - 8388608.0f, x) : x"
"""rintf, which few cores have as an instruction: a sum of this size has no fractional bits."""


def _evaluate_in_double(function: Callable[..., Any]) -> Callable[..., Any]:

    def run(*values: Any) -> Any:
        with np.errstate(all="ignore"):
            wide = (np.asarray(x, np.float64) for x in values)
            return np.asarray(function(*wide)).astype(np.float32)

    return run


erfc = np.vectorize(math.erfc, otypes=[np.float64])
erf = np.vectorize(math.erf, otypes=[np.float64])

_FUNCTIONS: tuple[tuple[str, str, Callable[[Any], Any], str], ...] = (
    # name, C expression, numpy function in double, description
    ("log_f32", "logf(x)", np.log, "The natural logarithm of x."),
    ("sqrt_f32", "sqrtf(x)", np.sqrt, "The square root of x."),
    ("rsqrt_f32", "1.0f / sqrtf(x)", lambda x: 1 / np.sqrt(x), "1 / sqrt(x)."),
    ("sin_f32", "sinf(x)", np.sin, "The sine of x radians."),
    ("cos_f32", "cosf(x)", np.cos, "The cosine of x radians."),
    ("expm1_f32", "expm1f(x)", np.expm1, "e to the power of x, minus 1."),
    ("erfc_f32", "erfcf(x)", erfc, "1 minus the error function of x."),
    ("floor_f32", "floorf(x)", np.floor, "The greatest integer <= x."),
    ("ceil_f32", "ceilf(x)", np.ceil, "The least integer >= x."),
    ("rint_f32", _RINT, np.rint, "The nearest integer, halves to even."),
    ("erf_f32", "erff(x)", erf, "The error function of x."),
    ("log1p_f32", "log1pf(x)", np.log1p, "The natural logarithm of 1 + x."),
    ("tan_f32", "tanf(x)", np.tan, "The tangent of x radians."),
    ("asin_f32", "asinf(x)", np.arcsin, "The arc sine of x."),
    ("acos_f32", "acosf(x)", np.arccos, "The arc cosine of x."),
    ("atan_f32", "atanf(x)", np.arctan, "The arc tangent of x."),
    ("sinh_f32", "sinhf(x)", np.sinh, "The hyperbolic sine of x."),
    ("cosh_f32", "coshf(x)", np.cosh, "The hyperbolic cosine of x."),
    ("asinh_f32", "asinhf(x)", np.arcsinh, "The inverse hyperbolic sine of x."),
    ("acosh_f32", "acoshf(x)", np.arccosh, "The inverse hyperbolic cosine of x."),
    ("atanh_f32", "atanhf(x)", np.arctanh, "The inverse hyperbolic tangent of x."),
)

_OF_TWO: tuple[tuple[str, str, Callable[..., Any], str], ...] = (
    ("atan2_f32", "atan2f(x, y)", np.arctan2, "The angle of the point (y, x), in radians."),
    ("fmod_f32", "fmodf(x, y)", np.fmod, "The remainder of x / y with the sign of x."),
    ("pow_f32", "powf(x, y)", np.power, "x to the power of y."),
)


def _intrinsic(name: str, text: str, meaning: Callable[..., Any], doc: str, args: str) -> Intrinsic:
    return Intrinsic(
        name=name,
        operands=inputs(FLOAT32, *args),
        result=FLOAT32,
        meaning=_evaluate_in_double(meaning),
        portable=f"return {text};",
        doc=doc,
        instructions=12 if text == _RINT else _COST,
    )


FLOAT_FUNCTIONS: Mapping[str, Intrinsic] = {
    row[0]: _intrinsic(*row, names)
    for rows, names in ((_FUNCTIONS, "x"), (_OF_TWO, "xy"))
    for row in rows
}


def libm_function(name: str) -> Callable[[ArithExpr], ArithExpr]:
    """Return the TIR builder of function `name`, such as "log"."""
    return lambda x: call_intrinsic(f"{name}_f32", [x], FLOAT32)
