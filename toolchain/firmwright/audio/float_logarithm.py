"""log(1 + x) in float32, bit for bit as the C libraries of microcontrollers compute it.

TFLM's front end builds its filter bank at start-up with the function log1pf of the
device's C library. That of newlib, picolibc, musl and glibc before 2.41 is Sun's: the
argument is reduced to 2^k (1 + f) with f from sqrt(1/2) - 1 to sqrt(2) - 1, and with
s = f / (2 + f)

    log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + R(s^2)))

where R is a polynomial of degree 7. A result may differ from the rounded one in its
last bit, which decides over the last bit of two weights in 236.
"""

import numpy as np
import numpy.typing as npt

from firmwright.base.dtypes import Array

_COEFFICIENTS = (
    0.66666668653,
    0.40000000596,
    0.28571429849,
    0.22222198546,
    0.18183572590,
    0.15313838422,
    0.14798198640,
)
_LOG_2_HIGH, _LOG_2_LOW = np.float32(0.69313812256), np.float32(9.0580006145e-06)
_SMALL = np.float32(0.41421387)
"""Arguments below are not reduced. It is slightly more than sqrt(2) - 1."""
_MANTISSA, _ONE, _HALF = 0x007FFFFF, 0x3F800000, 0x3F000000
_ROOT_OF_2 = 0x003504F7
"""The mantissa of sqrt(2) in float32."""


def log1p_float32(x: npt.NDArray[np.float32]) -> Array:
    """Return log(1 + x) for numbers of at least 0, float32 of the same shape."""
    two, half = np.float32(2), np.float32(0.5)
    k, f, correction = _reduce(x)
    square = half * f * f
    s = f / (two + f)
    z = s * s
    series = np.zeros_like(x)
    for coefficient in reversed(_COEFFICIENTS):
        series = z * (np.float32(coefficient) + series)
    direct = f - (square - s * (square + series))
    low = s * (square + series) + (k * _LOG_2_LOW + correction)
    return np.where(k == 0, direct, k * _LOG_2_HIGH - ((square - low) - f))


def _reduce(x: npt.NDArray[np.float32]) -> tuple[Array, Array, Array]:
    """Return k and f of 1 + x = 2^k (1 + f), and what 1 + x has lost by rounding."""
    one = np.float32(1)
    total = one + x
    bits = total.view(np.int32)
    k = (bits >> 23) - 127
    lost = np.where(k > 0, one - (total - x), x - (total - one)) / total
    mantissa = bits & _MANTISSA
    is_low = mantissa < _ROOT_OF_2
    reduced = (mantissa | np.where(is_low, _ONE, _HALF)).astype(np.int32)
    f = reduced.view(np.float32) - one
    k = np.where(is_low, k, k + 1)
    is_small = x < _SMALL
    k = np.where(is_small, 0, k).astype(np.float32)
    zero = np.zeros_like(x)
    return k, np.where(is_small, x, f), np.where(is_small, zero, lost)
