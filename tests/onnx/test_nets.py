"""Whole ONNX models: import, graph passes, ONNX Runtime, generated C."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import onnx
from firmwright.base.errors import ModelError, UnsupportedError, UsageError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.model import load_model, save_module
from firmwright.frontends.onnx import ModelOverrides, import_onnx, preprocess_model
from firmwright.ir.graph.attributes.values import ExpressionAttrs
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.verify import verify_graph
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table
from firmwright.oracle.compare import compare_outputs
from firmwright.oracle.reference_runner import run_reference
from firmwright.schedules.registry import INTRINSICS
from onnx import TensorProto, helper
from tests.onnx.backend import compile_module, merge_modules
from tests.onnx.onnx_models import GRAPH_PASSES, NETS, Net, quantized_net

Tensors = dict[str, NDArray[np.generic]]


def imported(data: bytes, overrides: ModelOverrides = ModelOverrides()) -> IRModule:
    return import_onnx(
        preprocess_model(data, "net.onnx", overrides), "net.onnx", "net", op_table()
    )


def entry_of(module: IRModule) -> Function:
    entry = module.entry
    assert isinstance(entry, Function)
    return entry


def optimized(module: IRModule) -> IRModule:
    for step in GRAPH_PASSES:
        module = step(module)
        verify_graph(entry_of(module), module, op_table())
    return module


def sample(module: IRModule, seed: int = 0) -> Tensors:
    rng = np.random.Generator(np.random.PCG64(seed))
    return {
        value.name: rng.normal(size=value.type.shape).astype(value.type.dtype.np)
        for value in entry_of(module).params
    }


def results(module: IRModule, inputs: Tensors) -> Tensors:
    values = evaluate_graph(module, inputs, op_table(), INTRINSICS)
    return {value.name: values[value.name] for value in entry_of(module).results}


every_net = pytest.mark.parametrize("make", NETS.values(), ids=NETS)


@every_net
def test_an_imported_model_matches_onnx_runtime(make: Callable[[], bytes]) -> None:
    data = make()
    module = imported(data)
    inputs = sample(module)
    expected = run_reference(data, [inputs], "onnxruntime").outputs
    assert compare_outputs(expected, [results(module, inputs)]).mismatches == 0
    assert (
        compare_outputs(expected, [results(optimized(module), inputs)]).mismatches == 0
    )


def test_nodes_in_any_order_with_a_coupled_lstm_match_onnx_runtime() -> None:
    net, hidden = Net(3), 4
    x = net.node("Tanh", net.input("x", (5, 2, 3)))
    weights = [net.random(1, 4 * hidden, 3), net.random(1, 4 * hidden, hidden)]
    bias, peepholes = net.random(1, 8 * hidden), net.random(1, 3 * hidden)
    inputs = (x, *weights, bias, "", "", "", peepholes)
    y = net.node("LSTM", *inputs, hidden_size=hidden, input_forget=1, clip=0.9)
    y = net.node("Relu", y)
    net.nodes.reverse()
    data = net.model(y)
    module = imported(data)
    values = sample(module)
    expected = run_reference(data, [values], "onnxruntime").outputs
    assert compare_outputs(expected, [results(module, values)]).mismatches == 0


@pytest.mark.parametrize("unsigned", [False, True])
def test_a_quantized_model_uses_integers_and_is_within_one_step(unsigned: bool) -> None:
    data = quantized_net(unsigned)
    module = optimized(imported(data))
    counts = Counter(call.op for call in entry_of(module).body)
    assert (
        counts["conv2d"],
        counts["depthwise_conv2d"],
        counts["fully_connected"],
    ) == (1, 1, 1)
    assert counts["dequantize"] == 1  # of the result
    inputs = [sample(module, seed) for seed in range(8)]
    expected = run_reference(data, inputs, "onnxruntime").outputs
    (name,) = expected[0]
    steps = np.concatenate(
        [
            np.rint(256 * (results(module, x)[name] - y[name]))
            for x, y in zip(inputs, expected, strict=True)
        ]
    )
    assert np.abs(steps).max() <= 1
    assert np.count_nonzero(steps) <= steps.size // 20


@pytest.mark.host_c
def test_generated_c_matches_the_references() -> None:
    modules = [optimized(imported(make())) for make in (*NETS.values(), quantized_net)]
    inputs = [sample(module) for module in modules]
    compiled = compile_module(merge_modules(modules), "host")
    feeds = {
        f"{k}.{name}": x for k, part in enumerate(inputs) for name, x in part.items()
    }
    with open_session(compiled, in_process=True) as session:
        (got,) = session.run_all([feeds])
    for number, (module, part) in enumerate(zip(modules, inputs, strict=True)):
        expected = results(module, part)
        own = {name: got[f"{number}.{name}"] for name in expected}
        assert compare_outputs([expected], [own]).mismatches == 0


@pytest.mark.parametrize(
    ("name", "transposes"), [("digits", 0), ("residual", 1), ("mobile", 2)]
)
def test_no_redundant_transpose_remains(name: str, transposes: int) -> None:
    """One-channel images need none; others need one at each end that is an image."""
    body = entry_of(optimized(imported(NETS[name]()))).body
    assert Counter(call.op for call in body)["transpose"] == transposes


def test_normalization_and_activations_are_fused_into_convolutions() -> None:
    body = entry_of(optimized(imported(NETS["residual"]()))).body
    counts = Counter(call.op for call in body)
    assert (counts["conv2d"], counts["relu"]) == (6, 0)
    formulas = {
        call.attributes(ExpressionAttrs).formula
        for call in body
        if call.op == "expression"
    }
    assert formulas == {"max(0.0, a + b)"}


# ---- what users say, and what they are told ------------------------------------------


def open_net() -> bytes:
    net = Net()
    x = net.input("x", ("batch", 3, "height", 4))
    return net.model(net.node("Relu", x))


def test_hints_list_operators_only_if_one_is_missing() -> None:
    missing, other = Net(), Net(opset=18)
    model = missing.model(missing.node("Wobble", missing.input("x", (1, 3))))
    with pytest.raises(UnsupportedError) as caught:
        imported(model)
    assert "`firmwright ops`" in caught.value.hint
    assert "docs/reference/custom-operators.md" in caught.value.hint
    x, axes = other.input("x", (1, 3)), other.input("axes", (1,), TensorProto.INT64)
    with pytest.raises(UnsupportedError) as caught:
        imported(other.model(other.node("ReduceMean", x, axes)))
    assert caught.value.hint == ""


def test_open_sizes_are_reported_and_can_be_set() -> None:
    reason = (
        r"axis 2 \(height\) of x is open; add --input-shape x=1,3,height,4 with a number "
        "for height"
    )
    with pytest.raises(UnsupportedError, match=reason):
        imported(open_net())
    module = imported(open_net(), ModelOverrides({"x": (1, 3, 5, 4)}))
    assert entry_of(module).params[0].type.shape == (1, 3, 5, 4)


def test_a_shape_that_contradicts_the_model_is_an_error() -> None:
    with pytest.raises(
        UsageError, match=r"--input-shape x=1,2,5,4 contradicts the model"
    ):
        imported(open_net(), ModelOverrides({"x": (1, 2, 5, 4)}))
    with pytest.raises(UsageError, match="the model has no input 'y'"):
        imported(open_net(), ModelOverrides({"y": (1, 2)}))


def test_all_unsupported_items_are_reported_at_once() -> None:
    net = Net()
    x = net.input("x", (2, 3))
    first = net.node("Multinomial", x)
    second = net.node("Bernoulli", net.input("m", (3, 3)))
    with pytest.raises(UnsupportedError) as caught:
        imported(net.model(first, second))
    assert {item.op for item in caught.value.items} == {"Multinomial", "Bernoulli"}


@pytest.mark.parametrize(
    ("op", "dtype", "reason"),
    [
        ("Gemm", TensorProto.INT8, "int8, for which ONNX does not define it"),
        ("Gemm", TensorProto.FLOAT, "float32 with int8, which ONNX does not define"),
        ("Add", TensorProto.FLOAT, "float32 with int8, which ONNX does not define"),
    ],
)
def test_element_types_beyond_onnx_are_reported(
    op: str, dtype: int, reason: str
) -> None:
    net = Net()
    operands = [net.weight(np.ones((3, 3), np.int8)), net.weight(np.ones(3, np.int32))]
    net.node(op, net.input("x", (3, 3), dtype), *operands[: 2 if op == "Gemm" else 1])
    graph = helper.make_graph(
        net.nodes,
        "net",
        net.inputs,
        [helper.make_empty_tensor_value_info(net.nodes[0].output[0])],
        net.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(UnsupportedError, match=reason):
        imported(model.SerializeToString())


def test_an_input_can_be_fixed_to_a_constant() -> None:
    net = Net()
    x, shape = net.input("x", (2, 3)), net.input("shape", (1,), 7)
    data = net.model(net.node("Reshape", x, shape))
    with pytest.raises(UnsupportedError, match="shapes that are not constant"):
        imported(data)
    module = imported(data, ModelOverrides(bindings={"shape": (6.0,)}))
    assert [value.type.shape for value in entry_of(module).results] == [(6,)]


def test_invalid_files_are_reported_as_broken() -> None:
    with pytest.raises(ModelError, match="the model is broken"):
        imported(b"\x08\x07 this is no protobuf message")


def test_importing_twice_gives_the_same_module() -> None:
    data = NETS["mobile"]()
    assert imported(data) == imported(data)


# ---- files beside the model, modules made of it --------------------------------------


def test_external_data_is_read_only_from_the_models_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = onnx.load_from_string(NETS["digits"]())
    onnx.save(
        model,
        tmp_path / "net.onnx",
        save_as_external_data=True,
        location="net.data",
        size_threshold=0,
    )
    loaded = load_model(tmp_path / "net.onnx")
    assert loaded.module.constants == imported(NETS["digits"]()).constants
    other = tmp_path / "other"
    other.mkdir()
    (other / "link.data").symlink_to(tmp_path / "net.data")
    os.mkfifo(other / "pipe.data")
    monkeypatch.chdir(tmp_path)  # onnx itself looks in the current directory
    for location in (
        "../net.data",
        "net.data",
        "link.data",
        "pipe.data",
        "/dev/zero",
        "..",
        "",
    ):
        outside = onnx.load(tmp_path / "net.onnx", load_external_data=False)
        for tensor in outside.graph.initializer:
            tensor.external_data[0].value = location
        inside = onnx.helper.make_node("Constant", [], ["unused"], value=tensor)
        branch = onnx.helper.make_graph([inside], "branch", [], [])
        alone = onnx.helper.make_node(
            "If", ["c"], ["d"], then_branch=branch, else_branch=branch
        )
        for refused in (
            outside,
            onnx.helper.make_model(onnx.helper.make_graph([alone], "g", [], [])),
        ):
            (other / "net.onnx").write_bytes(refused.SerializeToString())
            with pytest.raises(UsageError, match="are not in the model's folder"):
                load_model(other / "net.onnx")


def test_bytes_without_a_folder_have_no_external_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(
        onnx.load_from_string(NETS["digits"]()),
        tmp_path / "net.onnx",
        save_as_external_data=True,
        location="net.data",
        size_threshold=0,
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="are in another file"):
        import_onnx((tmp_path / "net.onnx").read_bytes(), "net.onnx", "net", op_table())


def test_a_module_records_its_model_file(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(NETS["digits"]())
    loaded = load_model(tmp_path / "net.onnx")
    save_module(loaded.module, tmp_path / "net.fwir")
    again = load_model(tmp_path / "net.fwir")
    assert again.source == loaded.source
    assert again.module == loaded.module


def test_a_model_of_an_older_opset_is_converted() -> None:
    net = Net(opset=9)
    x = net.input("x", (1, 4, 6))
    y = net.node("Squeeze", net.node("Softmax", x, axis=2), axes=[0])
    module = imported(net.model(y))
    assert [value.type.shape for value in entry_of(module).results] == [(4, 6)]
