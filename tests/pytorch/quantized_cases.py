"""Random layers between quantize and dequantize, as PT2E writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  # defines the operators

Layer = tuple[nn.Module, Sequence[tuple[int, ...]]]
LAYERS = 24


class _Pair(nn.Module):
    """Quantizes and dequantizes in steps that `spread` determines."""

    def __init__(
        self, rng: np.random.Generator, spread: float, is_unsigned: bool
    ) -> None:
        super().__init__()
        low = 0 if is_unsigned else -128
        self.limits = low, low + 255
        self.dtype = torch.uint8 if is_unsigned else torch.int8
        self.scale = float(np.float32(spread / 127 * rng.uniform(0.5, 1.5)))
        if rng.random() < 0.2:
            self.scale = 2.0 ** round(np.log2(self.scale))  # exact ties
        self.point = low + int(rng.choice([128, rng.integers(0, 256)], p=[0.3, 0.7]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ops = torch.ops.quantized_decomposed
        args = (self.scale, self.point, *self.limits, self.dtype)
        return ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *args), *args)


class _Quantized(nn.Module):
    """An operator with pairs at its inputs and its result."""

    def __init__(
        self,
        rng: np.random.Generator,
        body: Callable[..., Any],
        inputs: int,
        spread: float,
    ) -> None:
        super().__init__()
        unsigned = bool(rng.random() < 0.3)
        self.body, self.relu = body, bool(rng.random() < 0.3)
        self.before = nn.ModuleList(_Pair(rng, 2.5, unsigned) for _ in range(inputs))
        self.after = _Pair(rng, spread, unsigned)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        y = self.body(*(pair(x) for pair, x in zip(self.before, inputs, strict=True)))
        return self.after(F.relu(y) if self.relu else y)


class _Weighted(nn.Module):
    """A layer with int8 weights per channel or tensor and an int32 or float bias."""

    def __init__(
        self, rng: np.random.Generator, layer: nn.Module, is_per_channel: bool
    ) -> None:
        super().__init__()
        self.layer = layer
        real = layer.weight.detach()
        size = (
            real.abs().flatten(1).amax(1)
            if is_per_channel
            else real.abs().max().reshape(1)
        )
        scales = size / 127
        spread = scales.reshape(-1, *(1,) * (real.dim() - 1))
        self.register_buffer("weights", torch.round(real / spread).to(torch.int8))
        self.register_buffer("scales", scales)
        self.register_buffer("points", torch.zeros(len(scales), dtype=torch.int64))
        self.is_per_channel = is_per_channel
        self.bias = nn.Parameter(torch.round(layer.bias.detach() * 64) / 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ops, limits = torch.ops.quantized_decomposed, (-127, 127, torch.int8)
        if self.is_per_channel:
            w = ops.dequantize_per_channel(
                self.weights, self.scales, self.points, 0, *limits
            )
        else:
            w = ops.dequantize_per_tensor(
                self.weights, self.scales, self.points, *limits
            )
        layer = self.layer
        if isinstance(layer, nn.Linear):
            return F.linear(x, w, self.bias)
        return F.conv2d(
            x, w, self.bias, layer.stride, layer.padding, layer.dilation, layer.groups
        )


def _weighted(rng: np.random.Generator, kind: str) -> Layer:
    channels, outputs = (int(n) for n in rng.integers(1, 9, 2))
    if kind == "linear":
        layer: nn.Module = nn.Linear(4 * channels, outputs)
        shape: tuple[int, ...] = (int(rng.integers(1, 4)), 4 * channels)
    else:
        groups = channels if kind == "depthwise" else 1
        size, stride, dilation = (int(n) for n in rng.integers(1, (4, 3, 3)))
        layer = nn.Conv2d(
            channels,
            groups * outputs if kind == "conv" else channels,
            size,
            stride,
            int(rng.integers(0, size)),
            dilation,
            groups,
        )
        shape = (1, channels, *(int(n) for n in rng.integers(5, 9, 2)))
    body = _Weighted(rng, layer, bool(rng.random() < 0.7))
    return _Quantized(rng, body, 1, float(rng.uniform(0.5, 2))), [shape]


ROWS, IMAGE = (2, 3, 6), (1, 4, 6, 6)
OPERATORS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], float]] = {
    "add": (torch.add, [ROWS, ROWS], 4),
    "add_one": (torch.add, [ROWS, (1, 3, 1)], 4),
    "sub": (torch.sub, [ROWS, ROWS], 4),
    "mul": (torch.mul, [ROWS, ROWS], 3),
    "cat": (lambda a, b: torch.cat([a, b], 1), [ROWS, ROWS], 2.5),
    "max_pool": (lambda x: F.max_pool2d(x, 2), [IMAGE], 2.5),
    "avg_pool": (lambda x: F.avg_pool2d(x, 3, 1, 1), [IMAGE], 1),
    "mean": (lambda x: x.mean((2, 3)), [IMAGE], 0.5),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, 1), [IMAGE], 0.5),
    "hardswish": (F.hardswish, [ROWS], 2.5),
    "sigmoid": (torch.sigmoid, [ROWS], 1),
    "gelu": (F.gelu, [ROWS], 2.5),
    "relu6": (F.relu6, [ROWS], 3),
    "tanh": (torch.tanh, [ROWS], 1),
    "softmax": (lambda x: x.softmax(-1), [ROWS], 0.5),
    "clamp": (lambda x: x.clamp(-1, 2), [ROWS], 2),
    "permute": (lambda x: x.permute(0, 2, 1), [ROWS], 2),
    "neg": (torch.neg, [ROWS], 2.5),
    "matmul": (lambda a, b: a @ b.transpose(1, 2), [ROWS, ROWS], 4),
    "layer_norm": (lambda x: F.layer_norm(x, (6,)), [ROWS], 2),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), [IMAGE], 2.5),
}


def random_layer(rng: np.random.Generator) -> Layer:
    kinds = ("conv", "depthwise", "linear")
    if rng.random() < 0.5:
        return _weighted(rng, str(rng.choice(kinds)))
    body, shapes, spread = OPERATORS[str(rng.choice(list(OPERATORS)))]
    return _Quantized(rng, body, len(shapes), spread), shapes


class QuantizedLayers(nn.Module):
    """Random layers, each with its own inputs."""

    def __init__(self, seed: int = 0, count: int = LAYERS) -> None:
        super().__init__()
        torch.manual_seed(seed)
        rng = np.random.Generator(np.random.PCG64(seed))
        layers = [random_layer(rng) for _ in range(count)]
        self.parts = nn.ModuleList(part for part, _ in layers)
        self.shapes = [shapes for _, shapes in layers]

    def inputs(self) -> tuple[torch.Tensor, ...]:
        return tuple(torch.ones(shape) for shapes in self.shapes for shape in shapes)

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        rest = iter(inputs)
        return [
            part(*(next(rest) for _ in shapes))
            for part, shapes in zip(self.parts, self.shapes, strict=True)
        ]
