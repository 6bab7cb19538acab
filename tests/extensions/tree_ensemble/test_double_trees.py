"""Trees of float64 features compare and add in double, as ONNX Runtime does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX needs the package onnx")
pytest.importorskip("onnxruntime", reason="the expected values come from ONNX Runtime")

import onnxruntime

from onnx import TensorProto, helper, numpy_helper
from tests.onnx.backend import run_merged
from tests.onnx.onnx_models import Array
from tests.onnx.test_nets import imported, results

FEATURES, DEPTH = 3, 3
BRANCHES, LEAVES = 2**DEPTH - 1, 2**DEPTH


def _tensor(name: str, values: Array) -> Any:
    return numpy_helper.from_array(np.asarray(values), name)


def _model(node: Any, rows: int, outputs: dict[str, tuple[int, list[int]]]) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.DOUBLE, [rows, FEATURES])
    results = [
        helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()
    ]
    graph = helper.make_graph([node], "trees", [x], results)
    version = 5 if node.op_type == "TreeEnsemble" else 3
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", version)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    return bytes(model.SerializeToString())


def _ensemble(trees: int, rows: int, rng: np.random.Generator) -> tuple[bytes, Array]:
    """Return complete trees of opset 5, and their thresholds [trees, branches]."""
    splits = rng.normal(size=(trees, BRANCHES))
    features = rng.integers(0, FEATURES, size=trees * BRANCHES)
    children: dict[str, list[int]] = {"t": [], "tl": [], "f": [], "fl": []}
    for tree in range(trees):
        for branch in range(BRANCHES):
            is_last = branch >= LEAVES // 2 - 1
            first = LEAVES * tree - BRANCHES if is_last else BRANCHES * tree
            for side, key in ((1, "t"), (2, "f")):
                children[key].append(first + 2 * branch + side)
                children[f"{key}l"].append(int(is_last))
    modes = rng.integers(0, 4, size=trees * BRANCHES).astype(np.uint8)
    node = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=2,
        tree_roots=[BRANCHES * tree for tree in range(trees)],
        nodes_featureids=features.tolist(),
        nodes_splits=_tensor("splits", splits.reshape(-1)),
        nodes_modes=_tensor("modes", modes),
        nodes_truenodeids=children["t"],
        nodes_trueleafs=children["tl"],
        nodes_falsenodeids=children["f"],
        nodes_falseleafs=children["fl"],
        leaf_targetids=rng.integers(0, 2, size=trees * LEAVES).tolist(),
        leaf_weights=_tensor("leaves", rng.normal(size=trees * LEAVES)),
    )
    return _model(node, rows, {"y": (TensorProto.DOUBLE, [rows, 2])}), splits


def _near(thresholds: Array, rows: int, rng: np.random.Generator) -> Array:
    """Return features that are thresholds, or their neighbors among doubles."""
    values = rng.choice(thresholds.reshape(-1), size=(rows, FEATURES))
    towards = rng.choice([-np.inf, np.inf], size=values.shape)
    return np.where(
        rng.random(values.shape) < 0.3, values, np.nextafter(values, towards)
    )


def _expected(data: bytes, x: Array) -> list[Array]:
    return list(onnxruntime.InferenceSession(data).run(None, {"x": x}))


def _check(data: bytes, x: Array, tolerance: float) -> None:
    module = imported(data)
    (compiled,) = run_merged([module], [[{"x": x}]], "host")
    for values in (results(module, {"x": x}).values(), compiled.values()):
        for got, want in zip(values, _expected(data, x), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.host_c
@pytest.mark.parametrize("trees", [1, 7])
def test_trees_of_doubles_equal_onnx_runtime(trees: int) -> None:
    rng = np.random.Generator(np.random.PCG64(trees))
    data, thresholds = _ensemble(trees, 40, rng)
    _check(data, _near(thresholds, 40, rng), 1e-14)


@pytest.mark.host_c
@pytest.mark.parametrize("suffix", ["", "_as_tensor"])
def test_a_regressor_compares_doubles(suffix: str) -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    thresholds = rng.normal(size=BRANCHES)
    if not suffix:
        thresholds = thresholds.astype(np.float32).astype(np.float64)
    nodes = BRANCHES + LEAVES
    leaves = list(range(BRANCHES, nodes))

    def floats(name: str, values: Array) -> dict[str, Any]:
        if suffix:
            return {f"{name}{suffix}": _tensor(name, values)}
        return {name: values.tolist()}

    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[0] * nodes,
        nodes_nodeids=list(range(nodes)),
        nodes_modes=["BRANCH_LEQ"] * BRANCHES + ["LEAF"] * LEAVES,
        nodes_featureids=rng.integers(0, FEATURES, size=nodes).tolist(),
        nodes_truenodeids=[2 * n + 1 if n < BRANCHES else 0 for n in range(nodes)],
        nodes_falsenodeids=[2 * n + 2 if n < BRANCHES else 0 for n in range(nodes)],
        target_treeids=[0] * LEAVES,
        target_nodeids=leaves,
        target_ids=[0] * LEAVES,
        **floats("nodes_values", np.concatenate([thresholds, np.zeros(LEAVES)])),
        **floats("target_weights", rng.normal(size=LEAVES)),
    )
    data = _model(node, 40, {"y": (TensorProto.FLOAT, [40, 1])})
    _check(data, _near(thresholds, 40, rng), 1e-6)
