"""Conformance cases of pooling and L2 normalization."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from firmwright.conformance.case import CaseTable, CaseTensor, ConformanceCase
from firmwright.ops.pooling import DTYPES

_POOL_GRID = (
    # name, (n, h, w, c), size, stride, padding, activation, zero point
    ("2x2", (1, 4, 6, 3), (2, 2), (2, 2), "VALID", "NONE", -128),
    ("global", (1, 5, 7, 4), (5, 7), (5, 7), "VALID", "NONE", 3),
    ("3x3_same", (2, 5, 4, 3), (3, 3), (1, 1), "SAME", "RELU", -20),
    ("3x2_same_stride2", (1, 7, 6, 5), (3, 2), (2, 2), "SAME", "RELU6", 127),
    ("2x3_stride_1_2", (1, 3, 8, 1), (2, 3), (1, 2), "VALID", "RELU_N1_TO_1", 0),
)


def pool_cases(builtin: str) -> Iterator[ConformanceCase]:
    for index, row in enumerate(_POOL_GRID):
        for dtype in DTYPES if index % 2 else ("int8", "float32"):
            yield _pool_case(builtin, row, dtype)


def _pool_case(builtin: str, row: tuple, dtype: str) -> ConformanceCase:  # type: ignore[type-arg]  # a table row
    name, x_shape, size, stride, padding, activation, zero_point = row
    rows, cols = (
        -(-length // step) if padding == "SAME" else (length - reach) // step + 1
        for length, reach, step in zip(x_shape[1:3], size, stride, strict=True)
    )
    options = {
        "padding": padding,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "filter_height": size[0],
        "filter_width": size[1],
        "fused_activation_function": activation,
    }
    x = CaseTensor(x_shape, dtype)
    if dtype != "float32":
        scale, zero = float(np.float32(0.035)), zero_point if dtype == "int8" else 0
        x = CaseTensor(x_shape, dtype, (scale,), (zero,))
    y = replace(x, shape=(x_shape[0], rows, cols, x_shape[3]))
    return ConformanceCase(f"{name}_{dtype}", builtin, (x,), (y,), options)


def _l2_normalization_cases() -> Iterator[ConformanceCase]:
    options = {"fused_activation_function": "NONE"}
    for name, shape, scale, zero_point in (
        ("row", (1, 12), 0.05, 3),
        ("image", (2, 3, 2, 5), 1.3, -128),
        ("one", (7, 1), 0.02, 127),
        ("long", (2, 700), 0.3, 0),
    ):
        x = CaseTensor(shape, "int8", (float(np.float32(scale)),), (zero_point,))
        y = CaseTensor(shape, "int8", (1 / 128,), (0,))
        yield ConformanceCase(f"{name}_int8", "L2_NORMALIZATION", (x,), (y,), options)
        if name in ("row", "image"):
            real = CaseTensor(shape, "float32")
            yield ConformanceCase(f"{name}_float32", "L2_NORMALIZATION", (real,), (real,), options)


def _l2_pool_cases() -> Iterator[ConformanceCase]:
    return (case for case in pool_cases("L2_POOL_2D") if case.name.endswith("_float32"))


CASES: CaseTable = {
    "average_pool2d": partial(pool_cases, "AVERAGE_POOL_2D"),
    "max_pool2d": partial(pool_cases, "MAX_POOL_2D"),
    "l2_normalization": _l2_normalization_cases,
    "l2_pool2d": _l2_pool_cases,
}
