"""Pseudo-random layer inputs that host and device generate alike: no data is sent.

Sample 0 has arbitrary values, sample 1 the two extremes, sample 2 mostly one value.
harness.c implements the same sequence and board_app.c its conversion.
"""

from __future__ import annotations

import numpy as np

from firmwright.base.dtypes import Array

SAMPLES = 3
FLOAT_STEPS = 4096
"""Divisor that makes a random int16 an exact float between -8 and 8."""


def seed(layer: int, position: int, sample: int) -> int:
    return layer * 16 + position * 4 + sample


def random_bytes(start: int, count: int) -> Array:
    """Return the first bytes of the sequence with a seed."""
    i = np.arange(count, dtype=np.uint32)
    with np.errstate(over="ignore"):
        h = i * np.uint32(0x9E3779B1) + np.uint32(start) * np.uint32(0x85EBCA77)
        h ^= h >> np.uint32(15)
        h *= np.uint32(0x2C1B3C6D)
        h ^= h >> np.uint32(12)
        h *= np.uint32(0x297A2D39)
    return (h >> np.uint32(24)).astype(np.uint8)


def drawn(
    layer: int, position: int, sample: int, shape: tuple[int, ...], dtype: str = "int8"
) -> Array:
    """Return input `position` of a layer for a sample."""
    kind = np.int8 if dtype == "int8" else np.int16
    count = int(np.prod(shape))
    raw = random_bytes(seed(layer, position, sample), count * kind().itemsize)
    first, values = raw[:: kind().itemsize], raw.view(kind)
    limits = np.iinfo(kind)
    if sample == 1:
        values = np.where(first & 1, limits.max, limits.min).astype(kind)
    elif sample == 2:
        usual = (layer % 251 - 125) * (1 if dtype == "int8" else 257)
        values = np.where(first < 20, values, usual).astype(kind)
    if dtype == "float32":
        return (values.astype(np.float32) / FLOAT_STEPS).reshape(shape)
    return values.reshape(shape)
