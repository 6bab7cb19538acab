"""tree_ensemble: y[n, k] sums the values k of the leaves that row n of x reaches.

Inputs: x (float32, [rows, features]); for all branches, in preorder tree by tree: the
feature, the threshold, the number of branches on the left, and whether a missing value
goes left; the number of branches of each tree; the leaves (int32, [leaves, outputs]),
from left to right. A branch goes left if x <= threshold: to branch i + 1, otherwise
past the left branches. Leaves and `bases` are rounded to multiples of 2^-`exponent`,
with less error than float32 sums (decision 0034).

Kernels compare integers. If the thresholds of a feature are multiples of 1/2^s within
16 bits (a grid), x <= t means ceil(x * 2^s) <= t * 2^s, which is exact. Otherwise the
bits of the floats, inverted for negative ones, are compared. A feature with missing
values on both sides becomes two columns. Semantics: ONNX-ML's TreeEnsembleClassifier,
TreeEnsembleRegressor, TreeEnsemble.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, UINT8, UINT16, UINT32, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.extensions.tree_ensemble.attributes import TreeEnsembleAttrs
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    Builder,
    Register,
    as_expr,
    binary_expr,
    maximum,
    minimum,
    select,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef

_GRID_BITS_MAX = 16
_KEY_MIN, _KEY_MAX = -(1 << 31), (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Forest:
    """The branches of all trees in preorder.

    `sizes` counts the branches of each tree, `leaves` has a row for each leaf.
    `features[columns[i]]` is the feature of branch i and whether a missing value goes
    left there.
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
    """A column's grid: thresholds k / 2^`shift`, `low` <= k <= `high`, as k - `low`."""

    shift: int
    low: int
    high: int


Grids = tuple[ThresholdGrid, ...]
"""The grid of each column."""


def forest_from_call(call: OpCall) -> Forest:
    tables = map(call.constant_array, range(1, 7))
    features, thresholds, lefts, missing, sizes, leaves = tables
    rows = zip(features.tolist(), missing.tolist(), strict=True)
    pairs = [(int(feature), bool(left)) for feature, left in rows]
    distinct = tuple(sorted(set(pairs)))
    column_index = {pair: index for index, pair in enumerate(distinct)}
    columns = np.array([column_index[pair] for pair in pairs], np.int64)
    return Forest(columns, distinct, thresholds, lefts, sizes, leaves)


def threshold_grids(forest: Forest) -> Grids | None:
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


def grid_thresholds(forest: Forest, column_grids: Grids) -> Array:
    """Return thresholds as uint16 positions on their columns' grids, from 0 up."""
    factors = np.array([2.0**grid.shift for grid in column_grids])
    lows = np.array([grid.low for grid in column_grids], np.int64)
    scaled = forest.thresholds.astype(np.float64) * factors[forest.columns]
    positions = scaled.astype(np.int64) - lows[forest.columns]
    return np.asarray(positions, np.uint16)


def ordered_bit_thresholds(forest: Forest) -> Array:
    """Return thresholds as int32 in the order of the floats; both zeros are equal."""
    bits = (forest.thresholds + np.float32(0)).view(np.int32)
    return np.asarray(bits ^ ((bits >> 31) & _KEY_MAX), np.int32)


def grid_key(
    b: Builder,
    x: ArithExpr,
    scale: ArithExpr | float,
    low: ArithExpr | float,
    high: ArithExpr | float,
    missing: ArithExpr | float,
) -> ArithExpr:
    """Return x * `scale` in [`low`, `high`], rounded up; `missing` replaces a NaN."""
    scaled = select(x.equal(x), x * scale, ArithExpr(as_expr(missing, FLOAT32)))
    limited = b.let("scaled", minimum(maximum(scaled, low), high))
    truncated = b.let("whole", limited.cast(INT32))
    return truncated + (truncated.cast(FLOAT32) < limited).cast(INT32)


def ordered_bit_key(
    x: ArithExpr, bits: ArithExpr, missing: ArithExpr | int
) -> ArithExpr:
    """Return a key made of the `bits` of x that sorts like x; a NaN's is `missing`."""
    ordered = binary_expr("xor", bits, binary_expr("and", bits >> 31, _KEY_MAX))
    return select(x.equal(x), ordered, ArithExpr(as_expr(missing, INT32)))


def missing_value_key(left: bool) -> int:
    """Return the key of a missing value, below or above every threshold."""
    return _KEY_MIN if left else _KEY_MAX


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


def quantize_leaves(
    values: Array, bases: Array, trees: Array
) -> tuple[Array, Array, int]:
    """Return leaves and bases as multiples of 2^-exponent, and the exponent.

    Sums over all trees fit in 32 bits. `trees` holds the tree of each leaf. If the
    values of every leaf have the same sum up to rounding, the integers have exactly the
    same sum, and sums over outputs fit in 32 bits too.
    """
    values = values.astype(np.float64)
    sums = values.sum(axis=1)
    has_total = values.shape[1] > 1 and bool(np.ptp(sums) <= 1e-6 * np.abs(sums).max())
    reach = _reach(values, bases, trees)
    if has_total:
        # The last output is the total less the others.
        totals = np.stack([np.abs(values[:, :-1]).sum(axis=1), sums], axis=1)
        total_bases = np.array([np.abs(bases[:-1]).sum(), bases.sum()])
        reach = max(reach, _reach(totals, total_bases, trees))
    exponent = 0
    if reach != 0:
        room = ((1 << 31) - (1 << 16)) / reach
        exponent = int(np.floor(np.log2(room)))
    exponent = min(max(exponent, -90), 120)
    integers = np.rint(values * 2.0**exponent).astype(np.int64)
    if has_total:
        target = round(float(np.median(sums)) * 2.0**exponent)
        largest_outputs = np.argmax(np.abs(integers), axis=1)
        missing = target - integers.sum(axis=1)
        integers[np.arange(len(integers)), largest_outputs] += missing
    whole_bases = np.rint(bases * 2.0**exponent).astype(np.int64)
    return integers.astype(np.int32), whole_bases, exponent


def _reach(values: Array, bases: Array, trees: Array) -> float:
    """Return the largest magnitude that one column's sum over all trees can have."""
    largest = np.zeros((int(trees.max()) + 1, values.shape[1]))
    np.maximum.at(largest, trees, np.abs(values))
    return float((largest.sum(axis=0) + np.abs(bases)).max())


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x = call.input(0)
    if x.dtype != FLOAT32 or len(x.shape) != 2:
        raise NotSupportedError(f"trees over {len(x.shape)}-D {x.dtype.name} input")
    for index in range(1, 7):
        if call.constant(index) is None:
            raise NotSupportedError("trees that are not constant")
    forest = forest_from_call(call)
    branches, trees = forest.branches, len(forest.sizes)
    if int(forest.sizes.sum()) != branches or forest.leaves.ndim != 2:
        raise NotSupportedError("tree sizes that do not match the branches")
    if len(forest.leaves) != branches + trees:
        raise NotSupportedError(f"{len(forest.leaves)} leaves for {branches} branches")
    for feature, _ in forest.features:
        if not 0 <= feature < x.shape[1]:
            raise NotSupportedError("a branch on a feature outside of the input")
    if np.any(np.isnan(forest.thresholds)):
        raise NotSupportedError("a NaN threshold")
    return (TensorType((x.shape[0], forest.leaves.shape[1]), FLOAT32),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(TreeEnsembleAttrs)
    forest = forest_from_call(call)
    totals = []
    for row in arrays[0]:
        leaves = forest.leaves[_leaf_of_each_tree(forest, row)]
        totals.append(leaves.sum(axis=0, dtype=np.int64))
    sums = np.array(totals) + np.array(attrs.bases, np.int64)
    unit = np.float32(2.0**-attrs.exponent)
    return ((sums.astype(np.float32) * unit).astype(np.float32),)


def _leaf_of_each_tree(forest: Forest, row: Array) -> Array:
    """Return the leaves that a row reaches; all trees descend one branch at a time."""
    sizes = forest.sizes.astype(np.int64)
    branch = np.cumsum(sizes) - sizes
    leaf = branch + np.arange(len(sizes))
    features = np.array([feature for feature, _ in forest.features])
    missing = np.array([left for _, left in forest.features])
    while np.any(sizes > 0):
        (active,) = np.nonzero(sizes > 0)
        current = branch[active]
        column = forest.columns[current]
        left = forest.left_counts[current].astype(np.int64)
        x = row[features[column]]
        goes_left = (x <= forest.thresholds[current]) | (np.isnan(x) & missing[column])
        branch[active] += np.where(goes_left, 1, left + 1)
        leaf[active] += np.where(goes_left, 0, left + 1)
        sizes[active] = np.where(goes_left, left, sizes[active] - left - 1)
    return leaf


def lower(call: OpCall, b: Kernel) -> None:
    """Emit walks of tables: 4 bytes per branch with all thresholds on grids, else 6."""
    forest = forest_from_call(call)
    leaves, column_grids = build_leaf_table(forest), threshold_grids(forest)
    if column_grids is None:
        thresholds = b.constant("thresholds", ordered_bit_thresholds(forest), INT32)
    else:
        positions = grid_thresholds(forest, column_grids)
        thresholds = b.constant("thresholds", positions, UINT16)
    rows = call.input(0).shape[0]
    keys = b.allocate("keys", INT32, (len(forest.features),))
    with b.for_("row", rows) as row:
        _write_keys(b, forest, column_grids, keys, row)
        count = leaves.rows.shape[1]
        sums = b.reg("sum", INT32, count)
        for k in range(count):
            b.store(sums, [k], call.attributes(TreeEnsembleAttrs).bases[k])
        _walk(b, forest, leaves, thresholds, keys, sums)
        store_sums(call, b, leaves, sums, row)


def _write_keys(
    b: Kernel, forest: Forest, grids: Grids | None, keys: tir.Buffer, row: ArithExpr
) -> None:
    x, count = b.input(0), len(forest.features)
    features = np.array([feature for feature, _ in forest.features])
    columns = b.constant("columns", features, UINT16)
    last = x.shape[1] - 1
    if grids is None:
        bits = b.view("bits", x, 0, x.shape, dtype=INT32, alignment=4)
        sides = np.array([missing_value_key(left) for _, left in forest.features])
        missing = b.constant("missing", sides, INT32)
        with b.for_("column", count) as v:
            feature = b.let("at", minimum(b.load(columns, [v]).cast(INDEX), last))
            value = ordered_bit_key(
                b.load(x, [row, feature]),
                b.load(bits, [row, feature]),
                b.load(missing, [v]),
            )
            b.store(keys, [v], value)
        return
    table = []
    for pair, grid in zip(forest.features, grids, strict=True):
        table.append(grid_key_params(pair, grid))
    numbers = b.constant("grid", np.array(table), FLOAT32)
    with b.for_("column", count) as v:
        feature = b.let("at", minimum(b.load(columns, [v]).cast(INDEX), last))
        value = b.let("value", b.load(x, [row, feature]))
        scale, low, high, none = (b.load(numbers, [v, k]) for k in range(4))
        key = grid_key(b, value, scale, low, high, none)
        b.store(keys, [v], key - low.cast(INT32))


def grid_key_params(
    feature: tuple[int, bool], grid: ThresholdGrid
) -> tuple[float, float, float, float]:
    """Return the scale, the least and greatest key, and the key of a missing value."""
    low, high = float(grid.low), float(grid.high + 1)
    missing = low if feature[1] else high
    return (2.0**grid.shift, low, high, missing)


def _walk(
    b: Kernel,
    forest: Forest,
    leaves: LeafTable,
    thresholds: tir.Buffer,
    keys: tir.Buffer,
    sums: tir.Buffer,
) -> None:
    # The word of a branch: | branches on its left side | column: `bits` bits |
    bits = _column_bits(forest)
    words = (forest.left_counts.astype(np.int64) << bits) | forest.columns
    branches = b.constant("branches", words, smallest_unsigned_dtype(int(words.max())))
    size_dtype = UINT16 if forest.sizes.max() < 1 << 16 else UINT32
    sizes = b.constant("sizes", forest.sizes, size_dtype)
    first = b.register("first", UINT32)
    position = b.register("place", UINT32)
    leaf = b.register("leaf", UINT32)
    remaining = b.register("remaining", UINT32)
    first.set(0)
    with b.for_("tree", len(forest.sizes)) as tree:
        position.set(first.value)
        leaf.set(first.value + tree.cast(UINT32))
        remaining.set(b.load(sizes, [tree]).cast(UINT32))
        first.add(remaining.value)
        with b.while_(remaining.value > 0):
            place = minimum(position.value, forest.branches - 1)
            index = b.let("at", place.cast(INDEX))
            branch = b.let("branch", b.load(branches, [index]).cast(UINT32))
            left = b.let("left", branch >> bits)
            number = minimum(branch & ((1 << bits) - 1), len(forest.features) - 1)
            column = b.let("column", number.cast(INDEX))
            is_left = b.load(keys, [column]) <= b.load(thresholds, [index]).cast(INT32)
            with b.if_(is_left):
                position.add(1)
                remaining.set(left)
            with b.else_():
                skipped = b.let("skipped", left + 1)
                position.add(skipped)
                leaf.add(skipped)
                remaining.set(remaining.value - skipped)
        _add_leaf(b, leaves, leaf, sums)


def _column_bits(forest: Forest) -> int:
    return max(len(forest.features) - 1, 1).bit_length()


def smallest_unsigned_dtype(most: int) -> DType:
    return next(kind for kind in (UINT8, UINT16, UINT32) if most <= kind.max)


def _add_leaf(b: Kernel, leaves: LeafTable, leaf: Register, sums: tir.Buffer) -> None:
    count, outputs = leaves.rows.shape
    kind = smallest_unsigned_dtype(count - 1)
    indexed = count * outputs * 4 + len(leaves.row_indices) * kind.size_bytes
    last = len(leaves.row_indices) - 1
    index = b.let("end", minimum(leaf.value, last).cast(INDEX))
    if indexed < len(leaves.row_indices) * outputs * 4:
        which = b.constant("which", leaves.row_indices, kind)
        rows = b.constant("leaves", leaves.rows, INT32)
        index = b.let("values", minimum(b.load(which, [index]).cast(INDEX), count - 1))
    else:
        rows = b.constant("leaves", leaves.rows[leaves.row_indices], INT32)
    for k in range(outputs):
        b.store(sums, [k], b.load(sums, [k]) + b.load(rows, [index, k]))


def store_sums(
    call: OpCall, b: Kernel, leaves: LeafTable, sums: tir.Buffer, row: ArithExpr
) -> None:
    """Store the outputs of a row; the last may be a constant total less the others."""
    attrs = call.attributes(TreeEnsembleAttrs)
    unit = 2.0**-attrs.exponent
    outputs = leaves.rows.shape[1]
    for k in range(outputs):
        b.store(b.y, [row, k], b.load(sums, [k]).cast(FLOAT32) * unit)
    if leaves.total is not None:
        trees, bases = len(forest_from_call(call).sizes), attrs.bases
        remainder = b.load(sums, [0])
        for k in range(1, outputs):
            remainder = remainder + b.load(sums, [k])
        total = leaves.total * trees + sum(bases)
        b.store(b.y, [row, outputs], (total - remainder).cast(FLOAT32) * unit)


OPDEF = OpDef(
    "tree_ensemble",
    infer,
    reference,
    lower,
    dtypes=("float32",),
    inputs=("x", "features", "thresholds", "left counts", "missing", "sizes", "leaves"),
    numerics="neither",
    restrictions="sums of leaves; branches <=, <, >, >=; float32 features",
)
