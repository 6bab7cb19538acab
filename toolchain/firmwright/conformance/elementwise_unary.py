"""Conformance cases of elementwise operators with one input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, UINT8, DType
from firmwright.conformance.case import (
    BOTH_PROFILES,
    LITERT,
    TFLM,
    CaseTable,
    CaseTensor,
    ConformanceCase,
)
from firmwright.ir.graph.opdef import NumericsProfile


def float_case(
    builtin: str,
    oracles: tuple[NumericsProfile, ...] = BOTH_PROFILES,
    options: Mapping[str, object] = MappingProxyType({}),
    tail: str = "",
    dtype: str = "float32",
) -> ConformanceCase:
    """Return a case with tensors that are not quantized, float32 by default."""
    x = CaseTensor((2, 3, 7), dtype)
    return ConformanceCase(f"{dtype}{tail}", builtin, (x,), (x,), options, oracles)


def quantized_case(
    builtin: str,
    name: str,
    dtype: str,
    x_quant: tuple[float, int],
    y_quant: tuple[float, int],
    oracles: tuple[NumericsProfile, ...] = BOTH_PROFILES,
    options: Mapping[str, object] = MappingProxyType({}),
) -> ConformanceCase:
    x, y = (
        CaseTensor((3, 1, 29), dtype, (float(np.float32(scale)),), (zero_point,))
        for scale, zero_point in (x_quant, y_quant)
    )
    return ConformanceCase(f"{name}_{dtype}", builtin, (x,), (y,), options, oracles)


def _root_cases(builtin: str, oracle: tuple[NumericsProfile, ...]) -> Iterator[ConformanceCase]:
    """Generate cases with inputs >= 0; `oracle` lists the profiles that support int16."""
    yield float_case(builtin)
    oracles = BOTH_PROFILES if builtin == "RSQRT" else LITERT
    yield quantized_case(builtin, "low", "int8", (0.02, -128), (0.03, -128), oracles)
    yield quantized_case(builtin, "coarse", "int8", (0.7, -128), (0.01, 5), oracles)
    x, y = (
        CaseTensor((3, 29), "int16", (float(np.float32(scale)),), (0,)) for scale in (0.002, 0.0031)
    )
    yield ConformanceCase(
        "int16", builtin, (replace(x, value_range=(0, 32767)),), (y,), oracles=oracle
    )


def _math_cases(
    name: str, quantized: bool, oracles: tuple[NumericsProfile, ...]
) -> Iterator[ConformanceCase]:
    builtin = name.upper()
    yield float_case(builtin, oracles)
    if quantized:
        yield quantized_case(builtin, "mid", "int8", (0.05, -3), (0.06, 5), LITERT)
        yield quantized_case(builtin, "low", "int8", (0.02, -128), (0.3, -128), LITERT)
        yield quantized_case(builtin, "mid", "int16", (0.0001, 0), (0.001, 0), LITERT)


def _sign_cases(builtin: str) -> Iterator[ConformanceCase]:
    oracles = ("litert",) if builtin == "SIGN" else BOTH_PROFILES
    yield float_case(builtin, oracles)
    if builtin in ("ABS", "NEG", "SIGN"):
        yield float_case(builtin, ("litert",), dtype="int32")
    if builtin == "NEG":
        for dtype in ("int8", "int16"):
            yield float_case(builtin, ("litert",), dtype=dtype)
    if builtin == "ABS":
        yield quantized_case(builtin, "mid", "int8", (0.05, 3), (0.07, -9))
        yield quantized_case(builtin, "same", "int8", (0.05, -128), (0.05, -128))
        yield quantized_case(builtin, "mid", "int16", (0.001, 0), (0.0013, 0))


_QUANTIZATIONS = (
    ("mid", (0.05, 3), (0.04, -9)),
    ("low", (0.02, -128), (0.011, 4)),
    ("high", (0.3, 127), (0.2, -3)),
)


def _elu_cases() -> Iterator[ConformanceCase]:
    yield float_case("ELU", ("tflm",))
    for name, x, y in _QUANTIZATIONS:
        yield quantized_case("ELU", name, "int8", x, y, ("tflm",))


def _gelu_cases() -> Iterator[ConformanceCase]:
    for approximate in (False, True):
        options, tail = {"approximate": approximate}, "_tanh" if approximate else ""
        yield float_case("GELU", ("litert",), options, tail)
        for name, x, y in _QUANTIZATIONS[: 2 - approximate]:
            yield quantized_case("GELU", name + tail, "int8", x, y, ("litert",), options)
    yield quantized_case(
        "GELU", "mid", "int16", (0.0002, 0), (0.0002, 0), ("litert",), {"approximate": False}
    )


def _hard_swish_cases() -> Iterator[ConformanceCase]:
    yield float_case("HARD_SWISH")
    for name, x, y in (*_QUANTIZATIONS, ("coarse", (2.0, 0), (0.05, 0))):
        yield quantized_case("HARD_SWISH", name, "int8", x, y)


def _leaky_cases() -> Iterator[ConformanceCase]:
    options = {"alpha": float(np.float32(0.1))}
    yield float_case("LEAKY_RELU", BOTH_PROFILES, options)
    for name, x, y in _QUANTIZATIONS:
        yield quantized_case("LEAKY_RELU", name, "int8", x, y, BOTH_PROFILES, options)
    yield quantized_case(
        "LEAKY_RELU", "mid", "int16", (0.001, 0), (0.0013, 0), BOTH_PROFILES, options
    )


def _relu_cases(builtin: str, profiles: tuple[NumericsProfile, ...]) -> Iterator[ConformanceCase]:
    real = CaseTensor((2, 3, 5), "float32")
    yield ConformanceCase("float32", builtin, (real,), (real,), oracles=profiles)
    for name, x_quant, y_quant in (
        ("alike", (0.05, -3), (0.05, -3)),
        ("low", (0.02, -128), (0.02, -128)),
        ("high", (0.1, 127), (0.1, 127)),
        ("finer", (0.07, 12), (0.031, -128)),
        ("ties", (0.25, -1), (1.0, 3)),
    ):
        x, y = (
            CaseTensor((4, 11), "int8", (float(np.float32(scale)),), (zero_point,))
            for scale, zero_point in (x_quant, y_quant)
        )
        yield ConformanceCase(f"{name}_int8", builtin, (x,), (y,), oracles=profiles)
    x, y = (CaseTensor((4, 11), "int16", (2.0**k,), (0,)) for k in (-11, -12))
    if not builtin.endswith("_TO_1"):
        yield ConformanceCase("finer_int16", builtin, (x,), (y,), oracles=profiles)


def _logistic_cases() -> Iterator[ConformanceCase]:
    yield float_case("LOGISTIC")
    for name, scale, zero_point in (("mid", 0.047, -4), ("fine", 0.0031, 127), ("far", 1.3, -128)):
        yield quantized_case("LOGISTIC", name, "int8", (scale, zero_point), (1 / 256, -128))
    for name, scale in (("pot", 2.0**-12), ("mid", 0.0003), ("far", 1.3), ("fine", 2.0**-15)):
        yield quantized_case("LOGISTIC", name, "int16", (scale, 0), (2.0**-15, 0))


def _tanh_cases() -> Iterator[ConformanceCase]:
    yield float_case("TANH")
    for name, scale, zero_point in (("mid", 0.021, -4), ("fine", 0.0031, 127), ("far", 1.3, -128)):
        yield quantized_case("TANH", name, "int8", (scale, zero_point), (1 / 128, 0))
    yield quantized_case("TANH", "other_output", "int8", (0.03, 5), (0.009, 3))
    for name, scale in (("pot", 2.0**-12), ("pot1", 2.0**-11), ("mid", 0.0002), ("fine", 2.0**-15)):
        yield quantized_case("TANH", name, "int16", (scale, 0), (2.0**-15, 0))


def _cast_cases() -> Iterator[ConformanceCase]:
    for before, after in (
        ("float32", "int32"), ("int32", "float32"), ("int8", "float32"), ("int32", "int8"),
        ("int16", "int32"), ("int32", "bool"), ("bool", "float32"), ("float32", "bool"),
    ):  # fmt: skip
        x, y = CaseTensor((3, 7), before), CaseTensor((3, 7), after)
        yield ConformanceCase(f"{before}_{after}", "CAST", (x,), (y,))


_QUANTIZE_GRID: tuple[tuple[str, DType, tuple[float, int], DType, tuple[float, int]], ...] = (
    ("image", FLOAT32, (0.0, 0), INT8, (0.0078125, -1)),
    ("coarse", FLOAT32, (0.0, 0), INT8, (0.3, 127)),
    ("bytes", FLOAT32, (0.0, 0), UINT8, (0.02, 128)),
    ("words", FLOAT32, (0.0, 0), INT16, (0.0001, 0)),
    ("same_scale", UINT8, (0.05, 128), INT8, (0.05, 0)),
    ("flip", INT8, (0.05, -3), UINT8, (0.05, 125)),
    ("finer", INT8, (0.05, -128), INT8, (0.021, 17)),
    ("ties", INT8, (0.5, 3), INT8, (2.0, -5)),
    ("coarser", UINT8, (0.003, 255), INT8, (0.07, 127)),
    ("narrower", INT16, (0.0003, 0), INT8, (0.05, -9)),
    ("wider", INT8, (0.05, -9), INT16, (0.0004, 0)),
    ("sums", INT16, (0.0003, 0), INT32, (0.00002, 0)),
    ("bytes", INT8, (0.03, 5), INT32, (0.00002, 0)),
    ("of_sums", INT32, (0.00002, 0), INT8, (0.05, -9)),
    ("of_sums", INT32, (0.00002, 0), INT16, (0.0007, 0)),
)


def _quantize_cases() -> Iterator[ConformanceCase]:
    for name, before, (x_scale, x_zero), after, (y_scale, y_zero) in _QUANTIZE_GRID:
        x = CaseTensor((2, 3, 7), "float32")
        if before != FLOAT32:
            x = CaseTensor((2, 3, 7), before.name, (float(np.float32(x_scale)),), (x_zero,))
        y = CaseTensor((2, 3, 7), after.name, (float(np.float32(y_scale)),), (y_zero,))
        # TFLM's runtime does not take floats to uint8.
        oracles: tuple[NumericsProfile, ...] = ("litert", "tflm")
        if name == "bytes":  # LiteRT does not take int8 to int32
            oracles = ("litert",) if after == UINT8 else ("tflm",)
        title = f"{name}_{before.name}_{after.name}"
        yield ConformanceCase(title, "QUANTIZE", (x,), (y,), oracles=oracles)


def _dequantize_cases() -> Iterator[ConformanceCase]:
    for dtype, scale, zero_point in (
        ("int8", 0.0371, -128),
        ("int8", 1.7, 127),
        ("uint8", 0.0039, 128),
        ("int16", 0.0003, 0),
    ):
        x = CaseTensor((3, 1, 9), dtype, (float(np.float32(scale)),), (zero_point,))
        yield ConformanceCase(
            f"{dtype}_{zero_point}", "DEQUANTIZE", (x,), (CaseTensor(x.shape, "float32"),)
        )


CASES: CaseTable = {
    "ceil": partial(_math_cases, "ceil", False, TFLM),
    "cos": partial(_math_cases, "cos", False, BOTH_PROFILES),
    "exp": partial(_math_cases, "exp", True, BOTH_PROFILES),
    "floor": partial(_math_cases, "floor", False, BOTH_PROFILES),
    "log": partial(_math_cases, "log", True, BOTH_PROFILES),
    "round": partial(_math_cases, "round", False, TFLM),
    "rsqrt": partial(_root_cases, "RSQRT", TFLM),
    "sin": partial(_math_cases, "sin", False, BOTH_PROFILES),
    "sqrt": partial(_root_cases, "SQRT", LITERT),
    "abs": lambda: _sign_cases("ABS"),
    "neg": lambda: _sign_cases("NEG"),
    "sign": lambda: _sign_cases("SIGN"),
    "square": lambda: _sign_cases("SQUARE"),
    "elu": _elu_cases,
    "gelu": _gelu_cases,
    "hard_swish": _hard_swish_cases,
    "leaky_relu": _leaky_cases,
    "relu": partial(_relu_cases, "RELU", BOTH_PROFILES),
    "relu6": partial(_relu_cases, "RELU6", BOTH_PROFILES),
    "relu_n1_to_1": partial(_relu_cases, "RELU_N1_TO_1", LITERT),
    "relu_0_to_1": partial(_relu_cases, "RELU_0_TO_1", LITERT),
    "logistic": _logistic_cases,
    "tanh": _tanh_cases,
    "cast": _cast_cases,
    "logical_not": lambda: iter([float_case("LOGICAL_NOT", dtype="bool")]),
    "quantize": _quantize_cases,
    "dequantize": _dequantize_cases,
}
