"""Forests as arrays, shared by reference, tables and generated code of `tree_ensemble`.

The number of left branches of each branch, in preorder, defines the shape of the full binary trees:
the left child of branch i is i + 1, the right child follows the left branches. Leaves are counted
from left to right.

Kernels compare integers. If the thresholds of a feature are multiples of 1/2^s within 16 bits (a
grid), x <= t means ceil(x * 2^s) <= t * 2^s, which is exact. Otherwise the bits of the floats are
compared; with the bits of negative floats inverted, their order is the same. The direction of NaN
is a flag of the branch; a feature with both directions becomes two columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array
from firmwright.base.errors import InternalError
from firmwright.ir.graph.opdef import OpCall
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
    """The branches of all trees in preorder.

    `sizes` counts the branches of each tree, `leaves` has a row for each leaf. `columns[i]` indexes
    `features`: pairs of feature and whether a missing value goes left at branch i.
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
    """A column with thresholds of `low` to `high` times 1/2^`shift`, stored relative to `low`."""

    shift: int
    low: int
    high: int


def forest_from_call(call: OpCall) -> Forest:
    features, thresholds, lefts, missing, sizes, leaves = (
        _array(call, index) for index in range(1, 7)
    )
    pairs = [(int(f), bool(m)) for f, m in zip(features.tolist(), missing.tolist(), strict=True)]
    distinct = tuple(sorted(set(pairs)))
    column_index = {pair: index for index, pair in enumerate(distinct)}
    columns = np.array([column_index[pair] for pair in pairs], np.int64)
    return Forest(columns, distinct, thresholds, lefts, sizes, leaves)


def _array(call: OpCall, index: int) -> Array:
    constant = call.constant(index)
    if constant is None:
        raise InternalError(f"{call.op}: input {index} is not constant")
    return constant.array()


# ---- thresholds --------------------------------------------------------------------------------


def threshold_grids(forest: Forest) -> tuple[ThresholdGrid, ...] | None:
    """Return the grid of every column, or None if any column has no grid."""
    column_grids = []
    for column in range(len(forest.features)):
        grid = _grid(forest.thresholds[forest.columns == column].astype(np.float64))
        if grid is None:
            return None
        column_grids.append(grid)
    return tuple(column_grids)


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


def grid_thresholds(forest: Forest, column_grids: tuple[ThresholdGrid, ...]) -> Array:
    """Return thresholds as uint16 positions on their columns' grids; the lowest is 0."""
    factors = np.array([2.0**grid.shift for grid in column_grids])
    lows = np.array([grid.low for grid in column_grids], np.int64)
    scaled = (forest.thresholds.astype(np.float64) * factors[forest.columns]).astype(np.int64)
    return np.asarray(scaled - lows[forest.columns], np.uint16)


def ordered_bit_thresholds(forest: Forest) -> Array:
    """Return thresholds as int32 in the order of the floats; both zeros map to one value."""
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
    """Bind x scaled to the grid, rounded up, and clamped from `low` to one above the thresholds."""
    scaled = select(x.equal(x), x * scale, ArithExpr(as_expr(missing, FLOAT32)))
    with (
        b.let("scaled", minimum(maximum(scaled, low), high)) as limited,
        b.let("whole", limited.cast(INT32)) as truncated,
    ):
        yield truncated + (truncated.cast(FLOAT32) < limited).cast(INT32)


def ordered_bit_key(x: ArithExpr, bits: ArithExpr, missing: ArithExpr | int) -> ArithExpr:
    """Return the bits of x as an integer in the order of the floats."""
    ordered = binary_expr("xor", bits, binary_expr("and", bits >> 31, _KEY_MAX))
    return select(x.equal(x), ordered, ArithExpr(as_expr(missing, INT32)))


def missing_value_key(left: bool) -> int:
    """Return the key of a missing value, below or above every threshold."""
    return _KEY_MIN if left else _KEY_MAX


# ---- leaves ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeafTable:
    """The distinct rows of values, and the row of each leaf.

    If the outputs of every leaf have the same sum, `total`, rows omit the last output.
    """

    rows: Array
    row_indices: Array
    total: int | None


def build_leaf_table(forest: Forest) -> LeafTable:
    values = forest.leaves.astype(np.int64)
    sums = values.sum(axis=1)
    total = int(sums[0]) if values.shape[1] > 1 and np.all(sums == sums[0]) else None
    stored = values if total is None else values[:, :-1]
    rows, row_indices = np.unique(stored, axis=0, return_inverse=True)
    return LeafTable(np.asarray(rows, np.int32), row_indices.reshape(-1), total)


def quantize_leaves(values: Array, bases: Array, trees: Array) -> tuple[Array, Array, int]:
    """Return (leaves, bases, exponent): multiples of 2^-exponent with sums that fit in 32 bits.

    `trees` holds the tree of each leaf. If the values of every leaf have the same sum up to
    rounding, the integers have exactly the same sum.
    """
    values = values.astype(np.float64)
    largest = np.zeros((int(trees.max()) + 1, values.shape[1]))
    np.maximum.at(largest, trees, np.abs(values))
    reach = float((largest.sum(axis=0) + np.abs(bases)).max())
    exponent = 0 if reach == 0 else int(np.floor(np.log2(((1 << 31) - (1 << 16)) / reach)))
    exponent = min(max(exponent, -90), 120)
    integers = np.rint(values * 2.0**exponent).astype(np.int64)
    sums = values.sum(axis=1)
    if values.shape[1] > 1 and np.ptp(sums) <= 1e-6 * np.abs(sums).max():
        target = round(float(np.median(sums)) * 2.0**exponent)
        largest_outputs = np.argmax(np.abs(integers), axis=1)
        integers[np.arange(len(integers)), largest_outputs] += target - integers.sum(axis=1)
    whole_bases = np.rint(bases * 2.0**exponent).astype(np.int64)
    return integers.astype(np.int32), whole_bases, exponent
