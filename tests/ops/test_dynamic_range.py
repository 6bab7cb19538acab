"""Dynamic range: float activations with int8 weights, compared with LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from tflite_writer import input_names, output_names, write_cases

from firmwright.conformance.case import CaseTensor, ConformanceCase
from firmwright.ops.dynamic_range import quantize_array
from firmwright.oracle.reference_runner import run_reference

ROWS, SIZE = 100, 64


def _identity_layer(*, asymmetric: bool) -> ConformanceCase:
    """Return a layer with the results (value - zero point) * scale."""
    options = {
        "fused_activation_function": "NONE", "keep_num_dims": False,
        "asymmetric_quantize_inputs": asymmetric,
    }  # fmt: skip
    x = CaseTensor((ROWS, SIZE), "float32")
    weights = CaseTensor((SIZE, SIZE), "int8", (1.0,), (0,), None, np.eye(SIZE, dtype=np.int8))
    return ConformanceCase("identity_0", "FULLY_CONNECTED", (x, weights, None), (x,), options)


def _ties(rng: np.random.Generator, *, asymmetric: bool) -> np.ndarray:
    """Return rows of whole and half steps of a random scale; the ends of the range are there.

    Steps of one half are left out: LiteRT's vector code rounds the float below 1 / 2 up.
    """
    scale = np.float32(2.0 ** rng.uniform(-8, 4))
    zero = rng.integers(-128, 128, (ROWS, 1)) if asymmetric else 0
    low, high = -128 + (not asymmetric) - zero, 127 - zero
    steps = rng.integers(-256, 256, (ROWS, SIZE)) / 2
    steps[np.abs(steps) == 0.5] = 0
    steps[:, :1], steps[:, 1:2] = low, high
    return (np.clip(steps, low, high) * scale).astype(np.float32)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_ties_are_rounded_as_litert_rounds_them(asymmetric: bool, deep: bool) -> None:
    case = _identity_layer(asymmetric=asymmetric)
    (x,), (y,) = input_names(0, case), output_names(0, case)
    rng = np.random.default_rng(3)
    samples = [_ties(rng, asymmetric=asymmetric) for _ in range(100 if deep else 5)]
    answer = run_reference(write_cases([case]), [{x: rows} for rows in samples], "litert")
    for rows, outputs in zip(samples, answer.outputs, strict=True):
        for row, expected in zip(rows, outputs[y], strict=True):
            quantized, scale, offset = quantize_array(row, asymmetric=asymmetric)
            result = (quantized.astype(np.int32) - offset).astype(np.float32) * scale
            np.testing.assert_array_equal(result, expected)
