"""tree_ensemble: y[n, k] sums the values k of the leaves that row n of x reaches.

Inputs: x (float32, [rows, features]); for all branches, in preorder tree by tree: the
feature, the threshold, the number of branches on the left, and whether a missing value
goes left; the number of branches of each tree; the leaves (int32, [leaves, outputs]),
from left to right. A branch goes left if x <= threshold: to branch i + 1, otherwise
past the left branches. Leaves and `bases` are rounded to multiples of 2^-`exponent`,
with less error than float32 sums (decision 0034). A second output, int64 of [rows], is
the number of the greatest value of a row, the first of equal ones.

Kernels compare integers (keys.py). A feature with missing values on both sides becomes
two columns. Semantics: ONNX-ML's TreeEnsembleClassifier, TreeEnsembleRegressor,
TreeEnsemble.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, INT64, UINT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.extensions.tree_ensemble.attributes import TreeEnsembleAttrs
from firmwright.extensions.tree_ensemble.forest import (
    Forest,
    TreeGroup,
    forest_from_call,
    plan_sums,
    scale_sums,
)
from firmwright.extensions.tree_ensemble.keys import (
    Comparands,
    FloatValues,
    OrderedBits,
    PairKeys,
    store_keys,
)
from firmwright.extensions.tree_ensemble.node_table import walk_trees
from firmwright.extensions.tree_ensemble.scores import store_sums
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef

Walk: TypeAlias = Callable[[TreeGroup, tir.Buffer, tir.Buffer], None]
"""Emits the walk of a group, from the keys of the columns, that adds to the sums."""


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
    rows = x.shape[0]
    types = (
        TensorType((rows, forest.leaves.shape[1]), FLOAT32),
        TensorType((rows,), INT64),
    )
    return types[: len(call.outputs)]


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(TreeEnsembleAttrs)
    forest = forest_from_call(call)
    totals = []
    for row in arrays[0]:
        leaves = forest.leaves[_leaf_of_each_tree(forest, row)]
        totals.append(leaves.sum(axis=0, dtype=np.int64))
    sums = np.array(totals) + np.array(attrs.bases, np.int64)
    scores = scale_sums(sums, attrs.exponent)
    return (scores, np.argmax(scores, axis=1))[: len(call.outputs)]


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
    lower_as_table(call, b, OrderedBits(forest_from_call(call).features))


def lower_as_table(call: OpCall, b: Kernel, kind: Comparands) -> None:
    """Emit walks of tables of branches, with comparands of this kind."""

    def walk(group: TreeGroup, keys: tir.Buffer, sums: tir.Buffer) -> None:
        walk_trees(b, group, kind, keys, sums)

    lower_as_walks(call, b, kind, walk)


def lower_as_walks(call: OpCall, b: Kernel, kind: Comparands, walk: Walk) -> None:
    """Emit a walk of each group of trees, after the keys of a row's features."""
    plan = plan_sums(call)
    x = b.input(0)
    totals = b.allocate("sums", INT32, (len(plan.starts),))
    if not isinstance(kind, FloatValues):
        dtype = UINT32 if isinstance(kind, PairKeys) else INT32
        keys = b.allocate("keys", dtype, (len(kind.features),))
    with b.for_("row", x.shape[0]) as row:
        if isinstance(kind, FloatValues):
            keys = b.view("features", x, row * x.shape[1], x.shape[1:])
        else:
            store_keys(b, kind, keys, row)
        for k, start in enumerate(plan.starts):
            b.store(totals, [k], start)
        for group in plan.groups:
            walk(group, keys, totals)
        store_sums(call, b, plan, totals, row)


OPDEF = OpDef(
    "tree_ensemble",
    infer,
    reference,
    lower,
    dtypes=("float32",),
    inputs=("x", "features", "thresholds", "left counts", "missing", "sizes", "leaves"),
    results=("y", "class?"),
    numerics="neither",
    restrictions="sums of leaves; branches <=, <, >, >=; float32 features",
)
