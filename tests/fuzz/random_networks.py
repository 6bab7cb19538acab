"""Small random networks with branches, views, borders and skip connections.

A seed determines the network. Layers read any earlier tensor, so live ranges overlap in
many ways; tensors have a few hundred bytes, so that a plan can be executed access by
access.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from firmwright.graph_builder import GraphBuilder
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.nodes import Value
from firmwright.ir.module import IRModule
from firmwright.ops.conv_window import same_padding
from firmwright.pipeline import Options

TARGETS = (
    "cortex-m -mcpu=cortex-m4",
    "cortex-m -mcpu=cortex-m55",
    "cortex-m -mcpu=cortex-m3",
    "cortex-m -mcpu=cortex-m0",
    "riscv32 -march=rv32imac",
    "c",
)
ACTIVATIONS = ("none", "relu", "relu6")
KINDS = ["conv", "conv", "depthwise", "pool", "sum", "one", "join", "pad"]
PARTED = 3000
"""Networks from this seed on contain slices."""


def random_network(seed: int) -> IRModule:
    """Return the network of that seed as a graph."""
    return _Network(seed).module()


def random_options(seed: int) -> Options:
    """Return random compile options: target, goal and pools."""
    rng = random.Random(f"options {seed}")
    pools = rng.choice(
        [
            (PoolInfo("sram"),),
            (PoolInfo("sram"),),
            (PoolInfo("fast", rng.choice([64, 200, 500])), PoolInfo("slow")),
            (PoolInfo("tiny", 40), PoolInfo("fast", 300), PoolInfo("slow")),
        ]
    )
    return Options(
        target=TARGETS[seed % len(TARGETS)],
        optimize=rng.choice(["balanced", "ram", "speed"]),
        preserve_input=rng.random() < 0.2,
        pools=pools,
    )


class _Network:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.kinds = [*KINDS, "part", "part", "join"] if seed >= PARTED else KINDS
        self.numbers = np.random.Generator(np.random.PCG64(seed))
        self.graph = GraphBuilder("net")
        shape = (
            1,
            self.rng.randint(2, 6),
            self.rng.randint(2, 6),
            self.rng.choice([1, 2, 3, 4]),
        )
        self.maps = [self.graph.input("x", shape, **self._scale())]
        self.used: set[str] = set()

    def module(self) -> IRModule:
        for _ in range(self.rng.randint(2, 7)):
            self.maps.append(self._layer(self._any()))
        results = [self._end(self.maps[-1])]
        loose = [
            v
            for v in self.maps[1:]
            if v.name not in self.used and v.name != results[0].name
        ]
        results += loose[: self.rng.randint(0, 2)]
        return self.graph.module(*results)

    # ---- layers ----------------------------------------------------------------------

    def _any(self) -> Value:
        """Return mostly the newest feature map, sometimes an older one."""
        return self.maps[-1] if self.rng.random() < 0.7 else self.rng.choice(self.maps)

    def _layer(self, x: Value) -> Value:
        match self.rng.choice(self.kinds):
            case "conv":
                return self._convolution(x, "conv2d", self.rng.choice([1, 2, 4, 5]))
            case "depthwise":
                return self._convolution(x, "depthwise_conv2d", x.type.shape[3])
            case "pool":
                return self._pool(x)
            case "sum":
                return self._pair(x)
            case "join":
                return self._joined(x)
            case "part":
                return self._part(x)
            case "pad":
                paddings = (0, 0, *(self.rng.randint(0, 1) for _ in range(4)), 0, 0)
                return self._call("pad", x, paddings=paddings)
            case _:
                return self._call(
                    self.rng.choice(["relu", "relu6"]), x, **self._scale()
                )

    def _convolution(self, x: Value, op: str, count: int) -> Value:
        _, height, width, channels = x.type.shape
        size = (self.rng.choice([1, 2, 3]), self.rng.choice([1, 3]))
        stride = (self.rng.choice([1, 1, 2]), self.rng.choice([1, 1, 2]))
        shape = (count, *size, channels) if op == "conv2d" else (1, *size, channels)
        weights = self.numbers.integers(-127, 128, shape).astype(np.int8)
        scales = self.numbers.uniform(0.002, 0.02, count).tolist()
        bias = self.numbers.integers(-2000, 2000, count).astype(np.int32)
        taps = self.graph.constant(
            weights, scale=scales, axis=0 if op == "conv2d" else 3
        )
        padding = (
            *same_padding(height, size[0], stride[0], 1),
            *same_padding(width, size[1], stride[1], 1),
        )
        return self._call(
            op,
            x,
            taps,
            self.graph.constant(bias),
            **self._scale(),
            stride=stride,
            dilation=(1, 1),
            padding=padding,
            activation=self.rng.choice(ACTIVATIONS),
        )

    def _pool(self, x: Value) -> Value:
        size = tuple(
            self.rng.randint(1, min(3, length)) for length in x.type.shape[1:3]
        )
        stride = (self.rng.randint(1, 2), self.rng.randint(1, 2))
        return self._call(
            self.rng.choice(["max_pool2d", "average_pool2d"]),
            x,
            size=size,
            stride=stride,
            dilation=(1, 1),
            padding=(0, 0, 0, 0),
            activation="none",
        )

    def _pair(self, x: Value) -> Value:
        alike = [value for value in self.maps if value.type.shape == x.type.shape]
        other = self.rng.choice(alike)
        operator = self.rng.choice(["add", "add", "mul", "sub"])
        activation = self.rng.choice(ACTIVATIONS)
        return self._call(operator, x, other, **self._scale(), activation=activation)

    def _joined(self, x: Value) -> Value:
        axis = self.rng.choice([1, 2, 3])
        parts = [x, self._call("relu", x)]
        self.rng.shuffle(parts)
        return self._call("concatenation", *parts, axis=axis)

    def _part(self, x: Value) -> Value:
        """Return some of the rows."""
        _, height, width, channels = x.type.shape
        first = self.rng.randrange(height)
        counts = (1, self.rng.randint(1, height - first), width, channels)
        return self._call(
            "strided_slice",
            x,
            begin=(0, first, 0, 0),
            strides=(1, 1, 1, 1),
            counts=counts,
            shrunk=(),
        )

    def _end(self, x: Value) -> Value:
        """Return the feature map itself, or a classifier."""
        if self.rng.random() < 0.4:
            return x
        flat = self._call("reshape", x, shape=(1, x.type.elements))
        weights = self.numbers.integers(-127, 128, (5, x.type.elements)).astype(np.int8)
        bias = self.numbers.integers(-2000, 2000, 5).astype(np.int32)
        taps, start = (
            self.graph.constant(weights, scale=0.004),
            self.graph.constant(bias),
        )
        scores = self._call(
            "fully_connected",
            flat,
            taps,
            start,
            **self._scale(),
            activation="none",
            keep_dims=False,
        )
        return self._call("softmax", scores, scale=1 / 256, zero_point=-128, beta=1.0)

    # ---- values ----------------------------------------------------------------------

    def _scale(self) -> dict[str, Any]:
        scale = self.rng.uniform(0.02, 0.1)
        return {"scale": scale, "zero_point": self.rng.randint(-128, 127)}

    def _call(self, op: str, *inputs: Value, **rest: Any) -> Value:
        self.used |= {value.name for value in inputs}
        return self.graph.call(op, *inputs, **rest)
