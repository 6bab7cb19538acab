"""Tree ensembles as code: nested branches with thresholds as immediates.

The code takes several times the flash of tables and a third of the time. Feature keys
are registers, so that passes need not derive ranges from 10,000 comparisons.
"""

from collections.abc import Sequence

from firmwright.base.dtypes import INT32, Array
from firmwright.extensions.tree_ensemble import operator as trees
from firmwright.extensions.tree_ensemble.attributes import TreeEnsembleAttrs
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig

_BRANCHES_MAX = 40_000
_DEPTH_MAX = 40
"""Limits beyond which C compilers take too long or nest too deeply."""


def _configs(call: OpCall) -> Sequence[ScheduleConfig]:
    forest = trees.forest_from_call(call)
    if forest.branches > _BRANCHES_MAX or len(forest.features) > 64:
        return ()
    return () if _depth(forest) > _DEPTH_MAX else (NO_CONFIG,)


def _depth(forest: trees.Forest) -> int:
    deepest, first = 0, 0
    for size in forest.sizes.tolist():
        waiting = [(first, size, 0)]
        while waiting:
            at, below, depth = waiting.pop()
            deepest = max(deepest, depth)
            if below:
                left = int(forest.left_counts[at])
                waiting.append((at + 1, left, depth + 1))
                waiting.append((at + 1 + left, below - 1 - left, depth + 1))
        first += size
    return deepest


def _build(call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    forest = trees.forest_from_call(call)
    leaves = trees.build_leaf_table(forest)
    feature_grids = trees.threshold_grids(forest)
    if feature_grids is None:
        thresholds = trees.ordered_bit_thresholds(forest)
    else:
        thresholds = trees.grid_thresholds(forest, feature_grids)
    x = b.input(0)
    bits = b.view("bits", x, 0, x.shape, dtype=INT32, alignment=4)
    with b.for_("row", x.shape[0]) as row:
        keys = b.reg("key", INT32, len(forest.features))
        for place, (feature, left) in enumerate(forest.features):
            value = b.load(x, [row, feature])
            if feature_grids is None:
                word = b.load(bits, [row, feature])
                missing = trees.missing_value_key(left)
                key = trees.ordered_bit_key(value, word, missing)
                b.store(keys, [place], key)
                continue
            numbers = trees.grid_key_params((feature, left), feature_grids[place])
            key = trees.grid_key(b, b.let("value", value), *numbers)
            b.store(keys, [place], key - feature_grids[place].low)
        classes = leaves.rows.shape[1]
        sums = b.reg("sum", INT32, classes)
        for k in range(classes):
            b.store(sums, [k], call.attributes(TreeEnsembleAttrs).bases[k])
        leaf_rows = leaves.rows[leaves.row_indices]
        writer = _TreeEmitter(b, forest, thresholds, leaf_rows, keys, sums)
        first = 0
        for tree, size in enumerate(forest.sizes.tolist()):
            writer.subtree(first, first + tree, size)
            first += size
        trees.store_sums(call, b, leaves, sums, row)


class _TreeEmitter:
    def __init__(
        self,
        b: Kernel,
        forest: trees.Forest,
        thresholds: Array,
        leaves: Array,
        keys: tir.Buffer,
        sums: tir.Buffer,
    ) -> None:
        self.b, self.keys, self.sums = b, keys, sums
        self.columns = forest.columns.tolist()
        self.left_counts = forest.left_counts.tolist()
        self.thresholds, self.leaves = thresholds.tolist(), leaves.tolist()

    def subtree(self, at: int, leaf: int, size: int) -> None:
        b = self.b
        if size == 0:
            for k, value in enumerate(self.leaves[leaf]):
                if value:
                    b.store(self.sums, [k], b.load(self.sums, [k]) + value)
            return
        left = self.left_counts[at]
        with b.if_(b.load(self.keys, [self.columns[at]]) <= self.thresholds[at]):
            self.subtree(at + 1, leaf, left)
        with b.else_():
            self.subtree(at + 1 + left, leaf + left + 1, size - 1 - left)


SCHEDULES: tuple[Schedule[ScheduleConfig], ...] = (
    Schedule(
        "scalar.tree_ensemble.code",
        "tree_ensemble",
        frozenset(),
        _configs,
        _build,
        goal="speed",
    ),
)
