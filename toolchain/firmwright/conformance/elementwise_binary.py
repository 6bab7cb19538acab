"""Conformance cases of elementwise operators with two inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT16
from firmwright.conformance.case import (
    BOTH_PROFILES,
    LITERT,
    CaseTable,
    CaseTensor,
    ConformanceCase,
)
from firmwright.ir.graph.opdef import NumericsProfile
from firmwright.ops.elementwise import broadcast_shape

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


def binary_cases(
    builtin: str, y_scale: Callable[[float, float, float], float]
) -> Iterator[ConformanceCase]:
    """Generate the grid for all dtypes; `y_scale` computes the output scale of a row."""
    for index, row in enumerate(_ARITHMETIC_GRID):
        name, a_shape, b_shape, scales, zero_points, activation, constant = row
        rng = np.random.Generator(np.random.PCG64([index, 7]))
        options = {"fused_activation_function": activation}
        y_shape = broadcast_shape(a_shape, b_shape)
        exact = [float(np.float32(s)) for s in (*scales[:2], y_scale(*scales))]
        data = rng.integers(-128, 128, b_shape).astype(np.int8) if constant else None
        a, b, y = (
            CaseTensor(shape, "int8", (scale,), (zero_point,), None, values)
            for shape, scale, zero_point, values in zip(
                (a_shape, b_shape, y_shape), exact, zero_points, (None, data, None), strict=True
            )
        )
        yield ConformanceCase(f"{name}_int8", builtin, (a, b), (y,), options)
        if index % 2 == 0:
            yield _int16_case(builtin, row, exact)
        real = rng.normal(size=b_shape).astype(np.float32) if constant else None
        a, b, y = (
            CaseTensor(shape, "float32", data=values)
            for shape, values in ((a_shape, None), (b_shape, real), (y_shape, None))
        )
        yield ConformanceCase(f"{name}_float32", builtin, (a, b), (y,), options)
        if name in ("same_scales", "columns"):
            a, b, y = (CaseTensor(tensor.shape, "int32") for tensor in (a, b, y))
            yield ConformanceCase(
                f"{name}_int32", builtin, (a, b), (y,), {**options, **_NO_ACTIVATION}
            )


_NO_ACTIVATION: dict[str, object] = {"fused_activation_function": "NONE"}


def _int16_case(builtin: str, row: tuple, scales: Sequence[float]) -> ConformanceCase:  # type: ignore[type-arg]  # a table row
    name, a_shape, b_shape, _, _, activation, constant = row
    rng = np.random.Generator(np.random.PCG64(len(name)))
    options: dict[str, object] = {"fused_activation_function": activation}
    if builtin != "MUL":
        options["pot_scale_int16"] = False
    data = rng.integers(-32768, 32768, b_shape).astype(np.int16) if constant else None
    down = 2.0**-7 if builtin != "MUL" else 2.0**-5
    shapes = (a_shape, b_shape, broadcast_shape(a_shape, b_shape))
    a, b, y = (
        CaseTensor(shape, "int16", (scale * down,), (0,), None, values)
        for shape, scale, values in zip(shapes, scales, (None, data, None), strict=True)
    )
    return ConformanceCase(f"{name}_int16", builtin, (a, b), (y,), options)


_SHAPES = (("same", (3, 7), (3, 7)), ("rows", (2, 3, 5), (5,)))


def _elementwise_binary_cases(
    builtin: str,
    dtypes: Sequence[str],
    quants: Sequence[tuple[float, int]],
    result: str = "",
    int16_oracles: tuple[NumericsProfile, ...] = (),
) -> Iterator[ConformanceCase]:
    """Generate cases with the (scale, zero point) of `quants`; int16 scales are 1/100 of them.

    int16 tensors are quantized only if `int16_oracles` is given.
    """
    for index, (name, a_shape, b_shape) in enumerate(_SHAPES):
        for dtype in dtypes if index == 0 else dtypes[:1]:
            kinds = zip((a_shape, b_shape, a_shape), (dtype, dtype, result or dtype), strict=True)
            a, b, y = (
                _optional_quant_tensor(
                    shape, kind, quant if kind == "int8" or int16_oracles else None
                )
                for (shape, kind), quant in zip(kinds, quants, strict=True)
            )
            oracles = int16_oracles if dtype == "int16" and int16_oracles else BOTH_PROFILES
            yield ConformanceCase(f"{name}_{dtype}", builtin, (a, b), (y,), oracles=oracles)


def _optional_quant_tensor(
    shape: tuple[int, ...], dtype: str, quant: tuple[float, int] | None
) -> CaseTensor:
    if quant is None or dtype not in ("int8", "int16"):
        return CaseTensor(shape, dtype)
    scale, zero = quant if dtype == "int8" else (quant[0] / 100, 0)
    return CaseTensor(shape, dtype, (float(np.float32(scale)),), (zero,))


_SQUARES = ((0.05, 3), (0.03, -9), (0.6, 5))
_COMPARED = ((0.05, 3), (0.05, 3), (0.05, 3))
_MIXED = ((0.05, 3), (0.03, -9), (0.06, 5))
_SAME = ((0.05, 3),) * 3
_FOUR = ("int8", "int16", "int32", "float32")
_COMPARISONS = ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")


def _division_cases() -> Iterator[ConformanceCase]:
    rng = np.random.Generator(np.random.PCG64(9))
    for dtype, activation in (("float32", "NONE"), ("float32", "RELU6"), ("int32", "NONE")):
        divisors = rng.integers(1, 9, 5) * rng.choice([-1, 1], 5)
        b = CaseTensor((5,), dtype, data=divisors.astype(dtype))
        x = CaseTensor((3, 5), dtype)
        options = {"fused_activation_function": activation}
        yield ConformanceCase(f"{dtype}_{activation.lower()}", "DIV", (x, b), (x,), options)
    # Divisors and factors for which no shift of the reference exceeds 31 bits.
    for name, y_quant, activation, shape, dividends in (
        ("below", (0.011, 3), "NONE", (3, 5), (-128, -1)),
        ("above", (0.007, -128), "RELU", (5,), (10, 127)),
    ):
        a, b, y = (
            CaseTensor(size, "int8", (float(np.float32(scale)),), (zero,), value_range=limits)
            for size, (scale, zero), limits in (
                ((3, 5), (0.05, 3), dividends),
                (shape, (0.1, -128), (0, 127)),
                ((3, 5), y_quant, None),
            )
        )
        options = {"fused_activation_function": activation}
        yield ConformanceCase(f"{name}_int8", "DIV", (a, b), (y,), options)
    a, b, y = (
        CaseTensor((3, 5), "int16", (float(np.float32(scale)),), (0,), value_range=limits)
        for scale, limits in ((0.001, None), (0.002, (9, INT16.max)), (0.0001, None))
    )
    options = {"fused_activation_function": "NONE"}
    yield ConformanceCase("mid_int16", "DIV", (a, b), (y,), options, ("litert",))


def _integer_cases(
    builtin: str, rows: Mapping[str, Any], oracles: Mapping[str, tuple[NumericsProfile, ...]]
) -> Iterator[ConformanceCase]:
    """Generate a case per dtype; `rows` holds the value range of the second input or ()."""
    for dtype, limits in rows.items():
        a = CaseTensor((2, 3, 5), dtype)
        b = CaseTensor(
            (3, 5) if "FLOOR" in builtin else (2, 3, 5), dtype, value_range=limits or None
        )
        yield ConformanceCase(dtype, builtin, (a, b), (a,), {}, oracles.get(dtype, LITERT))


def _pow_cases() -> Iterator[ConformanceCase]:
    for dtype, base, exponent in (("float32", (0, 3), (-2, 2)), ("int32", (-9, 9), (0, 7))):
        a = CaseTensor((3, 5), dtype, value_range=base)
        b = CaseTensor((5,), dtype, value_range=exponent)
        yield ConformanceCase(dtype, "POW", (a, b), (a,), {}, LITERT)


_DIVISORS = {"int8": (-100, -1), "int16": (1, 300), "int32": (-1000, -1), "float32": (1, 3)}
_SHIFTS = {"int8": (0, 7), "uint8": (0, 7), "int16": (0, 15), "int32": (0, 31)}


CASES: CaseTable = {
    "maximum": partial(_elementwise_binary_cases, "MAXIMUM", _FOUR, _SAME),
    "minimum": partial(_elementwise_binary_cases, "MINIMUM", _FOUR, _SAME),
    "logical_and": partial(_elementwise_binary_cases, "LOGICAL_AND", ("bool",), _SAME),
    "logical_or": partial(_elementwise_binary_cases, "LOGICAL_OR", ("bool",), _SAME),
    "squared_difference": partial(
        _elementwise_binary_cases, "SQUARED_DIFFERENCE", _FOUR, _SQUARES, "", ("tflm",)
    ),
    "prelu": partial(_elementwise_binary_cases, "PRELU", ("int8", "float32"), _MIXED),
    **{
        name: partial(
            _elementwise_binary_cases,
            name.upper(),
            (*_FOUR, "bool") if name in ("equal", "not_equal") else _FOUR,
            _MIXED if name in ("equal", "not_equal") else _COMPARED,
            "bool",
            LITERT,
        )
        for name in _COMPARISONS
    },
    "add": partial(binary_cases, "ADD", lambda a, b, y: y),
    "sub": partial(binary_cases, "SUB", lambda a, b, y: y),
    "mul": partial(binary_cases, "MUL", lambda a, b, y: a * b * 60),
    "div": _division_cases,
    "floor_div": partial(_integer_cases, "FLOOR_DIV", _DIVISORS, {"float32": BOTH_PROFILES}),
    "floor_mod": partial(_integer_cases, "FLOOR_MOD", _DIVISORS, {"float32": BOTH_PROFILES}),
    "pow": _pow_cases,
    "atan2": partial(_integer_cases, "ATAN2", {"float32": ()}, {}),
    "bitwise_xor": partial(_integer_cases, "BITWISE_XOR", dict.fromkeys(_SHIFTS, ()), {}),
    "right_shift": partial(_integer_cases, "RIGHT_SHIFT", _SHIFTS, {}),
}
