"""Forests as arrays: what reference, tables and code of `tree_ensemble` are all made of.

In: a call of `tree_ensemble`. Out: `Forest`, its arrays, and what kernels store of it.

A tree is a full binary tree, so its branches in preorder, each with the number of branches on its
left, say all of its shape: on the left of branch i is i + 1, and on the right the branch that
follows those of the left; leaves are counted from left to right. No child is stored.

Kernels compare whole numbers. Where the thresholds of a feature lie on a grid, whole multiples of
1/2^s within 16 bits, x <= t means ceil(x * 2^s) <= t * 2^s: a product that is exact. Else the bits
of floats, with those below zero turned round, are in the order of the floats. A missing value (NaN)
takes the side that a branch says; a feature with branches of both kinds is two columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.base.errors import InternalError
from firmwright.ir.graph.opdef import Array, OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    Builder,
    as_expr,
    binary_expr,
    maximum,
    minimum,
    select,
)

_GRID_BITS_MAX = 16
_KEY_MIN, _KEY_MAX = -(1 << 31), (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Forest:
    """Branches of all trees in preorder, `sizes` of them a tree; a row of `leaves` for each leaf.

    `columns[i]` of the feature and the side of a missing value at branch i is one of `features`.
    """

    columns: Array
    features: tuple[tuple[int, bool], ...]
    thresholds: Array
    left_counts: Array
    sizes: Array
    leaves: Array

    @property
    def branches(self) -> int:
        return len(self.left_counts)


@dataclass(frozen=True, slots=True)
class ThresholdGrid:
    """A column whose thresholds are `low` to `high` times 1/2^`shift`, counted from `low`."""

    shift: int
    low: int
    high: int


def forest_from_call(call: OpCall) -> Forest:
    """The arrays of a call; infer has checked that they fit each other."""
    features, thresholds, lefts, missing, sizes, leaves = (
        _array(call, index) for index in range(1, 7)
    )
    pairs = [(int(f), bool(m)) for f, m in zip(features.tolist(), missing.tolist(), strict=True)]
    found = tuple(sorted(set(pairs)))
    places = {pair: place for place, pair in enumerate(found)}
    columns = np.array([places[pair] for pair in pairs], np.int64)
    return Forest(columns, found, thresholds, lefts, sizes, leaves)


def _array(call: OpCall, index: int) -> Array:
    constant = call.constant(index)
    if constant is None:
        raise InternalError(f"{call.op}: input {index} is not constant")
    return constant.array()


# ---- thresholds --------------------------------------------------------------------------------


def threshold_grids(forest: Forest) -> tuple[ThresholdGrid, ...] | None:
    """The grid of every column; None if one of them has none."""
    found = []
    for column in range(len(forest.features)):
        grid = _grid(forest.thresholds[forest.columns == column].astype(np.float64))
        if grid is None:
            return None
        found.append(grid)
    return tuple(found)


def _grid(thresholds: Array) -> ThresholdGrid | None:
    if not np.all(np.isfinite(thresholds)) or np.abs(thresholds).max() >= 1 << 24:
        return None
    for shift in range(_GRID_BITS_MAX):
        scaled = thresholds * 2.0**shift
        low, high = scaled.min(), scaled.max()
        if high - low >= (1 << _GRID_BITS_MAX) - 1 or max(-low, high) >= 1 << 23:
            return None
        if np.all(scaled == np.rint(scaled)):
            return ThresholdGrid(shift, int(low), int(high))
    return None


def grid_thresholds(forest: Forest, found: tuple[ThresholdGrid, ...]) -> Array:
    """Thresholds as whole numbers from 0 on, of 16 bits."""
    factors = np.array([2.0**grid.shift for grid in found])
    lows = np.array([grid.low for grid in found], np.int64)
    scaled = (forest.thresholds.astype(np.float64) * factors[forest.columns]).astype(np.int64)
    return np.asarray(scaled - lows[forest.columns], np.uint16)


def ordered_bit_thresholds(forest: Forest) -> Array:
    """Thresholds as int32 in the order of the floats; both zeros are one."""
    bits = (forest.thresholds + np.float32(0)).view(np.int32)
    return np.asarray(bits ^ ((bits >> 31) & _KEY_MAX), np.int32)


@contextmanager
def grid_key(
    b: Builder,
    x: ArithExpr,
    scale: ArithExpr | float,
    low: ArithExpr | float,
    high: ArithExpr | float,
    missing: ArithExpr | float,
) -> Iterator[ArithExpr]:
    """x on a grid: what the product is rounded up to, from `low` to one above the thresholds."""
    scaled = select(x.equal(x), x * scale, ArithExpr(as_expr(missing, FLOAT32)))
    with (
        b.let("scaled", minimum(maximum(scaled, low), high)) as limited,
        b.let("whole", limited.cast(INT32)) as whole,
    ):
        yield whole + (whole.cast(FLOAT32) < limited).cast(INT32)


def ordered_bit_key(x: ArithExpr, bits: ArithExpr, missing: ArithExpr | int) -> ArithExpr:
    """The bits of x as a whole number in the order of the floats."""
    turned = binary_expr("xor", bits, binary_expr("and", bits >> 31, _KEY_MAX))
    return select(x.equal(x), turned, ArithExpr(as_expr(missing, INT32)))


def missing_value_key(left: bool) -> int:
    """What a missing value counts as: less than every threshold, or more."""
    return _KEY_MIN if left else _KEY_MAX


# ---- leaves ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeafTable:
    """Distinct rows of values, and which one each leaf has.

    `total`: what all outputs of a leaf sum up to, where that is the same for every leaf: the last
    output is then what the others leave of it, and no row has it.
    """

    rows: Array
    row_indices: Array
    total: int | None


def build_leaf_table(forest: Forest) -> LeafTable:
    """The rows of a forest's leaves."""
    values = forest.leaves.astype(np.int64)
    sums = values.sum(axis=1)
    total = int(sums[0]) if values.shape[1] > 1 and np.all(sums == sums[0]) else None
    kept = values if total is None else values[:, :-1]
    rows, which = np.unique(kept, axis=0, return_inverse=True)
    return LeafTable(np.asarray(rows, np.int32), which.reshape(-1), total)


def quantize_leaves(values: Array, bases: Array, trees: Array) -> tuple[Array, Array, int]:
    """(leaves, bases, exponent): values as multiples of 2^-exponent whose sums are within 32 bits.

    `trees` says which tree each leaf belongs to. Where the values of each leaf sum up to the same
    but for rounding, the whole numbers do so exactly.
    """
    values = values.astype(np.float64)
    largest = np.zeros((int(trees.max()) + 1, values.shape[1]))
    np.maximum.at(largest, trees, np.abs(values))
    reach = float((largest.sum(axis=0) + np.abs(bases)).max())
    exponent = 0 if reach == 0 else int(np.floor(np.log2(((1 << 31) - (1 << 16)) / reach)))
    exponent = min(max(exponent, -90), 120)
    whole = np.rint(values * 2.0**exponent).astype(np.int64)
    sums = values.sum(axis=1)
    if values.shape[1] > 1 and np.ptp(sums) <= 1e-6 * np.abs(sums).max():
        target = round(float(np.median(sums)) * 2.0**exponent)
        places = np.argmax(np.abs(whole), axis=1)
        whole[np.arange(len(whole)), places] += target - whole.sum(axis=1)
    whole_bases = np.rint(bases * 2.0**exponent).astype(np.int64)
    return whole.astype(np.int32), whole_bases, exponent
