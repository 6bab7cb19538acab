"""Schedules of tree ensembles: thresholds on grids, and trees as code.

Trees as code are nested branches with thresholds as immediates. They take twice the
flash of tables and half the time. Feature keys are registers, so that passes need not
derive ranges from 10,000 comparisons; small ensembles compare floats where the core has
an FPU. A leaf sets the number of its row among the values of leaves, and the row of
most leaves, number 0, is set before the tree.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import INT32, Array
from firmwright.extensions.tree_ensemble.forest import (
    Forest,
    TreeGroup,
    forest_from_call,
    plan_sums,
)
from firmwright.extensions.tree_ensemble.keys import (
    Comparands,
    FeatureKeys,
    FloatBits,
    FloatValues,
    GridPositions,
    GridPositionsOfBits,
    grid_positions,
    pair_keys,
    store_keys,
)
from firmwright.extensions.tree_ensemble.operator import (
    lower_as_table,
    lower_as_walks,
)
from firmwright.extensions.tree_ensemble.pair_table import build_pair_table
from firmwright.extensions.tree_ensemble.pair_walk import walk_pairs
from firmwright.extensions.tree_ensemble.scores import store_sums
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, Register, call_intrinsic
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, inputs, pointers
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig

_BRANCHES_MAX = 16_000
"""Number of branches that gcc compiles in half a minute; the time is quadratic."""
_DEPTH_MAX = 40
"""Depth beyond which C compilers may refuse the nested branches."""
_COLUMNS_MAX = 64
_FLOAT_COMPARISONS_MAX = 4
"""Number of comparisons for each feature up to which these are floats in an FPU.

There, a comparison takes one instruction more than with keys, and five bytes more, but
a key takes four instructions.
"""
_BITS_COMPARISONS_MAX = 20
"""Number of comparisons for each feature up to which its bits are the key.

A position on a grid takes 15 instructions more, and a threshold two bytes less.
"""
_UPPER_UNIT = 1 << 12
"""Thresholds in these multiples take one instruction on RISC-V, without a second part.

They take two on Thumb, and more where they are below 2^11 by themselves, which is rare.
"""
_FPU, _RVM = frozenset({"fpu"}), frozenset({"rvm"})


@dataclass(frozen=True, slots=True)
class _PairForm:
    """A form of walks of pairs, with the features that it requires."""

    name: str
    isa: str
    keys: type[GridPositions]
    requires: frozenset[str] = frozenset()


_PAIR_FORMS = (
    _PairForm("rvm", "portable", GridPositionsOfBits, frozenset({"rvm"})),
    _PairForm("thumb1", "thumb1", GridPositionsOfBits, frozenset({"thumb1"})),
    _PairForm("thumb2", "thumb2", GridPositionsOfBits, frozenset({"thumb2"})),
    _PairForm("fpu", "thumb2", GridPositions, frozenset({"thumb2", "fpu"})),
)


@dataclass(frozen=True, slots=True)
class _BranchCondition:
    """A condition of a branch, and whether its left side follows if it holds."""

    holds: ArithExpr
    is_left: bool


Comparison: TypeAlias = Callable[[Forest, int, float], Sequence[_BranchCondition]]
"""Returns the forms of a branch's condition, the preferred one first."""


def _table_configs(call: OpCall) -> Sequence[ScheduleConfig]:
    return (NO_CONFIG,) if grid_positions(forest_from_call(call)) else ()


def _float_table_configs(call: OpCall) -> Sequence[ScheduleConfig]:
    forest = forest_from_call(call)
    if any(is_left for _, is_left in forest.features):
        return ()
    return (NO_CONFIG,) if _is_sparse(forest) else ()


def _build_float_table(call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    lower_as_table(call, b, FloatValues(forest_from_call(call).features))


def _build_grid_table(
    keys: type[GridPositions], call: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    kind = grid_positions(forest_from_call(call), keys)
    assert kind is not None
    lower_as_table(call, b, kind)


def _pair_configs(call: OpCall) -> Sequence[ScheduleConfig]:
    kind = pair_keys(forest_from_call(call))
    if kind is None:
        return ()
    for group in plan_sums(call).groups:
        if build_pair_table(group, kind.thresholds(group.forest)) is None:
            return ()
    return (NO_CONFIG,)


def _build_pairs(
    form: _PairForm, call: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    kind = pair_keys(forest_from_call(call), form.keys)
    assert kind is not None

    def walk(group: TreeGroup, keys: tir.Buffer, sums: tir.Buffer) -> None:
        table = build_pair_table(group, kind.thresholds(group.forest))
        assert table is not None
        walk_pairs(b, table, group, keys, sums, form.isa)

    lower_as_walks(call, b, kind, walk)


def _code_configs(call: OpCall) -> Sequence[ScheduleConfig]:
    forest = forest_from_call(call)
    if forest.branches > _BRANCHES_MAX or len(forest.features) > _COLUMNS_MAX:
        return ()
    return () if forest.depth > _DEPTH_MAX else (NO_CONFIG,)


def _grid_code_configs(call: OpCall) -> Sequence[ScheduleConfig]:
    return _code_configs(call) if _table_configs(call) else ()


def _bits_code_configs(call: OpCall) -> Sequence[ScheduleConfig]:
    forest = forest_from_call(call)
    if _comparisons_per_feature(forest) > _BITS_COMPARISONS_MAX:
        return () if _table_configs(call) else _code_configs(call)
    return _code_configs(call)


def _float_code_configs(call: OpCall) -> Sequence[ScheduleConfig]:
    return _code_configs(call) if _is_sparse(forest_from_call(call)) else ()


def _is_sparse(forest: Forest) -> bool:
    """Whether comparisons of floats in an FPU take less than the keys of features."""
    return _comparisons_per_feature(forest) <= _FLOAT_COMPARISONS_MAX


def _comparisons_per_feature(forest: Forest) -> float:
    return float(np.log2(forest.sizes + 1).sum()) / len(forest.features)


def _build_code(call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    _build(call, b, FloatBits(forest_from_call(call).features))


def _build_float_code(call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    _build(call, b, FloatValues(forest_from_call(call).features))


def _build_grid_code(
    keys: type[GridPositions],
    unit: int,
    call: OpCall,
    config: ScheduleConfig,
    b: Kernel,
) -> None:
    kind = grid_positions(forest_from_call(call), keys)
    assert kind is not None
    _build(call, b, kind, unit)


def _build(call: OpCall, b: Kernel, kind: Comparands, unit: int = 1) -> None:
    """Emit trees as code; positions on grids are compared in multiples of `unit`."""
    plan = plan_sums(call)
    with b.for_("row", call.input(0).shape[0]) as row:
        comparisons = _compare_features(b, row)
        if not isinstance(kind, FloatValues):
            keys = b.reg("key", INT32, len(kind.features))
            store_keys(b, kind, keys, row)
            if isinstance(kind, GridPositions):
                # Without a boundary, gcc adds the first key to every threshold.
                for k in range(len(kind.features)):
                    parts = b.load(keys, [k]), unit
                    b.store(keys, [k], call_intrinsic(TREE_KEY.name, parts, INT32))
            comparisons = _compare_keys(b, kind, keys, unit)
        sums = b.reg("sum", INT32, len(plan.starts))
        for k, start in enumerate(plan.starts):
            b.store(sums, [k], start)
        for group in plan.groups:
            _emit_group(b, group, kind.thresholds(group.forest), comparisons, sums)
        store_sums(call, b, plan, sums, row)


def _compare_keys(
    b: Kernel, kind: FeatureKeys, keys: tir.Buffer, unit: int
) -> Comparison:
    def compare(
        forest: Forest, at: int, threshold: float
    ) -> Sequence[_BranchCondition]:
        key, limit = b.load(keys, [int(forest.columns[at])]), int(threshold) * unit
        if isinstance(kind, FloatBits):
            left, right = kind.is_left(key, limit), kind.is_right(key, limit)
        else:
            left, right = key <= limit, key > limit
        return _BranchCondition(left, True), _BranchCondition(right, False)

    return compare


def _compare_features(b: Kernel, row: ArithExpr) -> Comparison:
    def compare(
        forest: Forest, at: int, threshold: float
    ) -> Sequence[_BranchCondition]:
        feature, is_left = forest.features[int(forest.columns[at])]
        value, limit = b.load(b.input(0), [row, feature]), float(threshold)
        # Comparisons with a missing value are false, so that there is one form.
        holds = value > limit if is_left else value <= limit
        return (_BranchCondition(holds, not is_left),)

    return compare


def _emit_group(
    b: Kernel,
    group: TreeGroup,
    thresholds: Array,
    comparison: Comparison,
    sums: tir.Buffer,
) -> None:
    """Add the leaves of a group: values, if a leaf has one, else rows of a table."""
    outputs = len(group.outputs)
    is_table = outputs > 1
    leaves = group.row_indices if is_table else group.rows[group.row_indices, 0]
    if is_table:
        table = b.constant("leaves", group.rows, INT32)
    leaf = b.register("leaf", INT32)
    usual = 0 if is_table else None
    emitter = _TreeEmitter(b, group.forest, thresholds, leaves, comparison, leaf, usual)
    first = 0
    for tree, size in enumerate(group.forest.sizes.tolist()):
        if usual is not None:
            leaf.set(call_intrinsic(TREE_BOUNDARY.name, [usual], INT32))
        emitter.subtree(first, first + tree, size)
        first += size
        reached = call_intrinsic(TREE_BOUNDARY.name, [leaf.value], INT32)
        value = b.let("leaf", reached * outputs if is_table else reached)
        for k, output in enumerate(group.outputs):
            item = value
            if is_table:
                values = b.pointer(table, k, table.span_elements - k)
                item = call_intrinsic(LEAF_VALUE.name, [values, value], INT32)
            b.store(sums, [output], b.load(sums, [output]) + item)


_Subtree: TypeAlias = tuple[int, int, int]
"""The indices of its first branch and its first leaf, and the number of branches."""


@dataclass(frozen=True, slots=True)
class _TreeEmitter:
    """Writes trees as nested branches, which set `leaf` unless to its `usual` value."""

    b: Kernel
    forest: Forest
    thresholds: Array
    leaves: Array
    comparison: Comparison
    leaf: Register
    usual: int | None

    def subtree(self, at: int, leaf: int, size: int) -> None:
        b = self.b
        if size == 0:
            if not self._is_usual(leaf, size):
                self.leaf.set(int(self.leaves[leaf]))
            return
        count = int(self.forest.left_counts[at])
        left = at + 1, leaf, count
        right = at + 1 + count, leaf + count + 1, size - 1 - count
        condition = self._condition(at, left, right)
        then, otherwise = (left, right) if condition.is_left else (right, left)
        with b.if_(condition.holds):
            self.subtree(*then)
        if not self._is_usual(*otherwise[1:]):
            with b.else_():
                self.subtree(*otherwise)

    def _condition(self, at: int, left: _Subtree, right: _Subtree) -> _BranchCondition:
        """Return a condition under which a leaf is set, or else the last one."""
        *others, last = self.comparison(self.forest, at, self.thresholds[at])
        for condition in others:
            _, leaf, size = left if condition.is_left else right
            if not self._is_usual(leaf, size):
                return condition
        return last

    def _is_usual(self, leaf: int, size: int) -> bool:
        return size == 0 and self.leaves[leaf] == self.usual


TREE_BOUNDARY = Intrinsic(
    name="tree_boundary",
    operands=inputs(INT32, "leaf"),
    result=INT32,
    meaning=lambda leaf: leaf,
    portable="return leaf;",
    requires="gnu",
    text={"gnu": '__asm__ volatile("" : "+r"(leaf) : : "memory");\nreturn leaf;'},
    doc="Returns the leaf. The compiler optimizes no code across this point.",
    instructions=0,
)
TREE_KEY = Intrinsic(
    name="tree_key",
    operands=(*inputs(INT32, "position"), *immediates("unit")),
    result=INT32,
    meaning=lambda position, unit: position * unit,
    portable="return position * unit;",
    requires="gnu",
    text={
        "gnu": "int32_t key = position * unit;\n"
        '__asm__ volatile("" : "+r"(key) : : "memory");\nreturn key;'
    },
    doc="Returns a position in multiples of a unit, which the compiler forgets.",
    instructions=0,
)
LEAF_VALUE = Intrinsic(
    name="leaf_value",
    operands=(*pointers(INT32, values=1), *inputs(INT32, "place")),
    result=INT32,
    meaning=lambda values, place: values.reshape(-1)[place],
    portable="return values[place];",
    doc="Returns a value of a leaf, whose place among the values is known to exist.",
)
INTRINSICS = (TREE_BOUNDARY, TREE_KEY, LEAF_VALUE)


def _schedule(
    name: str,
    configs: Callable[[OpCall], Sequence[ScheduleConfig]],
    build: Callable[[OpCall, ScheduleConfig, Kernel], None],
    goal: str = "",
    requires: frozenset[str] = frozenset(),
) -> Schedule[ScheduleConfig]:
    return Schedule(
        f"scalar.tree_ensemble.{name}",
        "tree_ensemble",
        requires,
        configs,
        build,
        goal=goal,
        keep_block_order=goal == "speed",
    )


_grid_table = partial(_build_grid_table, GridPositionsOfBits)
_float_grid_table = partial(_build_grid_table, GridPositions)
_grid_code = partial(_build_grid_code, GridPositionsOfBits, 1)
_upper_code = partial(_build_grid_code, GridPositionsOfBits, _UPPER_UNIT)
_float_grid_code = partial(_build_grid_code, GridPositions, 1)

SCHEDULES: tuple[Schedule[ScheduleConfig], ...] = (
    _schedule("float_table", _float_table_configs, _build_float_table, requires=_FPU),
    _schedule("grid", _table_configs, _grid_table),
    _schedule("float_grid", _table_configs, _float_grid_table, requires=_FPU),
    *(
        _schedule(
            f"pairs.{form.name}",
            _pair_configs,
            partial(_build_pairs, form),
            requires=form.requires,
        )
        for form in _PAIR_FORMS
    ),
    _schedule("code", _bits_code_configs, _build_code, goal="speed"),
    _schedule("float_code", _float_code_configs, _build_float_code, "speed", _FPU),
    _schedule("upper_code", _grid_code_configs, _upper_code, "speed", _RVM),
    _schedule("grid_code", _grid_code_configs, _grid_code, goal="speed"),
    _schedule("float_grid_code", _grid_code_configs, _float_grid_code, "speed", _FPU),
)
