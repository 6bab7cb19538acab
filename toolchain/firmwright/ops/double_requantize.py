"""Requantization in floats, and equivalent integer multipliers with one rounding.

LiteRT's int8 fully connected layers multiply the sum by the real factor in double and
round halves away from zero (measured); ONNX Runtime's layers multiply in float32 and
round halves to even. A 31-bit multiplier differs at ties, which it rounds up, and where
the float product is rounded. As all are monotonic, the least sum of each output value
must reach it, and the previous sum must not. This bounds the multiplier to an interval,
of which the value nearest to the usual multiplier is used.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.base.errors import ModelError
from firmwright.base.quant import Rounding
from firmwright.ir.graph import TensorType
from firmwright.ops.requantize import FACTOR_MAX, Requantization, make_requantization

Definition: TypeAlias = Callable[[Array, Array], Array]
"""A monotonic function from sums and factors to scaled integers."""


def requantize_in_double(acc: Array, factors: Array) -> Array:
    """Return acc * factors (channel last), halves away from zero, within 32 bits."""
    product = acc.astype(np.float64) * factors
    size = np.abs(product)
    whole = np.floor(size)
    rounded = np.copysign(whole + (size - whole >= 0.5), product)
    return np.asarray(np.clip(rounded, INT32.min, INT32.max), np.int64)


def requantize_in_float32(acc: Array, factors: Array) -> Array:
    """Return float32 acc * factors (channel last), halves to even, within 32 bits."""
    product = acc.astype(np.float32) * factors.astype(np.float32)
    rounded = np.rint(product).astype(np.float64)
    return np.asarray(np.clip(rounded, INT32.min, INT32.max), np.int64)


def requantization_in_float32(
    factors: Sequence[float],
    low: Array,
    high: Array,
    output: TensorType,
    activation: str,
) -> Requantization:
    """Return ONNX Runtime's requantization by float32 `factors`.

    The sums of channel c are in [low[c], high[c]].

    It rounds once if multipliers are proved equal for all channels, else it computes in
    float32. Raises ModelError if scaled sums may exceed 32 bits, before they are
    clamped.
    """
    factors = [min(factor, FACTOR_MAX) for factor in factors]
    reach = np.maximum(np.abs(low), np.abs(high)) * np.array(factors)
    if reach.max(initial=0) >= INT32.max - INT8.max * 2:
        what = (
            "an output scale is so small that the layer's scaled sums exceed 32 bits."
        )
        raise ModelError(what, hint="calibrate again, with data that reach this layer.")
    params = make_requantization(factors, Rounding.ONCE, output, activation)
    fitted, is_exact = _fit_multipliers(
        params, factors, low, high, requantize_in_float32, is_even=True
    )
    if is_exact.all():
        return replace(params, multipliers=fitted.multipliers, shifts=fitted.shifts)
    multipliers = np.array(fitted.multipliers)
    rounds_once = is_exact & (multipliers % 2 == 0)
    mixed = np.where(rounds_once, multipliers, np.array(params.multipliers) | 1)
    return replace(fitted, multipliers=tuple(mixed.tolist()), rounding=Rounding.FLOAT32)


def find_exact_multipliers(
    params: Requantization,
    factors: Sequence[float],
    low: Array,
    high: Array,
    definition: Definition = requantize_in_double,
) -> Requantization | None:
    """Return `params` with multipliers exact for sums in [low[c], high[c]], or None.

    `params` were made from `factors`, which hold one value or one per channel.
    `definition` computes the scaled sums.
    """
    fitted, is_exact = _fit_multipliers(params, factors, low, high, definition)
    return fitted if is_exact.all() else None


def _fit_multipliers(
    params: Requantization,
    factors: Sequence[float],
    low: Array,
    high: Array,
    definition: Definition,
    *,
    is_even: bool = False,
) -> tuple[Requantization, Array]:
    """Return `params` with exact multipliers where possible, and which are exact.

    With `is_even`, multipliers that change are even if possible.
    """
    if len(factors) == 1:
        low = low.min(keepdims=True)
        high = high.max(keepdims=True)
    bounds = _Bounds.of(np.array(factors), low, high, params, definition)
    multipliers = np.broadcast_to(np.array(params.multipliers, np.int64), len(factors))
    right = 31 - np.broadcast_to(np.array(params.shifts, np.int64), len(factors))
    is_exact = bounds.hold(multipliers, right)
    if is_exact.all():
        return params, is_exact
    chosen = multipliers.copy()
    for channel in np.flatnonzero(~is_exact).tolist():
        least, most = bounds.interval(channel, int(right[channel]))
        nearest = min(max(int(chosen[channel]), least), most)
        if is_even and nearest % 2:
            nearest += 1 if nearest < most else -1
        if least <= nearest <= most:
            chosen[channel], is_exact[channel] = nearest, True
    shifts = tuple((31 - right).tolist())
    return replace(params, multipliers=tuple(chosen.tolist()), shifts=shifts), is_exact


@dataclass(frozen=True, slots=True)
class _Bounds:
    """A sum that must reach each output value, and one that must not, per channel.

    The flags indicate whether such a sum exists within the bounds.
    """

    values: Array
    reaching: Array
    is_reached: Array
    below: Array
    is_missed: Array

    @staticmethod
    def of(
        factors: Array,
        low: Array,
        high: Array,
        params: Requantization,
        definition: Definition,
    ) -> "_Bounds":
        first = params.clamp_min + 1
        last = params.clamp_max
        values = np.arange(first, last + 1, dtype=np.int64) - params.zero_point
        low, high = low[:, None], high[:, None]
        least = _least_sums(definition, factors[:, None], values, low, high)
        return _Bounds(
            values,
            np.maximum(least, low),
            least <= high,
            np.minimum(least - 1, high),
            least > low,
        )

    def hold(self, multipliers: Array, right: Array) -> Array:
        """Return, per channel, whether the multipliers map every sum correctly."""
        multiplier = multipliers[:, None]
        places = right[:, None]
        half = np.int64(1) << (places - 1)
        reaches = (self.reaching * multiplier + half) >> places >= self.values
        misses = (self.below * multiplier + half) >> places < self.values
        holds = (reaches | ~self.is_reached) & (misses | ~self.is_missed)
        is_exact: Array = holds.all(axis=1)
        return is_exact

    def interval(self, channel: int, right: int) -> tuple[int, int]:
        """Return the least and greatest exact multiplier; least > greatest if none."""
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
        """Yield (total, bound) such that total * multiplier + half must reach `bound`.

        Here, half = 2^(right - 1). Conditions on sums that must not reach a value are
        negated.
        """
        values = self.values.tolist()
        for place in np.flatnonzero(self.is_reached[channel]).tolist():
            yield int(self.reaching[channel, place]), values[place] << right
        for place in np.flatnonzero(self.is_missed[channel]).tolist():
            # total * m + half <= bound - 1, so -total * m + half >= 1 - bound + 2 half
            bound = 1 - (values[place] << right) + (1 << right)
            yield -int(self.below[channel, place]), bound


def _least_sums(
    definition: Definition, factors: Array, values: Array, low: Array, high: Array
) -> Array:
    """Return the least sum in [low, high] that is mapped to each value or beyond.

    It is high + 1 if there is none.
    """
    shape = np.broadcast_shapes(factors.shape, values.shape)
    below = np.broadcast_to(low - 1, shape).copy()
    reaching = np.broadcast_to(high + 1, shape).copy()
    while (reaching - below > 1).any():
        middle = (below + reaching) >> 1
        is_there = definition(middle, factors) >= values
        is_open = reaching - below > 1
        reaching = np.where(is_open & is_there, middle, reaching)
        below = np.where(is_open & ~is_there, middle, below)
    return reaching
