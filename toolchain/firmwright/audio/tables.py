"""Constant tables of the front end: window, mel filter bank and gain control.

They have the formats of TFLM's signal library. Intermediate values are float32 as in
its C, because the last bit of a weight depends on it. Functions are those of float64,
rounded, except the logarithm (float_logarithm.py): no result depends on this machine.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from firmwright.audio.float_logarithm import log1p_float32
from firmwright.base.dtypes import Array
from firmwright.extensions.tflm_signal.filter_bank import bank_matrix

WEIGHT_BITS = 12
"""Binary digits after the point of window and filter weights."""
SNR_BITS = 12
"""Binary digits after the point of the ratio of signal and noise."""
COSINE_BITS = 11
"""Binary digits after the point of the cosine transform: sums fit in 32 bits."""
_NOISE_BITS = 32


def window_weights(frame: int, first: float) -> Array:
    """Return first - (1 - first) cos(2 pi (i + 1/2) / frame) as int16 [frame]."""
    turn = np.float32(np.pi) * np.float32(2) / np.float32(frame)
    angle = turn * (np.arange(frame, dtype=np.float32) + np.float32(0.5))
    cosine = np.cos(angle.astype(np.float64)).astype(np.float32)
    return _fixed(np.float32(first) - np.float32(1 - first) * cosine)


def _fixed(weights: Array) -> Array:
    """Return float32 weights with 12 binary digits after the point, as int16."""
    scaled = weights * np.float32(1 << WEIGHT_BITS) + np.float32(0.5)
    return np.asarray(np.floor(scaled), np.int16)


def _mel(hertz: Array) -> Array:
    ratio = np.asarray(hertz / np.float32(700), np.float32)
    return np.asarray(np.float32(1127) * log1p_float32(ratio))


@dataclass(frozen=True, slots=True)
class MelBank:
    """Triangles at equal distances in mel, as inputs of `filter_bank`.

    Bin i has the frequency i * sample_rate / length; the first bin is not used.
    """

    sample_rate: int
    length: int
    channels: int
    lowest_hz: float
    highest_hz: float

    def edges(self) -> Array:
        """Return the corners of the triangles in mel, float32 [channels + 2]."""
        bounds = np.array([self.lowest_hz, self.highest_hz], np.float32)
        lowest, highest = _mel(bounds)
        step = (highest - lowest) / np.float32(self.channels + 1)
        corners = lowest + step * np.arange(self.channels + 2, dtype=np.float32)
        return np.asarray(corners, np.float32)

    def _mel_of_bins(self) -> Array:
        spacing = np.float32(self.sample_rate / self.length)
        return _mel(np.arange(self.length // 2 + 1, dtype=np.float32) * spacing)

    def bins_of_channels(self) -> list[int]:
        """Return the first bin above the lowest edge, then above each further one."""
        places = self._mel_of_bins()
        spacing = np.float32(self.sample_rate / self.length)
        first = int(np.float32(1.5) + np.float32(self.lowest_hz) / spacing)
        bounds = [first]
        for edge in self.edges()[1:]:
            above = int(np.searchsorted(places, edge, side="right"))
            bounds.append(max(above, bounds[-1]))
        return bounds

    def tables(self) -> list[Array]:
        """Return weights, unweights, first bins, first weights and widths (int16)."""
        places, bounds = self._mel_of_bins(), self.bins_of_channels()
        parts: list[Array] = []
        for bins, edges in zip(pairwise(bounds), pairwise(self.edges()), strict=True):
            below, above = edges
            parts.append((above - places[slice(*bins)]) / (above - below))
        falling = np.concatenate(parts)
        weights, unweights = _fixed(falling), _fixed(np.float32(1) - falling)
        widths = np.diff(bounds)
        starts = np.concatenate([[0], np.cumsum(widths)[:-1]])
        tables = (weights, unweights, bounds[:-1], starts, widths)
        return [np.asarray(table).astype(np.int16) for table in tables]

    def matrix(self) -> Array:
        """Return the weights of all bins, int64 [length / 2 + 1, channels]."""
        return bank_matrix(self.tables(), self.length // 2 + 1, self.channels)


def gain_table(
    offset: float, strength: float, gain_bits: int, noise_bits: int
) -> Array:
    """Return (noise + offset)^-strength in the format of `pcan`, int64 [125].

    The operator takes int16, which a steep curve exceeds. The gain has `gain_bits` and
    the noise `noise_bits` binary digits after the point.
    """

    def gain(noise: int) -> int:
        level = np.float32(noise) / np.float32(1 << noise_bits)
        base = float(level + np.float32(offset))
        power = np.float32(base ** -float(np.float32(strength)))
        value = np.float32(1 << gain_bits) * power
        return min(int(value + np.float32(0.5)), 0x7FFF)

    table = np.zeros(4 * _NOISE_BITS - 3, np.int64)
    table[:2] = gain(0), gain(1)
    for bits in range(2, _NOISE_BITS + 1):
        start = 1 << (bits - 1)
        end = 2 * start - (bits == _NOISE_BITS)
        first, half, full = gain(start), gain(start + start // 2), gain(end)
        slope = 4 * (half - first) - (full - first)
        row = 4 * bits - 6
        table[row : row + 3] = first, slope, full - first - slope
    return table


def cosine_table(count: int, channels: int) -> Array:
    """Return the first rows of the orthonormal transform, int16 [count, channels]."""
    k, i = np.arange(count)[:, None], np.arange(channels)
    cosines = np.cos(np.pi * k * (i + 0.5) / channels) * np.sqrt(2 / channels)
    cosines[0] /= np.sqrt(2)
    return np.asarray(np.floor(cosines * (1 << COSINE_BITS) + 0.5), np.int16)


def correction_bits(length: int) -> int:
    """Return the bits with which the logarithm is that of the unscaled transform.

    A transform of `length` samples divides by it, and roots have 6 bits of the weights.
    """
    return length.bit_length() - 1 - WEIGHT_BITS // 2
