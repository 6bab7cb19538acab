"""Radix stages, digit-reversed order and twiddle factors of a power-of-two FFT.

Twiddle factors are fractions of `bits` bits, or floats if `bits` is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from firmwright.base.dtypes import Array, DType


def fraction_bits(dtype: DType) -> int:
    """Return the number of fraction bits; 0 for floats."""
    return 0 if dtype.is_float else dtype.bits - 1


@dataclass(frozen=True, slots=True)
class FftStage:
    """A radix stage: `blocks` transforms, each of `radix` parts of `size` numbers."""

    radix: int
    size: int
    blocks: int


@cache
def radix_stages(count: int) -> tuple[FftStage, ...]:
    """Return the stages of a transform of `count` complex numbers in order of execution."""
    steps: list[FftStage] = []
    blocks, remaining = 1, count
    while remaining > 1:
        radix = 4 if remaining % 4 == 0 else 2
        remaining //= radix
        steps.append(FftStage(radix, remaining, blocks))
        blocks *= radix
    return tuple(reversed(steps))


@cache
def digit_reversal(count: int) -> tuple[int, ...]:
    """Return, for each position of the transform, the index of the number to load there."""
    order = np.zeros(1, np.int64)
    stride = 1
    for stage in reversed(radix_stages(count)):
        order = (order[:, None] + stride * np.arange(stage.radix)).reshape(-1)
        stride *= stage.radix
    return tuple(order.tolist())


@cache
def unit_circle(count: int, first: float, places: int, bits: int, *, reverse: bool) -> Array:
    """Return `places` of the `count` points of the unit circle, from point `first` on."""
    angle = 2 * np.pi * (np.arange(places) + first) / count * (1 if reverse else -1)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    if bits == 0:
        return points
    return np.asarray(np.floor(0.5 + ((1 << bits) - 1) * points), np.int64)


def twiddle_factors(count: int, bits: int, *, reverse: bool) -> Array:
    """Return the powers of the root of unity for a transform of `count` numbers."""
    return unit_circle(count, 0, count, bits, reverse=reverse)


def real_twiddle_factors(count: int, bits: int, *, reverse: bool) -> Array:
    """Return the factors that split bins k and n - k of a real transform, for k = 1..count / 2."""
    return unit_circle(2 * count, 1 + count / 2, count // 2, bits, reverse=reverse)
