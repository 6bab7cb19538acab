"""Whole numbers as formulas of the size of an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

_DIVISORS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64)


@dataclass(frozen=True, slots=True)
class SizeFormula:
    """(square * n^2 + factor * n + offset) / divisor, rounded down, for a size n.

    The dividend is not negative for any size of the axis unless the divisor is 1.
    """

    square: int = 0
    factor: int = 0
    offset: int = 0
    divisor: int = 1

    def at(self, size: int) -> int:
        dividend = (self.square * size + self.factor) * size + self.offset
        return dividend // self.divisor

    def fits(self, size: int, limit: int) -> bool:
        """Return whether its numbers, and all that it computes, are below a limit."""
        inner = self.square * size + self.factor
        numbers = [self.square, self.square * size, self.factor, inner, inner * size]
        numbers += [self.offset, inner * size + self.offset]
        return max(map(abs, numbers)) < limit

    @property
    def is_size(self) -> bool:
        """Whether the number is the size itself."""
        return self == SizeFormula(factor=1)


def fit_size_formula(values: Mapping[int, int]) -> SizeFormula | None:
    """Return the simplest formula with these values by size, or None."""
    sizes = sorted(values)
    found = _fit_polynomial(values, sizes)
    if found is not None:
        return found
    for divisor in _DIVISORS[1:]:
        found = _fit_quotient(values, sizes, divisor)
        if found is not None:
            return found
    return None


def _fit_polynomial(
    values: Mapping[int, int], sizes: Sequence[int]
) -> SizeFormula | None:
    """Return a constant, a line or a parabola through all values, or None."""
    last = sizes[-1]
    if len(set(values.values())) == 1:
        return SizeFormula(offset=values[last])
    before = sizes[-2]
    slope = Fraction(values[last] - values[before], last - before)
    square = Fraction(0)
    if len(sizes) > 2:
        first = sizes[0]
        other = Fraction(values[before] - values[first], before - first)
        square = (slope - other) / (last - first)
    factor = slope - square * (last + before)
    offset = values[last] - factor * last - square * last * last
    if not square.denominator == factor.denominator == offset.denominator == 1:
        return None
    found = SizeFormula(int(square), int(factor), int(offset))
    return found if all(found.at(n) == values[n] for n in sizes) else None


def _fit_quotient(
    values: Mapping[int, int], sizes: Sequence[int], divisor: int
) -> SizeFormula | None:
    """Return the rounded quotient of a line, or None."""
    last = sizes[-1]
    pairs = [n for n in sizes[:-1] if (last - n) % divisor == 0]
    if not pairs:
        return None
    first = pairs[0]
    factor = (values[last] - values[first]) * divisor // (last - first)
    remainders = [divisor * values[n] - factor * n for n in sizes]
    least, end = max(remainders), min(remainders) + divisor
    # The smallest offset that is not negative is the one that people write.
    offset = max(least, min(0, end - 1))
    found = SizeFormula(factor=factor, offset=offset, divisor=divisor)
    is_right = all(found.at(n) == values[n] for n in sizes)
    return found if is_right and factor * sizes[0] + offset >= 0 else None
