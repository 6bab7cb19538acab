"""log1p in float32 beside the logarithm of doubles, and beside the C library's."""

from __future__ import annotations

import ctypes
import platform

import numpy as np
import pytest

from firmwright.audio.float_logarithm import log1p_float32
from firmwright.base.dtypes import Array


def arguments() -> Array:
    """Return numbers from 2^-30 to 2^20, and those near the edges of the reduction."""
    rng = np.random.default_rng(6)
    spread = np.exp2(rng.uniform(-30, 20, 50_000))
    edges = np.sqrt(2) * np.exp2(np.arange(12)) - 1
    near = edges[:, None] * (1 + np.arange(-20, 21) * 2.0**-24)
    mel = np.arange(257) * 31.25 / 700
    return np.concatenate([[0.0], spread, near.ravel(), mel]).astype(np.float32)


def is_device_like() -> bool:
    """Return whether this machine's C library has the function of devices."""
    name, version = platform.libc_ver()
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    return name == "glibc" and numbers < (2, 41)


def test_results_are_within_two_units_of_the_logarithm_of_doubles() -> None:
    x = arguments()
    exact = np.log1p(x.astype(np.float64))
    error = np.abs(log1p_float32(x).astype(np.float64) - exact)
    assert np.all(error <= 2 * np.spacing(exact.astype(np.float32)))


@pytest.mark.skipif(not is_device_like(), reason="needs glibc before 2.41")
def test_results_are_those_of_the_c_library() -> None:
    function = ctypes.CDLL("libm.so.6").log1pf
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]
    x = arguments()
    expected = np.array([function(float(number)) for number in x], np.float32)
    assert np.array_equal(log1p_float32(x), expected)
