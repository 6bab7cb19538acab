"""Tree ensembles of ONNX-ML as calls of `tree_ensemble`, with their post-processing.

Every comparison is normalized to x <= threshold for the left side; missing values keep
their side. A comparison with one number or a set of them becomes two for each: the
subtrees that both lead to are copied. Source: ONNX-ML's tree operators; ONNX Runtime
for the class of scores with a single class id.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from firmwright.base.dtypes import FLOAT32, FLOAT64, INT64, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.extensions.tree_ensemble.attributes import TreeEnsembleAttrs
from firmwright.extensions.tree_ensemble.forest import quantize_leaves
from firmwright.frontends.onnx.node_context import (
    Importer,
    NodeContext,
    OnnxValue,
    Results,
)
from firmwright.frontends.onnx.operators.classifier_outputs import (
    apply_post_transform,
    float_rows,
    gather_labels,
    labels_and_scores,
    ml_importers,
)
from firmwright.ir.graph import TensorType
from firmwright.ops.expression_language import INPUT_NAMES

_MODE_NAMES = (
    "BRANCH_LEQ",
    "BRANCH_LT",
    "BRANCH_GTE",
    "BRANCH_GT",
    "BRANCH_EQ",
    "BRANCH_NEQ",
    "BRANCH_MEMBER",
)
_SWAPPED = {"BRANCH_GT": "BRANCH_LEQ", "BRANCH_GTE": "BRANCH_LT"}
_SCORES = (TensorType((), FLOAT32),)
_DOUBLE_BITS = 56
"""The bits below the greatest of all leaves' values that float64 scores keep."""
Key: TypeAlias = tuple[int, int]
Child: TypeAlias = "Key | _TreeNode"


@dataclass(frozen=True, slots=True)
class _TreeNode:
    """A node as in the file; a key is (tree, number) or (is leaf, number).

    `members` are the numbers of a BRANCH_MEMBER.
    """

    mode: str
    feature: int
    threshold: float
    true: Child
    false: Child
    missing_is_true: bool
    members: tuple[float, ...] = ()


@dataclass(slots=True)
class _FlattenedTrees:
    """Trees as in `tree_ensemble`: branches in preorder, leaves from left to right.

    Features and thresholds are of `dtype`, float32 or float64.
    """

    dtype: DType
    features: list[int] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    left_counts: list[int] = field(default_factory=list)
    missing: list[bool] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    leaves: list[Key] = field(default_factory=list)
    trees: list[int] = field(default_factory=list)

    def tree(self, root: Key, find: Callable[[Key], _TreeNode | None]) -> None:
        before, number = len(self.left_counts), len(self.sizes)
        # An entry of `left_counts` is filled when its right side begins.
        waiting: list[tuple[Child, int | None]] = [(root, None)]
        while waiting:
            key, parent = waiting.pop()
            if parent is not None:
                self.left_counts[parent] = len(self.left_counts) - parent - 1
            branch = key if isinstance(key, _TreeNode) else find(key)
            if branch is None:
                assert not isinstance(key, _TreeNode)
                self.leaves.append(key)
                self.trees.append(number)
                if len(self.leaves) > 1 << 20:
                    what = "more than a million leaves, or a circle of nodes"
                    raise NotSupportedError(what)
                continue
            branch = _without_sets(branch, self.dtype)
            threshold, swapped = _as_less_or_equal(branch, self.dtype)
            self.features.append(branch.feature)
            self.thresholds.append(threshold)
            self.missing.append(branch.missing_is_true != swapped)
            left, right = branch.true, branch.false
            if swapped:
                left, right = right, left
            waiting += [(right, len(self.left_counts)), (left, None)]
            self.left_counts.append(0)
            if len(self.left_counts) > 1 << 20:
                what = "more than a million branches, or a circle of nodes"
                raise NotSupportedError(what)
        self.sizes.append(len(self.left_counts) - before)


def _without_sets(branch: _TreeNode, dtype: DType) -> _TreeNode:
    """Replace a test for numbers by pairs of comparisons, the greatest number first.

    A missing value is in the set if it tracks the true side, and equals no number.
    """
    match branch.mode:
        case "BRANCH_MEMBER":
            numbers, found, other = branch.members, branch.true, branch.false
        case "BRANCH_EQ":
            numbers, found, other = (branch.threshold,), branch.true, branch.false
        case "BRANCH_NEQ":
            numbers, found, other = (branch.threshold,), branch.false, branch.true
        case _:
            return branch
    tracks = branch.missing_is_true and branch.mode != "BRANCH_NEQ"
    child = other
    for number in sorted(np.array(list(set(numbers)), dtype.np)):
        below = np.nextafter(number, np.asarray(-np.inf, dtype.np))
        at_most: Child = found
        if below < number:
            at_most = _TreeNode(
                "BRANCH_LEQ", branch.feature, float(below), child, found, False
            )
        child = _TreeNode(
            "BRANCH_LEQ", branch.feature, float(number), at_most, other, tracks
        )
    if not isinstance(child, _TreeNode):
        raise NotSupportedError(f"branches of kind {branch.mode} without numbers")
    return child


def _as_less_or_equal(branch: _TreeNode, dtype: DType) -> tuple[float, bool]:
    """Express the branch as x <= t; return t and whether the children are swapped."""
    mode = _SWAPPED.get(branch.mode, branch.mode)
    if mode not in ("BRANCH_LEQ", "BRANCH_LT"):
        raise NotSupportedError(f"branches of kind {branch.mode}")
    threshold = np.asarray(branch.threshold, dtype.np)
    if mode == "BRANCH_LT":
        threshold = np.nextafter(threshold, np.asarray(-np.inf, dtype.np))
    return float(threshold), mode != branch.mode


def _feature_dtype(c: NodeContext) -> DType:
    return FLOAT64 if c.dtype(0) == FLOAT64 else FLOAT32


def _flatten_attributes(
    c: NodeContext,
) -> tuple[_FlattenedTrees, dict[Key, list[int]]]:
    """Flatten the trees of the older operators; also return each leaf's positions."""
    count = len(c.attrs["nodes_nodeids"])

    def column(name: str, default: Any = 0) -> Sequence[Any]:
        stored = c.attr(f"nodes_{name}", c.attr(f"nodes_{name}_as_tensor", ()))
        values = tuple(stored) if len(stored) else (default,) * count
        if len(values) != count:
            raise NotSupportedError(f"{len(values)} {name} of {count} nodes")
        return values

    trees, ids = column("treeids"), column("nodeids")
    modes = column("modes", "LEAF")
    rows = zip(
        trees,
        ids,
        modes,
        column("featureids"),
        column("values", 0.0),
        column("truenodeids"),
        column("falsenodeids"),
        column("missing_value_tracks_true"),
        strict=True,
    )
    branches: dict[Key, _TreeNode | None] = {}
    for tree, number, mode, feature, value, true, false, missing in rows:
        sides = (tree, true), (tree, false)
        node = _TreeNode(mode, feature, value, *sides, bool(missing))
        branches[tree, number] = None if mode == "LEAF" else node

    def find(key: Key) -> _TreeNode | None:
        if key not in branches:
            raise NotSupportedError(f"tree {key[0]} without its node {key[1]}")
        return branches[key]

    flattened = _FlattenedTrees(_feature_dtype(c))
    for tree in dict.fromkeys(trees):
        # The root is the first node without a parent; in files it comes first.
        flattened.tree((tree, ids[trees.index(tree)]), find)
    places: dict[Key, list[int]] = {}
    for place, key in enumerate(flattened.leaves):
        places.setdefault(key, []).append(place)
    return flattened, places


def _weights(
    c: NodeContext, places: Mapping[Key, Sequence[int]], prefix: str, outputs: int
) -> tuple[Array, set[int]]:
    names = (f"{prefix}_treeids", f"{prefix}_nodeids", f"{prefix}_ids")
    trees, nodes, targets = (c.attrs[name] for name in names)
    weights = c.attr(f"{prefix}_weights", c.attr(f"{prefix}_weights_as_tensor"))
    values = np.zeros((sum(map(len, places.values())), outputs))
    rows = zip(trees, nodes, targets, weights, strict=True)
    for tree, number, target, weight in rows:
        copies = places.get((tree, number))
        if copies is None or not 0 <= target < outputs:
            raise NotSupportedError("a leaf value that belongs to no tree")
        values[copies, target] += weight
    return values, set(targets)


@dataclass(frozen=True, slots=True)
class _WholeLeaves:
    """Leaves [leaves, outputs] and bases in units of 2^-`exponent`."""

    leaves: Array
    bases: tuple[int, ...]
    exponent: int


def _emit_tree_ensemble(
    c: NodeContext,
    flattened: _FlattenedTrees,
    values: Array,
    bases: Sequence[float],
    declared: Sequence[TensorType] = _SCORES,
) -> tuple[OnnxValue, ...]:
    start = np.zeros(values.shape[1])
    start += np.array(bases, np.float64) if len(bases) else 0.0
    leaves, whole, exponent = quantize_leaves(values, start, np.array(flattened.trees))
    rounded = _WholeLeaves(leaves, tuple(map(int, whole)), exponent)
    return _emit_trees(c, flattened, rounded, declared)


def _emit_trees(
    c: NodeContext,
    flattened: _FlattenedTrees,
    whole: _WholeLeaves,
    declared: Sequence[TensorType] = _SCORES,
) -> tuple[OnnxValue, ...]:
    if not flattened.left_counts:
        raise NotSupportedError("trees without branches")
    if flattened.dtype == FLOAT64:
        x, thresholds = _emit_ranks(c, flattened)
    else:
        x, thresholds = float_rows(c), np.asarray(flattened.thresholds)
    parts = (
        ("features", flattened.features, np.int32),
        ("thresholds", thresholds, np.float32),
        ("lefts", flattened.left_counts, np.int32),
        ("missing", flattened.missing, np.int8),
        ("sizes", flattened.sizes, np.int32),
        ("leaves", whole.leaves, np.int32),
    )
    tables = [c.emit.const(np.asarray(data, kind), name) for name, data, kind in parts]
    attrs = TreeEnsembleAttrs(exponent=whole.exponent, bases=whole.bases)
    return c.emit.multi_call(
        "tree_ensemble", x, *tables, declared=declared, attrs=attrs
    )


def _emit_ranks(c: NodeContext, flattened: _FlattenedTrees) -> tuple[OnnxValue, Array]:
    """Return the float64 features as float32 ranks, and the ranks of the thresholds.

    The rank of a feature is the number of its thresholds that are less. It is at most r
    exactly if the feature is at most the threshold with r lesser ones.
    """
    x, features = c.input(0), np.array(flattened.features)
    rows, count = x.shape if len(x.shape) == 2 else (1, *x.shape)
    thresholds = np.array(flattened.thresholds, np.float64)
    sorted_thresholds = [np.unique(thresholds[features == n]) for n in range(count)]
    width = max(map(len, sorted_thresholds))
    table, ranks = np.full((1, count, width), np.inf), np.zeros(len(thresholds))
    for n, own in enumerate(sorted_thresholds):
        table[0, n, : len(own)] = own
        ranks[features == n] = np.searchsorted(own, thresholds[features == n])
    x = c.emit.reshape(x, (rows, count))
    less = c.emit.reduction(
        "where(b < a, float32(1), float32(0))",
        "add",
        (2,),
        c.emit.reshape(x, (rows, count, 1)),
        c.emit.const(table, "thresholds"),
        keep=False,
    )
    return c.emit.expression("where(a != a, float32(nan), b)", x, less), ranks


def _emit_double_scores(
    c: NodeContext, flattened: _FlattenedTrees, values: Array
) -> OnnxValue:
    """Return float64 scores: a leaf has several integers with units of their own.

    Sums of these over all trees are below 2^24, which float32 represents.
    """
    bits = 23 - len(flattened.sizes).bit_length()
    if bits < 1:
        raise NotSupportedError(f"{len(flattened.sizes)} trees of float64")
    exponent = int(np.frexp(np.abs(values).max(initial=0.0))[1])
    digits: list[Array] = []
    units: list[float] = []
    rest = values
    while bits * len(digits) < _DOUBLE_BITS:
        units.append(float(np.exp2(exponent - bits * (len(digits) + 1))))
        digits.append(np.rint(rest / units[-1]))
        rest = rest - digits[-1] * units[-1]
    leaves, outputs = np.concatenate(digits, axis=1), values.shape[1]
    whole = _WholeLeaves(leaves, (0,) * leaves.shape[1], 0)
    (sums,) = _emit_trees(c, flattened, whole)
    parts = [
        c.emit.slice_axis(sums, 1, outputs * k, outputs) for k in range(len(digits))
    ]
    terms = [
        f"float64({name}) * {unit!r}"
        for name, unit in zip(INPUT_NAMES, units, strict=False)
    ]
    return c.emit.expression(" + ".join(reversed(terms)), *parts)


def _bases(c: NodeContext) -> tuple[float, ...]:
    bases = c.attr("base_values", c.attr("base_values_as_tensor", ()))
    return tuple(float(value) for value in bases)


def _regressor(c: NodeContext) -> OnnxValue:
    flattened, places = _flatten_attributes(c)
    outputs = int(c.attr("n_targets", 1))
    values, _ = _weights(c, places, "target", outputs)
    _sum_or_average(c.attr("aggregate_function", "SUM"), values, flattened)
    (scores,) = _emit_tree_ensemble(c, flattened, values, _bases(c))
    return apply_post_transform(c, scores)


def _sum_or_average(aggregate: str, values: Array, flattened: _FlattenedTrees) -> None:
    if aggregate == "AVERAGE":
        values /= len(flattened.sizes)
    elif aggregate != "SUM" and len(flattened.sizes) > 1:
        raise NotSupportedError(f"trees joined by {aggregate}")


def _classifier(c: NodeContext) -> Results:
    flattened, places = _flatten_attributes(c)
    classes = len(c.attr("classlabels_int64s") or c.attr("classlabels_strings") or ())
    values, targets = _weights(c, places, "class", max(classes, 2))
    if classes != 2 or len(targets) > 1:
        declared = *_SCORES, TensorType((), INT64)
        scores, best = _emit_tree_ensemble(c, flattened, values, _bases(c), declared)
        return gather_labels(c, best), apply_post_transform(c, scores)
    bases = _bases(c)
    (score,) = _emit_tree_ensemble(c, flattened, values[:, list(targets)], bases[-1:])
    return labels_and_scores(c, score, is_positive=bool(np.all(values >= 0)))


def _member_sets(c: NodeContext) -> Iterator[tuple[float, ...]]:
    """Yield the numbers of each BRANCH_MEMBER; NaN ends them."""
    members: list[float] = []
    for value in np.asarray(c.attr("membership_values", ())).reshape(-1).tolist():
        if np.isnan(value):
            yield tuple(members)
            members = []
        else:
            members.append(value)


def _ensemble(c: NodeContext) -> OnnxValue:
    attrs = c.attrs
    mode_numbers = np.asarray(attrs["nodes_modes"]).reshape(-1)
    modes = [_MODE_NAMES[int(mode)] for mode in mode_numbers]
    thresholds = np.asarray(attrs["nodes_splits"]).reshape(-1)
    dtype = c.dtype(0)
    if dtype not in (FLOAT32, FLOAT64) or thresholds.dtype != dtype.np:
        raise NotSupportedError(f"thresholds of {thresholds.dtype}")
    missing = attrs.get("nodes_missing_value_tracks_true") or (0,) * len(modes)
    rows = zip(
        modes,
        attrs["nodes_featureids"],
        thresholds,
        attrs["nodes_trueleafs"],
        attrs["nodes_truenodeids"],
        attrs["nodes_falseleafs"],
        attrs["nodes_falsenodeids"],
        missing,
        strict=True,
    )
    sets = _member_sets(c)
    branches: list[_TreeNode] = []
    for mode, feature, value, true_leaf, true, false_leaf, false, nan in rows:
        sides = (true_leaf, true), (false_leaf, false)
        members = next(sets, ()) if mode == "BRANCH_MEMBER" else ()
        branch = _TreeNode(mode, feature, float(value), *sides, bool(nan), members)
        branches.append(branch)

    def find(key: Key) -> _TreeNode | None:
        if key[0]:
            return None
        if not 0 <= key[1] < len(branches):
            raise NotSupportedError(f"a tree without its node {key[1]}")
        return branches[key[1]]

    flattened = _FlattenedTrees(dtype)
    for root in attrs["tree_roots"]:
        flattened.tree((0, int(root)), find)
    weights = np.asarray(attrs["leaf_weights"]).reshape(-1)
    targets, outputs = attrs["leaf_targetids"], int(c.attr("n_targets", 1))
    values = np.zeros((len(flattened.leaves), outputs))
    for place, (_, number) in enumerate(flattened.leaves):
        if not 0 <= number < len(weights) or not 0 <= targets[number] < outputs:
            raise NotSupportedError("a leaf value that belongs to no tree")
        values[place, targets[number]] = weights[number]
    functions = ("AVERAGE", "SUM", "MIN", "MAX")
    _sum_or_average(functions[int(c.attr("aggregate_function", 1))], values, flattened)
    if dtype == FLOAT64:
        scores = _emit_double_scores(c, flattened, values)
    else:
        (scores,) = _emit_tree_ensemble(c, flattened, values, ())
    return apply_post_transform(c, scores)


IMPORTERS: Mapping[str, Importer] = ml_importers(
    {
        "TreeEnsemble": _ensemble,
        "TreeEnsembleClassifier": _classifier,
        "TreeEnsembleRegressor": _regressor,
    }
)
