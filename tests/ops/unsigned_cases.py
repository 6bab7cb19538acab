"""Cases of uint8: the int8 conformance cases with unsigned tensors, and random layers."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from firmwright.conformance.case import (
    CaseTensor,
    ConformanceCase,
    constant,
    float32,
    int_vector,
    quantized,
)
from firmwright.conformance.registry import conformance_cases
from firmwright.ops.registry import op_table

OFFSET = 128
WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
SIGNED_ONLY = frozenset(
    ("ABS", "ADD_N", "BATCH_MATMUL", "BROADCAST_TO", "CUMSUM", "ELU", "EXP", "LOG", "REDUCE_PROD",
     "RSQRT", "SQRT", "SQUARED_DIFFERENCE", "SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM",
     "custom:CIRCULAR_BUFFER")
)  # fmt: skip
"""Operators for which LiteRT has int8 and no uint8."""


def unsigned_cases() -> Iterator[tuple[str, ConformanceCase]]:
    """Generate (operator, case) for every int8 case that LiteRT runs with uint8 tensors too."""
    for op in op_table():
        for case in conformance_cases(op):
            kinds = {tensor.dtype for tensor in (*case.inputs, *case.outputs) if tensor}
            mixed = kinds & {"int16", "int64", "int4"} or case.builtin in SIGNED_ONLY
            if op.startswith("hybrid_") or (case.builtin in WEIGHTED and "float32" in kinds):
                continue
            if case.builtin == "QUANTIZE" and {"int32", "int16", "uint8"} & kinds:
                continue
            if "int8" in kinds and not mixed and _is_quantized(case):
                yield op, _unsigned(case)
            if op == "detections":
                yield op, _unsigned_detections(case)


def _unsigned_detections(case: ConformanceCase) -> ConformanceCase:
    boxes, scores, anchors = (tensor for tensor in case.inputs if tensor is not None)
    assert anchors.data is not None
    steps = np.round(anchors.data / 0.01).astype(np.int64) + 40
    coded = constant(steps.clip(0, 255).astype(np.uint8), (float32(0.01),))
    inputs = (
        quantized(boxes.shape, "uint8", 0.05, 131),
        quantized(scores.shape, "uint8", 1 / 256, 0),
        replace(coded, zero_points=(40,)),
    )
    return replace(case, name=f"{case.name}_unsigned", inputs=inputs)


def _is_quantized(case: ConformanceCase) -> bool:
    tensors = (*case.inputs, *case.outputs)
    return all(tensor.scales for tensor in tensors if tensor and tensor.dtype == "int8")


def _unsigned(case: ConformanceCase) -> ConformanceCase:
    inputs = [None if tensor is None else _as_unsigned(tensor) for tensor in case.inputs]
    if case.builtin in WEIGHTED and inputs[1] is not None:
        rng = np.random.default_rng(zlib.crc32(case.name.encode()))
        inputs[1] = replace(inputs[1], zero_points=(int(rng.integers(0, 256)),))
        x, bias = inputs[2 if case.builtin == "TRANSPOSE_CONV" else 0], inputs[-1]
        if bias is not None and bias.scales and bias.dtype == "int32" and x is not None:
            unit = float32(x.scales[0] * inputs[1].scales[0])
            inputs[-1] = replace(bias, scales=(unit,), zero_points=(0,), axis=None)
    outputs = tuple(map(_as_unsigned, case.outputs))
    return replace(case, name=f"{case.name}_unsigned", inputs=tuple(inputs), outputs=outputs)


def _as_unsigned(tensor: CaseTensor) -> CaseTensor:
    if tensor.dtype != "int8" or not tensor.scales:
        return tensor
    data, limits = tensor.data, tensor.value_range
    return replace(
        tensor,
        dtype="uint8",
        scales=tensor.scales[:1],
        zero_points=(tensor.zero_points[0] + OFFSET,),
        axis=None,
        data=None if data is None else data.view(np.uint8) ^ OFFSET,
        value_range=limits and (limits[0] + OFFSET, limits[1] + OFFSET),
    )


def random_layers(seed: int, count: int) -> Iterator[ConformanceCase]:
    """Generate `count` layers with random shapes, scales, zero points and activations."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        layer = (_convolution, _convolution, _matrix, _pool, _join, _sum, _resize)[number % 7]
        yield layer(rng, f"random_{number}")


def _tensor(rng: np.random.Generator, shape: tuple[int, ...], low: float = 0.01) -> CaseTensor:
    return quantized(shape, "uint8", rng.uniform(low, 10 * low), int(rng.integers(0, 256)))


def _activation(rng: np.random.Generator) -> str:
    return str(rng.choice(["NONE", "RELU", "RELU6", "RELU_N1_TO_1"]))


def _weights(
    rng: np.random.Generator, x: CaseTensor, shape: tuple[int, ...], outputs: int
) -> tuple[CaseTensor, CaseTensor]:
    scale = float32(rng.uniform(0.001, 0.02))
    data = rng.integers(0, 256, shape).astype(np.uint8)
    weights = replace(constant(data, (scale,)), zero_points=(int(rng.integers(0, 256)),))
    bias = rng.integers(-3000, 3000, outputs).astype(np.int32)
    return weights, constant(bias, (float32(np.float32(x.scales[0]) * np.float32(scale)),))


def _convolution(rng: np.random.Generator, name: str) -> ConformanceCase:
    depthwise, padding = bool(rng.integers(2)), str(rng.choice(["SAME", "VALID"]))
    kernel, stride = rng.integers(1, 5, 2).tolist(), rng.integers(1, 3, 2).tolist()
    size, channels = rng.integers(5, 9, 2).tolist(), int(rng.integers(1, 9))
    outputs = channels * int(rng.integers(1, 3)) if depthwise else int(rng.integers(1, 9))
    extents = [
        -(-n // s) if padding == "SAME" else (n - k) // s + 1
        for n, k, s in zip(size, kernel, stride, strict=True)
    ]
    x = _tensor(rng, (1, *size, channels))
    shape = (1, *kernel, outputs) if depthwise else (outputs, *kernel, channels)
    y = _tensor(rng, (1, *extents, outputs), 0.05)
    options = {
        "padding": padding, "stride_h": stride[0], "stride_w": stride[1],
        "dilation_h_factor": 1, "dilation_w_factor": 1,
        "fused_activation_function": _activation(rng),
    }  # fmt: skip
    if depthwise:
        options["depth_multiplier"] = outputs // channels
    builtin = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    return ConformanceCase(name, builtin, (x, *_weights(rng, x, shape, outputs)), (y,), options)


def _matrix(rng: np.random.Generator, name: str) -> ConformanceCase:
    rows, inputs, outputs = (int(n) for n in rng.integers(1, (4, 65, 17)))
    x, y = _tensor(rng, (rows, inputs)), _tensor(rng, (rows, outputs), 0.05)
    options = {"fused_activation_function": _activation(rng), "keep_num_dims": False}
    tensors = (x, *_weights(rng, x, (outputs, inputs), outputs))
    return ConformanceCase(name, "FULLY_CONNECTED", tensors, (y,), options)


def _pool(rng: np.random.Generator, name: str) -> ConformanceCase:
    kernel, padding = rng.integers(1, 5, 2).tolist(), str(rng.choice(["SAME", "VALID"]))
    size, channels = rng.integers(5, 9, 2).tolist(), int(rng.choice([1, 3, 4, 8, 12]))
    extents = size if padding == "SAME" else [n - k + 1 for n, k in zip(size, kernel, strict=True)]
    x = _tensor(rng, (1, *size, channels))
    options = {
        "padding": padding, "stride_h": 1, "stride_w": 1, "filter_height": kernel[0],
        "filter_width": kernel[1], "fused_activation_function": _activation(rng),
    }  # fmt: skip
    y = replace(x, shape=(1, *extents, channels))
    return ConformanceCase(name, "AVERAGE_POOL_2D", (x,), (y,), options)


def _join(rng: np.random.Generator, name: str) -> ConformanceCase:
    parts = [_tensor(rng, (2, 16, int(n))) for n in rng.integers(1, 9, 3)]
    y = _tensor(rng, (2, 16, sum(part.shape[2] for part in parts)))
    options = {"axis": 2, "fused_activation_function": "NONE"}
    return ConformanceCase(name, "CONCATENATION", tuple(parts), (y,), options)


def _sum(rng: np.random.Generator, name: str) -> ConformanceCase:
    tensors = [_tensor(rng, (2, 5, 5, 4)) for _ in range(3)]
    builtin = str(rng.choice(["ADD", "SUB", "MUL"]))
    options = {"fused_activation_function": _activation(rng)}
    return ConformanceCase(name, builtin, (tensors[0], tensors[1]), (tensors[2],), options)


def _resize(rng: np.random.Generator, name: str) -> ConformanceCase:
    size, target = rng.integers(2, 6, 2).tolist(), rng.integers(1, 12, 2).tolist()
    x, form = _tensor(rng, (1, *size, 3)), int(rng.integers(3))
    options = {"align_corners": form == 1, "half_pixel_centers": form == 2}
    y = replace(x, shape=(1, *target, 3))
    return ConformanceCase(name, "RESIZE_BILINEAR", (x, int_vector(*target)), (y,), options)
