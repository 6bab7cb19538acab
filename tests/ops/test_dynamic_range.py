"""Dynamic range: float activations with int8 weights, compared with LiteRT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from firmwright.conformance.case_tables import (
    CaseTensor,
    ConformanceCase,
    constant,
    float32,
    quantized,
)
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.verification import verify
from firmwright.ops.dynamic_range import quantize_array
from firmwright.oracle.reference_runner import run_reference
from tests.ops.tflite_writer import input_names, output_names, write_cases

ROWS, SIZE = 100, 64


def _identity_layer(*, asymmetric: bool) -> ConformanceCase:
    """Return a layer with the results (value - zero point) * scale."""
    options = {
        "fused_activation_function": "NONE",
        "keep_num_dims": False,
        "asymmetric_quantize_inputs": asymmetric,
    }
    x = CaseTensor((ROWS, SIZE), "float32")
    weights = CaseTensor(
        (SIZE, SIZE), "int8", (1.0,), (0,), None, np.eye(SIZE, dtype=np.int8)
    )
    return ConformanceCase(
        "identity_0", "FULLY_CONNECTED", (x, weights, None), (x,), options
    )


def _ties(rng: np.random.Generator, *, asymmetric: bool) -> np.ndarray:
    """Return rows of whole and half steps of a random scale, with ends of the range.

    Steps of one half are left out: LiteRT's vector code rounds the float below 1 / 2
    up.
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
    answer = run_reference(
        write_cases([case]), [{x: rows} for rows in samples], "litert"
    )
    for rows, outputs in zip(samples, answer.outputs, strict=True):
        for row, expected in zip(rows, outputs[y], strict=True):
            quantized, scale, offset = quantize_array(row, asymmetric=asymmetric)
            result = (quantized.astype(np.int32) - offset).astype(np.float32) * scale
            np.testing.assert_array_equal(result, expected)


def _matrix(
    rng: np.random.Generator,
    rows: int,
    depth: int,
    outputs: int,
    *,
    is_asymmetric: bool,
    per_channel: bool = False,
) -> ConformanceCase:
    weights = rng.integers(-127, 128, (outputs, depth)).astype(np.int8)
    count = outputs if per_channel else 1
    scales = tuple(float32(scale) for scale in rng.uniform(0.002, 0.02, count))
    w = constant(weights, scales, 0 if per_channel else None)
    options = {
        "fused_activation_function": "RELU6",
        "keep_num_dims": False,
        "asymmetric_quantize_inputs": is_asymmetric,
    }
    bias = constant(rng.normal(size=outputs).astype(np.float32))
    x, y = CaseTensor((rows, depth), "float32"), CaseTensor((rows, outputs), "float32")
    return ConformanceCase(
        f"matrix_{depth}", "FULLY_CONNECTED", (x, w, bias), (y,), options
    )


def _convolution(
    rng: np.random.Generator, builtin: str, channels: int
) -> ConformanceCase:
    depthwise = builtin == "DEPTHWISE_CONV_2D"
    outputs = channels if depthwise else 5
    shape = (1, 3, 3, outputs) if depthwise else (outputs, 3, 3, channels)
    scales = tuple(float32(scale) for scale in rng.uniform(0.002, 0.02, outputs))
    weights = rng.integers(-127, 128, shape).astype(np.int8)
    w = constant(weights, scales, 3 if depthwise else 0)
    bias = constant(rng.normal(size=outputs).astype(np.float32))
    options = {
        "padding": "SAME",
        "stride_h": 1,
        "stride_w": 2,
        "fused_activation_function": "RELU",
        "dilation_h_factor": 1,
        "dilation_w_factor": 1,
        **({"depth_multiplier": 1} if depthwise else {}),
    }
    x, y = (
        CaseTensor((1, 4, 6, channels), "float32"),
        CaseTensor((1, 4, 3, outputs), "float32"),
    )
    return ConformanceCase(f"hybrid_{channels}", builtin, (x, w, bias), (y,), options)


def _int8_layer(rng: np.random.Generator, depth: int) -> ConformanceCase:
    w = constant(rng.integers(-127, 128, (5, 1, 1, depth)).astype(np.int8), (0.01,))
    x, y = (
        quantized((1, 1, 2, depth), "int8", 0.05, 3),
        quantized((1, 1, 2, 5), "int8", 0.5, 3),
    )
    options = {
        "padding": "VALID",
        "stride_h": 1,
        "stride_w": 1,
        "fused_activation_function": "NONE",
    }
    bias = constant(np.zeros(5, np.int32), (float32(0.0005),))
    return ConformanceCase(f"int8_{depth}", "CONV_2D", (x, w, bias), (y,), options)


def _layers() -> Iterator[ConformanceCase]:
    """Return layers of both schemes; depths of 257 leave one iteration after a loop."""
    rng = np.random.default_rng(5)
    yield _matrix(rng, 1, 257, 9, is_asymmetric=False)
    yield _matrix(rng, 3, 20, 8, is_asymmetric=True)
    yield _matrix(rng, 2, 16, 11, is_asymmetric=True, per_channel=True)
    yield _matrix(rng, 2, 19, 8, is_asymmetric=True)
    yield _matrix(rng, 1, 4, 3, is_asymmetric=False, per_channel=True)
    yield _convolution(rng, "CONV_2D", 4)
    yield _convolution(rng, "DEPTHWISE_CONV_2D", 6)
    yield _int8_layer(rng, 257)


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=[pytest.mark.host_c, pytest.mark.deep]),
        pytest.param("mps2-an386", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("mps2-an385", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("mps3-an547", marks=pytest.mark.qemu),
        pytest.param(
            "qemu-riscv32-virt", marks=[pytest.mark.qemu("riscv32"), pytest.mark.deep]
        ),
    ],
)
def test_firmware_of_dynamic_range_layers_equals_litert(
    board: str, tmp_path: Path
) -> None:
    path = tmp_path / "layers.tflite"
    path.write_bytes(write_cases(list(_layers())))
    result = verify(compile_for(load_model(path), board), samples=4)
    assert (result.samples, result.mismatches) == (4, 0)
    assert result.max_abs_error < 1e-5
