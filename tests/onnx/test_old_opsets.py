"""Models of opsets 7 to 12 equal ONNX Runtime on the same file or are refused."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX needs the package onnx")
pytest.importorskip("onnxruntime", reason="the expected values come from ONNX Runtime")

import onnxruntime

import onnx
from firmwright.base.errors import UnsupportedError
from firmwright.flows.model.model import load_model
from firmwright.frontends.onnx import ModelOverrides
from firmwright.oracle.reference_runner import run_reference
from onnx import TensorProto, helper
from tests.onnx.onnx_models import Array, Net
from tests.onnx.test_nets import imported, results

CUBE = (2, 3, 4)
IMAGE = (1, 3, 6, 5)
OPSETS = range(7, 13)


@dataclass(frozen=True, slots=True)
class OldNode:
    """A node of an older opset with a graph input of `shape` and constants."""

    op: str
    shape: tuple[int, ...] = CUBE
    constants: tuple[Any, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)
    opsets: range = OPSETS
    outputs: int = 1


def _floats(*shape: int) -> Any:
    return np.random.Generator(np.random.PCG64(1)).normal(size=shape).astype(np.float32)


def _ints(*values: Any) -> Any:
    return np.array(values, np.int64)


def _unary() -> Iterator[OldNode]:
    for op in ("Hardmax", "LogSoftmax", "Softmax"):
        yield OldNode(op)
        for axis in (0, 1, 2):
            yield OldNode(op, attrs={"axis": axis})
        yield OldNode(op, attrs={"axis": -2}, opsets=range(11, 13))
    for op in (
        "Abs",
        "Ceil",
        "Elu",
        "Exp",
        "Floor",
        "HardSigmoid",
        "Identity",
        "LeakyRelu",
        "Neg",
        "Relu",
        "Selu",
        "Sigmoid",
        "Softplus",
        "Softsign",
        "Tanh",
    ):
        yield OldNode(op)
    for op in (
        "Acosh",
        "Asinh",
        "Atan",
        "Atanh",
        "Cos",
        "Cosh",
        "Erf",
        "Shrink",
        "Sign",
        "Sin",
        "Sinh",
    ):
        yield OldNode(op, opsets=range(9, 13))
    yield OldNode("ThresholdedRelu", opsets=range(10, 13))
    yield OldNode("Celu", opsets=range(12, 13))
    yield OldNode("Round", opsets=range(11, 13))
    for limits in ({"min": -0.5}, {"max": 0.5}, {"min": -0.5, "max": 0.25}, {}):
        yield OldNode("Clip", attrs=limits, opsets=range(7, 11))
    yield OldNode("Clip", constants=(np.float32(-0.5),), opsets=range(11, 13))
    yield OldNode("Dropout")
    yield OldNode("Dropout", attrs={"ratio": 0.3}, opsets=range(7, 12))
    yield OldNode("Cast", attrs={"to": 6})
    yield OldNode("Flatten", attrs={"axis": 2})
    yield OldNode("Flatten", attrs={"axis": -1}, opsets=range(11, 13))
    yield OldNode("Transpose", attrs={"perm": [2, 0, 1]})
    yield OldNode("Shape")


def _binary() -> Iterator[OldNode]:
    for op in ("Add", "Sub", "Mul", "Div", "PRelu", "Equal", "Greater", "Less"):
        if op != "Equal":
            yield OldNode(op, constants=(_floats(4),))
        else:
            yield OldNode(op, constants=(_floats(4),), opsets=range(11, 13))
    for op in ("Max", "Min", "Mean", "Sum"):
        yield OldNode(op, constants=(_floats(2, 3, 4), _floats(2, 3, 4)))
        yield OldNode(op, constants=(_floats(3, 1),), opsets=range(8, 13))
    yield OldNode("Pow", constants=(np.float32(2.0),))
    yield OldNode(
        "Mod", constants=(_floats(4),), attrs={"fmod": 1}, opsets=range(10, 13)
    )
    yield OldNode("MatMul", constants=(_floats(4, 5),))
    yield OldNode("Gemm", (3, 4), (_floats(5, 4), _floats(5)), {"transB": 1})
    yield OldNode(
        "Gemm", (3, 4), (_floats(4, 5), _floats(3, 1)), {"alpha": 0.5, "beta": 2.0}
    )
    yield OldNode("Gemm", (3, 4), (_floats(4, 5),), opsets=range(11, 13))


def _reductions() -> Iterator[OldNode]:
    for op in (
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
    ):
        yield OldNode(op)
        yield OldNode(op, attrs={"axes": [1], "keepdims": 0})
        yield OldNode(op, attrs={"axes": [0, -1]}, opsets=range(11, 13))
    for op in ("ArgMax", "ArgMin"):
        yield OldNode(op)
        yield OldNode(op, attrs={"axis": 2, "keepdims": 0})
        yield OldNode(
            op, attrs={"axis": 1, "select_last_index": 1}, opsets=range(12, 13)
        )
    yield OldNode("TopK", attrs={"k": 2, "axis": 1}, opsets=range(7, 10), outputs=2)
    yield OldNode("TopK", constants=(_ints(2),), opsets=range(10, 13), outputs=2)
    least = {"largest": 0, "axis": 1}
    yield OldNode(
        "TopK", constants=(_ints(2),), attrs=least, opsets=range(11, 13), outputs=2
    )
    yield OldNode("CumSum", constants=(_ints(1)[0],), opsets=range(11, 13))


def _movement() -> Iterator[OldNode]:
    yield OldNode("Squeeze", (1, 3, 1, 4), attrs={"axes": [0]})
    yield OldNode("Squeeze", (1, 3, 1, 4))
    yield OldNode("Squeeze", (1, 3, 1, 4), attrs={"axes": [-2]}, opsets=range(11, 13))
    yield OldNode("Unsqueeze", attrs={"axes": [0, 2]})
    yield OldNode("Unsqueeze", attrs={"axes": [-1]}, opsets=range(11, 13))
    yield OldNode("Split", (2, 6), attrs={"axis": 1}, outputs=3)
    yield OldNode("Split", (2, 6), attrs={"axis": 1, "split": [2, 4]}, outputs=2)
    yield OldNode("Split", (2, 6), attrs={"axis": -1}, opsets=range(11, 13), outputs=2)
    yield OldNode(
        "Slice",
        attrs={"starts": [1, -3], "ends": [9, -1], "axes": [1, 2]},
        opsets=range(7, 10),
    )
    yield OldNode(
        "Slice", attrs={"starts": [0, 1], "ends": [1, 3]}, opsets=range(7, 10)
    )
    steps = (_ints(3), _ints(0), _ints(2), _ints(-2))
    yield OldNode("Slice", constants=steps, opsets=range(10, 13))
    yield OldNode("Concat", constants=(_floats(2, 3, 4),), attrs={"axis": 1})
    yield OldNode("Reshape", constants=(_ints(0, -1),))
    yield OldNode("Expand", (3, 1), (_ints(2, 1, 4),), opsets=range(8, 13))
    yield OldNode("Tile", constants=(_ints(1, 2, 3),))
    yield OldNode("Gather", constants=(_ints(0, 2),), attrs={"axis": 1})
    yield OldNode(
        "Gather", constants=(_ints(-1, 0),), attrs={"axis": 1}, opsets=range(11, 13)
    )
    places = (_ints([0, 1, 1, 0]).reshape(1, 1, 4), _floats(1, 1, 4))
    yield OldNode("Scatter", constants=places, attrs={"axis": 1}, opsets=range(9, 11))
    yield OldNode(
        "ScatterElements", constants=places, attrs={"axis": 1}, opsets=range(11, 13)
    )
    yield OldNode(
        "GatherElements", constants=places[:1], attrs={"axis": 1}, opsets=range(11, 13)
    )
    yield OldNode("GatherND", constants=(_ints([0, 1], [1, 2]),), opsets=range(11, 13))
    whole = {"pads": [0, 1, 0, 0, 2, 1], "mode": "constant", "value": 1.5}
    yield OldNode("Pad", attrs=whole, opsets=range(7, 11))
    yield OldNode("Pad", attrs={"pads": [0, 1, 0, 0, 2, 1]}, opsets=range(7, 11))
    for mode in ("edge", "reflect"):
        yield OldNode(
            "Pad", attrs={"pads": [0, 1, 0, 0, 2, 1], "mode": mode}, opsets=range(7, 11)
        )
        pads = (_ints(0, 1, 0, 0, 2, 1),)
        yield OldNode("Pad", constants=pads, attrs={"mode": mode}, opsets=range(11, 13))
    yield OldNode("DepthToSpace", (1, 8, 2, 3), attrs={"blocksize": 2})
    crd = {"blocksize": 2, "mode": "CRD"}
    yield OldNode("DepthToSpace", (1, 8, 2, 3), attrs=crd, opsets=range(11, 13))
    yield OldNode("SpaceToDepth", (1, 2, 4, 6), attrs={"blocksize": 2})
    yield OldNode(
        "Compress",
        constants=(np.array([True, False, True]),),
        attrs={"axis": 1},
        opsets=range(9, 13),
    )
    updates = (_ints([0, 1], [1, 0]), _floats(2, 4))
    yield OldNode("ScatterND", constants=updates, opsets=range(11, 13))
    reverse = {"batch_axis": 1, "time_axis": 0}
    yield OldNode("ReverseSequence", (4, 3), (_ints(2, 4, 1),), reverse, range(10, 13))
    yield OldNode("EyeLike", (3, 4), opsets=range(9, 13))


def _layers() -> Iterator[OldNode]:
    kernel = _floats(4, 3, 3, 2)
    yield OldNode(
        "Conv", IMAGE, (kernel, _floats(4)), {"pads": [1, 0, 2, 1], "strides": [2, 1]}
    )
    for place in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        yield OldNode("Conv", IMAGE, (kernel,), {"auto_pad": place})
        square = {"kernel_shape": [2, 2], "auto_pad": place}
        yield OldNode("MaxPool", IMAGE, attrs=square)
        yield OldNode("AveragePool", IMAGE, attrs=square)
        inverse = {"auto_pad": place, "strides": [2, 2]}
        yield OldNode("ConvTranspose", IMAGE, (_floats(3, 4, 3, 3),), inverse)
    size = {"output_shape": [12, 10], "strides": [2, 2]}
    yield OldNode("ConvTranspose", IMAGE, (_floats(3, 4, 3, 3),), size)
    window = {"kernel_shape": [3, 2], "strides": [2, 2]}
    for op in ("AveragePool", "LpPool", "MaxPool"):
        yield OldNode(op, IMAGE, attrs=window)
        yield OldNode(op, IMAGE, attrs={**window, "pads": [1, 0, 1, 1]})
    padded = {**window, "pads": [1, 0, 1, 1], "count_include_pad": 1}
    yield OldNode("AveragePool", IMAGE, attrs=padded)
    for op in ("AveragePool", "MaxPool"):
        yield OldNode(op, IMAGE, attrs={**window, "ceil_mode": 1}, opsets=range(10, 13))
    for op in ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"):
        yield OldNode(op, IMAGE)
    single = tuple(np.abs(_floats(3, 6, 5)) + k for k in range(4))
    yield OldNode("BatchNormalization", IMAGE, single, {"spatial": 0}, range(7, 9))
    vectors = tuple(np.abs(_floats(3)) + k for k in range(4))
    yield OldNode("BatchNormalization", IMAGE, vectors)
    yield OldNode("BatchNormalization", IMAGE, vectors, {"spatial": 1}, range(7, 9))
    yield OldNode("InstanceNormalization", IMAGE, vectors[:2])
    yield OldNode("LRN", IMAGE, attrs={"size": 3})
    yield OldNode("LpNormalization", attrs={"axis": 1})
    yield OldNode("MeanVarianceNormalization", IMAGE, opsets=range(9, 13))
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        weights = (
            _floats(1, gates * 5, 4),
            _floats(1, gates * 5, 5),
            _floats(1, gates * 10),
        )
        yield OldNode(op, constants=weights, attrs={"hidden_size": 5}, outputs=2)
    for scales in ([1, 1, 2, 2], [1, 1, 2, 3], [1, 1, 1.5, 2.5]):
        for mode in ("nearest", "linear"):
            attrs = {"mode": mode}
            factors = np.array(scales, np.float32)
            own = {**attrs, "scales": [float(x) for x in scales]}
            yield OldNode("Upsample", IMAGE, attrs=own, opsets=range(7, 9))
            yield OldNode("Upsample", IMAGE, (factors,), attrs, range(9, 10))
            yield OldNode("Resize", IMAGE, (factors,), attrs, range(10, 11))
    for scales in ([1, 1, 0.5, 0.6], [1, 1, 1, 0.7], [1, 1, 0.5, 2]):
        for mode in ("nearest", "linear"):
            factors = np.array(scales, np.float32)
            yield OldNode("Resize", IMAGE, (factors,), {"mode": mode}, range(10, 11))
    for mode in ("nearest", "linear", "cubic"):
        factors = (_floats(0), np.array([1, 1, 2, 1.6], np.float32))
        yield OldNode("Resize", IMAGE, factors, {"mode": mode}, range(11, 13))


def _scan_body() -> Any:
    row = [helper.make_tensor_value_info("row", TensorProto.FLOAT, [3])]
    same = [helper.make_tensor_value_info("same", TensorProto.FLOAT, [3])]
    return helper.make_graph(
        [helper.make_node("Identity", ["row"], ["same"])], "body", row, same
    )


SCAN = OldNode(
    "Scan",
    (3, 2, 3),
    attrs={"body": _scan_body(), "num_scan_inputs": 1},
    opsets=range(8, 9),
)
NODES = [*_unary(), *_binary(), *_reductions(), *_movement(), *_layers(), SCAN]
REFUSED = [
    OldNode("Add", constants=(_floats(2, 3, 4),), opsets=range(1, 7)),
    OldNode("Relu", opsets=range(1, 6)),
]
OLDEST = [
    *(OldNode(op, opsets=range(6, 7)) for op in ("LeakyRelu", "Relu", "Sigmoid")),
    OldNode("Softmax", opsets=range(1, 7)),
    OldNode("Transpose", attrs={"perm": [2, 0, 1]}, opsets=range(1, 7)),
    OldNode("Squeeze", (1, 3, 1, 4), attrs={"axes": [0]}, opsets=range(1, 7)),
    OldNode("Conv", IMAGE, (_floats(4, 3, 3, 2),), opsets=range(1, 7)),
]
"""Operators of opsets before 7 that opset 7 has unchanged."""


def _model(node: OldNode, opset: int) -> tuple[bytes, Array]:
    net = Net(opset=opset)
    x = net.input("x", node.shape)
    weights = [net.weight(np.asarray(array)) for array in node.constants]
    # The first input of the Scan of opset 8 is optional: the lengths of sequences.
    operands = ["", x] if node.op == "Scan" else [x, *weights]
    names = net.node(node.op, *operands, outputs=node.outputs, **node.attrs)
    outputs = names if node.outputs > 1 else [names]
    return net.model(*outputs), _floats(*node.shape)


def _expected(data: bytes, x: Array) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        data, options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(value) for value in session.run(None, {"x": x})]


def _check(node: OldNode, opset: int) -> None:
    data, x = _model(node, opset)
    expected, got = _expected(data, x), results(imported(data), {"x": x})
    for want, have in zip(expected, got.values(), strict=True):
        np.testing.assert_allclose(
            have, want, rtol=1e-5, atol=1e-6, err_msg=f"opset {opset}"
        )


@pytest.mark.deep
@pytest.mark.parametrize("node", NODES, ids=lambda node: node.op)
def test_a_node_of_any_older_opset_equals_onnx_runtime(node: OldNode) -> None:
    for opset in node.opsets:
        _check(node, opset)


@pytest.mark.parametrize("node", NODES[::12], ids=lambda node: node.op)
def test_a_node_of_an_older_opset_equals_onnx_runtime(node: OldNode) -> None:
    _check(node, node.opsets[0])


@pytest.mark.parametrize("opset", OPSETS)
def test_an_old_hardmax_takes_the_maximum_of_whole_blocks(opset: int) -> None:
    for axis in (0, 1, 2):
        _check(OldNode("Hardmax", attrs={"axis": axis}), opset)


@pytest.mark.parametrize("node", OLDEST, ids=lambda node: node.op)
def test_an_operator_that_opset_7_did_not_change_is_converted(node: OldNode) -> None:
    for opset in node.opsets:
        _check(node, opset)


@pytest.mark.parametrize("node", REFUSED, ids=lambda node: node.op)
def test_a_node_without_an_equivalent_is_refused(node: OldNode) -> None:
    for opset in node.opsets:
        with pytest.raises(UnsupportedError, match=f"opset {opset}"):
            imported(_model(node, opset)[0])


def test_the_reference_runs_the_file_itself(tmp_path: Path) -> None:
    data, x = _model(OldNode("Hardmax"), 11)
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    model = load_model(path)
    assert model.source == data
    (reference,) = run_reference(model.source, [{"x": x}], "onnxruntime").outputs
    (ones,) = reference.values()
    assert ones.sum() == 2  # one in each block of 3 by 4
    np.testing.assert_array_equal(ones, *_expected(data, x))


def test_an_input_of_the_oldest_format_may_be_fixed() -> None:
    node = OldNode("Add", constants=(_floats(4),))
    data, x = _model(node, 8)
    old = onnx.ModelProto.FromString(data)
    old.ir_version = 3  # an initializer is an input, too
    del old.graph.initializer[:]
    old.graph.input.append(helper.make_tensor_value_info("w0", TensorProto.FLOAT, [4]))
    given = ModelOverrides(bindings={"w0": _floats(4)})
    got = results(imported(old.SerializeToString(), given), {"x": x})
    for want, have in zip(_expected(data, x), got.values(), strict=True):
        np.testing.assert_array_equal(have, want)


def test_old_nodes_beside_operators_of_onnx_ml_equal_onnx_runtime() -> None:
    net = Net(opset=9)
    x = net.input("x", (3, 4))
    total = net.node("ReduceSum", x, axes=[1], keepdims=1)
    shares = net.node("Softmax", net.node("Div", x, total))
    scaled = net.node("Scaler", shares, domain="ai.onnx.ml", offset=[0.1], scale=[2.0])
    data, sample = net.model(net.node("Squeeze", scaled)), _floats(3, 4)
    (got,) = results(imported(data), {"x": sample}).values()
    np.testing.assert_allclose(got, *_expected(data, sample), rtol=1e-5, atol=1e-6)


def test_the_body_of_a_function_has_its_own_opset() -> None:
    body = helper.make_function(
        "model",
        "Shares",
        ["a"],
        ["b"],
        [helper.make_node("Softmax", ["a"], ["b"])],
        [helper.make_opsetid("", 11)],
    )
    net = Net(opset=17)
    y = net.node("Shares", net.input("x", CUBE), domain="model")
    model = onnx.ModelProto.FromString(net.model(y))
    model.functions.append(body)
    (got,) = results(
        imported(model.SerializeToString()), {"x": _floats(*CUBE)}
    ).values()
    want, *_ = _expected(*_model(OldNode("Softmax"), 11))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("taken", ["shape", "matrix"])
def test_names_of_a_file_may_be_those_of_rewritten_nodes(taken: str) -> None:
    net = Net(opset=11)
    x = net.input("x", CUBE)
    y = net.node("Softmax", x)
    other = f"{y}/{taken}"
    net.nodes.append(helper.make_node("Relu", [x], [other]))
    data, sample = net.model(net.node("Add", y, other)), _floats(*CUBE)
    (got,) = results(imported(data), {"x": sample}).values()
    np.testing.assert_allclose(got, *_expected(data, sample), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [7, 10])
def test_the_mask_of_an_old_dropout_equals_onnx_runtime(opset: int) -> None:
    net = Net(opset=opset)
    data = net.model(*net.node("Dropout", net.input("x", CUBE), outputs=2))
    sample = _floats(*CUBE)
    got = results(imported(data), {"x": sample}).values()
    for have, want in zip(got, _expected(data, sample), strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize(
    ("op", "opset", "attrs"),
    [
        ("Softmax", 11, {"axis": 5}),
        ("Upsample", 8, {"scales": [1.0, 2.0]}),
        ("Upsample", 8, {"scales": [1.0, 1.0, float("inf")]}),
        ("Upsample", 8, {"scales": [1.0, 1.0, 1e9]}),
    ],
)
def test_a_node_with_impossible_attributes_is_refused(
    op: str, opset: int, attrs: dict[str, Any]
) -> None:
    net = Net(opset=opset)
    x = net.input("x", CUBE)
    node = helper.make_node(op, [x], ["y"], **attrs)
    infos = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph([node], "net", net.inputs, infos)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    with pytest.raises(UnsupportedError):
        imported(model.SerializeToString())


def test_a_scan_of_too_many_samples_is_refused() -> None:
    net, node = Net(opset=8), SCAN
    x = net.input("x", (257, 2, 3))
    y = net.node("Scan", "", x, **node.attrs)
    with pytest.raises(UnsupportedError, match="257 samples, not 1 to 256"):
        imported(net.model(y))
