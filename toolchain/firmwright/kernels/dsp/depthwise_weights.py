"""Weights of depthwise windows that slide over lines, for instructions on two halves.

A line is the taps across the direction of the window's movement. A word holds two
neighboring taps of a line; the last taps of odd lines follow, paired over lines:

    3 lines of 3:   | 01 00 | 11 10 | 21 20 | 12 02 |  - 22 |      tap (line, across)

Weights of int8 are bytes: the even bytes of a word are one word of halves, the odd
bytes the next. If one or two taps remain after whole words of bytes, they are alone.
"""

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT16, Array, DType
from firmwright.kernels.contract import WrappingSums, fits_element

_WORD = 4


@dataclass(frozen=True, slots=True)
class LinePairs(WrappingSums):
    """The layout of windows of `lines` lines of `across` taps, as int16 or int8.

    An element of memory is a half or a byte; rows are [channel, element].
    """

    lines: int
    across: int
    element: DType = INT16

    @property
    def widths(self) -> tuple[int, ...]:
        return (1,)

    @property
    def taps_per_step(self) -> int:
        return 2

    @property
    def taps(self) -> int:
        return self.lines * self.across

    @property
    def words(self) -> int:
        """The words of two halves that registers hold for a channel."""
        even = self.across - self.across % 2
        return self.lines * even // 2 + (self.across % 2 * self.lines + 1) // 2

    @property
    def taps_alone(self) -> int:
        """The bytes after the last whole word, of which each is loaded alone."""
        rest = self.taps % _WORD
        is_shorter = self.taps > 2 and rest in {1, 2}
        return rest if self.element == INT8 and is_shorter else 0

    def _order(self) -> Array:
        """Return the tap of each half, -1 if there is none."""
        even = self.across - self.across % 2
        taps = np.arange(self.taps).reshape(self.lines, self.across)
        found = np.full(2 * self.words, -1)
        found[: self.lines * even] = taps[:, :even].reshape(-1)
        last = taps[:, even:].reshape(-1)
        found[self.lines * even :][: len(last)] = last
        return found

    def _places(self) -> Array:
        """Return the tap of each element of memory, -1 if there is none."""
        order = self._order()
        if self.element != INT8:
            return order
        padded = np.pad(order, (0, -len(order) % _WORD), constant_values=-1)
        octets = padded.reshape(-1, 2, 2).swapaxes(1, 2).reshape(-1)
        if not self.taps_alone:
            return octets
        whole = self.taps - self.taps_alone
        return np.concatenate([octets[:whole], octets[whole::2][: self.taps_alone]])

    def pack(self, weights: Array) -> Array:
        places = self._places()
        packed = np.where(places < 0, 0, weights[:, places])
        return np.ascontiguousarray(packed.astype(self.element.np))

    def unpack(self, packed: Array, channels: int) -> Array:
        places = self._places()
        is_tap = places >= 0
        weights = np.zeros((channels, self.taps), np.int64)
        weights[:, places[is_tap]] = packed.reshape(channels, -1)[:, is_tap]
        return weights

    def do_weights_fit(self, weights: Array) -> bool:
        return fits_element(weights, self.element)


@dataclass(frozen=True, slots=True)
class ChannelPairs(WrappingSums):
    """The layout of groups of `group` channels: for each tap, words of two channels.

    The last channel of an odd group is paired with itself:

        groups of 3:  | tap 0: 1 0 | 2 2 | 4 3 | 5 5 | tap 1: 1 0 | ...
    """

    group: int

    @property
    def element(self) -> DType:
        return INT16

    @property
    def widths(self) -> tuple[int, ...]:
        return (2,)

    @property
    def taps_per_step(self) -> int:
        return 1

    def _order(self, channels: int) -> Array:
        """Return the channel of each half of a tap."""
        last = self.group - 1
        pairs = [(c, min(c + 1, last)) for c in range(0, self.group, 2)]
        firsts = np.arange(0, channels, self.group)[:, None, None]
        return np.asarray(firsts + np.array(pairs)).reshape(-1)

    def pack(self, weights: Array) -> Array:
        by_tap = weights.T[:, self._order(len(weights))]
        return np.ascontiguousarray(by_tap, np.int16)

    def unpack(self, packed: Array, channels: int) -> Array:
        order = self._order(channels)
        by_tap = packed.reshape(-1, len(order))
        weights = np.zeros((channels, len(by_tap)), np.int64)
        weights[order] = by_tap.T
        return weights

    def do_weights_fit(self, weights: Array) -> bool:
        return fits_element(weights, self.element)
