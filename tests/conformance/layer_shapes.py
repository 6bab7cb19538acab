"""Random layer shapes in TFLite's terms: windows, strides, dilation, padding, channels.

Shapes are small enough that dozens of layers fit in one firmware.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from firmwright.conformance.case_tables import CaseTensor, ConformanceCase
from tests.conformance.layer_parameters import (
    ACTIVATIONS,
    CHANNELS,
    MOST_ELEMENTS,
    MOST_WEIGHTS,
    pick,
)

Size: TypeAlias = tuple[int, int]
WINDOWS: tuple[Size, ...] = (
    *((1, 1), (1, 1), (3, 3), (3, 3), (1, 3), (3, 1)),
    *((2, 2), (5, 5), (4, 3), (7, 1), (1, 6)),
)
LINES: tuple[Size, ...] = (
    (1, 2),
    (2, 1),
    (1, 4),
    (4, 1),
    (1, 5),
    (5, 1),
    (1, 9),
    (9, 1),
    (1, 13),
)
"""Windows of one row or one column, as in separable filters."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """Tensor shapes of a layer with weights, and the channel axis of the weights."""

    builtin: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    axis: int
    options: dict[str, object]

    @property
    def activation(self) -> str:
        return str(self.options.get("fused_activation_function", "NONE"))

    def case(
        self, name: str, tensors: Sequence[CaseTensor], y: CaseTensor
    ) -> ConformanceCase:
        """Return the layer; `tensors` are x, w and, if present, the bias."""
        inputs = tuple(tensors)
        if self.builtin == "TRANSPOSE_CONV":
            shape = CaseTensor((4,), "int32", data=np.array(self.y, np.int32))
            inputs = (shape, tensors[1], tensors[0], *tensors[2:])
        return ConformanceCase(name, self.builtin, inputs, (y,), self.options)


def _window(
    rng: np.random.Generator, channels: int, sizes: Sequence[Size]
) -> tuple[tuple[int, ...], dict[str, object]]:
    """Return input size, window size, output size, and TFLite options."""
    size = pick(rng, (*sizes, (int(rng.integers(1, 6)), int(rng.integers(1, 6)))))
    stride = pick(rng, ((1, 1), (1, 1), (2, 2), (1, 2), (2, 1), (3, 3), (3, 2)))
    dilation = (
        (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
        if rng.random() < 0.12
        else (1, 1)
    )
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
    most = max(4, math.isqrt(MOST_ELEMENTS // channels))
    same = bool(rng.random() < 0.55)
    lengths, results = [], []
    for span, step in zip(reach, stride, strict=True):
        least = 1 if same else span
        length = int(rng.integers(least, max(least, min(most, 3 * span + 6)) + 1))
        lengths.append(length)
        results.append(-(-length // step) if same else (length - span) // step + 1)
    options: dict[str, object] = {
        "padding": "SAME" if same else "VALID",
        "stride_h": stride[0],
        "stride_w": stride[1],
        "dilation_h_factor": dilation[0],
        "dilation_w_factor": dilation[1],
        "fused_activation_function": pick(rng, ACTIVATIONS),
    }
    return (*lengths, *size, *results), options


def fitting(
    rng: np.random.Generator,
    outputs: Callable[[int], int],
    sizes: Sequence[Size] = WINDOWS,
    *,
    depthwise: bool = False,
) -> tuple[int, int, tuple[int, ...], dict[str, object]]:
    """Return channels, outputs, lengths and options of a sufficiently small layer."""
    while True:
        channels = pick(rng, CHANNELS)
        count = outputs(channels)
        lengths, options = _window(rng, max(channels, count), sizes)
        height, width, rows, columns, high, wide = lengths
        weights = rows * columns * count * (1 if depthwise else channels)
        largest = max(height * width * channels, high * wide * count)
        if weights <= MOST_WEIGHTS and largest <= MOST_ELEMENTS:
            return channels, count, lengths, options


def convolution(rng: np.random.Generator, sizes: Sequence[Size] = WINDOWS) -> Shapes:
    channels, count, lengths, options = fitting(
        rng, lambda _: pick(rng, CHANNELS), sizes
    )
    height, width, rows, columns, high, wide = lengths
    batch = (
        2
        if rng.random() < 0.05 and height * width * channels * 2 <= MOST_ELEMENTS
        else 1
    )
    x = (batch, height, width, channels)
    w, y = (count, rows, columns, channels), (batch, high, wide, count)
    return Shapes("CONV_2D", x, w, y, 0, options)


def even_convolution(rng: np.random.Generator) -> Shapes:
    """Return a 3x3 convolution with sizes for schedules that work in tiles."""
    channels, count = pick(rng, (8, 12, 16, 20)), pick(rng, (2, 4, 6, 8, 10, 16))
    high, wide = 2 * int(rng.integers(1, 4)), 8
    same = (
        bool(rng.random() < 0.6) or (high + 2) * (wide + 2) * channels > MOST_ELEMENTS
    )
    more = 0 if same else 2
    options: dict[str, object] = {
        "padding": "SAME" if same else "VALID",
        "stride_h": 1,
        "stride_w": 1,
        "dilation_h_factor": 1,
        "dilation_w_factor": 1,
        "fused_activation_function": pick(rng, ACTIVATIONS),
    }
    x, y = (1, high + more, wide + more, channels), (1, high, wide, count)
    return Shapes("CONV_2D", x, (count, 3, 3, channels), y, 0, options)


def depthwise(
    rng: np.random.Generator,
    multipliers: Sequence[int] = (1, 1, 1, 1, 2, 3, 4, 8),
    sizes: Sequence[Size] = WINDOWS,
) -> Shapes:
    multiplier = pick(rng, multipliers)
    channels, count, lengths, options = fitting(
        rng, lambda c: c * multiplier, sizes, depthwise=True
    )
    height, width, rows, columns, high, wide = lengths
    options["depth_multiplier"] = multiplier
    x, w, y = (
        (1, height, width, channels),
        (1, rows, columns, count),
        (1, high, wide, count),
    )
    return Shapes("DEPTHWISE_CONV_2D", x, w, y, 3, options)


def fully_connected(rng: np.random.Generator) -> Shapes:
    depth = int(
        pick(rng, (rng.integers(1, 20), rng.integers(1, 300), 8 * rng.integers(1, 33)))
    )
    count = min(int(rng.integers(1, 70)), MOST_WEIGHTS // depth)
    batch = pick(rng, (1, 1, 1, 2, 3)) if depth * 3 <= MOST_ELEMENTS else 1
    options: dict[str, object] = {
        "fused_activation_function": pick(rng, ACTIVATIONS),
        "keep_num_dims": False,
    }
    return Shapes(
        "FULLY_CONNECTED", (batch, depth), (count, depth), (batch, count), 0, options
    )


def transposed(rng: np.random.Generator) -> Shapes:
    """Return a transposed convolution; padding may crop rows and columns."""
    while True:
        channels, count = pick(rng, CHANNELS), pick(rng, CHANNELS)
        size, stride = (
            pick(rng, WINDOWS),
            pick(rng, ((1, 1), (2, 2), (2, 2), (1, 2), (3, 2))),
        )
        image = (int(rng.integers(1, 9)), int(rng.integers(1, 9)))
        same = bool(rng.random() < 0.6)
        high, wide = (
            n * step if same else (n - 1) * step + k
            for n, step, k in zip(image, stride, size, strict=True)
        )
        weights = size[0] * size[1] * channels * count
        if (
            weights <= MOST_WEIGHTS
            and max(image[0] * image[1] * channels, high * wide * count)
            <= MOST_ELEMENTS
        ):
            break
    options: dict[str, object] = {
        "padding": "SAME" if same else "VALID",
        "stride_h": stride[0],
        "stride_w": stride[1],
    }
    x, w = (1, *image, channels), (count, *size, channels)
    return Shapes("TRANSPOSE_CONV", x, w, (1, high, wide, count), 0, options)
