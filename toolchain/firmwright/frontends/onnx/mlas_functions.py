"""The logistic function and tanh as ONNX Runtime computes them, bit for bit.

Its library MLAS approximates both by a quotient of polynomials in float32, evaluated by
fused multiply-adds: odd(x) / even(x), with x limited to a range beyond which the result
is constant. The error is up to 2^-24, so a table of quantized results may differ by a
step from a table of exact ones. Semantics: MLAS of ONNX Runtime, `MlasComputeLogistic`
and `MlasComputeTanh`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from firmwright.base.dtypes import Array

_LOGISTIC_MAX: Final = 18.0
_LOGISTIC_ODD: Final = (
    4.37031012579801e-11,
    1.15627324459942e-07,
    6.08574864600143e-05,
    8.51377133304701e-03,
    2.48287947061529e-01,
)
_LOGISTIC_EVEN: Final = (
    6.10247389755681e-13,
    5.76102136993427e-09,
    6.29106785017040e-06,
    1.70198817374094e-03,
    1.16817656904453e-01,
    9.93151921023180e-01,
)
_TANH_MAX: Final = 9.0
_TANH_ODD: Final = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_TANH_EVEN: Final = (
    1.19825839466702e-06,
    1.18534705686654e-04,
    2.26843463243900e-03,
    4.89352518554385e-03,
)


def logistic(x: Array) -> Array:
    """Return 1 / (1 + e^-x) of a float32 array, in float32."""
    half = np.float32(0.5)
    quotient = _odd_by_even(x, _LOGISTIC_MAX, _LOGISTIC_ODD, _LOGISTIC_EVEN)
    return np.clip(quotient + half, np.float32(0), np.float32(1))


def tanh(x: Array) -> Array:
    """Return the hyperbolic tangent of a float32 array, in float32."""
    return _odd_by_even(x, _TANH_MAX, _TANH_ODD, _TANH_EVEN)


MLAS_FUNCTIONS: Final[Mapping[str, Callable[[Array], Array]]] = {
    "Sigmoid": logistic,
    "Tanh": tanh,
}
"""The functions by ONNX's operator."""


def _odd_by_even(
    x: Array, limit: float, odd_terms: Sequence[float], even_terms: Sequence[float]
) -> Array:
    """Return x * odd(x^2) / even(x^2) of x limited to [-limit, limit]."""
    limited = np.clip(x, np.float32(-limit), np.float32(limit))
    square = limited * limited
    return limited * _polynomial(square, odd_terms) / _polynomial(square, even_terms)


def _polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """Evaluate a polynomial, coefficients of high powers first, by Horner's rule."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = fused_multiply_add(total, x, np.full_like(x, coefficient))
    return total


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c of float32 arrays, rounded once.

    The product of two float32 is exact in float64, the sum is not. Rounding the sum to
    float64 and then to float32 would round twice, and wrongly where the first result is
    half-way between two float32. Therefore an inexact sum is rounded to odd: of its two
    neighbours in float64, the one with an odd last bit is never half-way.
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    share_of_addend = total - product
    error = (product - (total - share_of_addend)) + (addend - share_of_addend)
    is_even = (total.view(np.int64) & 1) == 0
    towards_error = np.nextafter(total, np.copysign(np.inf, error))
    odd = np.where((error != 0) & is_even, towards_error, total)
    return odd.astype(np.float32)
