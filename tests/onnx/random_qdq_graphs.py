"""Random float networks in QDQ form, quantized in all usual ways.

A network is calibrated by running it. Activations are int8 or uint8; weights int8 or
uint8, with or without a zero point, with one scale or one per channel; scales any
number or powers of two. ConvTranspose, which ONNX Runtime computes in floats in its own
order, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import onnx
from onnx import helper, numpy_helper
from tests.onnx.onnx_models import Net

Array = NDArray[Any]
INPUTS = {"image": (1, 4, 6, 5), "rows": (3, 12)}
ELEMENTWISE = {
    "Sigmoid": {},
    "LeakyRelu": {"alpha": 0.1},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.45},
    "HardSwish": {},
    "Tanh": {},
    "Relu": {},
    "Elu": {},
    "Abs": {},
    "Neg": {},
    "Erf": {},
    "Exp": {},
}
LARGEST_EXTENT, MOST_CHANNELS = 12, 32


@dataclass(frozen=True)
class Weight:
    """A constant to quantize: a weight with its channel axis, or a layer's bias."""

    axis: int | None = None
    layer: tuple[str, str] | None = None


@dataclass
class FloatNetwork:
    """A network of random layers; every method adds one and returns its result."""

    rng: np.random.Generator
    net: Net
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    constants: dict[str, Weight] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    inner: set[str] = field(default_factory=set)
    results: list[str] = field(default_factory=list)

    def add(self, op: str, *inputs: str, moves: bool = False, **attrs: Any) -> str:
        """Add a node; if it `moves` values, its result may share its input's scale."""
        y = str(self.net.node(op, *inputs, **attrs))
        known = {
            name: helper.make_tensor_value_info(name, 1, s)
            for name, s in self.shapes.items()
        }
        graph = helper.make_graph(
            [self.net.nodes[-1]],
            "node",
            [known[n] for n in inputs if n in known],
            [helper.make_empty_tensor_value_info(y)],
            [w for w in self.net.weights if w.name in inputs],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        sizes = inferred.graph.output[0].type.tensor_type.shape.dim
        self.shapes[y] = tuple(size.dim_value for size in sizes)
        if moves:
            self.moved[y] = inputs[0]
        self.results.append(y)
        return y

    def pick(self, fits: Callable[[tuple[int, ...]], bool] = bool) -> str:
        """Return a random earlier result of a shape that fits."""
        names = [n for n, s in self.shapes.items() if n not in self.inner and fits(s)]
        return str(self.rng.choice(names))

    def image(self, smallest: int = 1) -> str:
        return self.pick(lambda s: len(s) == 4 and min(s[2:]) >= smallest)

    def rows(self) -> str:
        return self.pick(lambda s: len(s) == 2)

    def weight(self, shape: Sequence[int], axis: int) -> str:
        name = self.net.random(
            *shape, scale=float(np.prod(shape) / shape[axis]) ** -0.5
        )
        self.constants[name] = Weight(axis)
        return name

    def bias(self, count: int, x: str, w: str) -> list[str]:
        if self.rng.random() < 0.2:
            return []
        name = self.net.random(count, scale=0.3)
        self.constants[name] = Weight(layer=(x, w))
        return [name]

    def activated(self, y: str) -> str:
        """Add an activation that is quantized with its layer, or none."""
        draw = self.rng.random()
        if draw > 0.6:
            return y
        self.inner.add(y)
        if draw > 0.2:
            return self.add("Relu", y)
        return self.add("Clip", y, self.net.scalar(0.0), self.net.scalar(1.5))

    def conv(self) -> str:
        size = int(self.rng.choice([1, 3]))
        x = self.image(size)
        channels, depthwise = self.shapes[x][1], self.rng.random() < 0.3
        groups = (
            channels
            if depthwise
            else 2
            if channels % 2 == 0 and self.rng.random() < 0.2
            else 1
        )
        filters = groups * int(self.rng.integers(1, 3)) if groups > 1 else 8
        w = self.weight((filters, channels // groups, size, size), 0)
        stride, pad = (
            int(self.rng.integers(1, 3)),
            size // 2 * int(self.rng.integers(2)),
        )
        attrs = {"strides": [stride] * 2, "pads": [pad] * 4, "group": groups}
        return self.activated(
            self.add("Conv", x, w, *self.bias(filters, x, w), **attrs)
        )

    def gemm(self) -> str:
        x, transposed = self.rows(), int(self.rng.integers(2))
        shape = (10, self.shapes[x][1]) if transposed else (self.shapes[x][1], 10)
        w = self.weight(shape, 1 - transposed)
        return self.activated(
            self.add("Gemm", x, w, *self.bias(10, x, w), transB=transposed)
        )

    def matmul(self) -> str:
        x = self.rows()
        if self.rng.random() < 0.5:
            return self.add("MatMul", x, self.weight((self.shapes[x][1], 8), 1))
        return self.add("MatMul", x, self.add("Transpose", x, moves=True, perm=[1, 0]))

    def binary(self) -> str:
        op, x = str(self.rng.choice(["Add", "Add", "Mul", "Sub"])), self.pick()
        shape = self.shapes[x]
        draw = self.rng.random()
        if draw < 0.2:
            channels = (shape[1], *(1,) * (len(shape) - 2))
            z = (
                self.net.random(*channels)
                if self.rng.random() < 0.7
                else self.net.scalar(0.7)
            )
            self.constants[z] = Weight()
        elif draw < 0.4 and len(shape) == 4:
            z = self.add("GlobalAveragePool", x)
        else:
            z = self.pick(lambda s: s == shape)
        y = self.add(op, *([x, z] if self.rng.random() < 0.7 else [z, x]))
        return self.activated(y) if op == "Add" else y

    def pool(self) -> str:
        x, size, stride = self.image(2), 2, int(self.rng.integers(1, 3))
        kind = str(self.rng.choice(["AveragePool", "MaxPool"]))
        pads = [int(self.rng.integers(2))] * 4
        attrs: dict[str, Any] = {
            "kernel_shape": [size] * 2,
            "strides": [stride] * 2,
            "pads": pads,
        }
        if kind == "AveragePool":
            attrs["count_include_pad"] = int(self.rng.integers(2))
        return self.add(kind, x, moves=kind == "MaxPool", **attrs)

    def reduction(self) -> str:
        if self.rng.random() < 0.5:
            return self.add("GlobalAveragePool", self.image())
        x = self.pick()
        return self.add("Softmax", x, axis=-1 if len(self.shapes[x]) == 2 else 1)

    def mean_or_sum(self) -> str:
        x = self.pick()
        rank = len(self.shapes[x])
        count = int(self.rng.integers(1, rank))
        axes = np.sort(self.rng.choice(rank, count, replace=False))
        keep = int(rank - count < 2 or self.rng.random() < 0.5)
        if self.rng.random() < 0.6:
            return self.add("ReduceMean", x, axes=axes.tolist(), keepdims=keep)
        return self.add("ReduceSum", x, self.net.weight(axes), keepdims=keep)

    def elementwise(self) -> str:
        op = str(self.rng.choice(list(ELEMENTWISE)))
        return self.add(op, self.pick(), **ELEMENTWISE[op])

    def resize(self) -> str:
        x = self.pick(lambda s: len(s) == 4 and max(s[2:]) * 2 <= LARGEST_EXTENT)
        scales = self.net.weight(np.array([1, 1, 2, 2], np.float32))
        linear = bool(self.rng.integers(2))
        form = str(self.rng.choice(["asymmetric", "half_pixel", "align_corners"]))
        attrs = {
            "mode": "linear" if linear else "nearest",
            "coordinate_transformation_mode": form,
        }
        return self.add("Resize", x, "", scales, moves=not linear, **attrs)

    def concat(self) -> str:
        x = self.image()
        z = self.pick(lambda s: len(s) == 4 and s[2:] == self.shapes[x][2:])
        return self.add("Concat", x, z, axis=1)

    def movement(self) -> str:
        x = self.pick(lambda s: s[1] > 1)
        shape = self.shapes[x]
        kind = self.rng.integers(4)
        if kind == 0:
            ends = [
                self.net.weight(np.array([n], np.int64)) for n in (0, shape[1] // 2, 1)
            ]
            return self.add("Slice", x, *ends, moves=True)
        if kind == 1:
            places = self.net.weight(self.rng.integers(0, shape[1], 3).astype(np.int64))
            return self.add("Gather", x, places, moves=True, axis=1)
        if kind == 2 and len(shape) == 4:
            pads = self.net.weight(np.array([0, 0, 1, 0, 0, 0, 1, 2], np.int64))
            return self.add("Pad", x, pads, moves=True)
        size = self.net.weight(np.array([shape[1], -1], np.int64))
        return self.add("Reshape", x, size, moves=True)

    LAYERS = (
        conv,
        conv,
        conv,
        gemm,
        matmul,
        binary,
        binary,
        pool,
        reduction,
        mean_or_sum,
        elementwise,
        elementwise,
        resize,
        concat,
        movement,
    )

    def grow(self, layers: int) -> None:
        while layers:
            before = len(self.net.nodes), len(self.results)
            y = self.LAYERS[int(self.rng.integers(len(self.LAYERS)))](self)
            shape = self.shapes[y]
            layers -= 1
            if max(shape[2:], default=1) > LARGEST_EXTENT or shape[1] > MOST_CHANNELS:
                self._undo(*before)

    def _undo(self, nodes: int, results: int) -> None:
        del self.net.nodes[nodes:]
        for name in self.results[results:]:
            del self.shapes[name]
            self.inner.discard(name)
        del self.results[results:]


@dataclass
class Quantizer:
    """Inserts QuantizeLinear and DequantizeLinear into a network, with one scheme."""

    network: FloatNetwork
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    parameters: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    weight_scales: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = self.network.rng
        self.kind = np.dtype(rng.choice(["int8", "uint8"]))
        self.weight_kind = str(
            rng.choice(["int8", "int8", "int8 with zero point", "uint8"])
        )
        self.is_per_channel, self.is_float_bias = rng.random() < 0.5, rng.random() < 0.2
        self.is_dyadic = rng.random() < 0.2

    def model(self, samples: Sequence[dict[str, Array]]) -> bytes:
        """Return the model; its outputs are all dequantized results."""
        source = self.network
        self._calibrate(samples)
        for name in INPUTS:
            self._quantize_and_dequantize(name)
        arrays = {
            tensor.name: numpy_helper.to_array(tensor) for tensor in source.net.weights
        }
        kept = set()
        for node in source.net.nodes:
            changed = onnx.NodeProto()
            changed.CopyFrom(node)
            changed.input[:] = [
                self._operand(name, arrays, kept) for name in node.input
            ]
            self.nodes.append(changed)
            for name in node.output:
                if name in self.parameters:
                    self._quantize_and_dequantize(name)
        outputs = [f"{name}_dq" for name in source.results if name in self.parameters]
        infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
        kept_tensors = [tensor for tensor in source.net.weights if tensor.name in kept]
        graph = helper.make_graph(
            self.nodes, "net", source.net.inputs, infos, [*self.weights, *kept_tensors]
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())

    def _calibrate(self, samples: Sequence[dict[str, Array]]) -> None:
        names = self.network.results
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(self.network.net.model(*names), options)
        used = {item.name for item in session.get_inputs()}
        low: dict[str, float] = {}
        high: dict[str, float] = {}
        for sample in samples:
            feeds = {name: array for name, array in sample.items() if name in used}
            values = zip(names, session.run(names, feeds), strict=True)
            for name, array in (*sample.items(), *values):
                low[name] = min(low.get(name, 0.0), float(array.min()))
                high[name] = max(high.get(name, 0.0), float(array.max()))
        for name in (*INPUTS, *names):
            if name not in self.network.inner:
                source = self.network.moved.get(name, "")
                same = source in self.parameters and self.network.rng.random() < 0.85
                fresh = self._parameters(name, low[name], high[name])
                self.parameters[name] = self.parameters[source] if same else fresh

    def _parameters(self, name: str, low: float, high: float) -> tuple[Array, Array]:
        least = np.iinfo(self.kind).min
        if name.startswith(("sigmoid", "softmax")):
            return np.array(1 / 256, np.float32), np.array(least, self.kind)
        scale = np.float32(max(high - low, 1e-3) / 255)
        if self.is_dyadic:
            scale = np.exp2(np.ceil(np.log2(scale)))
        point = np.clip(np.rint(least - low / scale), least, least + 255)
        return np.array(scale, np.float32), np.array(point, self.kind)

    def _constant(self, array: Array) -> str:
        name = f"q{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def _quantize_and_dequantize(self, name: str) -> None:
        operands = [self._constant(array) for array in self.parameters[name]]
        for op, x, y in (("Quantize", "", "_q"), ("Dequantize", "_q", "_dq")):
            inputs = [name + x, *operands]
            self.nodes.append(helper.make_node(f"{op}Linear", inputs, [name + y]))

    def _operand(self, name: str, arrays: dict[str, Array], kept: set[str]) -> str:
        if name in self.parameters:
            return f"{name}_dq"
        use = self.network.constants.get(name)
        if use is None or (use.layer and self.is_float_bias):
            kept.add(name)
            return name
        if use.layer is None:
            values, scale, point, axis = self._quantized_weight(arrays[name], use.axis)
            self.weight_scales[name] = scale
        else:
            x, w = use.layer
            scale = np.asarray(
                self.parameters[x][0] * self.weight_scales[w], np.float32
            )
            values, axis = np.rint(arrays[name] / scale).astype(np.int32), 0
            point = np.zeros(scale.shape, np.int32)
        attrs = {"axis": axis} if scale.ndim else {}
        operands = [self._constant(array) for array in (values, scale, point)]
        self.nodes.append(
            helper.make_node("DequantizeLinear", operands, [f"{name}_dq"], **attrs)
        )
        return f"{name}_dq"

    def _quantized_weight(
        self, array: Array, axis: int | None
    ) -> tuple[Array, Array, Array, int | None]:
        others = tuple(k for k in range(array.ndim) if k != axis)
        per_channel = self.is_per_channel and axis is not None
        largest = np.abs(array).max(axis=others if per_channel else None, keepdims=True)
        scale = np.maximum(largest, 1e-4) / np.float32(127)
        if self.is_dyadic:
            scale = np.exp2(np.ceil(np.log2(scale)))
        kind = np.dtype(self.weight_kind.split()[0])
        point = (
            0 if self.weight_kind == "int8" else int(self.network.rng.integers(-20, 20))
        )
        point += 128 if kind == np.uint8 else 0
        limits = np.iinfo(kind)
        values = np.clip(np.rint(array / scale) + point, limits.min, limits.max).astype(
            kind
        )
        scale = np.asarray(scale, np.float32).reshape(-1 if per_channel else ())
        return values, scale, np.full(scale.shape, point, kind), axis


def random_samples(seed: int, count: int) -> list[dict[str, Array]]:
    rng = np.random.Generator(np.random.PCG64(seed))
    return [
        {
            name: rng.normal(size=shape).astype(np.float32)
            for name, shape in INPUTS.items()
        }
        for _ in range(count)
    ]


def random_qdq_model(seed: int, layers: int = 8) -> bytes:
    """Return a quantized model with inputs `INPUTS`."""
    network = FloatNetwork(np.random.Generator(np.random.PCG64(seed)), Net(seed))
    for name, shape in INPUTS.items():
        network.shapes[network.net.input(name, shape)] = shape
    network.grow(layers)
    return Quantizer(network).model(random_samples(seed, 4))
