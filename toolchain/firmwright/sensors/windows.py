"""Steps that describe a whole window: statistics and powers in frequency bands."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from firmwright.audio.settings import FrameWindow, require
from firmwright.base.dtypes import Array
from firmwright.ir.graph import Value
from firmwright.sensors.emission import Emission, finite_numbers

_LENGTHS = tuple(1 << n for n in range(3, 15))


class Statistic(enum.Enum):
    """A number that describes a channel; docs/reference/sensors.md has the formulas."""

    MEAN = "mean"
    RMS = "rms"
    STANDARD_DEVIATION = "standard_deviation"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    RANGE = "range"
    PEAK = "peak"
    MEAN_ABSOLUTE = "mean_absolute"
    PATH = "path"
    ZERO_CROSSINGS = "zero_crossings"
    MEAN_CROSSINGS = "mean_crossings"
    SKEWNESS = "skewness"
    KURTOSIS = "kurtosis"


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of each channel of a window; the first one of all channels is first.

    The result has one row, of `len(statistics)` times the channels.
    """

    statistics: Sequence[Statistic]

    def __post_init__(self) -> None:
        names = tuple(self.statistics)
        is_known = all(isinstance(name, Statistic) for name in names)
        require(bool(names) and is_known, f"{names}", "members of `Statistic`.")
        object.__setattr__(self, "statistics", names)

    def emit(self, e: Emission, x: Value) -> Value:
        names = tuple(item.value for item in self.statistics)
        shape = (1, 1, len(names) * x.type.shape[2])
        name = e.name("statistics")
        return e.g.call(
            "window_statistics", x, name=name, shape=shape, statistics=names
        )


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Powers of each channel of a window in bands of frequencies.

    A band's power is the sum of a periodogram over its bins: the mean square of what
    the channel has of these frequencies. Bins are at multiples of the chain's `rate`
    divided by `length`, and a band has those from its lower to below its upper edge.

    Attributes:
        edges_hz: The edges of the bands, in ascending order; one band fewer.
        window: The weights of the samples.
        length: Samples of the transform, a power of two from 8 to 16384; zeros follow
            those of a window. By default the least one.
    """

    edges_hz: npt.ArrayLike
    window: FrameWindow = FrameWindow.HANN
    length: int = 0

    def __post_init__(self) -> None:
        edges = finite_numbers(self.edges_hz, "edges of bands")
        is_rising = len(edges) > 1 and all(np.diff(edges) > 0) and edges[0] >= 0
        require(bool(is_rising), f"bands between {edges}", "rising edges from 0 Hz.")
        object.__setattr__(self, "edges_hz", edges)
        is_known = self.length == 0 or self.length in _LENGTHS
        hint = f"one of {', '.join(map(str, _LENGTHS))}."
        require(is_known, f"a transform of {self.length} samples", hint)

    def emit(self, e: Emission, x: Value) -> Value:
        _, count, channels = x.type.shape
        length = self.length or next((n for n in _LENGTHS if n >= count), 0)
        what = f"a transform of {length or _LENGTHS[-1]} of {count} samples"
        require(length >= count, what, "shorter windows.")
        weights = self._weights(count)
        factor = 2 / (length * float(np.square(weights, dtype=np.float64).sum()))
        if self.window != FrameWindow.RECTANGLE:
            column = weights.reshape(1, -1, 1)
            constant = e.g.constant(column, name=e.name("weights"))
            name = e.name("weighted")
            x = e.g.call("mul", x, constant, name=name, activation="none")
        shape, name = (1, channels, count), e.name("channels")
        turned = e.g.call("transpose", x, name=name, shape=shape, perm=(0, 2, 1))
        shape, name = (1, channels, length + 2), e.name("bins")
        bins = e.g.call("rfft", turned, name=name, shape=shape, length=length)
        first, end = self._bands(e.rate, length)
        return e.g.call(
            "band_powers",
            bins,
            name=e.name("powers"),
            shape=(1, 1, len(first) * channels),
            first=first,
            end=end,
            factor=float(np.float32(factor)),
        )

    def _weights(self, count: int) -> Array:
        """Return first - (1 - first) cos(2 pi (t + 1/2) / count), float32 [count]."""
        first = self.window.value
        angle = 2 * np.pi * (np.arange(count) + 0.5) / count
        return np.asarray(first - (1 - first) * np.cos(angle), np.float32)

    def _bands(self, rate: float, length: int) -> tuple[tuple[int, ...], ...]:
        """Return the first bin of each band, and the one after it."""
        edges = finite_numbers(self.edges_hz, "edges of bands")
        hertz = np.arange(length // 2 + 1) * rate / length
        places = np.searchsorted(hertz, edges, side="left").tolist()
        if edges[-1] == hertz[-1]:
            places[-1] += 1
        hint = f"edges from 0 to {rate / 2:g} Hz, at least {rate / length:g} Hz apart."
        require(edges[-1] <= hertz[-1], f"a band up to {edges[-1]:g} Hz", hint)
        for low, first, end in zip(edges, places[:-1], places[1:], strict=False):
            require(first < end, f"a band without a bin from {low:g} Hz on", hint)
        return tuple(places[:-1]), tuple(places[1:])
