"""Fusion of operators between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.frontends.onnx import ModelOverrides, import_onnx, preprocess_model
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Function
from firmwright.ops.registry import op_table
from firmwright.oracle.reference_runner import run_reference
from firmwright.schedules.registry import INTRINSICS
from tests.onnx.onnx_models import Net, quantized_tensor

SHAPE = (1, 4, 6, 6)
Layer = Callable[[Net, str, bool], str]


def scales_apart(net: Net, x: str, unsigned: bool) -> str:
    """Concatenate tensors of different scales at a third scale."""
    half = quantized_tensor(net, net.node("LeakyRelu", x, alpha=0.1), 0.011, unsigned)
    return quantized_tensor(net, net.node("Concat", x, half, axis=1), 0.017, unsigned)


def another_scale(net: Net, x: str, unsigned: bool) -> str:
    return quantized_tensor(
        net, net.node("MaxPool", x, kernel_shape=[2, 2]), 0.031, unsigned
    )


def average(net: Net, x: str, unsigned: bool) -> str:
    pool = net.node(
        "AveragePool", x, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 0]
    )
    return quantized_tensor(net, pool, 0.02, unsigned)


def transposed(net: Net, x: str, unsigned: bool) -> str:
    """Add a layer that ONNX Runtime computes in floats; its bias is float, too."""
    w = net.weight(net.rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8))
    scales = [
        net.weight(np.array(n, t)) for n, t in ((0.004, np.float32), (0, np.int8))
    ]
    weights = net.node("DequantizeLinear", w, *scales)
    y = net.node("ConvTranspose", x, weights, net.random(3), strides=[2, 2])
    return quantized_tensor(net, net.node("Relu", y), 0.03, unsigned)


def mean_of_columns(net: Net, x: str, unsigned: bool) -> str:
    return quantized_tensor(
        net, net.node("ReduceMean", x, axes=[3], keepdims=0), 0.01, unsigned
    )


def mean_of_images(net: Net, x: str, unsigned: bool) -> str:
    return quantized_tensor(
        net, net.node("ReduceMean", x, axes=[-1, 2]), 0.01, unsigned
    )


def softmax_of_channels(net: Net, x: str, unsigned: bool) -> str:
    return quantized_tensor(
        net, net.node("Softmax", x, axis=1), 1 / 256, unsigned, least=True
    )


def qlinear(
    net: Net, x: str, unsigned: bool, op: str, w: NDArray[np.int8], **attrs: object
) -> str:
    """Quantize x, apply an operator of quantized operands, dequantize its result."""

    def scaling(scale: float, point: int) -> list[str]:
        kind = np.uint8 if unsigned else np.int8
        zero = np.array(point + 128 * unsigned).astype(kind)
        return [net.weight(np.array(scale, np.float32)), net.weight(zero)]

    own, result = scaling(0.02, -9), scaling(0.06, 5)
    channels = w.shape[0] if op == "QLinearConv" else w.shape[-1]
    scales = net.weight(net.rng.uniform(0.002, 0.006, channels).astype(np.float32))
    weights = [net.weight(w), scales, net.weight(np.zeros(channels, np.int8))]
    biases = [net.weight(net.rng.integers(-900, 900, channels).astype(np.int32))]
    operands = [net.node("QuantizeLinear", x, *own), *own, *weights, *result]
    y = net.node(op, *operands, *(biases if op == "QLinearConv" else []), **attrs)
    return str(net.node("DequantizeLinear", y, *result))


def qlinear_conv(net: Net, x: str, unsigned: bool) -> str:
    w = net.rng.integers(-127, 128, (6, 4, 3, 3)).astype(np.int8)
    return qlinear(
        net, x, unsigned, "QLinearConv", w, pads=[1, 1, 1, 1], strides=[2, 2]
    )


def qlinear_depthwise(net: Net, x: str, unsigned: bool) -> str:
    w = net.rng.integers(-127, 128, (4, 1, 3, 3)).astype(np.int8)
    return qlinear(net, x, unsigned, "QLinearConv", w, group=4)


def qlinear_matmul(net: Net, x: str, unsigned: bool) -> str:
    w = net.rng.integers(-127, 128, (36, 5)).astype(np.int8)
    return qlinear(net, net.node("Flatten", x, axis=2), unsigned, "QLinearMatMul", w)


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize(
    ("layer", "step", "share", "ours"),
    [
        (scales_apart, 0.017, 0, "concatenation"),
        (another_scale, 0.031, 0, "byte_table"),
        (average, 0.02, 0, "pool_nd"),
        (transposed, 0.03, 0.001, "transpose_conv"),
        (mean_of_columns, 0.01, 0, "mean"),
        (mean_of_images, 0.01, 0, "mean"),
        (softmax_of_channels, 1 / 256, 0, "dynamic_gather"),
        (qlinear_conv, 0.06, 0, "conv2d"),
        (qlinear_depthwise, 0.06, 0, "depthwise_conv2d"),
        (qlinear_matmul, 0.06, 0, "fully_connected"),
    ],
)
def test_a_layer_uses_integers_and_is_within_one_step(
    layer: Layer, step: float, share: float, ours: str, unsigned: bool
) -> None:
    net = Net(11)
    x = quantized_tensor(net, net.input("x", SHAPE), 0.02, unsigned)
    data = net.model(layer(net, x, unsigned))
    module = import_onnx(
        preprocess_model(data, "net.onnx", ModelOverrides()),
        "net.onnx",
        "net",
        op_table(),
    )
    entry = module.entry
    assert isinstance(entry, Function)
    counts = Counter(call.op for call in entry.body)
    assert counts[ours] >= 1
    assert counts["dequantize"] == 1  # of the result
    samples = [{"x": values} for values in reals()]
    expected = run_reference(data, samples, "onnxruntime").outputs
    steps = np.concatenate(
        [
            np.rint(
                (evaluate_graph(module, x, op_table(), INTRINSICS)[name] - value) / step
            ).ravel()
            for x, outputs in zip(samples, expected, strict=True)
            for name, value in zip(
                [entry.results[0].name], outputs.values(), strict=True
            )
        ]
    )
    assert np.abs(steps).max() <= 1
    assert np.count_nonzero(steps) <= share * steps.size


def reals() -> list[NDArray[np.float32]]:
    rng = np.random.Generator(np.random.PCG64(3))
    return [rng.normal(size=SHAPE).astype(np.float32) for _ in range(6)]
