"""Evaluation of index arithmetic on a fixed sample of an iteration space."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmwright.ir.tir.binary_functions import ARRAY_FUNCTIONS

Samples = NDArray[Any]

SAMPLE_COUNT = 128
"""Number of sample points that represent an iteration space."""


def sample_range(depth: int) -> Samples:
    """Return points in [0, 1); those of different depths jointly cover the unit cube."""
    step = math.sqrt((2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)[depth % 12])
    samples: Samples = ((np.arange(SAMPLE_COUNT) + 0.5) * step) % 1.0
    return samples


def apply_binary(op: str, a: Samples, b: Samples) -> Samples | None:
    """Apply the operator at each point; return None if it is unknown, or undefined at a point."""
    if op in ARRAY_FUNCTIONS:
        result: Samples = ARRAY_FUNCTIONS[op](a, b)
        return result
    if op in ("div", "mod") and bool((b > 0).all()):
        quotient: Samples = np.sign(a) * (np.abs(a) // b)
        rest: Samples = a - quotient * b
        return quotient if op == "div" else rest
    return None
