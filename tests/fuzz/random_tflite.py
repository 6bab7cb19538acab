"""Random .tflite graphs with branches, as an exporter could write them.

A seed and a kind determine the graph; "hybrid" graphs have float activations and int8
weights. Each operator reads any earlier tensor; quantization is random.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tests.state.model_writer import ModelFile

STEPS = (5, 14)
KINDS = ("int8", "uint8", "int16", "float32", "hybrid")
MIXED_KINDS = ("int8", "int8", "int16", "float32")
FIXED = {
    ("LOGISTIC", "int8"): (1 / 256, -128),
    ("TANH", "int8"): (1 / 128, 0),
    ("SOFTMAX", "int8"): (1 / 256, -128),
    ("LOGISTIC", "int16"): (1 / 32768, 0),
    ("TANH", "int16"): (1 / 32768, 0),
    ("SOFTMAX", "int16"): (1 / 32768, 0),
    ("LOGISTIC", "uint8"): (1 / 256, 0),
    ("TANH", "uint8"): (1 / 128, 128),
    ("SOFTMAX", "uint8"): (1 / 256, 0),
}
"""Results whose quantization LiteRT defines."""
SAME = (
    "RESHAPE",
    "TRANSPOSE",
    "MAX_POOL_2D",
    "AVERAGE_POOL_2D",
    "SLICE",
    "PAD",
    "CONCATENATION",
)
"""Operators that keep the quantization of their input."""


@dataclass(frozen=True, slots=True)
class Made:
    """A tensor of the graph.

    `is_exact` if its floats have the bits of the reference, `limit` is the exclusive
    bound of indices (0 for other tensors).
    """

    index: int
    dtype: str
    shape: tuple[int, ...]
    scale: float
    zero_point: int
    is_exact: bool = True
    limit: int = 0


def random_graph(seed: int, kind: str = "") -> bytes:
    """Return the graph of the seed; the default is a kind of `MIXED_KINDS`."""
    return RandomGraph(seed, kind).data()


class RandomGraph:
    """A graph of layers of one type; every layer is a method that adds an operator."""

    LAYERS: tuple[str, ...] = (
        "binary",
        "unary",
        "conv",
        "depthwise",
        "pool",
        "join",
        "slice",
        "pad",
        "dense",
    )

    def __init__(self, seed: int, kind: str) -> None:
        self.rng = random.Random(f"tflite {seed}")
        self.values = np.random.Generator(np.random.PCG64(seed))
        mixed = self.rng.choice(MIXED_KINDS)
        self.kind = kind or mixed
        self.dtype = "float32" if self.kind == "hybrid" else self.kind
        self.file = ModelFile()
        self.graph = self.file.graph("main")
        self.made: list[Made] = []
        self.used: set[int] = set()

    def data(self) -> bytes:
        shape = (
            1,
            self.rng.randint(2, 6),
            self.rng.randint(2, 6),
            self.rng.choice([1, 2, 3, 4, 8]),
        )
        for name in ("x", "z")[: self.rng.randint(1, 2)]:
            made = self.tensor(name, shape, *self.quantization())
            self.graph.table.inputs.append(made.index)
        for step in range(self.rng.randint(*STEPS)):
            getattr(self, self.rng.choice(self.LAYERS))(f"t{step}")
        inputs = set(self.graph.table.inputs)
        self.graph.outputs(
            *[m.index for m in self.made if m.index not in self.used | inputs]
        )
        return self.file.data()

    # ---- tensors ---------------------------------------------------------------------

    def quantization(self) -> tuple[float, int]:
        zero_points = {"int8": self.rng.randint(-128, 127), "int16": 0, "float32": 0}
        zero_points["uint8"] = zero_points["int8"] + 128
        scale = (
            0.0
            if self.dtype == "float32"
            else float(np.float32(2 ** self.rng.uniform(-9, -3)))
        )
        return scale, zero_points[self.dtype]

    def tensor(
        self, name: str, shape: Sequence[int], scale: float, zero_point: int
    ) -> Made:
        index = self.graph.tensor(name, self.dtype, shape, scale, zero_point)
        self.made.append(Made(index, self.dtype, tuple(shape), scale, zero_point))
        return self.made[-1]

    def pick(self, rank: int = 0) -> Made:
        """Return a tensor of the graph's type; hybrid layers round, so an exact one."""
        fitting = [
            m
            for m in self.made
            if m.shape and rank in (0, len(m.shape)) and m.dtype == self.dtype
            if self.kind != "hybrid" or m.is_exact
        ]
        return self.rng.choice(fitting)

    def emit(
        self,
        name: str,
        op: str,
        inputs: Sequence[Made | int],
        shape: Sequence[int],
        table: str = "",
        **options: object,
    ) -> None:
        first = next(item for item in inputs if isinstance(item, Made))
        kept = (first.scale, first.zero_point) if op in SAME else self.quantization()
        quantization = FIXED.get((op, self.dtype), kept)
        result = self.tensor(name, shape, *quantization)
        if self.dtype == "float32" and not (op in SAME and first.is_exact):
            self.made[-1] = replace(result, is_exact=False)
        self.connect(op, inputs, [result], table, **options)

    def connect(
        self,
        op: str,
        inputs: Sequence[Made | int],
        results: Sequence[Made],
        table: str = "",
        **options: object,
    ) -> None:
        """Add the operator between its tensors."""
        indices = [item.index if isinstance(item, Made) else item for item in inputs]
        self.used.update(indices)
        outputs = [result.index for result in results]
        self.graph.op(op, indices, outputs, *([table] if table else []), **options)

    def ints(self, name: str, values: object) -> int:
        return self.graph.constant(f"{name}/c", np.array(values, np.int32))

    # ---- operators -------------------------------------------------------------------

    def binary(self, name: str) -> None:
        a = self.pick()
        b = self.rng.choice([m for m in self.made if m.shape == a.shape])
        op, table = self.rng.choice(
            [("ADD", "AddOptions"), ("SUB", "SubOptions"), ("MUL", "MulOptions")]
        )
        activation = self.rng.choice([0, 0, 1, 3])
        options = (
            {} if op == "MUL" else {"potScaleInt16": False}
        )  # as the converter writes it
        self.emit(
            name,
            op,
            [a, b],
            a.shape,
            table,
            fusedActivationFunction=activation,
            **options,
        )

    def unary(self, name: str) -> None:
        x = self.pick()
        op = self.rng.choice(
            ["RELU", "LOGISTIC", "TANH", "SOFTMAX", "RESHAPE", "TRANSPOSE"]
        )
        if op == "RESHAPE":
            shape = (1, int(np.prod(x.shape)))
            self.emit(name, op, [x, self.ints(name, shape)], shape)
        elif op == "TRANSPOSE":
            order = self.rng.sample(range(len(x.shape)), len(x.shape))
            shape = tuple(x.shape[axis] for axis in order)
            self.emit(name, op, [x, self.ints(name, order)], shape)
        elif op == "SOFTMAX":
            self.emit(name, op, [x], x.shape, "SoftmaxOptions", beta=1.0)
        else:
            self.emit(name, op, [x], x.shape)

    def weights(
        self, name: str, shape: tuple[int, ...], count: int, axis: int, source: Made
    ) -> tuple[int, int]:
        if self.kind == "hybrid":
            return self.hybrid_weights(name, shape, count, axis)
        if self.dtype == "float32":
            w = self.values.normal(size=shape).astype(np.float32)
            bias = self.values.normal(size=count).astype(np.float32)
            return self.graph.constant(f"{name}/w", w), self.graph.constant(
                f"{name}/b", bias
            )
        is_unsigned = (
            self.dtype == "uint8"
        )  # has one scale and zero point for all weights
        several = count if axis >= 0 and not is_unsigned else 1
        scales = (2 ** self.values.uniform(-8, -4, several)).astype(np.float32)
        w = self.values.integers(-127, 128, shape).astype(np.int8)
        zero_point = int(self.values.integers(0, 256)) if is_unsigned else 0
        stored = (w.astype(np.int16) + 128).astype(np.uint8) if is_unsigned else w
        weights = self.graph.constant(f"{name}/w", stored)
        self.quantize(weights, scales, max(axis, 0), zero_point)
        kind = np.int64 if self.dtype == "int16" else np.int32
        bias = self.values.integers(-1000, 1000, count).astype(kind)
        biases = self.graph.constant(f"{name}/b", bias)
        self.quantize(biases, scales * np.float32(source.scale), 0, 0)
        return weights, biases

    def hybrid_weights(
        self, name: str, shape: tuple[int, ...], count: int, axis: int
    ) -> tuple[int, int]:
        scales = (2 ** self.values.uniform(-8, -4, count if axis >= 0 else 1)).astype(
            np.float32
        )
        w = self.values.integers(-127, 128, shape).astype(np.int8)
        weights = self.graph.constant(f"{name}/w", w)
        self.quantize(weights, scales, max(axis, 0), 0)
        bias = self.values.normal(size=count).astype(np.float32)
        return weights, self.graph.constant(f"{name}/b", bias)

    def quantize(
        self, index: int, scales: np.ndarray, axis: int, zero_point: int
    ) -> None:
        listed = [float(scale) for scale in scales]
        spare = self.graph.tensor("", "int8", (), listed, zero_point, axis=axis)
        self.graph.table.tensors[index].quantization = self.graph.table.tensors[
            spare
        ].quantization
        del self.graph.table.tensors[spare]

    def conv(self, name: str) -> None:
        x, count = self.pick(4), self.rng.choice([1, 2, 4, 5])
        kernel, stride = self.rng.choice([1, 1, 2, 3]), self.rng.choice([1, 1, 2])
        shape = (x.shape[0], -(-x.shape[1] // stride), -(-x.shape[2] // stride), count)
        both = self.weights(name, (count, kernel, kernel, x.shape[3]), count, 0, x)
        self.emit(
            name,
            "CONV_2D",
            [x, *both],
            shape,
            "Conv2DOptions",
            padding=0,
            strideW=stride,
            strideH=stride,
            dilationWFactor=1,
            dilationHFactor=1,
        )

    def depthwise(self, name: str) -> None:
        x, kernel = self.pick(4), self.rng.choice([1, 2, 3])
        both = self.weights(name, (1, kernel, kernel, x.shape[3]), x.shape[3], 3, x)
        self.emit(
            name,
            "DEPTHWISE_CONV_2D",
            [x, *both],
            x.shape,
            "DepthwiseConv2DOptions",
            padding=0,
            strideW=1,
            strideH=1,
            depthMultiplier=1,
            dilationWFactor=1,
            dilationHFactor=1,
        )

    def dense(self, name: str) -> None:
        x, count = self.pick(), self.rng.choice([1, 3, 4, 8])
        depth = x.shape[-1]
        both = self.weights(name, (count, depth), count, -1, x)
        shape = (int(np.prod(x.shape)) // depth, count)
        self.emit(name, "FULLY_CONNECTED", [x, *both], shape, "FullyConnectedOptions")

    def pool(self, name: str) -> None:
        x, size = self.pick(4), self.rng.choice([1, 2, 3])
        op = self.rng.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"])
        self.emit(
            name,
            op,
            [x],
            x.shape,
            "Pool2DOptions",
            padding=0,
            strideW=1,
            strideH=1,
            filterWidth=size,
            filterHeight=size,
        )

    def join(self, name: str) -> None:
        a = self.pick()
        same = [
            m
            for m in self.made
            if (m.dtype, m.shape, m.scale, m.zero_point)
            == (a.dtype, a.shape, a.scale, a.zero_point)
        ]
        parts = [a, *self.rng.choices(same, k=self.rng.randint(1, 2))]
        axis = self.rng.randrange(len(a.shape))
        shape = [n * len(parts) if k == axis else n for k, n in enumerate(a.shape)]
        if np.prod(shape) < 2000:
            self.emit(
                name, "CONCATENATION", parts, shape, "ConcatenationOptions", axis=axis
            )

    def slice(self, name: str) -> None:
        x = self.pick()
        begin = [self.rng.randrange(n) for n in x.shape]
        shape = [
            self.rng.randint(1, n - b) for n, b in zip(x.shape, begin, strict=True)
        ]
        first = self.graph.constant(f"{name}/from", np.array(begin, np.int32))
        self.emit(name, "SLICE", [x, first, self.ints(name, shape)], shape)

    def pad(self, name: str) -> None:
        x = self.pick(4)
        margins = [
            [0, 0],
            *[[self.rng.randint(0, 1), self.rng.randint(0, 2)] for _ in "hw"],
            [0, 0],
        ]
        shape = [n + sum(pair) for n, pair in zip(x.shape, margins, strict=True)]
        self.emit(name, "PAD", [x, self.ints(name, margins)], shape)
