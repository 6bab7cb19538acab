"""Tree ensembles: ONNX Runtime, the reference, tables and code, generated C."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import onnx
from firmwright.base.errors import UnsupportedError
from firmwright.extensions.tree_ensemble.code_schedule import SCHEDULES
from firmwright.extensions.tree_ensemble.forest import (
    forest_from_call,
    plan_sums,
    quantize_leaves,
)
from firmwright.extensions.tree_ensemble.keys import pair_keys
from firmwright.extensions.tree_ensemble.node_table import build_node_table
from firmwright.extensions.tree_ensemble.pair_table import (
    STEPS_MAX,
    EndForm,
    PairTable,
    build_pair_table,
)
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import open_session
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.interpreter import Interpreter
from firmwright.lower.lowering import make_op_call
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.oracle.reference_runner import run_reference
from firmwright.schedules.registry import INTRINSICS
from onnx import TensorProto, helper, numpy_helper
from tests.onnx.test_nets import entry_of, imported, optimized, results

FEATURES, ROWS = 5, 48
MODES = ("BRANCH_LEQ", "BRANCH_GT", "BRANCH_LT", "BRANCH_GTE")


def model_of(node: Any, outputs: dict[str, int], features: int = FEATURES) -> bytes:
    graph = helper.make_graph(
        [node],
        "trees",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, features])],
        [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in outputs.items()
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8
    return bytes(model.SerializeToString())


def random_forest(
    seed: int, outputs: int, on_grid: bool, trees: int = 6, **attrs: Any
) -> bytes:
    """Build trees of random shapes and modes, some with missing values as true.

    With `one_output` in the attributes, each leaf has a value for the output of its
    tree, as in boosting; with `positive`, values are shares of probabilities;
    `branches` is their number in every tree but the first; with `missing_right`,
    missing values go right.
    """
    size, goes_right = attrs.pop("branches", None), attrs.pop("missing_right", False)
    has_one_output = attrs.pop("one_output", False)
    is_positive = attrs.pop("positive", False)
    rng = np.random.Generator(np.random.PCG64(seed))
    nodes: list[tuple[Any, ...]] = []
    weights: list[tuple[int, int, int, float]] = []
    for tree in range(trees):
        branches = (size or int(rng.integers(0, 9))) if tree else 5
        waiting, number = [0], 1
        while waiting:
            node = waiting.pop(0)
            if branches == 0:
                nodes.append((tree, node, "LEAF", 0, 0.0, 0, 0, 0))
                used = [tree % outputs] if has_one_output else range(outputs)
                for k in used:
                    weight = float(rng.normal())
                    if is_positive:
                        weight = (1 + abs(float(np.tanh(weight)))) / (2 * trees)
                    weights.append((tree, node, k, weight))
                continue
            branches -= 1
            value = (
                float(rng.integers(-6, 7)) / 4
                if on_grid
                else float(np.float32(rng.normal()))
            )
            # x < t and x >= t are comparisons with the float below, off the grid.
            mode = MODES[rng.integers(4) // (2 if on_grid else 1)]
            feature = int(rng.integers(FEATURES))
            missing = int(rng.integers(2))
            if goes_right:
                mode, missing = MODES[rng.integers(2) * 2], 0
            nodes.append(
                (tree, node, mode, feature, value, number, number + 1, missing)
            )
            waiting += [number, number + 1]
            number += 2
    names = (
        "treeids",
        "nodeids",
        "modes",
        "featureids",
        "values",
        "truenodeids",
        "falsenodeids",
        "missing_value_tracks_true",
    )
    columns = dict(
        zip((f"nodes_{name}" for name in names), zip(*nodes, strict=True), strict=True)
    )
    is_classes = "classlabels_int64s" in attrs
    prefix = "class" if is_classes else "target"
    parts = (
        f"{prefix}_treeids",
        f"{prefix}_nodeids",
        f"{prefix}_ids",
        f"{prefix}_weights",
    )
    columns |= dict(zip(parts, zip(*weights, strict=True), strict=True))
    if not is_classes:
        attrs["n_targets"] = outputs
    kind = "TreeEnsembleClassifier" if is_classes else "TreeEnsembleRegressor"
    results = {"label": TensorProto.INT64} if is_classes else {}
    results["y"] = TensorProto.FLOAT
    node = helper.make_node(
        kind, ["x"], list(results), domain="ai.onnx.ml", **columns, **attrs
    )
    return model_of(node, results)


def rows_of(seed: int = 0, features: int = FEATURES) -> Any:
    """Return values at, near and far from thresholds, zeros, infinities and NaN."""
    rng = np.random.Generator(np.random.PCG64(seed))
    x = (rng.integers(-7, 8, (ROWS, features)) / 4).astype(np.float32)
    x[::4] = rng.normal(size=x[::4].shape)
    x[1::8] = np.nextafter(x[1::8], np.float32(rng.choice([-9, 9])))
    x[2, :3] = -0.0, np.inf, -np.inf
    x[rng.random(x.shape) < 0.1] = np.nan
    x[3, :2] = 3e38, -3e38
    x[4] = 1e-45, -1e-45, 1e-38, -1e-38, 0.0
    return x


FORESTS = {
    "keys_of_floats": lambda: random_forest(3, 1, False, base_values=[0.25]),
    "on_a_grid": lambda: random_forest(4, 2, True),
    "average": lambda: random_forest(5, 3, True, aggregate_function="AVERAGE"),
    "classes": lambda: random_forest(
        6, 3, False, classlabels_int64s=[4, 0, 7], post_transform="SOFTMAX"
    ),
    "boosting": lambda: random_forest(
        8, 3, False, trees=9, classlabels_int64s=[0, 1, 2], one_output=True
    ),
    "single_tree": lambda: random_forest(9, 3, False, trees=1),
    "single_tree_of_classes": lambda: random_forest(
        13, 3, True, trees=1, classlabels_int64s=[5, 0, 2]
    ),
    "missing_right": lambda: random_forest(14, 2, False, missing_right=True),
    "single_tree_missing_right": lambda: random_forest(
        15, 3, False, trees=1, classlabels_int64s=[0, 1, 2], missing_right=True
    ),
    "one_score_of_two_classes": lambda: random_forest(
        7, 1, True, classlabels_int64s=[0, 1], post_transform="LOGISTIC"
    ),
    "many_trees": lambda: random_forest(10, 3, True, trees=180, positive=True),
    "many_outputs": lambda: random_forest(11, 6, True, trees=180, positive=True),
    "full_trees": lambda: random_forest(
        12, 2, True, trees=140, positive=True, branches=20
    ),
}
ON_GRIDS = (
    "on_a_grid",
    "average",
    "one_score_of_two_classes",
    "single_tree_of_classes",
)
MANY = ("many_trees", "many_outputs", "full_trees")
CLASSES = (
    "classes",
    "boosting",
    "single_tree_of_classes",
    "single_tree_missing_right",
)
every_forest = pytest.mark.parametrize("name", FORESTS)


def tree_call(module: IRModule) -> OpCall:
    call = next(call for call in entry_of(module).body if call.op == "tree_ensemble")
    return make_op_call(call, module)


@pytest.mark.sampled(2)
@every_forest
def test_every_row_reaches_the_leaves_of_onnx_runtime(name: str) -> None:
    data, x = FORESTS[name](), rows_of()
    (expected,) = run_reference(data, [{"x": x}], "onnxruntime").outputs
    got = results(imported(data), {"x": x})
    for key, array in expected.items():
        if array.dtype.kind == "i":
            assert np.array_equal(got[key], array)
        np.testing.assert_allclose(got[key], array, rtol=0, atol=3e-6)


def _build(rule: Schedule[ScheduleConfig], call: OpCall, b: Kernel) -> None:
    rule.build(call, NO_CONFIG, b)


@every_forest
def test_tables_and_code_give_identical_bits(name: str) -> None:
    described = tree_call(imported(FORESTS[name]()))
    x = rows_of(1)
    constants = [described.constant(k) for k in range(1, 7)]
    expected = op_table()["tree_ensemble"].reference(
        described, [x, *(c.array() for c in constants if c is not None)]
    )
    assert len(expected) == (2 if name in CLASSES else 1)
    builds = [op_table()["tree_ensemble"].lower]
    for rule in SCHEDULES:
        if rule.configs(described):
            builds.append(partial(_build, rule))
    counts = dict.fromkeys(ON_GRIDS, 12) | dict.fromkeys(MANY, 10)
    counts |= {"missing_right": 4, "single_tree_missing_right": 4}
    assert len(builds) == counts.get(name, 3)
    for build in builds:
        kernel = Kernel("k", described)
        build(described, kernel)
        function = kernel.build()
        outputs = [np.zeros_like(array) for array in expected]
        names = [buffer.name for buffer in kernel.outputs]
        interpreter = Interpreter({"k": function}, INTRINSICS, kernel.constants)
        interpreter.run("k", {"x": x, **dict(zip(names, outputs, strict=True))})
        for y, array in zip(outputs, expected, strict=True):
            assert np.array_equal(y, array)


@pytest.mark.host_c
@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("boosting", "speed"),
        ("on_a_grid", "size"),
        ("single_tree", "speed"),
        ("single_tree_of_classes", "speed"),
        ("single_tree_of_classes", "size"),
        ("many_trees", "speed"),
        ("many_trees", "size"),
        ("many_outputs", "size"),
        ("full_trees", "size"),
    ],
)
def test_generated_c_reaches_the_same_leaves(name: str, goal: str) -> None:
    module, x = optimized(imported(FORESTS[name]())), rows_of(2)
    compiled = compile_for(module, "host", optimize=goal)
    with open_session(compiled, in_process=True) as session:
        (got,) = session.run_all([{"x": x}])
    for key, expected in results(module, {"x": x}).items():
        assert np.array_equal(got[key], expected)


@pytest.mark.deep
@pytest.mark.parametrize("goal", ["speed", "balanced"])
@pytest.mark.parametrize(
    "name", ["boosting", "full_trees", "many_outputs", "single_tree_missing_right"]
)
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("microbit", marks=pytest.mark.qemu("arm")),
        pytest.param("mps2-an386", marks=pytest.mark.qemu("arm")),
        pytest.param("qemu-riscv32-virt", marks=pytest.mark.qemu("riscv32")),
    ],
)
def test_boards_reach_the_same_leaves(board: str, name: str, goal: str) -> None:
    module, x = optimized(imported(FORESTS[name]())), rows_of(4)
    with open_session(compile_for(module, board, optimize=goal)) as session:
        (got,) = session.run_all([{"x": x}])
    for key, expected in results(module, {"x": x}).items():
        assert np.array_equal(got[key], expected)


def test_sums_over_the_outputs_of_leaves_fit_in_32_bits() -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    for _ in range(200):
        trees, outputs = int(rng.integers(1, 9)), int(rng.integers(2, 6))
        values = rng.dirichlet(np.ones(outputs), 3 * trees)
        leaves, bases, _ = quantize_leaves(
            values, np.zeros(outputs), np.repeat(range(trees), 3)
        )
        total = int(leaves[0].sum(dtype=np.int64)) * trees + int(bases.sum())
        assert 1 << 29 < total < 1 << 31
        assert not np.ptp(leaves.sum(axis=1, dtype=np.int64))


def test_of_equal_outputs_the_first_stays_the_greatest() -> None:
    values = np.full((2, 3), np.float32(1 / 3), np.float64)
    values[1] = np.float32(0.4), np.float32(0.2), np.float32(0.4)
    leaves, _, _ = quantize_leaves(values, np.zeros(3), np.zeros(2, np.int64))
    assert leaves.argmax(axis=1).tolist() == [0, 0]
    assert not np.ptp(leaves.sum(axis=1, dtype=np.int64))


def _pair_table(data: bytes) -> PairTable | None:
    described = tree_call(imported(data))
    kind = pair_keys(forest_from_call(described))
    assert kind is not None
    (group,) = plan_sums(described).groups
    return build_pair_table(group, kind.thresholds(group.forest))


@pytest.mark.parametrize("name", MANY)
def test_rows_of_many_trees_have_three_bytes_a_value(name: str) -> None:
    table = _pair_table(FORESTS[name]())
    assert table is not None
    assert table.form is EndForm.SPLIT_ROWS
    outputs = table.rows.shape[1]
    assert table.stored_rows.nbytes == len(table.rows) * 2 * (
        outputs + -(-outputs // 2)
    )


def test_equal_pairs_of_leaves_are_one_pair_of_their_tree() -> None:
    """Check a chain of seven branches, whose leaves are zeros and ones."""
    table = _pair_table(chain(7, 1, leaves=2))
    assert table is not None
    # Sizes and root, and six pairs of a branch and a leaf.
    assert table.steps == 7
    assert len(table.nodes) == 14
    different = _pair_table(chain(7, 1))
    assert different is not None
    assert different.ends.nbytes > table.ends.nbytes


def test_steps_of_the_top_levels_read_no_pairs() -> None:
    """Check that the leaves of one small tree among 139 full ones are repeated."""
    table = _pair_table(FORESTS["full_trees"]())
    assert table is not None
    assert (table.steps, table.levels) == (5, 4)
    assert table.end_step == 1
    chained = _pair_table(chain(7, 1))
    assert chained is not None
    assert chained.levels == 1


def test_a_tree_of_more_steps_than_the_limit_has_no_table_of_pairs() -> None:
    assert _pair_table(chain(STEPS_MAX, 2)) is not None
    assert _pair_table(chain(STEPS_MAX + 1, 2)) is None


@pytest.mark.parametrize("mode", [b"BRANCH_EQ", b"BRANCH_NEQ"])
def test_a_forest_with_comparisons_for_equality_reaches_the_same_leaves(
    mode: bytes,
) -> None:
    model = onnx.load_from_string(random_forest(3, 2, True))
    (modes,) = (
        item for item in model.graph.node[0].attribute if item.name == "nodes_modes"
    )
    # Most trees have a comparison of each kind.
    modes.strings[:] = [mode if m == b"BRANCH_GT" else m for m in modes.strings]
    data, x = model.SerializeToString(), rows_of(3)
    (expected,) = run_reference(data, [{"x": x}], "onnxruntime").outputs
    got = results(imported(data), {"x": x})
    np.testing.assert_allclose(got["y"], expected["y"], rtol=0, atol=3e-6)


def test_an_unknown_comparison_is_refused() -> None:
    data = random_forest(3, 1, False).replace(b"BRANCH_GTE", b"BRANCH_GGG")
    with pytest.raises(UnsupportedError, match="branches of kind BRANCH_GGG"):
        imported(data)


def _tensor(*values: float, dtype: Any = np.float32) -> Any:
    return numpy_helper.from_array(np.array(values, dtype))


TREES: dict[str, Any] = {
    "n_targets": 2,
    "post_transform": 0,
    "tree_roots": [0, 2],
    "nodes_modes": _tensor(0, 1, 3, dtype=np.uint8),
    "nodes_featureids": [0, 1, 0],
    "nodes_splits": _tensor(0.5, 0.25, -0.5),
    "nodes_truenodeids": [1, 0, 2],
    "nodes_trueleafs": [0, 1, 1],
    "nodes_falsenodeids": [3, 1, 0],
    "nodes_falseleafs": [1, 1, 1],
    "leaf_targetids": [0, 1, 0, 1],
    "leaf_weights": _tensor(1.5, 2.25, 3.5, -4),
}
"""Attributes of a TreeEnsemble of two trees and two targets."""


def test_tree_ensemble_reaches_the_same_leaves() -> None:
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **TREES)
    model = onnx.load_from_string(model_of(node, {"y": TensorProto.FLOAT}))
    model.opset_import[1].version = 5
    data, x = model.SerializeToString(), rows_of(3)
    (expected,) = run_reference(data, [{"x": x}], "onnxruntime").outputs
    got = results(imported(data), {"x": x})
    np.testing.assert_allclose(got["y"], expected["y"], rtol=0, atol=3e-6)


@pytest.mark.parametrize("name", ["nodes_values", "class_weights", "nodes_truenodeids"])
def test_a_forest_with_inconsistent_lists_is_refused(name: str) -> None:
    model = onnx.load_from_string(FORESTS["classes"]())
    (attribute,) = (item for item in model.graph.node[0].attribute if item.name == name)
    values = attribute.floats if attribute.floats else attribute.ints
    del values[-1]
    with pytest.raises(UnsupportedError):
        imported(model.SerializeToString())


@pytest.mark.deep
@pytest.mark.qemu
def test_a_forest_of_a_hundred_trees_is_fast_as_code_and_small_as_tables() -> None:
    """Check for 4,000 instructions in 14 flash bytes a branch, or 8.1 bytes a branch."""
    pytest.importorskip(
        "skl2onnx", reason="scikit-learn and skl2onnx are not installed"
    )
    from skl2onnx import to_onnx
    from sklearn.datasets import make_classification
    from sklearn.ensemble import RandomForestClassifier

    x, y = make_classification(4000, 10, n_informative=6, n_classes=3, random_state=7)
    # What a sensor gives: whole numbers of 16 bits.
    x = np.rint(x * 1000).astype(np.float32)
    forest = RandomForestClassifier(100, max_depth=8, random_state=1).fit(x, y)
    data = to_onnx(forest, x[:1], options={"zipmap": False}).SerializeToString()
    module = imported(data)
    branches = sum(tree.tree_.n_leaves - 1 for tree in forest.estimators_)
    small = compile_for(module, "mps2-an386", optimize="size")
    assert build_image(small).model_flash_bytes <= 8.1 * branches
    fast = compile_for(module, "mps2-an386", optimize="speed")
    assert build_image(fast).model_flash_bytes <= 14 * branches
    assert measure_instructions(fast, sample={"X": x[:1]}).total.instructions <= 4000


def chain(branches: int, features: int, leaves: int = 1 << 20) -> bytes:
    """Build a tree whose right sides are leaves, on every feature in turn.

    There are at most `leaves` values of leaves.
    """
    numbers = range(branches)
    columns = {
        "nodes_treeids": [0] * (2 * branches + 1),
        "nodes_nodeids": list(range(2 * branches + 1)),
        "nodes_modes": ["BRANCH_LEQ"] * branches + ["LEAF"] * (branches + 1),
        "nodes_featureids": [k % features for k in numbers] + [0] * (branches + 1),
        "nodes_values": [float(-k) for k in numbers] + [0.0] * (branches + 1),
        "nodes_truenodeids": [k + 1 for k in numbers] + [0] * (branches + 1),
        "nodes_falsenodeids": [branches + 1 + k for k in numbers]
        + [0] * (branches + 1),
        "target_treeids": [0] * (branches + 1),
        "target_nodeids": list(range(branches, 2 * branches + 1)),
        "target_ids": [0] * (branches + 1),
        "target_weights": [float(k % leaves) for k in range(branches + 1)],
    }
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        **columns,
    )
    return model_of(node, {"y": TensorProto.FLOAT}, features)


@pytest.mark.parametrize(
    ("branches", "features", "words"),
    [pytest.param(900, 300, 1, marks=pytest.mark.deep), (1500, 600, 2)],
)
def test_a_deep_tree_over_many_features_is_a_table(
    branches: int, features: int, words: int
) -> None:
    described = tree_call(imported(chain(branches, features)))
    assert not any(rule.configs(described) for rule in SCHEDULES if "code" in rule.name)
    (group,) = plan_sums(described).groups
    assert build_node_table(group).form.value == words
    kernel = Kernel("k", described)
    op_table()["tree_ensemble"].lower(described, kernel)
    x = np.full((ROWS, features), -1e6, np.float32)
    ends = np.linspace(0, branches, ROWS, dtype=np.int64)
    for row, end in enumerate(ends.tolist()):
        x[row, end % features] = -end + 0.5
    y = np.zeros((ROWS, 1), np.float32)
    function = kernel.build()
    interpreter = Interpreter({"k": function}, INTRINSICS, kernel.constants)
    interpreter.run("k", {"x": x, "y": y})
    constants = [described.constant_array(k) for k in range(1, 7)]
    (expected,) = op_table()["tree_ensemble"].reference(described, [x, *constants])
    assert np.array_equal(y, expected)
    assert len(np.unique(y)) > ROWS // 2


@pytest.mark.deep
def test_nodes_in_a_circle_are_refused() -> None:
    model = onnx.load_from_string(chain(3, 2))
    (items,) = (
        item.ints
        for item in model.graph.node[0].attribute
        if item.name == "nodes_truenodeids"
    )
    items[2] = 0
    with pytest.raises(UnsupportedError, match="a circle of nodes"):
        imported(model.SerializeToString())
