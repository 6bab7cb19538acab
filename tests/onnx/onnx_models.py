"""Small ONNX models, structured like exporters' output, for frontend tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmwright.frontends.onnx.shape_inference import infer_shapes
from firmwright.passes.graph import (
    cse,
    dce,
    fold_pad,
    fold_scale,
    fold_transpose,
    fuse_activations,
    fuse_expressions,
    sink_transposes,
)
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]


LEARNED = "ai.onnx.ml"
"""The domain of classical models."""
GRAPH_PASSES = tuple(
    step.PASS
    for step in (
        cse,
        sink_transposes,
        fold_scale,
        fuse_activations,
        fuse_expressions,
        fold_transpose,
        fold_pad,
        dce,
    )
)
"""The graph passes that need only the module, in their order."""


def _domains(graph: Any) -> dict[str, None]:
    """Return the domains of the nodes of a graph and of its bodies, in order."""
    found: dict[str, None] = {}
    for node in graph.node:
        found[node.domain] = None
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _domains(attribute.g)
    return found


class Net:
    """A collector of nodes and weights; every layer returns the name of its result."""

    def __init__(self, seed: int = 0, opset: int = 17) -> None:
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.opset = opset
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: list[Any] = []
        self.nested = 0
        """The nodes in bodies of other nodes, which also have numbers in names."""

    def input(
        self, name: str, shape: Sequence[Any], dtype: int = TensorProto.FLOAT
    ) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def weight(self, array: Array) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def scalar(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        array = (
            np.array(value)
            if isinstance(value, np.generic)
            else np.array(value, np.float32)
        )
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def random(self, *shape: int, scale: float = 1.0) -> str:
        return self.weight((self.rng.normal(size=shape) * scale).astype(np.float32))

    def node(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        number = self.nested + len(self.nodes)
        names = [f"{op.lower()}{number}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attrs))
        return names[0] if outputs == 1 else names

    def conv(
        self, x: str, channels: int, filters: int, size: Sequence[int], **attrs: Any
    ) -> str:
        group = attrs.get("group", 1)
        fan = channels // group * int(np.prod(size))
        w = self.random(filters, channels // group, *size, scale=fan**-0.5)
        b = self.random(filters, scale=0.1)
        return str(self.node("Conv", x, w, b, **attrs))

    def batch_norm(self, x: str, channels: int) -> str:
        vectors = [
            self.weight(self.rng.uniform(low, high, channels).astype(np.float32))
            for low, high in ((0.5, 1.5), (-0.3, 0.3), (-0.2, 0.2), (0.5, 2.0))
        ]
        return str(self.node("BatchNormalization", x, *vectors))

    def model(self, *outputs: str) -> bytes:
        infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", self.inputs, infos, self.weights)
        domains = dict.fromkeys(_domains(graph), 1) | {"": self.opset}
        if LEARNED in domains:
            domains[LEARNED] = 3
        opsets = [helper.make_opsetid(*item) for item in domains.items()]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 8
        inferred = infer_shapes(model)  # without some nodes
        inferred.graph.ClearField("node")
        inferred.graph.node.extend(self.nodes)
        return bytes(inferred.SerializeToString())


def digits_net() -> bytes:
    """Two convolutions, pools, a flattening, two dense layers, softmax."""
    net = Net(1)
    x = net.input("image", (1, 1, 16, 16))
    x = net.node("Relu", net.conv(x, 1, 6, (3, 3), pads=[1, 1, 1, 1]))
    x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Relu", net.conv(x, 6, 8, (3, 3)))
    x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Flatten", x)
    x = net.node("Gemm", x, net.random(16, 72, scale=0.1), net.random(16), transB=1)
    x = net.node("Relu", x)
    x = net.node("Gemm", x, net.random(10, 16, scale=0.3), net.random(10), transB=1)
    return net.model(net.node("Softmax", x, axis=1))


def residual_net() -> bytes:
    """Batch normalization, two residual blocks (one strided), pools, a dense layer."""
    net = Net(2)
    x = net.input("image", (1, 3, 16, 16))

    def unit(x: str, channels: int, filters: int, stride: int = 1) -> str:
        conv = net.conv(
            x, channels, filters, (3, 3), pads=[1] * 4, strides=[stride, stride]
        )
        return net.batch_norm(conv, filters)

    x = net.node("Relu", unit(x, 3, 8))
    inner = unit(net.node("Relu", unit(x, 8, 8)), 8, 8)
    x = net.node("Relu", net.node("Add", inner, x))
    inner = unit(net.node("Relu", unit(x, 8, 12, 2)), 12, 12)
    short = net.batch_norm(net.conv(x, 8, 12, (1, 1), strides=[2, 2]), 12)
    x = net.node("Relu", net.node("Add", inner, short))
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    w = net.random(12, 5)
    return net.model(net.node("Add", net.node("MatMul", x, w), net.random(5)))


def mobile_net() -> bytes:
    """Depthwise separable blocks, ReLU6, squeeze-and-excite, hard swish, Concat."""
    net = Net(3)
    x = net.input("image", (1, 3, 12, 12))
    zero, six = (net.weight(np.array(v, np.float32)) for v in (0, 6))
    x = net.node(
        "Clip", net.conv(x, 3, 8, (3, 3), pads=[0, 0, 1, 1], strides=[2, 2]), zero, six
    )
    x = net.node("Clip", net.conv(x, 8, 8, (3, 3), pads=[1] * 4, group=8), zero, six)
    gate = net.node("ReduceMean", x, axes=[2, 3], keepdims=1)
    gate = net.node("Relu", net.conv(gate, 8, 2, (1, 1)))
    gate = net.node("HardSigmoid", net.conv(gate, 2, 8, (1, 1)))
    x = net.node("Mul", x, gate)
    wide = net.node("HardSwish", net.conv(x, 8, 10, (1, 1)))
    grouped = net.node("LeakyRelu", net.conv(x, 8, 6, (3, 3), pads=[1] * 4, group=2))
    x = net.node("Concat", wide, grouped, axis=1)
    sizes = net.weight(np.array([1, 1, 2, 2], np.float32))
    x = net.node(
        "Resize",
        x,
        "",
        sizes,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
    )
    x = net.node("AveragePool", x, kernel_shape=[3, 3], strides=[3, 3])
    return net.model(net.node("Softmax", net.conv(x, 16, 4, (1, 1)), axis=1))


def sequence_net() -> bytes:
    """Dilated convolutions over time, layer normalization, attention, arg max."""
    net = Net(4)
    x = net.input("signal", (1, 4, 24))
    x = net.node("Relu", net.conv(x, 4, 8, (3,), pads=[2, 0], dilations=[1]))
    x = net.node("Tanh", net.conv(x, 8, 8, (3,), pads=[4, 0], dilations=[2]))
    x = net.node("Transpose", x, perm=[0, 2, 1])
    x = net.node("LayerNormalization", x, net.random(8), net.random(8))
    q, k, v = (net.node("MatMul", x, net.random(8, 8, scale=0.4)) for _ in range(3))
    scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 2, 1]))
    scores = net.node(
        "Softmax", net.node("Mul", scores, net.weight(np.float32(0.35).reshape(())))
    )
    x = net.node("Add", x, net.node("MatMul", scores, v))
    mean = net.node("ReduceMean", x, axes=[1], keepdims=0)
    return net.model(
        net.node("Gelu", mean) if net.opset >= 20 else net.node("Erf", mean), x
    )


def quantized_net(unsigned: bool = False, channels_axis: bool = True) -> bytes:
    """Operators between QuantizeLinear and DequantizeLinear, as tools write them."""
    net = Net(5)
    x = quantized_tensor(net, net.input("image", (1, 2, 10, 10)), 0.02, unsigned)
    x = quantized_conv(
        net, x, 2, 6, (3, 3), 0.03, unsigned, channels_axis, pads=[1] * 4
    )
    short = x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = quantized_conv(
        net, x, 6, 6, (3, 3), 0.02, unsigned, False, pads=[1] * 4, group=6
    )
    x = quantized_tensor(net, net.node("HardSwish", x), 0.015, unsigned)
    x = quantized_tensor(net, net.node("Add", x, short), 0.03, unsigned)
    x = net.node("Concat", x, short, axis=1)
    x = quantized_tensor(net, net.node("GlobalAveragePool", x), 0.01, unsigned)
    x = net.node("Flatten", x)
    w = quantized_weights(net, (12, 7), 1 if channels_axis else None)
    x = quantized_tensor(net, net.node("MatMul", x, w), 0.01, unsigned)
    x = quantized_tensor(net, net.node("Softmax", x), 1 / 256, unsigned, least=True)
    return net.model(x)


def quantized_tensor(
    net: Net, x: str, scale: float, unsigned: bool, least: bool = False
) -> str:
    """QuantizeLinear, then DequantizeLinear."""
    kind, point = (np.uint8, 117) if unsigned else (np.int8, -11)
    if least:
        point = 0 if unsigned else -128
    operands = (
        net.weight(np.array(scale, np.float32)),
        net.weight(np.array(point, kind)),
    )
    return str(
        net.node(
            "DequantizeLinear", net.node("QuantizeLinear", x, *operands), *operands
        )
    )


def quantized_weights(net: Net, shape: tuple[int, ...], axis: int | None) -> str:
    count = 1 if axis is None else shape[axis]
    scales = net.rng.uniform(0.002, 0.01, count).astype(np.float32)
    values = net.rng.integers(-127, 128, shape).astype(np.int8)
    points = np.zeros(count, np.int8)
    if axis is None:
        scales, points = scales[0], points[0]
    operands = net.weight(np.array(scales)), net.weight(np.array(points))
    attrs = {} if axis is None else {"axis": axis}
    return str(net.node("DequantizeLinear", net.weight(values), *operands, **attrs))


def quantized_conv(
    net: Net,
    x: str,
    channels: int,
    filters: int,
    size: tuple[int, int],
    scale: float,
    unsigned: bool,
    per_channel: bool,
    **attrs: Any,
) -> str:
    """A convolution with relu and a float bias."""
    shape = (filters, channels // attrs.get("group", 1), *size)
    w = quantized_weights(net, shape, 0 if per_channel else None)
    y = net.node(
        "Relu", net.node("Conv", x, w, net.random(filters, scale=0.2), **attrs)
    )
    return quantized_tensor(net, y, scale, unsigned)


NETS = {
    "digits": digits_net,
    "residual": residual_net,
    "mobile": mobile_net,
    "sequence": sequence_net,
}


def mobilenet() -> bytes:
    """Inverted residuals as MobileNet V2 has them, in miniature."""
    net = Net(11)
    x = net.input("image", (1, 3, 16, 16))
    zero, six = net.scalar(0.0), net.scalar(6.0)

    def unit(
        x: str, inputs: int, outputs: int, size: int, stride: int = 1, group: int = 1
    ) -> str:
        pads, strides = [size // 2] * 4, [stride, stride]
        y = net.conv(
            x, inputs, outputs, (size, size), pads=pads, strides=strides, group=group
        )
        return net.batch_norm(y, outputs)

    def block(x: str, inputs: int, outputs: int, stride: int) -> str:
        wide = 2 * inputs
        y = net.node("Clip", unit(x, inputs, wide, 1), zero, six)
        y = net.node("Clip", unit(y, wide, wide, 3, stride, wide), zero, six)
        y = unit(y, wide, outputs, 1)
        return str(net.node("Add", x, y)) if inputs == outputs and stride == 1 else y

    x = net.node("Clip", unit(x, 3, 8, 3, 2), zero, six)
    for inputs, outputs, stride in ((8, 12, 2), (12, 12, 1), (12, 16, 1)):
        x = block(x, inputs, outputs, stride)
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    return net.model(net.node("Gemm", x, net.random(10, 16), net.random(10), transB=1))


def transformer_net(width: int = 16, heads: int = 2, tokens: int = 17) -> bytes:
    """Image patches with a class token, an attention block, a feed-forward block."""
    net = Net(12)
    depth = width // heads

    def linear(x: str, inputs: int, outputs: int) -> str:
        product = net.node("MatMul", x, net.random(inputs, outputs, scale=inputs**-0.5))
        return str(net.node("Add", product, net.random(outputs)))

    def shaped(x: str, *shape: int) -> str:
        return str(net.node("Reshape", x, net.weight(np.array(shape, np.int64))))

    def normal(x: str) -> str:
        return str(
            net.node("LayerNormalization", x, net.random(width), net.random(width))
        )

    x = net.conv(net.input("image", (1, 3, 16, 16)), 3, width, (4, 4), strides=[4, 4])
    x = net.node("Transpose", shaped(x, 1, width, tokens - 1), perm=[0, 2, 1])
    x = net.node("Concat", net.random(1, 1, width), x, axis=1)
    x = net.node("Add", x, net.random(1, tokens, width))
    all_three = shaped(linear(normal(x), width, 3 * width), 1, tokens, 3, heads, depth)
    all_three = net.node("Transpose", all_three, perm=[2, 0, 3, 1, 4])
    q, k, v = (
        net.node("Gather", all_three, net.scalar(np.int64(i)), axis=0) for i in range(3)
    )
    scaled = net.node("Mul", q, net.scalar(depth**-0.5))
    scores = net.node("MatMul", scaled, net.node("Transpose", k, perm=[0, 1, 3, 2]))
    mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), v)
    mixed = shaped(net.node("Transpose", mixed, perm=[0, 2, 1, 3]), 1, tokens, width)
    x = net.node("Add", x, linear(mixed, width, width))
    inner = linear(normal(x), width, 2 * width)
    inner = net.node("Mul", inner, net.node("Sigmoid", inner))
    x = net.node("Add", x, linear(inner, 2 * width, width))
    x = net.node("Gather", normal(x), net.scalar(np.int64(0)), axis=1)
    return net.model(
        net.node("Gemm", x, net.random(10, width), net.random(10), transB=1)
    )


def shuffled_net() -> bytes:
    """Channel halves, one of them processed, concatenated and shuffled; twice."""
    net = Net(13)
    x = net.input("image", (1, 3, 8, 8))
    x = net.node("Relu", net.conv(x, 3, 16, (3, 3), pads=[1] * 4))
    halves = net.weight(np.array([8, 8], np.int64))
    for _ in range(2):
        a, b = net.node("Split", x, halves, outputs=2, axis=1)
        b = net.node("Relu", net.conv(b, 8, 8, (3, 3), pads=[1] * 4, group=8))
        x = net.node("Concat", a, net.node("Relu", net.conv(b, 8, 8, (1, 1))), axis=1)
        x = net.node("Reshape", x, net.weight(np.array([1, 2, 8, 8, 8], np.int64)))
        x = net.node("Transpose", x, perm=[0, 2, 1, 3, 4])
        x = net.node("Reshape", x, net.weight(np.array([1, 16, 8, 8], np.int64)))
    x = net.node("ReduceMean", x, axes=[2, 3], keepdims=0)
    return net.model(net.node("Gemm", x, net.random(5, 16), net.random(5), transB=1))


def two_heads_net() -> bytes:
    """Detector heads of two sizes, joined to one list of boxes and split again."""
    net = Net(15)
    x = net.input("image", (1, 3, 16, 16))

    def head(x: str, boxes: int) -> str:
        boxes_last = net.node(
            "Transpose", net.conv(x, 8, 12, (1, 1)), perm=[0, 2, 3, 1]
        )
        return str(
            net.node(
                "Reshape", boxes_last, net.weight(np.array([1, boxes, 6], np.int64))
            )
        )

    large = net.node("Relu", net.conv(x, 3, 8, (3, 3), pads=[1] * 4, strides=[2, 2]))
    small = net.node(
        "Relu", net.conv(large, 8, 8, (3, 3), pads=[1] * 4, strides=[2, 2])
    )
    boxes = net.node("Concat", head(large, 128), head(small, 32), axis=1)
    first, second = net.node(
        "Split", boxes, net.weight(np.array([96, 64], np.int64)), outputs=2, axis=1
    )
    bounds = [net.weight(np.array([n], np.int64)) for n in (32, 64, 1)]
    some = net.node("Slice", first, *bounds)
    return net.model(net.node("Sigmoid", some), net.node("Tanh", second))
