"""The logistic function and tanh of tables equal ONNX Runtime's to the last bit."""

import math
from fractions import Fraction

import numpy as np
import pytest

from firmwright.frontends.onnx.mlas_functions import MLAS_FUNCTIONS, fused_multiply_add
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from tests.onnx.onnx_models import Net

SPECIAL = [
    0.0,
    -0.0,
    1e-30,
    -1e-30,
    8.99,
    9.0,
    9.01,
    17.99,
    18.0,
    18.01,
    -18.01,
    3e38,
    -3e38,
]


@pytest.mark.parametrize("op", sorted(MLAS_FUNCTIONS))
def test_all_bits_are_those_of_onnx_runtime(op: str) -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    normal = rng.normal(size=(6, 20_000)) * np.logspace(-3, 1.5, 6)[:, None]
    values = np.concatenate([np.ravel(normal), SPECIAL]).astype(np.float32)
    net = Net()
    x = net.input("x", values.shape)
    session = OnnxRuntimeSession(net.model(net.node(op, x)), layers=False)
    (expected,) = session.run([values])
    np.testing.assert_array_equal(MLAS_FUNCTIONS[op](values), expected)


def test_a_fused_multiply_add_rounds_once() -> None:
    rng = np.random.Generator(np.random.PCG64(6))
    a, b = (rng.normal(size=3_000).astype(np.float32) for _ in range(2))
    # An addend half a step above a float32 makes the product decide.
    c = np.ldexp(np.rint(np.ldexp(rng.normal(size=3_000), 24)), -23).astype(np.float32)
    found = fused_multiply_add(a * np.float32(2.0**-25), b, c)
    for parts, value in zip(
        zip(a * np.float32(2.0**-25), b, c, strict=True), found, strict=True
    ):
        x, y, z = (Fraction(float(part)) for part in parts)
        assert _nearest_float32(x * y + z) == value


def _nearest_float32(exact: Fraction) -> np.float32:
    """Round a fraction to float32, with ties to even."""
    if exact == 0:
        return np.float32(0)
    step = Fraction(2) ** (math.frexp(float(exact))[1] - 24)
    rounded = round(exact / step) * step
    return np.float32(float(rounded))
