"""Forests: the tables of a call of `tree_ensemble`, and the values of its leaves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.extensions.tree_ensemble.attributes import TreeEnsembleAttrs
from firmwright.ir.graph import OpCall

_GROUPS_MAX = 16
"""Number of groups of trees up to which each has tables of its own."""


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

    @property
    def depth(self) -> int:
        """Return the number of branches on the longest path."""
        return max(self.leaf_depths, default=0)

    @property
    def leaf_depths(self) -> Sequence[int]:
        """Return the number of branches above each leaf, from left to right."""
        depths, first = [], 0
        for size in self.sizes.tolist():
            waiting = [(first, size, 0)]
            while waiting:
                at, below, depth = waiting.pop()
                if below:
                    left = int(self.left_counts[at])
                    right = at + 1 + left, below - 1 - left, depth + 1
                    waiting += [right, (at + 1, left, depth + 1)]
                else:
                    depths.append(depth)
            first += size
        return depths


def forest_from_call(call: OpCall) -> Forest:
    tables = map(call.constant_array, range(1, 7))
    features, thresholds, lefts, missing, sizes, leaves = tables
    rows = zip(features.tolist(), missing.tolist(), strict=True)
    pairs = [(int(feature), bool(left)) for feature, left in rows]
    distinct = tuple(sorted(set(pairs)))
    column_index = {pair: index for index, pair in enumerate(distinct)}
    columns = np.array([column_index[pair] for pair in pairs], np.int64)
    return Forest(columns, distinct, thresholds, lefts, sizes, leaves)


@dataclass(frozen=True, slots=True)
class TreeGroup:
    """Trees whose leaves have values for the same `outputs`.

    `rows` has the distinct values of leaves, [rows, outputs], those of most leaves
    first, `row_indices` the row of each leaf. The forest has all columns of the
    ensemble, and no tree without branches.
    """

    outputs: tuple[int, ...]
    forest: Forest
    rows: Array
    row_indices: Array


@dataclass(frozen=True, slots=True)
class EnsembleSums:
    """The sums of an ensemble as integers, `starts` plus the leaves of every group.

    If the outputs of every leaf have the same sum, there is no sum for the last output,
    which is `total` less the others. The leaves of a single tree are the results
    themselves, as the bits of floats, and the number of the greatest if that is an
    output of the call: its sums start at 0 and `holds_floats` is set.
    """

    groups: tuple[TreeGroup, ...]
    starts: tuple[int, ...]
    total: int | None
    holds_floats: bool = False


def plan_sums(call: OpCall) -> EnsembleSums:
    """Group the trees of a call by outputs: a boosted tree often has one of many.

    Trees without branches are part of `starts`.
    """
    forest, attrs = forest_from_call(call), call.attributes(TreeEnsembleAttrs)
    (trees,) = np.nonzero(forest.sizes)
    if len(trees) == 1:
        return _plan_single_tree(forest, attrs, int(trees[0]), len(call.outputs) > 1)
    return _plan_integer_sums(forest, attrs.bases)


def scale_sums(sums: Array, exponent: int) -> Array:
    """Return the outputs as float32 for sums in units of 2^-exponent."""
    unit = np.float32(2.0**-exponent)
    return np.asarray(sums.astype(np.float32) * unit, np.float32)


def _plan_single_tree(
    forest: Forest, attrs: TreeEnsembleAttrs, tree: int, has_best: bool
) -> EnsembleSums:
    starts = np.array(attrs.bases, np.int64)
    for lone in range(len(forest.sizes)):
        if lone != tree:
            starts += forest.leaves[_first_leaves(forest)[lone]]
    sums = forest.leaves.astype(np.int64) + starts
    scores = scale_sums(sums, attrs.exponent)
    bits = scores.view(np.int32)
    if has_best:
        best = np.argmax(scores, axis=1).astype(np.int32)
        bits = np.concatenate([bits, best[:, None]], axis=1)
    outputs = tuple(range(bits.shape[1]))
    group = _group(forest, bits, outputs, [tree])
    return EnsembleSums((group,), (0,) * len(outputs), None, holds_floats=True)


def _first_leaves(forest: Forest) -> Array:
    return np.asarray(np.cumsum(forest.sizes + 1) - forest.sizes - 1)


def _plan_integer_sums(forest: Forest, bases: Sequence[int]) -> EnsembleSums:
    values = forest.leaves.astype(np.int64)
    sums = values.sum(axis=1)
    total: int | None = None
    if values.shape[1] > 1 and np.all(sums == sums[0]):
        total = int(sums[0]) * len(forest.sizes) + sum(bases)
        values = values[:, :-1]
    outputs = values.shape[1]
    starts = np.array(bases[:outputs], np.int64)
    trees: dict[tuple[int, ...], list[int]] = {}
    for tree, (first, size) in enumerate(
        zip(_first_leaves(forest).tolist(), forest.sizes.tolist(), strict=True)
    ):
        own = values[first : first + size + 1]
        if size == 0:
            starts += own[0]
            continue
        used = tuple(np.flatnonzero(own.any(axis=0)).tolist())
        # Other trees than those of a single output add whole rows.
        trees.setdefault(used if len(used) == 1 else (), []).append(tree)
    if len(trees) > _GROUPS_MAX:
        trees = {(): [tree for own in trees.values() for tree in own]}
    groups = []
    for used, members in trees.items():
        columns = used or tuple(range(outputs))
        groups.append(_group(forest, values, columns, members))
    return EnsembleSums(tuple(groups), tuple(starts.tolist()), total)


def _group(
    forest: Forest, values: Array, outputs: tuple[int, ...], trees: list[int]
) -> TreeGroup:
    has_branches = np.isin(np.repeat(np.arange(len(forest.sizes)), forest.sizes), trees)
    counts = forest.sizes + 1
    has_leaves = np.isin(np.repeat(np.arange(len(counts)), counts), trees)
    part = replace(
        forest,
        columns=forest.columns[has_branches],
        thresholds=forest.thresholds[has_branches],
        left_counts=forest.left_counts[has_branches],
        sizes=forest.sizes[trees],
        leaves=forest.leaves[has_leaves],
    )
    stored = values[has_leaves][:, list(outputs)]
    rows, row_indices, uses = np.unique(
        stored, axis=0, return_inverse=True, return_counts=True
    )
    order = np.argsort(-uses, kind="stable")
    row_indices = np.argsort(order)[row_indices.reshape(-1)]
    return TreeGroup(outputs, part, np.asarray(rows[order], np.int32), row_indices)


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
        missing = target - integers.sum(axis=1)
        # Of equal outputs the first stays the greatest.
        sizes = np.abs(integers)
        first, last = np.argmax(sizes, axis=1), _last_argmax(sizes)
        changed = np.where(missing < 0, last, first)
        integers[np.arange(len(integers)), changed] += missing
    whole_bases = np.rint(bases * 2.0**exponent).astype(np.int64)
    return integers.astype(np.int32), whole_bases, exponent


def _last_argmax(values: Array) -> Array:
    """Return the place of the last greatest value of each row."""
    return np.asarray(values.shape[1] - 1 - np.argmax(values[:, ::-1], axis=1))


def _reach(values: Array, bases: Array, trees: Array) -> float:
    """Return the largest magnitude that one column's sum over all trees can have."""
    largest = np.zeros((int(trees.max()) + 1, values.shape[1]))
    np.maximum.at(largest, trees, np.abs(values))
    return float((largest.sum(axis=0) + np.abs(bases)).max())
