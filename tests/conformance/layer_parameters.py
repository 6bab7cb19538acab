"""Random quantization parameters, weights and biases for random layers.

Layers and their results are small, because dozens share one firmware on the smallest
board. No accumulator can exceed 32 bits, which the importer would reject.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.conformance.case_tables import CaseTensor

MOST_ELEMENTS = 1200
"""Limit of the elements of a layer's input and of its output."""
MOST_WEIGHTS = 4000
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 20, 24, 31, 32, 33, 40, 48, 64, 67)
ACTIVATIONS = ("NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1")
_REACH = (1 << 31) - 1
_T = TypeVar("_T")


def pick(rng: np.random.Generator, values: Sequence[_T]) -> _T:
    return values[int(rng.integers(len(values)))]


def float32(value: float) -> float:
    return float(np.float32(value))


def power(rng: np.random.Generator, low: float, high: float) -> float:
    """Return a log-uniform value between 2^low and 2^high."""
    return float32(2.0 ** rng.uniform(low, high))


def zero_point(rng: np.random.Generator) -> int:
    return pick(rng, (-128, -128, 127, 0, int(rng.integers(-128, 128))))


def int8_tensor(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    scale: float,
    point: int | None = None,
) -> CaseTensor:
    return CaseTensor(
        shape, "int8", (scale,), (zero_point(rng) if point is None else point,)
    )


def tensor(
    rng: np.random.Generator, shape: tuple[int, ...], scale: float, dtype: str
) -> CaseTensor:
    """Return an activation tensor; int16 has the range of int8 in finer steps."""
    match dtype:
        case "int8":
            return int8_tensor(rng, shape, scale)
        case "int16":
            return CaseTensor(shape, dtype, (scale / 256,), (0,))
        case _:
            return CaseTensor(shape, dtype)


def weights_of(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    kind = rng.random()
    if kind < 0.06:
        return np.full(shape, pick(rng, (-128, 127, 0, 1)), np.int8)
    if kind < 0.12:
        return np.where(rng.random(shape) < 0.5, -128, 127).astype(np.int8)
    if kind < 0.2:
        return (rng.integers(-128, 128, shape) * (rng.random(shape) < 0.2)).astype(
            np.int8
        )
    if kind < 0.3:
        return rng.integers(-3, 4, shape).astype(np.int8)
    least = -128 if kind < 0.55 else -127
    return rng.integers(least, 128, shape).astype(np.int8)


def factors_of(rng: np.random.Generator, taps: Array) -> Array:
    """Return output steps per accumulator step by channel; most let outputs spread."""
    count = len(taps)
    if rng.random() < 0.12:
        return 2.0 ** rng.uniform(-34, 2.5, count)
    spread = 74.0 * np.sqrt((taps**2).sum(axis=1) + 1.0)
    factors = 45.0 / spread * 2.0 ** rng.uniform(-1.5, 1.5, count)
    if rng.random() < 0.15:
        factors *= 2.0 ** rng.uniform(-9, 3)
    return np.minimum(factors, 5.5)


def bias_of(rng: np.random.Generator, taps: Array, factors: Array) -> Array:
    """Return biases that keep the accumulator, also shifted left, within 32 bits."""
    count = len(taps)
    kind = rng.random()
    if kind < 0.1:
        bias = np.zeros(count, np.int64)
    elif kind < 0.25:
        bias = rng.choice([-(1 << 28), 1 << 28, 0, 5], count)
    else:
        bias = np.rint(rng.normal(0, 60, count) / factors).clip(-(1 << 28), 1 << 28)
    room = _REACH // 16 - 256 * np.abs(taps).sum(axis=1)
    return np.clip(bias, -room, room).astype(np.int32)
