"""The requantise step in double, and multipliers that round once and give the same bits.

LiteRT's int8 fully connected layers multiply the sum by the real factor in double and round halves
away from zero. The step with a 31-bit multiplier differs from that at ties below zero, which it
rounds up, and where 31 bits of the factor are too few. In: factors, and bounds of the sums. Out: a
`Requantization` that is right for every sum within them, or None where no multiplier is.

Both steps never fall as the sum grows, so the least sum of each output value is all there is to
know of them. That such a sum reaches its value, and the one before it does not, is a linear
inequality in the multiplier; all of them together leave an interval. The usual multiplier is taken
where it lies within, else the nearest that does. At ties that is most often one unit more: negative
ties fall below their half, positive ones stay above it.
Source of the semantics: LiteRT's fully connected kernel, asked at ties and where 31 bits are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import INT32
from firmwright.ir.graph.opdef import Array
from firmwright.ops.requantize import Requantization

_BEYOND = 2.0**32
"""No sum is as large."""
_NEAR = np.arange(-2.0, 3.0)


def requantize_in_double(acc: Array, factors: Array) -> Array:
    """acc * factors (channel last), halves away from zero, cut to 32 bits."""
    product = acc.astype(np.float64) * factors
    size = np.abs(product)
    whole = np.floor(size)
    rounded = np.copysign(whole + (size - whole >= 0.5), product)
    return np.asarray(np.clip(rounded, INT32.min, INT32.max), np.int64)


def find_exact_multipliers(
    params: Requantization, factors: Sequence[float], low: Array, high: Array
) -> Requantization | None:
    """`params`, with other multipliers where needed, for sums of channel c in [low[c], high[c]].

    `params` come from `factors`: one for all channels, or one a channel.
    """
    if len(factors) == 1:
        low, high = low.min(keepdims=True), high.max(keepdims=True)
    bounds = _Bounds.of(np.array(factors), low, high, params)
    multipliers = np.broadcast_to(np.array(params.multipliers, np.int64), len(factors))
    right = 31 - np.broadcast_to(np.array(params.shifts, np.int64), len(factors))
    is_wrong = ~bounds.hold(multipliers, right)
    if not is_wrong.any():
        return params
    chosen = multipliers.copy()
    for channel in np.flatnonzero(is_wrong).tolist():
        least, most = bounds.interval(channel, int(right[channel]))
        if least > most:
            return None
        chosen[channel] = min(max(int(chosen[channel]), least), most)
    return replace(params, multipliers=tuple(chosen.tolist()), shifts=tuple((31 - right).tolist()))


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Of each channel and output value, in rows: a sum that reaches it and one that does not.

    Where no sum within the bounds does, the flag beside it is not set.
    """

    values: Array
    reaching: Array
    is_reached: Array
    below: Array
    is_missed: Array

    @staticmethod
    def of(factors: Array, low: Array, high: Array, params: Requantization) -> _Bounds:
        first, last = params.clamp_min + 1, params.clamp_max
        values = np.arange(first, last + 1, dtype=np.int64) - params.zero_point
        least = _least_sums(factors[:, None], values)
        low, high = low[:, None], high[:, None]
        return _Bounds(
            values, np.maximum(least, low), least <= high, np.minimum(least - 1, high), least > low
        )

    def hold(self, multipliers: Array, right: Array) -> Array:
        """Whether the step of each channel puts every sum where it belongs."""
        multiplier, places = multipliers[:, None], right[:, None]
        half = np.int64(1) << (places - 1)
        reaches = (self.reaching * multiplier + half) >> places >= self.values
        misses = (self.below * multiplier + half) >> places < self.values
        found: Array = ((reaches | ~self.is_reached) & (misses | ~self.is_missed)).all(axis=1)
        return found

    def interval(self, channel: int, right: int) -> tuple[int, int]:
        """Least and greatest multiplier that hold; the former is larger where none does."""
        least, most = 0, INT32.max
        half = 1 << (right - 1)
        for total, bound in self._products(channel, right):
            # total * multiplier + half >= bound
            if total > 0:
                least = max(least, -((half - bound) // total))
            elif total < 0:
                most = min(most, (bound - half) // total)
        return least, most

    def _products(self, channel: int, right: int) -> Iterator[tuple[int, int]]:
        """(total, bound): no less than `bound` must `total` times the multiplier and a half be.

        Sums that must miss a value stand here with the other sign, and so does their half.
        """
        values = self.values.tolist()
        for place in np.flatnonzero(self.is_reached[channel]).tolist():
            yield int(self.reaching[channel, place]), values[place] << right
        for place in np.flatnonzero(self.is_missed[channel]).tolist():
            # total * m + half <= bound - 1, so -total * m + half >= 1 - bound + 2 half
            yield -int(self.below[channel, place]), 1 - (values[place] << right) + (1 << right)


def _least_sums(factors: Array, values: Array) -> Array:
    """The least sum that the definition takes to each value or beyond."""
    guess = np.clip(np.ceil((values - 0.5) / factors), -_BEYOND, _BEYOND)
    near = guess[..., None] + _NEAR
    is_there = requantize_in_double(near, factors[..., None]) >= values[:, None]
    first = np.argmax(is_there, axis=-1)
    return np.asarray(guess + _NEAR[first], np.int64)
