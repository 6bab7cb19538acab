"""The inputs of a layer: bytes that host and device make alike, so that none must be sent.

In: the layer's number, the position of the input, the sample. Out: int8 values: of sample 0 any,
of sample 1 the two extremes, of sample 2 mostly one value. The same sequence is in harness.c.
"""

from __future__ import annotations

import numpy as np

from firmwright.ir.graph.opdef import Array

SAMPLES = 3


def seed(layer: int, position: int, sample: int) -> int:
    return layer * 16 + position * 4 + sample


def drawn_bytes(start: int, count: int) -> Array:
    """The first bytes of the sequence with that seed."""
    i = np.arange(count, dtype=np.uint32)
    with np.errstate(over="ignore"):
        h = i * np.uint32(0x9E3779B1) + np.uint32(start) * np.uint32(0x85EBCA77)
        h ^= h >> np.uint32(15)
        h *= np.uint32(0x2C1B3C6D)
        h ^= h >> np.uint32(12)
        h *= np.uint32(0x297A2D39)
    return (h >> np.uint32(24)).astype(np.uint8)


def drawn(layer: int, position: int, sample: int, shape: tuple[int, ...]) -> Array:
    """Input number `position` of the layer in that sample."""
    raw = drawn_bytes(seed(layer, position, sample), int(np.prod(shape)))
    values = raw.view(np.int8)
    if sample == 1:
        values = np.where(raw & 1, 127, -128).astype(np.int8)
    elif sample == 2:
        values = np.where(raw < 20, values, np.int8(layer % 251 - 125)).astype(np.int8)
    return values.reshape(shape)
