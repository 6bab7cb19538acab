"""Conformance cases of convolutions, fully connected layers and matrix products."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from firmwright.conformance.case import (
    LITERT,
    NO_ACTIVATION,
    TFLM,
    CaseTable,
    CaseTensor,
    ConformanceCase,
    constant,
    float32,
    int_vector,
    quantized,
    random_scales,
    with_int4_weights,
)

# ---- convolutions --------------------------------------------------------------------------------

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


def _conv_cases(builtin: str) -> Iterator[ConformanceCase]:
    """Generate the grid for int8 (per channel), float32 and, in part, int16."""
    for index in range(len(_CONV_GRID)):
        yield _conv_case(builtin, index, "int8")
        if index == 0:
            yield with_int4_weights(_conv_case(builtin, index, "int8"))
        yield _conv_case(builtin, index, "float32")
        if index % 2:
            yield _conv_case(builtin, index, "int16")


def _conv_case(builtin: str, index: int, dtype: str) -> ConformanceCase:
    name, size, channels, count, kernel, stride, dilation, padding, activation = _CONV_GRID[index]
    rng = np.random.default_rng([index, len(builtin)])
    depthwise = builtin == "DEPTHWISE_CONV_2D"
    outputs = channels * (1 + count % 2) if depthwise else count
    w_shape = (1, *kernel, outputs) if depthwise else (outputs, *kernel, channels)
    extents = (
        -(-n // s) if padding == "SAME" else (n - k) // s + 1
        for n, k, s in zip(size, kernel, stride, strict=True)
    )
    options = {
        "padding": padding, "stride_h": stride[0], "stride_w": stride[1],
        "dilation_h_factor": dilation[0], "dilation_w_factor": dilation[1],
        "fused_activation_function": activation,
    }  # fmt: skip
    if depthwise:
        options["depth_multiplier"] = outputs // channels
    x, y = CaseTensor((1, *size, channels), dtype), CaseTensor((1, *extents, outputs), dtype)
    if dtype == "float32":
        w = constant(rng.normal(size=w_shape).astype(np.float32))
        bias = constant(rng.normal(size=outputs).astype(np.float32))
        return ConformanceCase(f"{name}_{dtype}", builtin, (x, w, bias), (y,), options)
    scales = random_scales(rng, outputs)
    wide = dtype == "int16"
    x_scale, y_scale = (0.0003, 0.0005) if wide else (0.05, 0.08)
    bias_dtype, bias_reach = ("int64", 1 << 22) if wide else ("int32", 2000)
    x = quantized(x.shape, dtype, x_scale, 0 if wide else int(rng.integers(-128, 127)))
    weights = rng.integers(-127, 128, w_shape).astype(np.int8)
    biases = rng.integers(-bias_reach, bias_reach, outputs).astype(bias_dtype)
    w = constant(weights, scales, 3 if depthwise else 0)
    bias = constant(biases, tuple(s * x.scales[0] for s in scales), 0)
    y = quantized(y.shape, dtype, y_scale, 0 if wide else int(rng.integers(-128, 127)))
    return ConformanceCase(f"{name}_{dtype}", builtin, (x, w, bias), (y,), options)


def _conv2d_cases() -> Iterator[ConformanceCase]:
    yield from _conv_cases("CONV_2D")
    rng = np.random.default_rng(16)
    x_scale, scale = float32(0.0003), float32(0.01)
    for name, inputs, y_scale, bias_dtype in (
        ("wide_sum_int16", 640, 0.011, "int64"), ("bias32_int16", 9, 0.0007, "int32")
    ):  # fmt: skip
        w = rng.integers(100, 128, (3, 1, 1, inputs)).astype(np.int8)
        bias = rng.integers(-(1 << 20), 1 << 20, 3).astype(bias_dtype)
        x = quantized((1, 2, 2, inputs), "int16", x_scale)
        y = quantized((1, 2, 2, 3), "int16", y_scale)
        options = {"padding": "VALID", "stride_h": 1, "stride_w": 1, **NO_ACTIVATION}
        if bias_dtype == "int32":
            options["quantized_bias_type"] = "int32"
        tensors = (x, constant(w, (scale,)), constant(bias, (scale * x_scale,)))
        yield ConformanceCase(name, "CONV_2D", tensors, (y,), options)


def _hybrid_cases(builtin: str) -> Iterator[ConformanceCase]:
    """Generate the float grid with int8 weights, with one scale and with one per channel.

    Depthwise convolutions have one per channel.
    """
    axis = 3 if builtin == "DEPTHWISE_CONV_2D" else 0
    for index, case in enumerate(_conv_cases(builtin)):
        x, w, bias = case.inputs
        if not case.name.endswith("float32") or w is None:
            continue
        rng = np.random.default_rng([index, 7])
        weights = rng.integers(-127, 128, w.shape).astype(np.int8)
        for name, count in (("tensor", 1), ("channel", w.shape[axis]))[axis // 3 :]:
            w = constant(weights, random_scales(rng, count), axis if count > 1 else None)
            yield replace(case, name=f"hybrid_{name}_{case.name}", inputs=(x, w, bias))


_TRANSPOSE_CONV_GRID = (
    # name, (h, w), channels in and out, kernel, stride, padding, with bias
    ("2x2_stride2", (3, 4), (4, 3), (2, 2), (2, 2), "SAME", True),
    ("3x3_stride2", (4, 3), (3, 5), (3, 3), (2, 2), "SAME", False),
    ("3x3", (4, 5), (2, 2), (3, 3), (1, 1), "SAME", True),
    ("3x2_stride3_1", (2, 4), (4, 4), (3, 2), (3, 1), "VALID", True),
    ("far_apart", (3, 2), (8, 4), (2, 3), (4, 2), "SAME", True),
)


def _transpose_cases() -> Iterator[ConformanceCase]:
    for index in range(len(_TRANSPOSE_CONV_GRID)):
        for dtype in ("int8", "float32") if index == 2 else ("int8", "int16", "float32"):
            yield _transpose_conv_case(index, dtype)
    for dtype, activation in (("int8", "RELU"), ("int16", "RELU6"), ("float32", "RELU_N1_TO_1")):
        case = _transpose_conv_case(0, dtype)
        options = {**case.options, "fused_activation_function": activation}
        yield replace(case, name=f"relu_{dtype}", options=options)
    for bias_dtype, oracles in (("int32", LITERT), ("int16", TFLM)):
        case = _transpose_conv_case(4, "int16")
        *tensors, bias = case.inputs
        assert bias is not None
        assert bias.data is not None
        bias = replace(bias, dtype=bias_dtype, data=(bias.data // 16).astype(bias_dtype))
        options = {
            **case.options,
            "quantized_bias_type": "int32" if bias_dtype == "int32" else "float32",
        }
        yield replace(
            case, name=f"bias_{bias_dtype}_int16", inputs=(*tensors, bias), options=options,
            oracles=oracles,
        )  # fmt: skip


def _transpose_conv_case(index: int, dtype: str) -> ConformanceCase:
    row = _TRANSPOSE_CONV_GRID[index]
    name, size, (inputs, outputs), kernel, stride, padding, with_bias = row
    rng = np.random.default_rng([index, 45])
    extents = (
        (n - 1) * s + k if padding == "VALID" else n * s
        for n, k, s in zip(size, kernel, stride, strict=True)
    )
    x, y = CaseTensor((1, *size, inputs), dtype), CaseTensor((1, *extents, outputs), dtype)
    w_shape = (outputs, *kernel, inputs)
    if dtype == "float32":
        w = constant(rng.normal(size=w_shape).astype(np.float32))
        bias = constant(rng.normal(size=outputs).astype(np.float32)) if with_bias else None
    else:
        scales, wide = random_scales(rng, outputs), dtype == "int16"
        x_scale, y_scale = (0.0003, 0.0007) if wide else (0.05, 0.1)
        x_zero, y_zero = (0, 0) if wide else (int(z) for z in rng.integers(-128, 127, 2))
        x = quantized(x.shape, dtype, x_scale, x_zero)
        y = quantized(y.shape, dtype, y_scale, y_zero)
        w = constant(rng.integers(-127, 128, w_shape).astype(np.int8), scales, 0)
        bias = None
        if with_bias:
            values = rng.integers(-3000, 3000, outputs) * (100 if wide else 1)
            units = tuple(s * x.scales[0] for s in scales)
            bias = constant(values.astype("int64" if wide else "int32"), units, 0)
    tensors = (int_vector(*y.shape), w, x, *([bias] if bias else []))
    options = {"padding": padding, "stride_h": stride[0], "stride_w": stride[1]}
    return ConformanceCase(f"{name}_{dtype}", "TRANSPOSE_CONV", tensors, (y,), options)


# ---- matrix products -----------------------------------------------------------------------------

_FULLY_CONNECTED_CASES = (
    # name, input shape, outputs, activation, keep_num_dims
    ("long", (1, 640), 7, "NONE", False),
    ("batch", (3, 9), 5, "RELU", False),
    ("one", (2, 1), 1, "RELU6", False),
    ("image", (2, 2, 6), 4, "RELU_N1_TO_1", False),
    ("kept", (2, 2, 6), 4, "RELU", True),
)


def _fully_connected_cases() -> Iterator[ConformanceCase]:
    for index in range(len(_FULLY_CONNECTED_CASES)):
        for kind in ("int8", "int8_channels", "float32"):
            yield _fully_connected_case(index, kind)
    yield with_int4_weights(_fully_connected_case(0, "int8"))
    yield from _int16_cases()
    yield _tie_case(1)
    yield _tie_case(2)
    yield _halfway_case("halves", (0.5,))
    yield _halfway_case("halves_channels", (0.5, 0.375, 2.0**-6))
    yield _huge_case()


def _int16_cases() -> Iterator[ConformanceCase]:
    """Generate cases with sums within and beyond 32 bits, ties, and a 32-bit bias or none."""
    rng = np.random.default_rng(61)
    for name, inputs, x_scale, y_scale, count, bias_dtype in (
        ("short", 33, 0.0003, 0.0007, 5, "int64"),
        ("long", 640, 0.0003, 0.02, 1, "int64"),
        ("bias32", 20, 0.0003, 0.0007, 5, "int32"),
        ("no_bias", 20, 0.0003, 0.0007, 1, ""),
        ("ties", 1, 0.5, 1.0, 1, ""),
    ):
        x, y = quantized((6, inputs), "int16", x_scale), quantized((6, 5), "int16", y_scale)
        scales, axis = random_scales(rng, count), 0 if count > 1 else None
        w = rng.integers(90, 128, (5, inputs)).astype(np.int8)
        if name == "ties":
            scales, w = (1.0,), np.ones((5, 1), np.int8)
        bias = None
        if bias_dtype:
            values = rng.integers(-(1 << 20), 1 << 20, 5).astype(bias_dtype)
            bias = constant(values, tuple(s * x.scales[0] for s in scales), axis)
        options: dict[str, object] = {**NO_ACTIVATION}
        if bias_dtype == "int32":
            options["quantized_bias_type"] = "int32"
        inputs_ = (x, constant(w, scales, axis), bias)
        yield ConformanceCase(f"{name}_int16", "FULLY_CONNECTED", inputs_, (y,), options)


def _tie_case(outputs: int) -> ConformanceCase:
    """Return a case with y slightly below x / 2; multiplying scales in float32 makes it a tie."""
    scales, axis = (0.5 - 2.0**-14,) * outputs, 0 if outputs > 1 else None
    x, y = quantized((64, 1), "int8", 1 + 2.0**-13), quantized((64, outputs), "int8", 1.0)
    tensors = (x, constant(np.ones((outputs, 1), np.int8), scales, axis), None)
    return ConformanceCase(f"tie_of_{outputs}", "FULLY_CONNECTED", tensors, (y,), NO_ACTIVATION)


def _halfway_case(name: str, scales: tuple[float, ...]) -> ConformanceCase:
    """Return a case with most sums halfway between two outputs, about half of them negative."""
    axis = 0 if len(scales) > 1 else None
    tensors = (
        quantized((256, 1), "int8", 1.0, 3),
        constant(np.array([[1], [-3], [5]], np.int8), scales, axis),
        constant(np.array([0, 1, -6], np.int32), scales, axis),
    )
    y = quantized((256, 3), "int8", 1.0, -5)
    options = {**NO_ACTIVATION, "keep_num_dims": False}
    return ConformanceCase(name, "FULLY_CONNECTED", tensors, (y,), options)


def _huge_case() -> ConformanceCase:
    """Return a case with sums near ties that no 31-bit multiplier rounds like double."""
    x_scale, scale, y_scale = map(float32, (0.9, 5.1e-8, 0.7))
    ties = np.rint((np.arange(-120, 120) + 0.5) / (x_scale * scale / y_scale)).astype(np.int32)
    tensors = (
        quantized((9, 1), "int8", x_scale),
        constant((np.arange(240).reshape(240, 1) % 2).astype(np.int8), (scale,)),
        constant(ties, (float32(x_scale * scale),)),
    )
    y = quantized((9, 240), "int8", y_scale, -5)
    options = {**NO_ACTIVATION, "keep_num_dims": False}
    return ConformanceCase("huge_sums", "FULLY_CONNECTED", tensors, (y,), options)


def _fully_connected_case(index: int, kind: str) -> ConformanceCase:
    name, x_shape, outputs, activation, keep = _FULLY_CONNECTED_CASES[index]
    rng = np.random.default_rng([index, len(kind)])
    inputs = x_shape[-1] if keep or len(x_shape) == 2 else math.prod(x_shape[1:])
    y_shape = (*x_shape[:-1], outputs) if keep else (math.prod(x_shape) // inputs, outputs)
    if kind == "float32":
        x, y = CaseTensor(x_shape, kind), CaseTensor(y_shape, kind)
        w = constant(rng.normal(size=(outputs, inputs)).astype(np.float32))
        bias = constant(rng.normal(size=outputs).astype(np.float32))
    else:
        count = outputs if kind == "int8_channels" else 1
        axis, scales = 0 if count > 1 else None, random_scales(rng, count)
        x = quantized(x_shape, "int8", 0.043, int(rng.integers(-128, 128)))
        units = tuple(float32(s * x.scales[0]) for s in scales)
        w = constant(rng.integers(-128, 128, (outputs, inputs)).astype(np.int8), scales, axis)
        bias = constant(rng.integers(-3000, 3000, outputs).astype(np.int32), units, axis)
        y_scale = 0.0023 * math.sqrt(inputs)
        y = quantized(y_shape, "int8", y_scale, int(rng.integers(-128, 128)))
    options = {"fused_activation_function": activation, "keep_num_dims": keep}
    return ConformanceCase(f"{name}_{kind}", "FULLY_CONNECTED", (x, w, bias), (y,), options)


def _variable_fully_connected_cases() -> Iterator[ConformanceCase]:
    for case in _fully_connected_cases():
        x, w, bias = case.inputs
        if w is None or len(w.scales) > 1 or w.dtype == "int4" or case.name == "huge_sums":
            continue
        w = replace(w, data=None)
        if bias is not None and case.name.startswith(("batch", "bias32")):
            bias = replace(bias, data=None)
        yield replace(case, name=f"variable_{case.name}", inputs=(x, w, bias))


def _hybrid_fully_connected_cases() -> Iterator[ConformanceCase]:
    """Generate symmetric and asymmetric quantization, one weight scale and one per channel."""
    for index in range(len(_FULLY_CONNECTED_CASES)):
        case = _fully_connected_case(index, "float32")
        x, w, bias = case.inputs
        assert w is not None
        rng = np.random.default_rng([index, 9])
        count, asymmetric = (1, w.shape[0])[index % 2], index % 3 != 0
        weights = rng.integers(-127, 128, w.shape).astype(np.int8)
        w = constant(weights, random_scales(rng, count), 0 if count > 1 else None)
        options = {**case.options, "asymmetric_quantize_inputs": asymmetric}
        inputs = (x, w, bias if index < 3 else None)
        yield replace(case, name=f"hybrid_{case.name}", inputs=inputs, options=options)


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
    rng = np.random.default_rng(31)
    for name, *shapes, adj_x, adj_y, is_constant in _BATCH_MATMUL_CASES:
        for dtype in ("int8", "int16", "float32"):
            if dtype == "int16" and name in ("left", "shared"):
                continue
            if dtype == "float32":
                x, y, z = (CaseTensor(shape, dtype) for shape in shapes)
            else:
                pairs = zip(shapes, _QUANTIZATIONS[dtype], strict=True)
                x, y, z = (quantized(shape, dtype, *quant) for shape, quant in pairs)
            if is_constant:
                y = replace(y, data=(rng.normal(size=y.shape) * 50).astype(dtype))
            options = {"adj_x": adj_x, "adj_y": adj_y}
            yield ConformanceCase(f"{name}_{dtype}", "BATCH_MATMUL", (x, y), (z,), options)


def _hybrid_batch_matmul_cases() -> Iterator[ConformanceCase]:
    for index, case in enumerate(_batch_matmul_cases()):
        x, y = case.inputs
        if y is None or y.dtype != "float32":
            continue
        rng = np.random.default_rng([index, 3])
        y = constant(rng.integers(-127, 128, y.shape).astype(np.int8), random_scales(rng, 1))
        options = {**case.options, "asymmetric_quantize_inputs": index % 2 == 0}
        yield replace(case, name=f"hybrid_{case.name}", inputs=(x, y), options=options)


CASES: CaseTable = {
    "conv2d": _conv2d_cases,
    "depthwise_conv2d": partial(_conv_cases, "DEPTHWISE_CONV_2D"),
    "hybrid_conv2d": partial(_hybrid_cases, "CONV_2D"),
    "hybrid_depthwise_conv2d": partial(_hybrid_cases, "DEPTHWISE_CONV_2D"),
    "variable_fully_connected": _variable_fully_connected_cases,
    "hybrid_fully_connected": _hybrid_fully_connected_cases,
    "transpose_conv": _transpose_cases,
    "fully_connected": _fully_connected_cases,
    "batch_matmul": _batch_matmul_cases,
    "hybrid_batch_matmul": _hybrid_batch_matmul_cases,
}
