"""Spectra in PyTorch: complex operators, and a classifier of sound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.pytorch.operator_cases import AsModule

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]
"""A function, and the shapes of its float inputs."""
SOUND, FRAMES, SHORT = (2, 400), (2, 3, 64), (12,)


def _frames(x: torch.Tensor, size: int = 64, **settings: Any) -> torch.Tensor:
    return torch.stft(x, size, 20, return_complex=True, **settings)


def _complex(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(x, torch.sin(x))


def _synthesis(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(x * x))


def transforms() -> dict[str, Case]:
    """Return one-dimensional transforms; powers of two from 32 on are fast."""
    return {
        "rfft": (lambda x: torch.fft.rfft(x).abs(), (FRAMES,)),
        "rfft_short": (lambda x: torch.view_as_real(torch.fft.rfft(x)), (SHORT,)),
        "rfft_cut": (lambda x: torch.fft.rfft(x, 32, norm="ortho").abs(), (FRAMES,)),
        "rfft_filled": (
            lambda x: torch.fft.rfft(x, 128, norm="forward").abs(),
            (FRAMES,),
        ),
        "rfft_axis": (lambda x: torch.fft.rfft(x, dim=1).abs(), (FRAMES,)),
        "rfft_odd": (lambda x: torch.fft.rfft(x, 15).real, (SHORT,)),
        "irfft": (_synthesis, (FRAMES,)),
        "irfft_cut": (lambda x: torch.fft.irfft(torch.fft.rfft(x), 32), (FRAMES,)),
        "irfft_filled": (
            lambda x: torch.fft.irfft(torch.fft.rfft(x), 15, norm="forward"),
            (SHORT,),
        ),
        "fft": (lambda x: torch.fft.fft(x, dim=0).imag, (FRAMES,)),
        "fft_complex": (lambda x: torch.fft.fft(_complex(x)).abs(), (SHORT,)),
        "ifft": (
            lambda x: torch.fft.ifft(torch.fft.fft(x), norm="ortho").real,
            (SHORT,),
        ),
    }


def frames() -> dict[str, Case]:
    """Return transforms of frames, with all settings of `torch.stft`."""
    hann, hamming = torch.hann_window(40), torch.hamming_window(64)
    return {
        "stft": (lambda x: _frames(x).abs(), (SOUND,)),
        "stft_line": (lambda x: _frames(x[0], window=hamming).abs(), (SOUND,)),
        "stft_window": (
            lambda x: torch.view_as_real(
                _frames(x, win_length=40, window=hann, center=False)
            ),
            (SOUND,),
        ),
        "stft_constant": (
            lambda x: _frames(x, pad_mode="constant", normalized=True).abs() ** 2,
            (SOUND,),
        ),
        "stft_edge": (lambda x: _frames(x, pad_mode="replicate").real, (SOUND,)),
        "stft_both_sides": (lambda x: _frames(x, 24, onesided=False).abs(), (SOUND,)),
        "stft_own_window": (
            lambda x: _frames(x, window=torch.blackman_window(64)).imag,
            (SOUND,),
        ),
        "stft_other_length": (lambda x: _frames(x, 50).abs(), (SOUND,)),
    }


def numbers() -> dict[str, Case]:
    """Return arithmetic, parts and movement of complex numbers."""
    return {
        "parts": (lambda x: _complex(x).real - _complex(x).imag, (SHORT,)),
        "angle": (lambda x: torch.complex(x, x.abs() + 0.5).angle(), (SHORT,)),
        "angle_below": (lambda x: torch.complex(x, -(x.abs()) - 0.5).angle(), (SHORT,)),
        "polar": (
            lambda x: torch.view_as_real(torch.polar(x.abs(), x * 3)),
            (SHORT,),
        ),
        "product": (
            lambda x, y: torch.view_as_real(_complex(x) * _complex(y).conj() * x),
            ((3, 4), (4,)),
        ),
        "quotient": (
            lambda x, y: torch.view_as_real(_complex(x) / _complex(y + 3) / 2.5),
            ((3, 4), (4,)),
        ),
        "sums": (
            lambda x: torch.view_as_real(x + _complex(x) - 1.5 - (-_complex(x * x))),
            (SHORT,),
        ),
        "reductions": (
            lambda x: (_complex(x).sum(-1) * _complex(x).mean((0, 1))[0]).abs(),
            (FRAMES,),
        ),
        "movement": (
            lambda x: torch.view_as_real(
                torch.stack([_complex(x)[:, 1], _complex(x)[:, -1]], -1)
                .transpose(0, 1)
                .reshape(-1, 4)[:, 1:]
                .permute(1, 0)
            ),
            (FRAMES,),
        ),
        "joined": (
            lambda x: torch.cat([_complex(x), _complex(x)[:1].expand(3, 3, 64)]).imag,
            (FRAMES,),
        ),
        "view": (
            lambda x: torch.view_as_complex(x.reshape(6, 2)).unsqueeze(1).abs(),
            (SHORT,),
        ),
    }


def spectrum_cases() -> dict[str, tuple[nn.Module, tuple[tuple[int, ...], ...]]]:
    """Return a module and the shapes of its inputs for each case."""
    cases = transforms() | frames() | numbers()
    return {name: (AsModule(f).eval(), shapes) for name, (f, shapes) in cases.items()}


def mel_filters(bins: int, channels: int, rate: int) -> torch.Tensor:
    """Return triangles at equal distances in mel, float32 [bins, channels]."""
    hertz = np.linspace(0, rate / 2, bins)
    corners = 700 * np.expm1(np.linspace(0, np.log1p(rate / 1400), channels + 2))
    rising = (hertz[:, None] - corners[:-2]) / np.diff(corners)[:-1]
    falling = (corners[2:] - hertz[:, None]) / np.diff(corners)[1:]
    triangles = np.maximum(np.minimum(rising, falling), 0)
    return torch.from_numpy(triangles.astype(np.float32))


class SoundClassifier(nn.Module):
    """A waveform to the decibels of mel channels, as in torchaudio, then layers."""

    def __init__(self, channels: int = 12) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(128))
        self.register_buffer("filters", mel_filters(65, channels, 8_000))
        self.first = nn.Conv2d(1, 4, 3, stride=2)
        self.classes = nn.Linear(4 * 5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectra = torch.stft(x, 128, 48, window=self.window, return_complex=True)
        power = spectra.abs().pow(2.0)
        mel = torch.matmul(power.transpose(-1, -2), self.filters).transpose(-1, -2)
        decibels = 10 * torch.log10(torch.clamp(mel, min=1e-10))
        image = F.relu(self.first((decibels - decibels.mean()).unsqueeze(1)))
        return self.classes(image.amax(-1).flatten(1)).softmax(-1)
