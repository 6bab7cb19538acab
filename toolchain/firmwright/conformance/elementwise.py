"""Conformance cases of elementwise operators."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT16
from firmwright.conformance.case import (
    BOTH_PROFILES,
    LITERT,
    NO_ACTIVATION,
    TFLM,
    CaseTable,
    CaseTensor,
    ConformanceCase,
    Profiles,
    float32,
    quantized,
)
from firmwright.ops.elementwise import broadcast_shape

# ---- two inputs ----------------------------------------------------------------------------------

_ARITHMETIC_GRID = (
    # name, shapes, scales and zero points (a, b, y), activation, b constant
    ("same_scales", (1, 4, 3), (1, 4, 3), (0.05, 0.05, 0.1), (-3, 5, 2), "NONE", False),
    ("tail", (1, 37), (1, 37), (0.031, 0.0071, 0.04), (-128, -128, -128), "RELU", False),
    ("far_scales", (5, 7), (5, 7), (3.0, 0.0004, 2.5), (127, -128, 0), "NONE", False),
    ("rows", (2, 3, 5), (5,), (0.02, 0.5, 0.3), (10, -20, 30), "RELU6", False),
    ("columns", (4, 1, 3), (1, 6, 1), (0.02, 0.03, 0.06), (0, 0, -1), "RELU_N1_TO_1", False),
    ("constant", (1, 2, 3, 4), (4,), (0.1, 0.01, 0.09), (-7, 0, 7), "NONE", True),
    ("ties", (16, 1), (1, 16), (0.5, 0.25, 1.0), (0, 1, -2), "NONE", False),
    ("scalar", (3, 3), (1,), (0.011, 0.013, 0.02), (12, -128, -128), "RELU", True),
)


def _arithmetic_cases(
    builtin: str, y_scale: Callable[[float, float, float], float]
) -> Iterator[ConformanceCase]:
    """Generate the grid for all dtypes; `y_scale` computes the output scale of a row."""

    def case(tensors: Sequence[CaseTensor], data: Any, **changed: object) -> ConformanceCase:
        a, b, y = tensors
        options = {"fused_activation_function": activation, **changed}
        return ConformanceCase(
            f"{name}_{a.dtype}", builtin, (a, replace(b, data=data)), (y,), options
        )

    for index, row in enumerate(_ARITHMETIC_GRID):
        name, a_shape, b_shape, scales, zero_points, activation, constant = row
        rng, words_rng = np.random.default_rng([index, 7]), np.random.default_rng(len(name))
        shapes = (a_shape, b_shape, broadcast_shape(a_shape, b_shape))
        exact = [float32(s) for s in (*scales[:2], y_scale(*scales))]
        values = rng.integers(-128, 128, b_shape).astype(np.int8) if constant else None
        yield case([*map(quantized, shapes, ["int8"] * 3, exact, zero_points)], values)
        if index % 2 == 0:
            down = 2.0**-5 if builtin == "MUL" else 2.0**-7
            tensors = [quantized(n, "int16", s * down) for n, s in zip(shapes, exact, strict=True)]
            words = words_rng.integers(-32768, 32768, b_shape).astype(np.int16)
            more = {} if builtin == "MUL" else {"pot_scale_int16": False}
            yield case(tensors, words if constant else None, **more)
        reals = rng.normal(size=b_shape).astype(np.float32) if constant else None
        yield case([CaseTensor(shape, "float32") for shape in shapes], reals)
        if name in ("same_scales", "columns"):
            yield case([CaseTensor(shape, "int32") for shape in shapes], None, **NO_ACTIVATION)


def _mul_cases() -> Iterator[ConformanceCase]:
    yield from _arithmetic_cases("MUL", lambda a, b, y: a * b * 60)
    for dtype, zero_point in (("int8", 7), ("int16", 0)):  # a constant 0 has scale 0
        x, y = (quantized((2, 5), dtype, scale, zero_point) for scale in (0.03, 1e-7))
        zeros = CaseTensor((1, 5), dtype, data=np.full((1, 5), 9, dtype))
        yield ConformanceCase(f"scale_0_{dtype}", "MUL", (x, zeros), (y,), NO_ACTIVATION)


_SHAPES = (("same", (3, 7), (3, 7)), ("rows", (2, 3, 5), (5,)))


def _binary_cases(
    builtin: str,
    dtypes: Sequence[str],
    quants: Sequence[tuple[float, int]],
    result: str = "",
    int16_oracles: Profiles = (),
) -> Iterator[ConformanceCase]:
    """Generate cases with the (scale, zero point) of `quants`; int16 scales are 1/100 of them.

    int16 is quantized only with `int16_oracles`.
    """
    for index, (name, a_shape, b_shape) in enumerate(_SHAPES):
        for dtype in dtypes if index == 0 else dtypes[:1]:
            kinds = (dtype, dtype, result or dtype)
            a, b, y = map(
                partial(_binary_tensor, bool(int16_oracles)),
                (a_shape, b_shape, a_shape), kinds, quants,
            )  # fmt: skip
            oracles = int16_oracles if dtype == "int16" and int16_oracles else BOTH_PROFILES
            yield ConformanceCase(f"{name}_{dtype}", builtin, (a, b), (y,), oracles=oracles)


def _binary_tensor(
    quantizes_int16: bool, shape: tuple[int, ...], dtype: str, quant: tuple[float, int]
) -> CaseTensor:
    if dtype == "int8":
        return quantized(shape, dtype, *quant)
    if dtype == "int16" and quantizes_int16:
        return quantized(shape, dtype, quant[0] / 100)
    return CaseTensor(shape, dtype)


_SAME = ((0.05, 3),) * 3
_MIXED = ((0.05, 3), (0.03, -9), (0.06, 5))
_SQUARES = ((0.05, 3), (0.03, -9), (0.6, 5))
_FOUR = ("int8", "int16", "int32", "float32")


def _division_cases() -> Iterator[ConformanceCase]:
    rng = np.random.default_rng(9)
    for dtype, activation in (("float32", "NONE"), ("float32", "RELU6"), ("int32", "NONE")):
        divisors = rng.integers(1, 9, 5) * rng.choice([-1, 1], 5)
        b = CaseTensor((5,), dtype, data=divisors.astype(dtype))
        x = CaseTensor((3, 5), dtype)
        options = {"fused_activation_function": activation}
        yield ConformanceCase(f"{dtype}_{activation.lower()}", "DIV", (x, b), (x,), options)
    # Divisors and factors for which no shift of the reference exceeds 31 bits.
    for name, (scale, zero_point), activation, shape, dividends in (
        ("below", (0.011, 3), "NONE", (3, 5), (-128, -1)),
        ("above", (0.007, -128), "RELU", (5,), (10, 127)),
    ):
        a = replace(quantized((3, 5), "int8", 0.05, 3), value_range=dividends)
        b = replace(quantized(shape, "int8", 0.1, -128), value_range=(0, 127))
        y = quantized((3, 5), "int8", scale, zero_point)
        options = {"fused_activation_function": activation}
        yield ConformanceCase(f"{name}_int8", "DIV", (a, b), (y,), options)
    a, b, y = (quantized((3, 5), "int16", scale) for scale in (0.001, 0.002, 0.0001))
    b = replace(b, value_range=(9, INT16.max))
    yield ConformanceCase("mid_int16", "DIV", (a, b), (y,), NO_ACTIVATION, LITERT)


def _integer_cases(
    builtin: str, rows: Mapping[str, tuple[int, int] | None], float_oracles: Profiles = LITERT
) -> Iterator[ConformanceCase]:
    """Generate a case per dtype; `rows` holds the value range of the second input."""
    for dtype, limits in rows.items():
        a = CaseTensor((2, 3, 5), dtype)
        b = CaseTensor(a.shape[1 if "FLOOR" in builtin else 0 :], dtype, value_range=limits)
        oracles = float_oracles if dtype == "float32" else LITERT
        yield ConformanceCase(dtype, builtin, (a, b), (a,), {}, oracles)


def _pow_cases() -> Iterator[ConformanceCase]:
    for dtype, base, exponent in (("float32", (0, 3), (-2, 2)), ("int32", (-9, 9), (0, 7))):
        a = CaseTensor((3, 5), dtype, value_range=base)
        b = CaseTensor((5,), dtype, value_range=exponent)
        yield ConformanceCase(dtype, "POW", (a, b), (a,), {}, LITERT)


_DIVISORS = {"int8": (-100, -1), "int16": (1, 300), "int32": (-1000, -1), "float32": (1, 3)}
_SHIFTS = {"int8": (0, 7), "uint8": (0, 7), "int16": (0, 15), "int32": (0, 31)}

# ---- one input -----------------------------------------------------------------------------------

_NO_OPTIONS: Mapping[str, object] = MappingProxyType({})


def float_case(
    builtin: str,
    oracles: Profiles = BOTH_PROFILES,
    options: Mapping[str, object] = _NO_OPTIONS,
    tail: str = "",
    dtype: str = "float32",
) -> ConformanceCase:
    x = CaseTensor((2, 3, 7), dtype)
    return ConformanceCase(f"{dtype}{tail}", builtin, (x,), (x,), options, oracles)


def quantized_case(
    builtin: str,
    name: str,
    dtype: str,
    x_quant: tuple[float, int],
    y_quant: tuple[float, int],
    oracles: Profiles = BOTH_PROFILES,
    options: Mapping[str, object] = _NO_OPTIONS,
) -> ConformanceCase:
    x, y = (quantized((3, 1, 29), dtype, *quant) for quant in (x_quant, y_quant))
    return ConformanceCase(f"{name}_{dtype}", builtin, (x,), (y,), options, oracles)


def _root_cases(builtin: str, int16_oracles: Profiles) -> Iterator[ConformanceCase]:
    yield float_case(builtin)
    oracles = BOTH_PROFILES if builtin == "RSQRT" else LITERT
    yield quantized_case(builtin, "low", "int8", (0.02, -128), (0.03, -128), oracles)
    yield quantized_case(builtin, "coarse", "int8", (0.7, -128), (0.01, 5), oracles)
    x, y = (quantized((3, 29), "int16", scale) for scale in (0.002, 0.0031))
    x = replace(x, value_range=(0, 32767))
    yield ConformanceCase("int16", builtin, (x,), (y,), oracles=int16_oracles)


def _math_cases(
    builtin: str, oracles: Profiles = BOTH_PROFILES, has_quantized: bool = False
) -> Iterator[ConformanceCase]:
    yield float_case(builtin, oracles)
    if has_quantized:
        yield quantized_case(builtin, "mid", "int8", (0.05, -3), (0.06, 5), LITERT)
        yield quantized_case(builtin, "low", "int8", (0.02, -128), (0.3, -128), LITERT)
        yield quantized_case(builtin, "mid", "int16", (0.0001, 0), (0.001, 0), LITERT)


def _sign_cases(builtin: str) -> Iterator[ConformanceCase]:
    yield float_case(builtin, LITERT if builtin == "SIGN" else BOTH_PROFILES)
    if builtin in ("ABS", "NEG", "SIGN"):
        yield float_case(builtin, LITERT, dtype="int32")
    if builtin == "NEG":
        for dtype in ("int8", "int16"):
            yield float_case(builtin, LITERT, dtype=dtype)
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
    yield float_case("ELU", TFLM)
    for name, x, y in _QUANTIZATIONS:
        yield quantized_case("ELU", name, "int8", x, y, TFLM)


def _gelu_cases() -> Iterator[ConformanceCase]:
    for approximate in (False, True):
        options, tail = {"approximate": approximate}, "_tanh" if approximate else ""
        yield float_case("GELU", LITERT, options, tail)
        for name, x, y in _QUANTIZATIONS[: 2 - approximate]:
            yield quantized_case("GELU", name + tail, "int8", x, y, LITERT, options)
    options, words = {"approximate": False}, (0.0002, 0)
    yield quantized_case("GELU", "mid", "int16", words, words, LITERT, options)


def _hard_swish_cases() -> Iterator[ConformanceCase]:
    yield float_case("HARD_SWISH")
    for name, x, y in (*_QUANTIZATIONS, ("coarse", (2.0, 0), (0.05, 0))):
        yield quantized_case("HARD_SWISH", name, "int8", x, y)


def _leaky_cases() -> Iterator[ConformanceCase]:
    options = {"alpha": float32(0.1)}
    yield float_case("LEAKY_RELU", options=options)
    for name, x, y in _QUANTIZATIONS:
        yield quantized_case("LEAKY_RELU", name, "int8", x, y, options=options)
    words = (0.001, 0), (0.0013, 0)
    yield quantized_case("LEAKY_RELU", "mid", "int16", *words, options=options)


def _relu_cases(builtin: str, oracles: Profiles = BOTH_PROFILES) -> Iterator[ConformanceCase]:
    real = CaseTensor((2, 3, 5), "float32")
    yield ConformanceCase("float32", builtin, (real,), (real,), oracles=oracles)
    for name, x_quant, y_quant in (
        ("alike", (0.05, -3), (0.05, -3)),
        ("low", (0.02, -128), (0.02, -128)),
        ("high", (0.1, 127), (0.1, 127)),
        ("finer", (0.07, 12), (0.031, -128)),
        ("ties", (0.25, -1), (1.0, 3)),
    ):
        x, y = (quantized((4, 11), "int8", *quant) for quant in (x_quant, y_quant))
        yield ConformanceCase(f"{name}_int8", builtin, (x,), (y,), oracles=oracles)
    if not builtin.endswith("_TO_1"):
        x, y = (quantized((4, 11), "int16", 2.0**k) for k in (-11, -12))
        yield ConformanceCase("finer_int16", builtin, (x,), (y,), oracles=oracles)


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
        ("uint32", "int32"), ("int32", "uint32"), ("uint32", "float32"), ("int16", "uint32"),
        ("int64", "int32"), ("int32", "int64"), ("int64", "float32"),
    ):  # fmt: skip
        x, y = CaseTensor((3, 7), before), CaseTensor((3, 7), after)
        oracles = LITERT if "int64" in (before, after) else BOTH_PROFILES
        yield ConformanceCase(f"{before}_{after}", "CAST", (x,), (y,), oracles=oracles)


_QUANTIZE_GRID = (
    ("image", "float32", (0.0, 0), "int8", (0.0078125, -1)),
    ("coarse", "float32", (0.0, 0), "int8", (0.3, 127)),
    ("bytes", "float32", (0.0, 0), "uint8", (0.02, 128)),
    ("words", "float32", (0.0, 0), "int16", (0.0001, 0)),
    ("same_scale", "uint8", (0.05, 128), "int8", (0.05, 0)),
    ("flip", "int8", (0.05, -3), "uint8", (0.05, 125)),
    ("finer", "int8", (0.05, -128), "int8", (0.021, 17)),
    ("ties", "int8", (0.5, 3), "int8", (2.0, -5)),
    ("coarser", "uint8", (0.003, 255), "int8", (0.07, 127)),
    ("narrower", "int16", (0.0003, 0), "int8", (0.05, -9)),
    ("wider", "int8", (0.05, -9), "int16", (0.0004, 0)),
    ("sums", "int16", (0.0003, 0), "int32", (0.00002, 0)),
    ("bytes", "int8", (0.03, 5), "int32", (0.00002, 0)),
    ("of_sums", "int32", (0.00002, 0), "int8", (0.05, -9)),
    ("of_sums", "int32", (0.00002, 0), "int16", (0.0007, 0)),
)


def _quantize_cases() -> Iterator[ConformanceCase]:
    for name, before, x_quant, after, y_quant in _QUANTIZE_GRID:
        shape = (2, 3, 7)
        is_float = before == "float32"
        x = CaseTensor(shape, before) if is_float else quantized(shape, before, *x_quant)
        oracles = BOTH_PROFILES
        if name == "bytes":  # TFLM does not take floats to uint8, LiteRT not int8 to int32.
            oracles = LITERT if is_float else TFLM
        y = quantized(shape, after, *y_quant)
        yield ConformanceCase(f"{name}_{before}_{after}", "QUANTIZE", (x,), (y,), oracles=oracles)


def _dequantize_cases() -> Iterator[ConformanceCase]:
    for dtype, scale, zero_point in (
        ("int8", 0.0371, -128),
        ("int8", 1.7, 127),
        ("uint8", 0.0039, 128),
        ("int16", 0.0003, 0),
    ):
        x, y = quantized((3, 1, 9), dtype, scale, zero_point), CaseTensor((3, 1, 9), "float32")
        yield ConformanceCase(f"{dtype}_{zero_point}", "DEQUANTIZE", (x,), (y,))


CASES: CaseTable = {
    "maximum": partial(_binary_cases, "MAXIMUM", _FOUR, _SAME),
    "minimum": partial(_binary_cases, "MINIMUM", _FOUR, _SAME),
    "logical_and": partial(_binary_cases, "LOGICAL_AND", ("bool",), _SAME),
    "logical_or": partial(_binary_cases, "LOGICAL_OR", ("bool",), _SAME),
    "squared_difference": partial(_binary_cases, "SQUARED_DIFFERENCE", _FOUR, _SQUARES, "", TFLM),
    "prelu": partial(_binary_cases, "PRELU", ("int8", "float32"), _MIXED),
    **{
        name: partial(_binary_cases, name.upper(), (*_FOUR, "bool"), _MIXED, "bool", LITERT)
        for name in ("equal", "not_equal")
    },
    **{
        name: partial(_binary_cases, name.upper(), _FOUR, _SAME, "bool", LITERT)
        for name in ("greater", "greater_equal", "less", "less_equal")
    },
    "add": partial(_arithmetic_cases, "ADD", lambda a, b, y: y),
    "sub": partial(_arithmetic_cases, "SUB", lambda a, b, y: y),
    "mul": _mul_cases,
    "div": _division_cases,
    "floor_div": partial(_integer_cases, "FLOOR_DIV", _DIVISORS, BOTH_PROFILES),
    "floor_mod": partial(_integer_cases, "FLOOR_MOD", _DIVISORS, BOTH_PROFILES),
    "pow": _pow_cases,
    "atan2": partial(_integer_cases, "ATAN2", {"float32": None}),
    "bitwise_xor": partial(_integer_cases, "BITWISE_XOR", dict.fromkeys(_SHIFTS)),
    "right_shift": partial(_integer_cases, "RIGHT_SHIFT", _SHIFTS),
    "ceil": partial(_math_cases, "CEIL", TFLM),
    "cos": partial(_math_cases, "COS"),
    "exp": partial(_math_cases, "EXP", has_quantized=True),
    "floor": partial(_math_cases, "FLOOR"),
    "log": partial(_math_cases, "LOG", has_quantized=True),
    "round": partial(_math_cases, "ROUND", TFLM),
    "rsqrt": partial(_root_cases, "RSQRT", BOTH_PROFILES),
    "sin": partial(_math_cases, "SIN"),
    "sqrt": partial(_root_cases, "SQRT", LITERT),
    **{name: partial(_sign_cases, name.upper()) for name in ("abs", "neg", "sign", "square")},
    "elu": _elu_cases,
    "gelu": _gelu_cases,
    "hard_swish": _hard_swish_cases,
    "leaky_relu": _leaky_cases,
    "relu": partial(_relu_cases, "RELU"),
    "relu6": partial(_relu_cases, "RELU6"),
    "relu_n1_to_1": partial(_relu_cases, "RELU_N1_TO_1", LITERT),
    "relu_0_to_1": partial(_relu_cases, "RELU_0_TO_1", LITERT),
    "logistic": _logistic_cases,
    "tanh": _tanh_cases,
    "cast": _cast_cases,
    "logical_not": lambda: iter([float_case("LOGICAL_NOT", dtype="bool")]),
    "quantize": _quantize_cases,
    "dequantize": _dequantize_cases,
}
