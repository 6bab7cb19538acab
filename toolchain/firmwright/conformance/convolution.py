"""Conformance cases of convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from firmwright.conformance.case import CaseTable, CaseTensor, ConformanceCase
from firmwright.conformance.tensors import constant_tensor, with_int4_weights

_CONV_GRID = (
    # name, (h, w), in and out channels, (kh, kw), stride, dilation, padding, activation
    ("1x1", (5, 4), 8, 6, (1, 1), (1, 1), (1, 1), "VALID", "NONE"),
    ("1x1_odd_channels", (3, 5), 5, 3, (1, 1), (1, 1), (1, 1), "VALID", "RELU"),
    ("3x3_same", (6, 5), 4, 4, (3, 3), (1, 1), (1, 1), "SAME", "RELU6"),
    ("3x3_stride2", (7, 6), 3, 5, (3, 3), (2, 2), (1, 1), "SAME", "RELU"),
    ("3x3_dilated", (8, 7), 2, 3, (3, 3), (1, 1), (2, 2), "SAME", "NONE"),
    ("4x3_strides_1_2", (9, 8), 1, 7, (4, 3), (1, 2), (1, 1), "SAME", "RELU_N1_TO_1"),
    ("3x1_valid", (6, 1), 4, 4, (3, 1), (1, 1), (1, 1), "VALID", "RELU"),
    ("5x5_one_pixel", (5, 5), 3, 2, (5, 5), (1, 1), (1, 1), "VALID", "NONE"),
)


def conv_cases(builtin: str) -> Iterator[ConformanceCase]:
    """Generate the grid for int8 (per channel), float32 and partly int16."""
    for index, row in enumerate(_CONV_GRID):
        yield _conv_case(builtin, row, index, "int8")
        if index == 0:
            yield with_int4_weights(_conv_case(builtin, row, index, "int8"))
        yield _conv_case(builtin, row, index, "float32")
        if index % 2:
            yield _conv_case(builtin, row, index, "int16")


def _conv_case(builtin: str, row: tuple, index: int, dtype: str) -> ConformanceCase:  # type: ignore[type-arg]  # a table row
    name, (height, width), channels, count, size, stride, dilation, padding, activation = row
    rng = np.random.Generator(np.random.PCG64([index, len(builtin)]))
    depthwise = builtin == "DEPTHWISE_CONV_2D"
    outputs = channels * (1 + count % 2) if depthwise else count
    w_shape = (1, *size, outputs) if depthwise else (outputs, *size, channels)
    rows, cols = (
        -(-height // stride[0]) if padding == "SAME" else (height - size[0]) // stride[0] + 1,
        -(-width // stride[1]) if padding == "SAME" else (width - size[1]) // stride[1] + 1,
    )
    options = {
        "padding": padding,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "dilation_h_factor": dilation[0],
        "dilation_w_factor": dilation[1],
        "fused_activation_function": activation,
    }
    if depthwise:
        options["depth_multiplier"] = outputs // channels
    x_shape, y_shape = (1, height, width, channels), (1, rows, cols, outputs)
    if dtype == "float32":
        w = rng.normal(size=w_shape).astype(np.float32)
        bias = rng.normal(size=outputs).astype(np.float32)
        tensors = (
            CaseTensor(x_shape, dtype),
            CaseTensor(w_shape, dtype, data=w),
            CaseTensor((outputs,), dtype, data=bias),
        )
        return ConformanceCase(
            f"{name}_{dtype}", builtin, tensors, (CaseTensor(y_shape, dtype),), options
        )
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.002, 0.02, outputs))
    wide = dtype == "int16"
    x_scale, y_scale = (0.0003, 0.0005) if wide else (0.05, 0.08)
    x_scale, y_scale = float(np.float32(x_scale)), float(np.float32(y_scale))
    bias_dtype, bias_reach = ("int64", 1 << 22) if wide else ("int32", 2000)
    x_zero = 0 if wide else int(rng.integers(-128, 127))
    tensors = (
        CaseTensor(x_shape, dtype, (x_scale,), (x_zero,)),
        CaseTensor(
            w_shape, "int8", scales, (0,) * outputs, 3 if depthwise else 0,
            rng.integers(-127, 128, w_shape).astype(np.int8),
        ),
        CaseTensor(
            (outputs,), bias_dtype, tuple(s * x_scale for s in scales), (0,) * outputs, 0,
            rng.integers(-bias_reach, bias_reach, outputs).astype(bias_dtype),
        ),
    )  # fmt: skip
    y_zero = 0 if wide else int(rng.integers(-128, 127))
    y = CaseTensor(y_shape, dtype, (y_scale,), (y_zero,))
    return ConformanceCase(f"{name}_{dtype}", builtin, tensors, (y,), options)


def _conv2d_cases() -> Iterator[ConformanceCase]:
    yield from conv_cases("CONV_2D")
    yield from _wide_sum_cases()


def _wide_sum_cases() -> Iterator[ConformanceCase]:
    rng = np.random.Generator(np.random.PCG64(16))
    options = {
        "padding": "VALID",
        "stride_h": 1,
        "stride_w": 1,
        "fused_activation_function": "NONE",
    }
    x_scale, scale = float(np.float32(0.0003)), float(np.float32(0.01))
    for name, inputs, y_scale, bias_dtype in (
        ("wide_sum", 640, 0.011, "int64"),
        ("bias32", 9, 0.0007, "int32"),
    ):
        w = rng.integers(100, 128, (3, 1, 1, inputs)).astype(np.int8)
        bias = rng.integers(-(1 << 20), 1 << 20, 3).astype(bias_dtype)
        tensors = (
            CaseTensor((1, 2, 2, inputs), "int16", (x_scale,), (0,)),
            constant_tensor(w, (scale,)),
            constant_tensor(bias, (scale * x_scale,)),
        )
        y = CaseTensor((1, 2, 2, 3), "int16", (float(np.float32(y_scale)),), (0,))
        kind = {"quantized_bias_type": 2} if bias_dtype == "int32" else {}
        yield ConformanceCase(f"{name}_int16", "CONV_2D", tensors, (y,), {**options, **kind})


def _hybrid_cases() -> Iterator[ConformanceCase]:
    """Generate conv2d's float grid with int8 weights, with one scale and with one per channel."""
    for index, case in enumerate(conv_cases("CONV_2D")):
        if not case.name.endswith("float32") or case.inputs[1] is None:
            continue
        rng = np.random.Generator(np.random.PCG64([index, 7]))
        shape = case.inputs[1].shape
        weights = rng.integers(-127, 128, shape).astype(np.int8)
        for name, count in (("tensor", 1), ("channel", shape[0])):
            scales = tuple(float(np.float32(s)) for s in rng.uniform(0.002, 0.02, count))
            axis = 0 if count > 1 else None
            w = CaseTensor(shape, "int8", scales, (0,) * count, axis, weights)
            inputs = (case.inputs[0], w, case.inputs[2])
            yield ConformanceCase(
                f"hybrid_{name}_{case.name}", "CONV_2D", inputs, case.outputs, case.options
            )


_TRANSPOSE_CONV_GRID = (
    # name, (h, w), channels in and out, kernel, stride, padding, with bias
    ("2x2_stride2", (3, 4), (4, 3), (2, 2), (2, 2), "SAME", True),
    ("3x3_stride2", (4, 3), (3, 5), (3, 3), (2, 2), "SAME", False),
    ("3x3", (4, 5), (2, 2), (3, 3), (1, 1), "SAME", True),
    ("3x2_stride3_1", (2, 4), (4, 4), (3, 2), (3, 1), "VALID", True),
    ("far_apart", (3, 2), (8, 4), (2, 3), (4, 2), "SAME", True),
)


def _transpose_cases() -> Iterator[ConformanceCase]:
    for index, row in enumerate(_TRANSPOSE_CONV_GRID):
        for dtype in ("int8", "int16", "float32"):
            if dtype != "int16" or index != 2:
                yield _transpose_conv_case(index, row, dtype)


def _transpose_conv_case(index: int, row: tuple, dtype: str) -> ConformanceCase:  # type: ignore[type-arg]  # a table row
    name, size, (inputs, outputs), kernel, stride, padding, with_bias = row
    rng = np.random.Generator(np.random.PCG64([index, 45]))
    valid = padding == "VALID"
    out = [
        (n - 1) * s + k if valid else n * s for n, k, s in zip(size, kernel, stride, strict=True)
    ]
    x_shape, y_shape = (1, *size, inputs), (1, *out, outputs)
    options = {"padding": padding, "stride_h": stride[0], "stride_w": stride[1]}
    shape = constant_tensor(np.array(y_shape, np.int32))
    w_shape = (outputs, *kernel, inputs)
    if dtype == "float32":
        tensors = [shape, constant_tensor(rng.normal(size=w_shape).astype(np.float32))]
        tensors.append(CaseTensor(x_shape, dtype))
        if with_bias:
            tensors.append(constant_tensor(rng.normal(size=outputs).astype(np.float32)))
        y = CaseTensor(y_shape, dtype)
        return ConformanceCase(f"{name}_{dtype}", "TRANSPOSE_CONV", tuple(tensors), (y,), options)
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.002, 0.02, outputs))
    wide = dtype == "int16"
    x_scale, y_scale = (float(np.float32(s)) for s in ((0.0003, 0.0007) if wide else (0.05, 0.1)))
    x_zero, y_zero = (0, 0) if wide else (int(z) for z in rng.integers(-128, 127, 2))
    weights = rng.integers(-127, 128, w_shape).astype(np.int8)
    tensors = [shape, constant_tensor(weights, scales, 0)]
    tensors.append(CaseTensor(x_shape, dtype, (x_scale,), (x_zero,)))
    if with_bias:
        bias = rng.integers(-3000, 3000, outputs) * (100 if wide else 1)
        kind, units = ("int64" if wide else "int32"), tuple(s * x_scale for s in scales)
        tensors.append(constant_tensor(bias.astype(kind), units, 0))
    y = CaseTensor(y_shape, dtype, (y_scale,), (y_zero,))
    return ConformanceCase(f"{name}_{dtype}", "TRANSPOSE_CONV", tuple(tensors), (y,), options)


CASES: CaseTable = {
    "conv2d": _conv2d_cases,
    "depthwise_conv2d": partial(conv_cases, "DEPTHWISE_CONV_2D"),
    "hybrid_conv2d": _hybrid_cases,
    "transpose_conv": _transpose_cases,
}
