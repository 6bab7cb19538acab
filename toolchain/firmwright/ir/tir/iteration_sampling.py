"""Evaluation of index arithmetic on a fixed sample of an iteration space."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[Any]

SAMPLE_COUNT = 128
"""Number of sample points that represent an iteration space."""
_OPERATIONS: Mapping[str, Callable[[Samples, Samples], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


def sample_range(depth: int) -> Samples:
    """Return points in [0, 1); the sequences of several depths jointly fill the unit cube."""
    step = math.sqrt((2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)[depth % 12])
    samples: Samples = ((np.arange(SAMPLE_COUNT) + 0.5) * step) % 1.0
    return samples


def apply_binary(op: str, a: Samples, b: Samples) -> Samples | None:
    """Apply the operator at each point; return None if it is unknown or undefined there."""
    if op in _OPERATIONS:
        result: Samples = _OPERATIONS[op](a, b)
        return result
    if op in ("div", "mod") and bool((b > 0).all()):
        quotient: Samples = np.sign(a) * (np.abs(a) // b)
        rest: Samples = a - quotient * b
        return quotient if op == "div" else rest
    return None
