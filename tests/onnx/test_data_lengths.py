"""Results whose length depends on the data equal ONNX Runtime's, with their number."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX needs the package onnx")
pytest.importorskip("onnxruntime", reason="the expected values come from ONNX Runtime")

from firmwright.base.counted_outputs import without_counts
from firmwright.base.errors import UnsupportedError
from firmwright.flows.export.package_export import export_model
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.verification import verify
from firmwright.oracle.compare import compare_outputs
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from firmwright.pipeline import load_module_bytes
from onnx import TensorProto, helper
from tests.onnx.backend import run_merged
from tests.onnx.onnx_models import Array, Net
from tests.onnx.test_control_flow import graph
from tests.onnx.test_nets import entry_of, imported, results

Case = tuple[bytes, dict[str, Array]]


def _suppression(net: Net, each: int, seed: int) -> tuple[str, dict[str, Array]]:
    """Return selected rows of random boxes on a grid, with equal scores."""
    rng = net.rng
    samples, classes, count = rng.integers(1, [3, 4, 14]).tolist()
    boxes, scores = (samples, count, 4), (samples, classes, count)
    net.input("boxes", boxes)
    net.input("scores", scores)
    limits = [net.scalar(value) for value in (0.3 * (seed % 3), 0.25)]
    number = net.weight(np.array([each], np.int64))
    operands = ["boxes", "scores", number, *limits[: seed % 4 and 2]]
    rows = net.node("NonMaxSuppression", *operands, center_point_box=seed % 2)
    arrays = {
        "boxes": (rng.integers(0, 9, boxes) / 4).astype(np.float32),
        "scores": (rng.integers(0, 9, scores) / 8).astype(np.float32),
    }
    return rows, arrays


def selected_boxes(seed: int) -> Case:
    net = Net(seed)
    rows, arrays = _suppression(net, 1 + seed % 5, seed)
    return net.model(rows), arrays


def postprocessed_boxes(seed: int) -> Case:
    """Read coordinates and scores of the selected boxes, as exported detectors do."""
    net = Net(seed)
    rows, arrays = _suppression(net, 4, seed)
    scores = net.node("GatherND", "scores", rows)
    column = net.node("Reshape", scores, net.weight(np.array([-1, 1])))
    places = net.node("Gather", rows, net.weight(np.array([0, 2])), axis=1)
    boxes = net.node("GatherND", "boxes", places)
    kinds = net.node("Gather", rows, net.weight(np.array(1)), axis=1)
    axes = net.weight(np.array([1]))
    wide = net.node("Cast", net.node("Unsqueeze", kinds, axes), to=TensorProto.FLOAT)
    whole = net.node("Concat", net.node("Mul", boxes, net.scalar(8.0)), wide, axis=1)
    turned = net.node("Transpose", net.node("Squeeze", column, axes))
    return net.model(whole, turned), arrays


def coordinates_of_nonzeros(seed: int) -> Case:
    net = Net(seed)
    shape = tuple(net.rng.integers(1, 5, 1 + seed % 3).tolist())
    dtypes = TensorProto.FLOAT, TensorProto.INT32, TensorProto.BOOL
    x = net.input("x", shape, dtypes[seed // 3 % 3])
    kind = (np.float32, np.int32, bool)[seed // 3 % 3]
    return net.model(net.node("NonZero", x)), {
        "x": net.rng.integers(0, 2, shape).astype(kind)
    }


def compressed_rows(seed: int) -> Case:
    net = Net(seed)
    x = net.input("x", (3, 4))
    count = (2, 3, 12)[seed % 3]
    attrs: dict[str, Any] = {} if count == 12 else {"axis": seed % 2}
    mask = net.input("mask", (count,), TensorProto.BOOL)
    arrays = {
        "x": net.rng.normal(size=(3, 4)).astype(np.float32),
        "mask": net.rng.integers(0, 2, count).astype(bool),
    }
    return net.model(net.node("Compress", x, mask, **attrs)), arrays


def different_slices(seed: int) -> Case:
    """Return the slices that differ, of all axes and of the flat tensor."""
    net = Net(seed)
    rank = 1 + seed % 3
    shape = tuple(net.rng.integers(1, 6, rank).tolist())
    x = net.input("x", shape, (TensorProto.FLOAT, TensorProto.INT64)[seed % 2])
    kind = (np.float32, np.int64)[seed % 2]
    attrs: dict[str, Any] = {"sorted": seed // 2 % 2}
    if seed % 4:
        attrs["axis"] = seed % 5 % rank
    outputs = net.node("Unique", x, outputs=4, **attrs)
    arrays = {"x": net.rng.integers(-1, 2, shape).astype(kind)}
    return net.model(*outputs), arrays


def branches_of_two_lengths(seed: int) -> Case:
    """Return the result of a branch: rows of different number, or columns."""
    net = Net(seed)
    axis = seed % 2
    names = ("x", "y")
    arrays: dict[str, Array] = {}
    for name, length in zip(names, net.rng.permutation([2, 5]), strict=True):
        shape = [3, 3]
        shape[axis] = int(length)
        net.input(name, tuple(shape))
        arrays[name] = net.rng.normal(size=shape).astype(np.float32)
    arrays["level"] = np.array(seed // 2 % 2, np.float32)
    condition = net.node("Less", net.input("level", ()), net.scalar(0.5))
    branches = {
        f"{part}_branch": graph(part, [helper.make_node(op, [x], [part])], [], [part])
        for part, op, x in zip(("then", "else"), ("Abs", "Neg"), names, strict=True)
    }
    z = net.node("If", condition, **branches)
    return net.model(net.node("Mul", z, z)), arrays


MAKERS = (
    branches_of_two_lengths,
    selected_boxes,
    postprocessed_boxes,
    coordinates_of_nonzeros,
    compressed_rows,
    different_slices,
)


def _expected(case: Case) -> list[Array]:
    model, inputs = case
    session = OnnxRuntimeSession(model, layers=False)
    return [np.asarray(array) for array in session.run(list(inputs.values()))]


def _mismatches(case: Case, got: dict[str, Array]) -> int:
    expected = dict(zip(without_counts(list(got)), _expected(case), strict=True))
    assert len(got) > len(expected)
    return compare_outputs([expected], [got]).mismatches


@pytest.mark.parametrize("make", MAKERS)
def test_elements_in_use_equal_onnx_runtime(make: Any) -> None:
    for seed in range(16):
        case = make(seed)
        assert not _mismatches(case, results(imported(case[0]), case[1])), seed


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=[pytest.mark.qemu, pytest.mark.deep]),
    ],
)
def test_firmware_equals_onnx_runtime(board: str) -> None:
    cases = [make(seed) for make in MAKERS for seed in (1, 2, 3)]
    modules = [imported(model) for model, _ in cases]
    (values,) = run_merged(modules, [[inputs for _, inputs in cases]], board)
    for number, (module, case) in enumerate(zip(modules, cases, strict=True)):
        names = [value.name for value in entry_of(module).results]
        own = {name: values[f"{number}.{name}"] for name in names}
        assert not _mismatches(case, own), number


def test_a_wrong_number_is_a_mismatch() -> None:
    case = selected_boxes(5)
    got = results(imported(case[0]), case[1])
    (name,) = (name for name in got if name.endswith("_count"))
    got[name] = np.array(got[name] - 1, np.int32)
    assert _mismatches(case, got) == 1


def test_unused_rows_are_zeros() -> None:
    model, inputs = selected_boxes(5)
    rows, count = results(imported(model), inputs).values()
    assert int(count) < len(rows)
    assert not rows[int(count) :].any()


def _refused(net: Net, *outputs: str) -> str:
    with pytest.raises(UnsupportedError) as caught:
        imported(net.model(*outputs))
    return str(caught.value)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [("Shape", {}), ("ReduceMax", {}), ("Softmax", {}), ("Concat", {"axis": 0})],
)
def test_operators_that_need_the_true_length_are_refused(
    op: str, attrs: dict[str, Any]
) -> None:
    net = Net()
    rows, _ = _suppression(net, 2, 1)
    x = net.node("Cast", rows, to=TensorProto.FLOAT)
    assert "length depends on the data" in _refused(net, net.node(op, x, **attrs))


def test_a_slice_and_a_sum_with_a_fixed_length_are_refused() -> None:
    net = Net()
    x = net.input("x", (6,))
    mask = net.input("mask", (6,), TensorProto.BOOL)
    part = net.node("Compress", x, mask, axis=0)
    bounds = [net.weight(np.array([value])) for value in (0, 2)]
    text = _refused(net, net.node("Slice", part, *bounds), net.node("Add", part, x))
    assert "on the data, cut" in text
    assert "on the data, with one of a fixed length" in text


@pytest.mark.host_c
def test_evidence_of_lengths_that_depend_on_the_data_is_not_refuted(
    tmp_path: Path, fw: Any
) -> None:
    model, file = tmp_path / "counted.onnx", tmp_path / "evidence.json"
    model.write_bytes(compressed_rows(1)[0])
    written = fw("verify", model, "--board", "host", "--evidence", file)
    assert written.status == 0, written.err
    said = fw("evidence", "check", file, model, "--json")
    assert said.status == 0, said.err
    reasons = {row["statement"]: row["reason"] for row in said.json["findings"]}
    assert "not in use" in reasons["outputs"]


@pytest.mark.host_c
def test_a_package_with_a_computed_condition_passes_its_self_test(
    tmp_path: Path,
) -> None:
    model = tmp_path / "counted.onnx"
    model.write_bytes(compressed_rows(1)[0])
    folder = tmp_path / "package"
    export_model(compile_for(load_model(model), "host"), "makefile", folder)
    ran = subprocess.run(
        ["make", "check"], cwd=folder, check=True, capture_output=True, text=True
    )
    assert "counted: self-test passed" in ran.stdout


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_integer_divisors_equal_onnx_runtime(op: str) -> None:
    """Divisors that are not in use are 0, and count as 1."""
    net = Net()
    x = net.input("x", (6,), TensorProto.INT64)
    mask = net.input("mask", (6,), TensorProto.BOOL)
    part = net.node("Compress", x, mask, axis=0)
    model = net.model(net.node(op, net.weight(np.array(60)), part))
    arrays = {"x": np.array([7, 0, -9, 2, 0, 5]), "mask": np.arange(6) % 2 == 0}
    arrays["x"][4] = 11
    case = model, arrays
    assert not _mismatches(case, results(imported(model), arrays))


@pytest.mark.parametrize("attrs", [{"axis": 1}, {}])
def test_different_slices_of_a_constant_equal_onnx_runtime(
    attrs: dict[str, int],
) -> None:
    net = Net()
    x = net.weight(np.array([[3, 1, 3], [2, 5, 2]], np.int64))
    y = net.node("Identity", net.input("x", (1,)))
    values = net.node("Unique", x, outputs=4, sorted=0, **attrs)
    arrays = {"x": np.ones(1, np.float32)}
    case = net.model(y, *values), arrays
    assert not _mismatches(case, results(imported(case[0]), arrays))


def _net_with_an_empty_output() -> tuple[Net, str]:
    net = Net()
    bounds = [net.weight(np.array([value])) for value in (2, 2)]
    return net, net.node("Slice", net.input("x", (3,)), *bounds)


def test_an_output_without_elements_beside_others_is_omitted() -> None:
    net, empty = _net_with_an_empty_output()
    y = net.node("Relu", "x")
    module = imported(net.model(empty, y))
    assert [value.name for value in entry_of(module).results] == [y]


@pytest.mark.host_c
def test_an_omitted_output_beside_one_of_computed_length_is_verified() -> None:
    net, empty = _net_with_an_empty_output()
    mask = net.input("mask", (3,), TensorProto.BOOL)
    part = net.node("Compress", "x", mask, axis=0)
    module = load_module_bytes(net.model(empty, part), "both.onnx")
    assert verify(compile_for(module, board="host"), samples=4).exact


def test_element_types_that_onnx_does_not_define_are_refused() -> None:
    net = Net(opset=13)
    x = net.input("x", (6,), TensorProto.INT64)
    mask = net.input("mask", (6,), TensorProto.BOOL)
    text = _refused(net, net.node("Relu", net.node("Compress", x, mask, axis=0)))
    assert "int64, for which ONNX does not define it" in text


def test_a_model_whose_only_output_has_no_elements_is_refused() -> None:
    net, empty = _net_with_an_empty_output()
    assert "a tensor without elements" in _refused(net, empty)
