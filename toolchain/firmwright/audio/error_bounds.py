"""Bounds of features: where a value must be, given the real numbers of the definition.

docs/decisions/0101-bounds-of-features.md derives each term. Errors of a transform are
in units of its int16 results, for all bins (`greatest`) and for the root of the sum of
their squares (`norm`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from firmwright.audio.batches import frames_of
from firmwright.base.dtypes import Array
from firmwright.extensions.tflm_signal.fft_lowering import (
    radix_stages,
    real_twiddle_factors,
    twiddle_factors,
)
from firmwright.extensions.tflm_signal.logarithms import LN2, log_table

_BITS = 15
_PAIR = np.sqrt(0.5)
"""The error of a complex number whose parts are rounded to integers."""
_LARGEST = np.sqrt(2) * (1 << _BITS)
"""The greatest magnitude of a complex number of int16."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The tables of the graph as real numbers, and its sizes.

    `window` is [frame], `bank` [bins, channels], `cosines` [width, channels] or None.
    `step` is the step of int8.
    """

    length: int
    hop: int
    window: Array
    bank: Array
    cosines: Array | None
    log_scale: int
    step: float


@dataclass(frozen=True, slots=True)
class BinErrors:
    """The greatest error of a bin, and the root of the sum of the squares of all."""

    greatest: float
    norm: float


@dataclass(frozen=True)
class TransformErrors:
    """Errors of `rfft` of `length` int16, without overflow."""

    length: int

    @property
    def count(self) -> int:
        return self.length // 2

    @cached_property
    def gain(self) -> float:
        """The factor by which roundings of 1 / radix make all results smaller."""
        gain = _scale(2) * 2
        for stage in radix_stages(self.count):
            gain *= _scale(stage.radix) * stage.radix
        return gain

    @cached_property
    def stages(self) -> BinErrors:
        """The errors of the complex transform."""
        turn = _distance(twiddle_factors(self.count, _BITS, reverse=False), self.count)
        greatest = norm = 0.0
        for stage in radix_stages(self.count):
            p = stage.radix
            turned = _PAIR + turn * _scale(p) * _LARGEST
            greatest += p * _PAIR + (p - 1) * turned
            new = _PAIR + np.sqrt((p - 1) / p) * turned
            norm = norm / np.sqrt(p) + np.sqrt(p * self.count) * new
        return BinErrors(greatest, float(norm))

    @cached_property
    def bins(self) -> BinErrors:
        """The errors of the bins of real numbers."""
        complex_errors = self.stages
        factors = real_twiddle_factors(self.count, _BITS, reverse=False)
        turned = _PAIR + _distance(factors, 2 * self.count, self.count // 2 + 1) * (
            2 * _scale(2) * _LARGEST
        )
        n = self.count
        ends = np.sqrt(2) * (complex_errors.greatest / 2 + _PAIR)
        own = _PAIR * np.sqrt(n) + _PAIR * np.sqrt(n / 2) * turned
        all_bins = complex_errors.norm / 2 + own + _PAIR * np.sqrt(n + 1)
        greatest = complex_errors.greatest + np.sqrt(2) + turned / 2 + _PAIR
        return BinErrors(greatest, float(all_bins + ends))


def _scale(radix: int) -> float:
    return float(((1 << _BITS) - 1) // radix / (1 << _BITS))


def _distance(factors: Array, divisions: int, first: int = 0) -> float:
    """Return the greatest distance of factors from the unit circle's points."""
    angle = -2 * np.pi * (np.arange(len(factors)) + first) / divisions
    own = (factors[:, 0] + 1j * factors[:, 1]) / (1 << _BITS)
    return float(np.abs(own - np.exp(1j * angle)).max())


@dataclass(frozen=True)
class AmplitudeBounds:
    """Limits of the amplitudes of streams int16 [streams, samples]."""

    tables: Definition

    @cached_property
    def errors(self) -> TransformErrors:
        return TransformErrors(self.tables.length)

    def limits(self, streams: Array) -> tuple[Array, Array]:
        """Return the least and greatest amplitudes, float64 [streams, hops, channels].

        They are 0 and infinity if the transform may overflow.
        """
        own = self.tables
        frames = frames_of(streams, len(own.window), own.hop)
        weighted = frames * own.window
        stored = np.floor(weighted)
        peak = np.abs(stored).max(axis=-1, keepdims=True)
        bits = 15 - np.frexp(peak)[1]
        scale = np.where(peak > 0, 2.0**bits, 1.0)
        spectrum = np.abs(np.fft.rfft(weighted, own.length)) ** 2
        exact = np.sqrt(spectrum @ own.bank) * self.errors.gain
        distance = self._distance(scale)
        root = own.length / 64 * (0.5 / scale)
        lower = exact - distance - root - own.length / 64
        upper = exact + distance + root
        fits = self._fits(stored * scale) & (stored.min(-1, keepdims=True) > -(1 << 15))
        is_silent = peak == 0
        upper = np.where(is_silent, 0, np.where(fits, upper, np.inf))
        return np.where(fits, np.maximum(lower, 0), 0), upper

    def _distance(self, scale: Array) -> Array:
        """Return the errors of window and transform in the channels' amplitudes."""
        own = self.tables
        weight = np.sqrt(np.abs(own.bank).sum(axis=0))
        heaviest = np.sqrt(np.abs(own.bank).max(axis=0))
        bins = self.errors.bins
        unit = own.length / scale
        transform = np.minimum(weight * bins.greatest, heaviest * bins.norm) * unit
        # Each product loses less than 1: half of it in all, and up to half in each.
        frame = len(own.window)
        offset = 0.5 * np.abs(np.fft.rfft(np.ones(frame), own.length))
        each = np.minimum(
            weight * frame / 2, heaviest * np.sqrt(own.length * frame) / 2
        )
        return np.asarray(transform + np.sqrt(offset**2 @ np.abs(own.bank)) + each)

    def _fits(self, stored: Array) -> Array:
        """Return whether no sum of a stage exceeds int16, [streams, hops, 1]."""
        count = self.errors.count
        padded = np.zeros((*stored.shape[:-1], 2 * count))
        padded[..., : stored.shape[-1]] = stored
        numbers = padded[..., ::2] + 1j * padded[..., 1::2]
        room = (1 << _BITS) - 1 - self.errors.bins.greatest
        # A rotated difference of bins has the magnitude of the odd samples' transform.
        turned = np.abs(np.fft.fft(numbers.imag)) / count
        fits = turned.max(axis=-1, keepdims=True) <= room
        size = 1
        for stage in radix_stages(count):
            size *= stage.radix
            parts = numbers.reshape(*numbers.shape[:-1], size, count // size)
            sums = np.fft.fft(parts, axis=-2) / size
            greatest = np.maximum(np.abs(sums.real), np.abs(sums.imag))
            fits &= greatest.max(axis=(-2, -1))[..., None] <= room
        return np.asarray(fits)


@cache
def log_error() -> tuple[float, float]:
    """Return the least and greatest error of `filter_bank_log`'s natural logarithm.

    All 2^16 fractions of the logarithm are computed; the integer part adds the error
    of a constant, up to 31 times.
    """
    table = np.array(log_table(), np.int64)
    part = np.arange(1 << 16)
    segment = part >> 9
    below, above = table[segment], table[segment + 1]
    units = (part + below + ((above - below) * (part & 511) >> 16)) * LN2 / 65536
    constant = 31 * (LN2 / 65536 - np.log(2))
    least = units / 65536 - np.log1p((part + 1) / 65536)
    greatest = units / 65536 - np.log1p(part / 65536)
    half = 0.5 / 65536
    lowest = float(least.min() + min(constant, 0) - half)
    return lowest, float(greatest.max() + max(constant, 0) + half)


def value_limits(own: Definition, streams: Array) -> tuple[Array, Array]:
    """Return the limits of the values before they saturate, [streams, hops, width].

    A value is rounded to a step of int8, by a product that is rounded to a step of the
    logarithm's first.
    """
    lower, upper = map(_log_of, AmplitudeBounds(own).limits(streams))
    below, above = log_error()
    greatest = np.iinfo(np.int16).max / own.log_scale
    lower = np.clip(lower + below - 0.5 / own.log_scale, 0, greatest)
    upper = np.clip(upper + above + 0.5 / own.log_scale, 0, greatest)
    if own.cosines is not None:
        middle, radius = (lower + upper) / 2, (upper - lower) / 2
        change = radius @ np.abs(own.cosines).T
        middle = middle @ own.cosines.T
        lower, upper = middle - change, middle + change
    margin = own.step / 2 + 1 / own.log_scale
    return lower - margin, upper + margin


def _log_of(amplitude: Array) -> Array:
    return np.asarray(np.log(np.maximum(amplitude, 1)))
