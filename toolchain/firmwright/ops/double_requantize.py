"""Requantization in double, and integer multipliers that give the same result with one rounding.

LiteRT's int8 fully connected layers multiply the sum by the real factor in double and round halves
away from zero (measured). A 31-bit multiplier differs at negative ties, which it rounds up, and
where 31 bits of the factor are not enough. Both functions are monotonic, so only the least sum of
each output value matters: it must reach the value, and the previous sum must not. These conditions
bound the multiplier to an interval. The usual multiplier is kept if it is inside; otherwise the
nearest one inside is used.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import INT32, Array
from firmwright.ops.requantize import Requantization

_BEYOND = 2.0**32
"""Greater than any sum."""
_NEAR = np.arange(-2.0, 3.0)


def requantize_in_double(acc: Array, factors: Array) -> Array:
    """Return acc * factors (channel last), rounding halves away from zero, saturated to 32 bits."""
    product = acc.astype(np.float64) * factors
    size = np.abs(product)
    whole = np.floor(size)
    rounded = np.copysign(whole + (size - whole >= 0.5), product)
    return np.asarray(np.clip(rounded, INT32.min, INT32.max), np.int64)


def find_exact_multipliers(
    params: Requantization, factors: Sequence[float], low: Array, high: Array
) -> Requantization | None:
    """Return `params` with multipliers that are exact for sums in [low[c], high[c]], or None.

    `params` must be computed from `factors`: one value, or one per channel.
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
    """For each channel and output value, a sum that must reach the value and one that must not.

    The flags indicate whether such a sum exists within the bounds.
    """

    values: Array
    reaching: Array
    is_reached: Array
    below: Array
    is_missed: Array

    @staticmethod
    def of(factors: Array, low: Array, high: Array, params: Requantization) -> "_Bounds":
        first, last = params.clamp_min + 1, params.clamp_max
        values = np.arange(first, last + 1, dtype=np.int64) - params.zero_point
        least = _least_sums(factors[:, None], values)
        low, high = low[:, None], high[:, None]
        return _Bounds(
            values, np.maximum(least, low), least <= high, np.minimum(least - 1, high), least > low
        )

    def hold(self, multipliers: Array, right: Array) -> Array:
        """Return, per channel, whether the multipliers map every sum correctly."""
        multiplier, places = multipliers[:, None], right[:, None]
        half = np.int64(1) << (places - 1)
        reaches = (self.reaching * multiplier + half) >> places >= self.values
        misses = (self.below * multiplier + half) >> places < self.values
        is_exact: Array = ((reaches | ~self.is_reached) & (misses | ~self.is_missed)).all(axis=1)
        return is_exact

    def interval(self, channel: int, right: int) -> tuple[int, int]:
        """Return the least and greatest exact multiplier; least > greatest if none is exact."""
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
        """Yield (total, bound) such that total * multiplier + half must be at least `bound`.

        Here, half = 2^(right - 1). Conditions on sums that must not reach a value are negated.
        """
        values = self.values.tolist()
        for place in np.flatnonzero(self.is_reached[channel]).tolist():
            yield int(self.reaching[channel, place]), values[place] << right
        for place in np.flatnonzero(self.is_missed[channel]).tolist():
            # total * m + half <= bound - 1, so -total * m + half >= 1 - bound + 2 half
            yield -int(self.below[channel, place]), 1 - (values[place] << right) + (1 << right)


def _least_sums(factors: Array, values: Array) -> Array:
    """Return, per channel, the least sum that requantizes in double to at least each value."""
    guess = np.clip(np.ceil((values - 0.5) / factors), -_BEYOND, _BEYOND)
    near = guess[..., None] + _NEAR
    is_there = requantize_in_double(near, factors[..., None]) >= values[:, None]
    first = np.argmax(is_there, axis=-1)
    return np.asarray(guess + _NEAR[first], np.int64)
