"""What a transform of a power of two of complex numbers is made of: its steps and its tables.

In: how many numbers. Out: the steps, neighbours first; which input each place begins with; numbers
on the circle, as fractions of 15 or 31 bits or as floats (`bits` 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from firmwright.base.dtypes import DType
from firmwright.ir.graph.opdef import Array


def fraction_bits(dtype: DType) -> int:
    """Bits behind the point; 0 for floats."""
    return 0 if dtype.is_float else dtype.bits - 1


@dataclass(frozen=True, slots=True)
class FftStage:
    """A step of `radix`: `blocks` transforms, each of `radix` parts of `size` numbers."""

    radix: int
    size: int
    blocks: int


@cache
def radix_stages(count: int) -> tuple[FftStage, ...]:
    """The steps of a transform of `count` complex numbers, neighbours first."""
    found: list[FftStage] = []
    blocks, rest = 1, count
    while rest > 1:
        radix = 4 if rest % 4 == 0 else 2
        rest //= radix
        found.append(FftStage(radix, rest, blocks))
        blocks *= radix
    return tuple(reversed(found))


@cache
def digit_reversal(count: int) -> tuple[int, ...]:
    """Which input each place of the transform begins with."""
    places = np.zeros(1, np.int64)
    stride = 1
    for stage in reversed(radix_stages(count)):
        places = (places[:, None] + stride * np.arange(stage.radix)).reshape(-1)
        stride *= stage.radix
    return tuple(places.tolist())


@cache
def unit_circle(count: int, first: float, places: int, bits: int, *, reverse: bool) -> Array:
    """`places` numbers on the circle from `first` on, `count` of which go round it once.

    As fractions of `bits` bits, rounded; `bits` 0 stands for floats.
    """
    angle = 2 * np.pi * (np.arange(places) + first) / count * (1 if reverse else -1)
    found = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    if bits == 0:
        return found
    return np.asarray(np.floor(0.5 + ((1 << bits) - 1) * found), np.int64)


def twiddle_factors(count: int, bits: int, *, reverse: bool) -> Array:
    """The powers of the root of unity that a transform of `count` numbers takes."""
    return unit_circle(count, 0, count, bits, reverse=reverse)


def real_twiddle_factors(count: int, bits: int, *, reverse: bool) -> Array:
    """What the differences of bins 1.. are turned by: a quarter of the circle further."""
    return unit_circle(2 * count, 1 + count / 2, count // 2, bits, reverse=reverse)
