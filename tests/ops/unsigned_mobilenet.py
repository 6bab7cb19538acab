"""A MobileNet v1 of uint8 with random weights and the published models' operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ai_edge_litert.schema_py_generated import ActivationFunctionType, Padding

from tests.state.model_writer import GraphFile, ModelFile

SAME, RELU6 = Padding.SAME, ActivationFunctionType.RELU6
BLOCKS = ((16, 1), (24, 2), (24, 1), (32, 2))
"""Filters of the pointwise and stride of the depthwise convolution of each block."""
ALL_BLOCKS = (
    (16, 1),
    (32, 2),
    (32, 1),
    (64, 2),
    (64, 1),
    (128, 2),
    *[(128, 1)] * 5,
    (256, 2),
    (256, 1),
)
"""The blocks of MobileNet v1 0.25."""


class _Network:
    def __init__(self, graph: GraphFile, seed: int) -> None:
        self.graph, self.rng = graph, np.random.default_rng(seed)

    def layer(
        self,
        x: int,
        kind: tuple[str, tuple[int, ...], tuple[int, ...]],
        stride: int = 1,
        *,
        scales: tuple[float, float] = (0.0235, 0.0235),
        is_last: bool = False,
    ) -> int:
        """Append a convolution (operator, weights, result) and return its result."""
        op, w_shape, y_shape = kind
        name = f"layer_{len(self.graph.table.operators)}"
        channels, fan_in = y_shape[-1], int(np.prod(w_shape)) // y_shape[-1]
        w_scale, w_zero = 0.02 / fan_in**0.5, int(self.rng.integers(90, 170))
        values = self.rng.normal(w_zero, 40, w_shape).clip(0, 255).astype(np.uint8)
        weights = self.graph.constant(f"{name}/weights", values, w_scale, w_zero)
        unit = float(np.float32(scales[0]) * np.float32(w_scale))
        sums = self.rng.integers(-2000, 4000, channels).astype(np.int32)
        bias = self.graph.constant(f"{name}/bias", sums, unit)
        y_zero = 104 if is_last else 0
        y = self.graph.tensor(name, "uint8", y_shape, scales[1], y_zero)
        options = {
            "padding": SAME,
            "strideH": stride,
            "strideW": stride,
            "fusedActivationFunction": 0 if is_last else RELU6,
        }
        table = "Conv2DOptions" if op == "CONV_2D" else "DepthwiseConv2DOptions"
        extra = {} if op == "CONV_2D" else {"depthMultiplier": 1}
        self.graph.op(op, [x, weights, bias], [y], table, **options, **extra)
        return y


def unsigned_mobilenet(
    size: int = 24, seed: int = 1, blocks: Sequence[tuple[int, int]] = BLOCKS
) -> bytes:
    file = ModelFile()
    graph = file.graph("main")
    net, depth, size = _Network(graph, seed), 8, size // 2
    image = graph.input("image", "uint8", (1, 2 * size, 2 * size, 3), 1 / 128, 128)
    shapes = ((depth, 3, 3, 3), (1, size, size, depth))
    x = net.layer(image, ("CONV_2D", *shapes), 2, scales=(1 / 128, 0.0235))
    for filters, stride in blocks:
        size = -(-size // stride)
        x = net.layer(
            x, ("DEPTHWISE_CONV_2D", (1, 3, 3, depth), (1, size, size, depth)), stride
        )
        shapes = ((filters, 1, 1, depth), (1, size, size, filters))
        x, depth = net.layer(x, ("CONV_2D", *shapes)), filters
    pooled = graph.tensor("pooled", "uint8", (1, 1, 1, depth), 0.0235, 0)
    window = {
        "filterHeight": size,
        "filterWidth": size,
        "strideH": size,
        "strideW": size,
    }
    graph.op(
        "AVERAGE_POOL_2D",
        [x],
        [pooled],
        "Pool2DOptions",
        padding=Padding.VALID,
        **window,
    )
    kind = ("CONV_2D", (10, 1, 1, depth), (1, 1, 1, 10))
    logits = net.layer(pooled, kind, scales=(0.0235, 0.11), is_last=True)
    row = graph.tensor("row", "uint8", (1, 10), 0.11, 104)
    graph.op("SQUEEZE", [logits], [row], "SqueezeOptions", squeezeDims=[1, 2])
    scores = graph.tensor("scores", "uint8", (1, 10), 1 / 256, 0)
    graph.op("SOFTMAX", [row], [scores], "SoftmaxOptions", beta=1.0)
    graph.outputs(scores)
    return file.data()
