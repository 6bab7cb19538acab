"""Conformance cases of fully connected layers and matrix products."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from firmwright.conformance.case import CaseTable, CaseTensor, ConformanceCase
from firmwright.conformance.tensors import constant_tensor, with_int4_weights

_FULLY_CONNECTED_CASES = (
    # name, input shape, outputs, activation, keep_num_dims
    ("long", (1, 640), 7, "NONE", False),
    ("batch", (3, 9), 5, "RELU", False),
    ("one", (2, 1), 1, "RELU6", False),
    ("image", (2, 2, 6), 4, "RELU_N1_TO_1", False),
    ("kept", (2, 2, 6), 4, "RELU", True),
)


def _fully_connected_cases() -> Iterator[ConformanceCase]:
    for index, row in enumerate(_FULLY_CONNECTED_CASES):
        for kind in ("int8", "int8_channels", "float32"):
            yield _fully_connected_case(row, index, kind)
    yield with_int4_weights(_fully_connected_case(_FULLY_CONNECTED_CASES[0], 0, "int8"))
    yield from _int16_cases()
    yield _tie_case(1)
    yield _tie_case(2)
    yield _halfway_case("halves", (0.5,))
    yield _halfway_case("halves_channels", (0.5, 0.375, 2.0**-6))
    yield _huge_case()


def _int16_cases() -> Iterator[ConformanceCase]:
    """Generate cases with sums within and beyond 32 bits, ties, and a 32-bit bias or none."""
    rng = np.random.Generator(np.random.PCG64(61))
    for name, inputs, x_scale, y_scale, count, bias_dtype in (
        ("short", 33, 0.0003, 0.0007, 5, "int64"),
        ("long", 640, 0.0003, 0.02, 1, "int64"),
        ("bias32", 20, 0.0003, 0.0007, 5, "int32"),
        ("no_bias", 20, 0.0003, 0.0007, 1, ""),
        ("ties", 1, 0.5, 1.0, 1, ""),
    ):
        x_scale, y_scale = float(np.float32(x_scale)), float(np.float32(y_scale))
        scales = tuple(float(np.float32(s)) for s in rng.uniform(0.002, 0.02, count))
        w = rng.integers(90, 128, (5, inputs)).astype(np.int8)
        if name == "ties":
            scales, w = (1.0,), np.ones((5, 1), np.int8)
        bias = None
        if bias_dtype:
            values = rng.integers(-(1 << 20), 1 << 20, 5).astype(bias_dtype)
            bias = constant_tensor(
                values, tuple(s * x_scale for s in scales), 0 if count > 1 else None
            )
        options: dict[str, object] = {"fused_activation_function": "NONE"}
        if bias_dtype == "int32":
            options["quantized_bias_type"] = 2
        yield ConformanceCase(
            f"{name}_int16",
            "FULLY_CONNECTED",
            (
                CaseTensor((6, inputs), "int16", (x_scale,), (0,)),
                constant_tensor(w, scales, 0 if count > 1 else None),
                bias,
            ),
            (CaseTensor((6, 5), "int16", (y_scale,), (0,)),),
            options,
        )


def _tie_case(outputs: int) -> ConformanceCase:
    """Return a case with y slightly below x / 2; multiplying scales in float32 makes it a tie."""
    scales = (0.5 - 2.0**-14,) * outputs
    axis = 0 if outputs > 1 else None
    tensors = (
        CaseTensor((64, 1), "int8", (1 + 2.0**-13,), (0,)),
        constant_tensor(np.ones((outputs, 1), np.int8), scales, axis),
    )
    y = CaseTensor((64, outputs), "int8", (1.0,), (0,))
    options = {"fused_activation_function": "NONE"}
    return ConformanceCase(f"tie_of_{outputs}", "FULLY_CONNECTED", (*tensors, None), (y,), options)


def _halfway_case(name: str, scales: tuple[float, ...]) -> ConformanceCase:
    """Return a case with most sums halfway between two outputs, about half of them negative."""
    axis = 0 if len(scales) > 1 else None
    tensors = (
        CaseTensor((256, 1), "int8", (1.0,), (3,)),
        constant_tensor(np.array([[1], [-3], [5]], np.int8), scales, axis),
        constant_tensor(np.array([0, 1, -6], np.int32), scales, axis),
    )
    y = CaseTensor((256, 3), "int8", (1.0,), (-5,))
    options = {"fused_activation_function": "NONE", "keep_num_dims": False}
    return ConformanceCase(name, "FULLY_CONNECTED", tensors, (y,), options)


def _huge_case() -> ConformanceCase:
    """Return a case with sums near ties that no 31-bit multiplier rounds like double."""
    x_scale, scale, y_scale = (float(np.float32(value)) for value in (0.9, 5.1e-8, 0.7))
    ties = np.rint((np.arange(-120, 120) + 0.5) / (x_scale * scale / y_scale)).astype(np.int32)
    tensors = (
        CaseTensor((9, 1), "int8", (x_scale,), (0,)),
        constant_tensor((np.arange(240).reshape(240, 1) % 2).astype(np.int8), (scale,)),
        constant_tensor(ties, (float(np.float32(x_scale * scale)),)),
    )
    y = CaseTensor((9, 240), "int8", (y_scale,), (-5,))
    options = {"fused_activation_function": "NONE", "keep_num_dims": False}
    return ConformanceCase("huge_sums", "FULLY_CONNECTED", tensors, (y,), options)


def _fully_connected_case(
    row: tuple[str, tuple[int, ...], int, str, bool], index: int, kind: str
) -> ConformanceCase:
    name, x_shape, outputs, activation, keep = row
    rng = np.random.Generator(np.random.PCG64([index, len(kind)]))
    inputs = x_shape[-1] if keep or len(x_shape) == 2 else math.prod(x_shape[1:])
    y_shape = (*x_shape[:-1], outputs) if keep else (math.prod(x_shape) // inputs, outputs)
    options = {"fused_activation_function": activation, "keep_num_dims": keep}
    title = f"{name}_{kind}"
    if kind == "float32":
        tensors = (
            CaseTensor(x_shape, kind),
            constant_tensor(rng.normal(size=(outputs, inputs)).astype(np.float32)),
            constant_tensor(rng.normal(size=outputs).astype(np.float32)),
        )
        return ConformanceCase(
            title, "FULLY_CONNECTED", tensors, (CaseTensor(y_shape, kind),), options
        )
    count = outputs if kind == "int8_channels" else 1
    axis = 0 if count > 1 else None
    x_scale = float(np.float32(0.043))
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.002, 0.02, count))
    y_scale = float(np.float32(0.0023 * math.sqrt(inputs)))
    bias_scales = tuple(float(np.float32(s * x_scale)) for s in scales)
    tensors = (
        CaseTensor(x_shape, "int8", (x_scale,), (int(rng.integers(-128, 128)),)),
        constant_tensor(rng.integers(-128, 128, (outputs, inputs)).astype(np.int8), scales, axis),
        constant_tensor(rng.integers(-3000, 3000, outputs).astype(np.int32), bias_scales, axis),
    )
    y = CaseTensor(y_shape, "int8", (y_scale,), (int(rng.integers(-128, 128)),))
    return ConformanceCase(title, "FULLY_CONNECTED", tensors, (y,), options)


_BATCH_MATMUL_CASES = (
    # name, shapes, adj_x, adj_y, second input constant
    ("plain", (2, 3, 5), (2, 5, 4), (2, 3, 4), False, False, False),
    ("left", (2, 5, 3), (2, 5, 4), (2, 3, 4), True, False, False),
    ("right", (3, 7), (4, 7), (3, 4), False, True, True),
    ("spread", (2, 1, 3, 5), (3, 5, 2), (2, 3, 3, 2), False, False, False),
    ("shared", (4, 3, 5), (1, 2, 5), (4, 3, 2), False, True, False),
)

_QUANTIZATIONS = {
    "int8": ((0.05, 3), (0.02, -9), (0.03, 7)),
    "int16": ((0.0005, 0), (0.0002, 0), (0.0003, 0)),
}


def _batch_matmul_cases() -> Iterator[ConformanceCase]:
    rng = np.random.Generator(np.random.PCG64(31))
    for name, *shapes, adj_x, adj_y, constant in _BATCH_MATMUL_CASES:
        for dtype in ("int8", "int16", "float32"):
            if dtype == "int16" and name in ("left", "shared"):
                continue
            quants = _QUANTIZATIONS.get(dtype, (None,) * 3)
            x, y, z = (
                CaseTensor(shape, dtype)
                if quant is None
                else CaseTensor(shape, dtype, (float(np.float32(quant[0])),), (quant[1],))
                for shape, quant in zip(shapes, quants, strict=True)
            )
            if constant:
                values = (rng.normal(size=y.shape) * 50).astype(dtype)
                y = CaseTensor(y.shape, dtype, y.scales, y.zero_points, data=values)
            options = {"adj_x": adj_x, "adj_y": adj_y}
            yield ConformanceCase(f"{name}_{dtype}", "BATCH_MATMUL", (x, y), (z,), options)


CASES: CaseTable = {"fully_connected": _fully_connected_cases, "batch_matmul": _batch_matmul_cases}
