"""Small forms of the networks that run on microcontrollers, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from tests.pytorch.spectrum_cases import SoundClassifier


def _conv(
    inputs: int,
    outputs: int,
    size: int,
    stride: int = 1,
    groups: int = 1,
    act: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([act(inplace=True)] if act else []))


class DsCnn(nn.Module):
    """Keyword spotting: a convolution, then depthwise separable ones."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(1, width, (10, 4), 2, (5, 1)),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Dropout(0.2),
        )
        blocks = (
            (_conv(width, width, 3, groups=width), _conv(width, width, 1))
            for _ in range(2)
        )
        self.blocks = nn.Sequential(*(layer for pair in blocks for layer in pair))
        self.classes = nn.Linear(width, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.blocks(self.first(x))
        return self.classes(F.avg_pool2d(y, y.shape[2:]).flatten(1)).softmax(-1)


class ResNet8(nn.Module):
    """Image classification with shortcuts."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first = _conv(3, width, 3)
        self.pairs = nn.ModuleList()
        self.shortcuts = nn.ModuleList()
        for stage in range(3):
            inputs, outputs = width << max(stage - 1, 0), width << stage
            stride = 2 if stage else 1
            self.pairs.append(
                nn.Sequential(
                    _conv(inputs, outputs, 3, stride),
                    _conv(outputs, outputs, 3, act=None),
                )
            )
            self.shortcuts.append(
                nn.Conv2d(inputs, outputs, 1, stride) if stage else nn.Identity()
            )
        self.classes = nn.Linear(width * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        for pair, shortcut in zip(self.pairs, self.shortcuts, strict=True):
            y = F.relu(pair(y) + shortcut(y))
        return self.classes(F.adaptive_avg_pool2d(y, 1).flatten(1))


def autoencoder(width: int = 12) -> nn.Module:
    """Anomaly detection: fully connected layers around a narrow one."""
    sizes = (40, width, width, 4, width, width)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 40))


class MobileNetV1(nn.Sequential):
    """Depthwise separable convolutions, as in visual wake words."""

    def __init__(self, width: int = 4) -> None:
        layers = [_conv(3, width, 3, 2)]
        for k, stride in enumerate((1, 2, 1)):
            inputs = width << k
            layers += [
                _conv(inputs, inputs, 3, stride, inputs),
                _conv(inputs, 2 * inputs, 1),
            ]
        super().__init__(
            *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width * 8, 2)
        )


class _Inverted(nn.Module):
    def __init__(
        self,
        inputs: int,
        outputs: int,
        stride: int,
        squeeze: bool = False,
        act: type[nn.Module] = nn.ReLU6,
        size: int = 3,
        hidden: int = 0,
    ) -> None:
        super().__init__()
        hidden = hidden or inputs * 3
        self.body = nn.Sequential(
            _conv(inputs, hidden, 1, act=act),
            _conv(hidden, hidden, size, stride, hidden, act),
            _Squeeze(hidden) if squeeze else nn.Identity(),
            _conv(hidden, outputs, 1, act=None),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.adds else self.body(x)


class _Squeeze(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = F.relu(self.narrow(F.adaptive_avg_pool2d(x, 1)))
        return x * F.hardsigmoid(self.wide(scale))


class MobileNetV2(nn.Sequential):
    """Inverted residuals."""

    def __init__(self, width: int = 4) -> None:
        super().__init__(
            _conv(3, width, 3, 2, act=nn.ReLU6),
            _Inverted(width, width, 1),
            _Inverted(width, 6, 2),
            _Inverted(6, 6, 1),
            _conv(6, 16, 1, act=nn.ReLU6),
            nn.AdaptiveAvgPool2d((1, 1)),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(16, 10),
        )


class MobileNetV3(nn.Sequential):
    """Inverted residuals with squeeze and excitation, and hard swish."""

    def __init__(self, width: int = 4) -> None:
        super().__init__(
            _conv(3, width, 3, 2, act=nn.Hardswish),
            _Inverted(width, width, 1, True, nn.ReLU),
            _Inverted(width, 6, 2, False, nn.Hardswish),
            _Inverted(6, 6, 1, True, nn.Hardswish, 5),
            _conv(6, 12, 1, act=nn.Hardswish),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(12, 16),
            nn.Hardswish(inplace=True),
            nn.Dropout(0.2),
            nn.Linear(16, 10),
        )


class FullMobileNetV2(nn.Sequential):
    """The 17 inverted residuals as published, narrower: floats fit 512 KB."""

    def __init__(self, width: float = 0.15) -> None:
        stages = (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        )
        inputs = _channels(32, width)
        layers: list[nn.Module] = [_conv(3, inputs, 3, 2, act=nn.ReLU6)]
        for expansion, channels, count, stride in stages:
            for k in range(count):
                outputs, step = _channels(channels, width), 1 if k else stride
                layers.append(
                    _Inverted(inputs, outputs, step, hidden=inputs * expansion)
                )
                inputs = outputs
        last = _channels(1280, width)
        super().__init__(
            *layers,
            _conv(inputs, last, 1, act=nn.ReLU6),
            nn.AdaptiveAvgPool2d((1, 1)),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(last, 10),
        )


class FullMobileNetV3(nn.Sequential):
    """All 11 blocks of the published small network, narrower."""

    def __init__(self, width: float = 0.25) -> None:
        relu, swish = nn.ReLU, nn.Hardswish
        rows: tuple[tuple[int, int, int, bool, type[nn.Module], int], ...] = (
            (3, 16, 16, True, relu, 2),
            (3, 72, 24, False, relu, 2),
            (3, 88, 24, False, relu, 1),
            (5, 96, 40, True, swish, 2),
            (5, 240, 40, True, swish, 1),
            (5, 240, 40, True, swish, 1),
            (5, 120, 48, True, swish, 1),
            (5, 144, 48, True, swish, 1),
            (5, 288, 96, True, swish, 2),
            *(2 * ((5, 576, 96, True, swish, 1),)),
        )
        inputs = _channels(16, width)
        layers: list[nn.Module] = [_conv(3, inputs, 3, 2, act=swish)]
        for size, hidden, channels, squeezes, act, stride in rows:
            outputs, hidden = _channels(channels, width), _channels(hidden, width)
            layers.append(
                _Inverted(inputs, outputs, stride, squeezes, act, size, hidden)
            )
            inputs = outputs
        last, classes = _channels(576, width), _channels(1024, width)
        super().__init__(
            *layers,
            _conv(inputs, last, 1, act=swish),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(last, classes),
            swish(inplace=True),
            nn.Dropout(0.2),
            nn.Linear(classes, 10),
        )


def _channels(channels: int, width: float) -> int:
    return max(8, int(channels * width + 4) // 8 * 8)


class Transformer(nn.Module):
    """A small encoder over token numbers, with learned positions."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(16, width), nn.Embedding(6, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 2, 16, 0.1, activation, batch_first=True, norm_first=k
            )
            for k, activation in ((False, "relu"), (True, "gelu"))
        )
        self.classes = nn.Linear(width, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(6))
        for layer in self.layers:
            x = layer(x)
        return self.classes(x.mean(1))


class VoiceActivity(nn.Module):
    """Voice activity as in Silero: a spectrum by convolution, an encoder, an LSTM.

    The state of the LSTM stays in buffers between the chunks of a stream.
    """

    def __init__(self, bins: int = 9, width: int = 8) -> None:
        super().__init__()
        self.basis = nn.Conv1d(1, 2 * bins, 16, 8, bias=False)
        self.encoder = nn.Sequential(
            nn.Conv1d(bins, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, 2, padding=1),
            nn.ReLU(),
        )
        self.cell, self.head = nn.LSTMCell(width, width), nn.Conv1d(width, 1, 1)
        self.register_buffer("h", torch.zeros(1, width))
        self.register_buffer("c", torch.zeros(1, width))

    def forward(self, chunk: torch.Tensor) -> torch.Tensor:
        padded = F.pad(chunk.unsqueeze(1), (0, 8), mode="reflect")
        real, imaginary = self.basis(padded).chunk(2, 1)
        y = self.encoder(torch.sqrt(real**2 + imaginary**2 + 1e-6))
        h, c = self.cell(y.mean(-1), (self.h, self.c))
        self.h.copy_(h)
        self.c.copy_(c)
        return torch.sigmoid(self.head(F.relu(h).unsqueeze(-1))).squeeze(1)


class GatedRecurrent(nn.Module):
    """Gesture recognition: two GRU layers in both directions over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 6, 2, batch_first=True, bidirectional=True)
        self.classes = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.gru(x)
        return self.classes(y[:, -1]).log_softmax(-1)


class _Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class CachedDecoder(nn.Module):
    """One step of a language model: rotary positions, shared keys, cache buffers."""

    def __init__(self, width: int = 8, length: int = 8) -> None:
        super().__init__()
        self.tokens, self.norm, self.last = (
            nn.Embedding(12, width),
            _Norm(width),
            _Norm(width),
        )
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, 4, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 12, bias=False) for _ in range(2))
        self.down = nn.Linear(12, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, 1, length, 4))
        self.register_buffer("values", torch.zeros(1, 1, length, 4))
        angles = torch.outer(torch.arange(length).float(), torch.tensor([1.0, 0.1]))
        self.register_buffer("cosine", torch.cos(angles), persistent=False)
        self.register_buffer("sine", torch.sin(angles), persistent=False)

    def _rotated(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        real, imaginary = x[..., 0::2], x[..., 1::2]
        c, s = self.cosine[place], self.sine[place]
        turned = torch.stack((real * c - imaginary * s, real * s + imaginary * c), -1)
        return turned.flatten(-2)

    def forward(self, token: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        x = self.tokens(token).unsqueeze(0)
        y = self.norm(x)
        q = self._rotated(self.query(y).view(1, 1, 2, 4).transpose(1, 2), place)
        k = self._rotated(self.key(y).view(1, 1, 1, 4).transpose(1, 2), place)
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, self.value(y).view(1, 1, 1, 4))
        mask = torch.arange(self.keys.shape[2]) <= place
        y = F.scaled_dot_product_attention(
            q, self.keys, self.values, attn_mask=mask.view(1, 1, 1, -1), enable_gqa=True
        )
        x = x + self.out(y.transpose(1, 2).reshape(1, 1, -1))
        y = self.last(x)
        return (
            x + self.down(F.silu(self.gate(y)) * self.up(y))
        ) @ self.tokens.weight.t()


def _floats(*shape: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randn(shape),)


Constructors = dict[
    str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, ...]]]
]
NETWORKS: Constructors = {
    "autoencoder": (autoencoder, _floats(1, 40)),
    "ds_cnn": (DsCnn, _floats(1, 1, 25, 10)),
    "resnet8": (ResNet8, _floats(1, 3, 16, 16)),
    "mobilenet_v1": (MobileNetV1, _floats(1, 3, 24, 24)),
    "mobilenet_v2": (MobileNetV2, _floats(1, 3, 24, 24)),
    "mobilenet_v3": (MobileNetV3, _floats(1, 3, 24, 24)),
    "transformer": (Transformer, lambda: (torch.arange(6).reshape(1, 6),)),
    "voice_activity": (VoiceActivity, _floats(1, 64)),
    "gated_recurrent": (GatedRecurrent, _floats(1, 10, 3)),
    "sound_classifier": (SoundClassifier, _floats(1, 1_200)),
    "cached_decoder": (CachedDecoder, lambda: (torch.tensor([3]), torch.tensor([2]))),
}
"""A constructor and example inputs of each network."""
FULL_NETWORKS: Constructors = {
    "full_mobilenet_v2": (FullMobileNetV2, _floats(1, 3, 48, 48)),
    "full_mobilenet_v3": (FullMobileNetV3, _floats(1, 3, 48, 48)),
}
"""Networks with the published number of layers, which have no archives."""


def make_network(
    name: str, seed: int = 0
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return a network in evaluation mode with statistics that are not trivial."""
    torch.manual_seed(seed)
    build, inputs = (NETWORKS | FULL_NETWORKS)[name]
    model = build().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 2.0)
    return model, inputs()
