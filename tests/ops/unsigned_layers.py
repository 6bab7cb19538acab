"""Random uint8 layers in TFLite's terms: shapes, quantization and activations vary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from firmwright.conformance.case_tables import (
    CaseTensor,
    ConformanceCase,
    constant,
    float32,
    quantized,
)

COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "GREATER_EQUAL")
RESULTS = {
    "LOGISTIC": (1 / 256, 0),
    "SOFTMAX": (1 / 256, 0),
    "TANH": (1 / 128, 128),
    "LOG_SOFTMAX": (16 / 256, 255),
    "L2_NORMALIZATION": (1 / 128, 128),
}
"""Operators whose result has a fixed scale and zero point."""


def int_vector(*values: int) -> CaseTensor:
    return constant(np.array(values, np.int32))


def random_layers(seed: int, count: int) -> Iterator[ConformanceCase]:
    """Generate `count` layers with random shapes, quantization and activations."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        yield _LAYERS[number % len(_LAYERS)](rng, f"random_{number}")


def _tensor(
    rng: np.random.Generator, shape: tuple[int, ...], low: float = 0.01
) -> CaseTensor:
    return quantized(
        shape, "uint8", rng.uniform(low, 10 * low), int(rng.integers(0, 256))
    )


def _activation(rng: np.random.Generator) -> str:
    return str(rng.choice(["NONE", "RELU", "RELU6", "RELU_N1_TO_1"]))


def _weights(
    rng: np.random.Generator, x: CaseTensor, shape: tuple[int, ...], outputs: int
) -> tuple[CaseTensor, CaseTensor]:
    scale = float32(rng.uniform(0.001, 0.02))
    data = rng.integers(0, 256, shape).astype(np.uint8)
    weights = replace(
        constant(data, (scale,)), zero_points=(int(rng.integers(0, 256)),)
    )
    bias = rng.integers(-3000, 3000, outputs).astype(np.int32)
    return weights, constant(
        bias, (float32(np.float32(x.scales[0]) * np.float32(scale)),)
    )


def _convolution(rng: np.random.Generator, name: str) -> ConformanceCase:
    depthwise, padding = bool(rng.integers(2)), str(rng.choice(["SAME", "VALID"]))
    kernel, stride = rng.integers(1, 5, 2).tolist(), rng.integers(1, 3, 2).tolist()
    size, channels = rng.integers(5, 9, 2).tolist(), int(rng.integers(1, 9))
    outputs = (
        channels * int(rng.integers(1, 3)) if depthwise else int(rng.integers(1, 9))
    )
    extents = [
        -(-n // s) if padding == "SAME" else (n - k) // s + 1
        for n, k, s in zip(size, kernel, stride, strict=True)
    ]
    x = _tensor(rng, (1, *size, channels))
    shape = (1, *kernel, outputs) if depthwise else (outputs, *kernel, channels)
    y = _tensor(rng, (1, *extents, outputs), 0.05)
    options = {
        "padding": padding,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "dilation_h_factor": 1,
        "dilation_w_factor": 1,
        "fused_activation_function": _activation(rng),
    }
    if depthwise:
        options["depth_multiplier"] = outputs // channels
    builtin = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    return ConformanceCase(
        name, builtin, (x, *_weights(rng, x, shape, outputs)), (y,), options
    )


def _matrix(rng: np.random.Generator, name: str) -> ConformanceCase:
    rows, inputs, outputs = (int(n) for n in rng.integers(1, (4, 65, 17)))
    x, y = _tensor(rng, (rows, inputs)), _tensor(rng, (rows, outputs), 0.05)
    options = {"fused_activation_function": _activation(rng), "keep_num_dims": False}
    tensors = (x, *_weights(rng, x, (outputs, inputs), outputs))
    return ConformanceCase(name, "FULLY_CONNECTED", tensors, (y,), options)


def _pool(rng: np.random.Generator, name: str) -> ConformanceCase:
    kernel, padding = rng.integers(1, 5, 2).tolist(), str(rng.choice(["SAME", "VALID"]))
    size, channels = rng.integers(5, 9, 2).tolist(), int(rng.choice([1, 3, 4, 8, 12]))
    extents = (
        size
        if padding == "SAME"
        else [n - k + 1 for n, k in zip(size, kernel, strict=True)]
    )
    x = _tensor(rng, (1, *size, channels))
    options = {
        "padding": padding,
        "stride_h": 1,
        "stride_w": 1,
        "filter_height": kernel[0],
        "filter_width": kernel[1],
        "fused_activation_function": _activation(rng),
    }
    y = replace(x, shape=(1, *extents, channels))
    builtin = str(rng.choice(["AVERAGE_POOL_2D", "MAX_POOL_2D"]))
    return ConformanceCase(name, builtin, (x,), (y,), options)


def _join(rng: np.random.Generator, name: str) -> ConformanceCase:
    parts = [_tensor(rng, (2, 16, int(n))) for n in rng.integers(1, 9, 3)]
    y = _tensor(rng, (2, 16, sum(part.shape[2] for part in parts)))
    options = {"axis": 2, "fused_activation_function": "NONE"}
    return ConformanceCase(name, "CONCATENATION", tuple(parts), (y,), options)


def _sum(rng: np.random.Generator, name: str) -> ConformanceCase:
    tensors = [_tensor(rng, (2, 5, 5, 4)) for _ in range(3)]
    builtin = str(rng.choice(["ADD", "SUB", "MUL"]))
    options = {"fused_activation_function": _activation(rng)}
    return ConformanceCase(
        name, builtin, (tensors[0], tensors[1]), (tensors[2],), options
    )


def _resize(rng: np.random.Generator, name: str) -> ConformanceCase:
    size, target = rng.integers(2, 6, 2).tolist(), rng.integers(1, 12, 2).tolist()
    x, form = _tensor(rng, (1, *size, 3)), int(rng.integers(3))
    options = {"align_corners": form == 1, "half_pixel_centers": form == 2}
    y = replace(x, shape=(1, *target, 3))
    builtin = str(rng.choice(["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"]))
    return ConformanceCase(name, builtin, (x, int_vector(*target)), (y,), options)


def _function(rng: np.random.Generator, name: str) -> ConformanceCase:
    """Return an operator of one tensor."""
    shape = (2, *(int(n) for n in rng.integers(1, (6, 20))))
    builtin = str(
        rng.choice(
            [
                *RESULTS,
                "LEAKY_RELU",
                "HARD_SWISH",
                "RELU",
                "RELU6",
                "RELU_N1_TO_1",
                "PRELU",
                "QUANTIZE",
                "DEQUANTIZE",
            ]
        )
    )
    x, y = _tensor(rng, shape), _tensor(rng, shape)
    if builtin in RESULTS:
        y = quantized(shape, "uint8", *RESULTS[builtin])
    options: dict[str, object] = {}
    inputs: tuple[CaseTensor, ...] = (x,)
    match builtin:
        case "SOFTMAX":
            options = {"beta": float(rng.choice([1.0, 0.5, 2.0]))}
        case "LEAKY_RELU":
            options = {"alpha": float32(rng.uniform(0, 1.5))}
        case "L2_NORMALIZATION":
            options = {"fused_activation_function": "NONE"}
        case "PRELU":
            slopes = rng.integers(0, 256, (1, 1, shape[2])).astype(np.uint8)
            inputs = (x, replace(_tensor(rng, slopes.shape), data=slopes))
        case "DEQUANTIZE":
            y = CaseTensor(shape, "float32")
    return ConformanceCase(name, builtin, inputs, (y,), options)


def _reduction(rng: np.random.Generator, name: str) -> ConformanceCase:
    builtin = str(
        rng.choice(["MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "ARG_MAX", "ARG_MIN"])
    )
    x = _tensor(rng, tuple(int(n) for n in rng.integers(1, 8, 4)))
    if builtin.startswith("ARG"):
        axis = int(rng.integers(4))
        y = CaseTensor((*x.shape[:axis], *x.shape[axis + 1 :]), "int32")
        inputs = (x, constant(np.array(axis, np.int32)))
        return ConformanceCase(name, builtin, inputs, (y,), {"output_type": 2})
    axes = sorted(rng.choice(4, int(rng.integers(1, 4)), replace=False).tolist())
    keep = bool(rng.integers(2))
    shape = tuple(
        1 if axis in axes else n
        for axis, n in enumerate(x.shape)
        if keep or axis not in axes
    )
    y = _tensor(rng, shape, 0.1 if builtin == "SUM" else 0.01)
    if builtin.startswith("REDUCE"):
        y = replace(x, shape=shape)
    return ConformanceCase(
        name, builtin, (x, int_vector(*axes)), (y,), {"keep_dims": keep}
    )


def _pair(rng: np.random.Generator, name: str) -> ConformanceCase:
    """Return an operator of two tensors, of which one may be broadcast."""
    builtin = str(rng.choice(["ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", *COMPARISONS]))
    shape = (2, *(int(n) for n in rng.integers(1, (5, 9))))
    others = (shape, shape[1:], shape[2:], (2, 1, shape[2]), (1, shape[1], 1), ())
    a, b = _tensor(rng, shape), _tensor(rng, others[int(rng.integers(len(others)))])
    y, options = _tensor(rng, shape), {"fused_activation_function": _activation(rng)}
    if builtin not in ("ADD", "SUB", "MUL"):
        options = {}
    if builtin in ("MAXIMUM", "MINIMUM"):
        y, b = replace(a, shape=shape), replace(a, shape=b.shape)
    if builtin in COMPARISONS:
        y = CaseTensor(shape, "bool")
    inputs = (a, b) if rng.integers(2) else (b, a)
    return ConformanceCase(name, builtin, inputs, (y,), options)


def _transposed(rng: np.random.Generator, name: str) -> ConformanceCase:
    size, channels = rng.integers(2, 7, 2).tolist(), int(rng.integers(1, 6))
    kernel, stride = rng.integers(1, 4, 2).tolist(), rng.integers(1, 3, 2).tolist()
    outputs, x = int(rng.integers(1, 5)), _tensor(rng, (1, *size, channels))
    weights, bias = _weights(rng, x, (outputs, *kernel, channels), outputs)
    y = _tensor(rng, (1, size[0] * stride[0], size[1] * stride[1], outputs), 0.05)
    options = {
        "padding": "SAME",
        "stride_h": stride[0],
        "stride_w": stride[1],
        "fused_activation_function": _activation(rng),
    }
    biases = [bias] if rng.integers(2) else []
    inputs = (int_vector(*y.shape), weights, x, *biases)
    return ConformanceCase(name, "TRANSPOSE_CONV", inputs, (y,), options)


def _padding(rng: np.random.Generator, name: str) -> ConformanceCase:
    x = _tensor(rng, (1, *(int(n) for n in rng.integers(2, 7, 3))))
    pads = np.array([[0, 0], *rng.integers(0, 3, (3, 2)).tolist()], np.int32)
    y = replace(
        x, shape=tuple(n + int(sum(pad)) for n, pad in zip(x.shape, pads, strict=True))
    )
    inputs: list[CaseTensor | None] = [x, constant(pads)]
    if rng.integers(2):
        inputs.append(
            replace(x, shape=(), data=np.array(int(rng.integers(0, 256)), np.uint8))
        )
    builtin = "PAD" if len(inputs) == 2 else "PADV2"
    return ConformanceCase(name, builtin, tuple(inputs), (y,), {})


_LAYERS = (
    _convolution,
    _convolution,
    _matrix,
    _pool,
    _join,
    _sum,
    _resize,
    _function,
    _function,
    _reduction,
    _pair,
    _pair,
    _transposed,
    _padding,
)
