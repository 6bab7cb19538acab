"""How often branches are taken, on a fixed sample of the iteration space.

A condition that depends on data is true half of the time. With an element among the
best n so far, as in top_k, it is true for the share that random orders have.
"""

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.ir import tir
from firmwright.ir.tir.expr_evaluation import LaneValue, evaluate_lanes
from firmwright.ir.tir.traversal import walk

Samples: TypeAlias = Array

SAMPLE_COUNT = 128
"""Number of sample points that represent an iteration space."""
_RARE = 1 / 16
"""Share of channels whose multiplier is odd (schedules/epilogue.py)."""


def condition_fraction(
    cond: tir.Expr, values: Mapping[str, LaneValue]
) -> Samples | float:
    """Return how often a condition is true, for each sample or for all."""
    match cond:
        case tir.Binary(
            "gt", tir.Binary("and", tir.Var(), tir.IntImm(1)), tir.IntImm(0)
        ):
            return _RARE
        case tir.Binary("or", tir.Binary("lt", place, tir.IntImm(count)), _):
            before = evaluate_lanes(place, values)
            if before is not None:
                return np.minimum(1.0, count / (np.asarray(before) + 1.0))
    value = evaluate_lanes(cond, values)
    return 0.5 if value is None else np.asarray(value != 0, float)


def has_call(node: tir.Expr) -> bool:
    return any(isinstance(part, tir.IntrinsicCall) for part in walk(node))


def sample_range(depth: int) -> Samples:
    """Return points in [0, 1); those of all depths together cover the unit cube."""
    # Multiples of an irrational number are spread evenly modulo 1.
    step = math.sqrt((2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)[depth % 12])
    samples: Samples = ((np.arange(SAMPLE_COUNT) + 0.5) * step) % 1.0
    return samples
