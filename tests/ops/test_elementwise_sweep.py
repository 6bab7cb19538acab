"""Random elementwise layers, with any scales and zero points, against LiteRT."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.conformance.case_tables import (
    CaseTensor,
    ConformanceCase,
    float32,
    quantized,
)
from tests.ops.reference_answers import ask_together
from tests.ops.test_unsigned import _evaluated

LAYERS, LAYERS_DEEP = 240, 90_000
LAYERS_PER_MODEL = 120
COUNT = 256
INT8_UNARY = (
    "ABS",
    "EXP",
    "GELU",
    "HARD_SWISH",
    "LEAKY_RELU",
    "LOG",
    "LOGISTIC",
    "NEG",
    "QUANTIZE",
    "RELU",
    "RELU6",
    "RELU_N1_TO_1",
    "RSQRT",
    "SQRT",
    "TANH",
)
INT16_UNARY = (
    "ABS",
    "EXP",
    "GELU",
    "LEAKY_RELU",
    "LOG",
    "LOGISTIC",
    "QUANTIZE",
    "RELU",
    "RELU6",
    "RSQRT",
    "SQRT",
    "TANH",
)
BINARY = ("ADD", "MAXIMUM", "MINIMUM", "MUL", "SUB")
LOWEST = {"SQRT": 0, "RSQRT": 1}
"""The lowest steps above the zero point that LiteRT accepts."""
FIXED_OUTPUTS = {
    ("LOGISTIC", "int8"): (1 / 256, -128),
    ("TANH", "int8"): (1 / 128, 0),
    ("LOGISTIC", "int16"): (1 / 32768, 0),
    ("TANH", "int16"): (1 / 32768, 0),
}
ROUGH = ("GELU", "int16")
"""LiteRT fills the table with glibc's erfcf and tanhf, which may round incorrectly."""
SAME_QUANTIZATION = ("MAXIMUM", "MINIMUM", "NEG")


def layer(number: int) -> ConformanceCase:
    """Return the layer of a number: each operator and type in turn."""
    rng = np.random.Generator(np.random.PCG64([number, 19]))
    kinds = [(op, "int8") for op in (*INT8_UNARY, *BINARY, "SQUARED_DIFFERENCE")]
    kinds += [(op, "int16") for op in (*INT16_UNARY, *BINARY)]
    op, dtype = kinds[number % len(kinds)]
    x = _random_tensor(rng, dtype)
    y = _random_tensor(rng, dtype)
    if (op, dtype) in FIXED_OUTPUTS:
        y = quantized((COUNT,), dtype, *FIXED_OUTPUTS[op, dtype])
    elif op in SAME_QUANTIZATION:
        y = x
    elif (
        op == "HARD_SWISH"
    ):  # LiteRT requires output steps that are not finer than the input's
        y = quantized(
            (COUNT,), dtype, x.scales[0] * rng.uniform(1, 20), y.zero_points[0]
        )
    elif op == "RSQRT":  # a factor of less than 2^30
        y = quantized((COUNT,), dtype, y.scales[0] * 32, y.zero_points[0])
    inputs = (x,)
    if op in BINARY or op == "SQUARED_DIFFERENCE":
        inputs = (x, x if op in SAME_QUANTIZATION else _random_tensor(rng, dtype))
    options: dict[str, object] = {}
    if op in ("ADD", "MUL", "SUB"):
        choices = ["NONE", "RELU", "RELU6", "RELU_N1_TO_1"]
        options["fused_activation_function"] = str(rng.choice(choices))
    if op in ("ADD", "SUB"):
        options["pot_scale_int16"] = False
    if op == "GELU":
        options["approximate"] = bool(rng.integers(2))
    if op == "LEAKY_RELU":
        options["alpha"] = float32(rng.uniform(0.001, 1.5))
    return ConformanceCase(f"sweep_{number}", op, inputs, (y,), options)


def _random_tensor(rng: np.random.Generator, dtype: str) -> CaseTensor:
    steps = {"int8": 256, "int16": 65536}[dtype]
    scale = 10 ** rng.uniform(-2, 2) / steps
    return quantized(
        (COUNT,), dtype, scale, int(rng.integers(-128, 128)) if dtype == "int8" else 0
    )


def values(case: ConformanceCase) -> list[list[NDArray[np.generic]]]:
    """Return one sample: all int8 values shuffled, or int16 values with extremes."""
    rng = np.random.Generator(np.random.PCG64(int(case.name.partition("_")[2])))
    sample: list[NDArray[np.generic]] = []
    for tensor in case.inputs:
        assert tensor is not None
        if tensor.dtype == "int8":
            sample.append(rng.permutation(np.arange(-128, 128)).astype(np.int8))
        else:
            drawn = rng.integers(-32768, 32768, COUNT).astype(np.int16)
            drawn[:4] = -32768, 32767, 0, 1
            sample.append(drawn)
        if case.builtin in LOWEST:
            lowest = min(tensor.zero_points[0] + LOWEST[case.builtin], 127)
            sample[0] = np.maximum(sample[0], sample[0].dtype.type(lowest))
    return [sample]


def _differences(cases: list[ConformanceCase]) -> Iterator[tuple[ConformanceCase, int]]:
    """Yield each case with the largest difference between our reference and LiteRT."""
    ours = iter(_evaluated(cases, [values(case) for case in cases]))
    for case, answer in zip(cases, ask_together(cases, "litert", values), strict=True):
        (expected,) = answer.outputs[0]
        yield (
            case,
            int(np.abs(next(ours).astype(np.int64) - expected.astype(np.int64)).max()),
        )


@pytest.mark.parametrize(
    "layers",
    [LAYERS, pytest.param(LAYERS_DEEP, marks=pytest.mark.deep)],
    ids=["some", "many"],
)
def test_elementwise_layers_equal_litert(layers: int) -> None:
    different, rough = [], 0
    for first in range(0, layers, LAYERS_PER_MODEL):
        numbers = range(first, min(layers, first + LAYERS_PER_MODEL))
        for case, difference in _differences([layer(number) for number in numbers]):
            x = case.inputs[0]
            assert x is not None
            if difference == 1 and (case.builtin, x.dtype) == ROUGH:
                rough += 1
            elif difference:
                different.append(f"{case.builtin} {x.dtype} {case.name}: {difference}")
    assert not different
    assert rough <= max(1, layers // 1000)
