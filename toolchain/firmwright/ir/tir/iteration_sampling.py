"""Index arithmetic on a fixed set of points of an iteration space, all at once.

In: values of variables at each point. Out: values of expressions there, None where they have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[Any]

SAMPLE_COUNT = 128
"""So many stand for the whole space."""
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
    """Points of [0, 1), one sequence a depth, such that those of several depths fill the cube."""
    step = math.sqrt((2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)[depth % 12])
    found: Samples = ((np.arange(SAMPLE_COUNT) + 0.5) * step) % 1.0
    return found


def apply_binary(op: str, a: Samples, b: Samples) -> Samples | None:
    """The operator at each point; None where it is not defined, or not known."""
    if op in _OPERATIONS:
        found: Samples = _OPERATIONS[op](a, b)
        return found
    if op in ("div", "mod") and bool((b > 0).all()):
        quotient: Samples = np.sign(a) * (np.abs(a) // b)
        rest: Samples = a - quotient * b
        return quotient if op == "div" else rest
    return None
