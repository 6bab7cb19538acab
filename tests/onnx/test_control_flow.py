"""If and Loop with conditions known only at run time equal ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.errors import UnsupportedError
from firmwright.oracle.reference_runner import run_reference
from onnx import TensorProto, helper, numpy_helper
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import entry_of, imported, results

Array = NDArray[Any]
SHAPE = (2, 3)


def graph(name: str, nodes: list[Any], inputs: list[Any], outputs: list[str]) -> Any:
    infos = [helper.make_empty_tensor_value_info(output) for output in outputs]
    return helper.make_graph(nodes, name, inputs, infos)


def branch(op: str, shape: tuple[int, ...] = SHAPE) -> Any:
    """Apply `op` to the outer value x, and give the result the shape."""
    size = numpy_helper.from_array(np.array(shape, np.int64), "size")
    nodes = [
        helper.make_node("Constant", [], [f"{op}_size"], value=size),
        helper.make_node(op, ["x"], [f"{op}_y"]),
        helper.make_node("Reshape", [f"{op}_y", f"{op}_size"], [f"{op}_z"]),
    ]
    return graph(op, nodes, [], [f"{op}_z"])


def if_net(other: tuple[int, ...] = SHAPE) -> bytes:
    net = Net()
    x, level = net.input("x", SHAPE), net.input("level", ())
    condition = net.node("Greater", level, net.scalar(0.5))
    y = net.node(
        "If", condition, then_branch=branch("Sin"), else_branch=branch("Abs", other)
    )
    return net.model(net.node("Add", x, y))


def loop_net() -> bytes:
    """Double x until its largest element exceeds 20, at most six times."""
    body = [
        helper.make_node("Add", ["x_in", "x_in"], ["x_out"]),
        helper.make_node("ReduceMax", ["x_out"], ["top"], keepdims=0),
        helper.make_node("Less", ["top", "limit"], ["again"]),
    ]
    inputs = [
        helper.make_tensor_value_info("step", TensorProto.INT64, ()),
        helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
        helper.make_tensor_value_info("x_in", TensorProto.FLOAT, SHAPE),
    ]
    net = Net()
    x, go = net.input("x", SHAPE), net.input("go", (), TensorProto.BOOL)
    limit = numpy_helper.from_array(np.array(20, np.float32), "limit")
    net.weights.append(limit)
    trips = net.scalar(np.int64(6))
    loop = graph("body", body, inputs, ["again", "x_out"])
    return net.model(net.node("Loop", trips, go, x, body=loop))


def quantized_scan_net() -> bytes:
    """Apply a sigmoid between DequantizeLinear and QuantizeLinear to each row."""
    names = ["scale", "point"]
    body = [
        helper.make_node("DequantizeLinear", ["row", *names], ["real"]),
        helper.make_node("Sigmoid", ["real"], ["curved"]),
        helper.make_node("QuantizeLinear", ["curved", *names], ["whole"]),
        helper.make_node("DequantizeLinear", ["whole", *names], ["y"]),
    ]
    net = Net()
    x = net.input("x", SHAPE)
    for name, value in zip(names, (np.float32(1 / 64), np.int8(3)), strict=True):
        net.weights.append(numpy_helper.from_array(np.array(value), name))
    row = helper.make_tensor_value_info("row", TensorProto.INT8, SHAPE[1:])
    scan = graph("row", body, [row], ["y"])
    quantized = net.node("QuantizeLinear", x, *names)
    return net.model(net.node("Scan", quantized, body=scan, num_scan_inputs=1))


def compare(model: bytes, samples: list[dict[str, Array]]) -> None:
    module = imported(model)
    for sample, outputs in zip(
        samples, run_reference(model, samples, "onnxruntime").outputs, strict=True
    ):
        own = results(module, sample)
        for name, y in zip(own, outputs.values(), strict=True):
            np.testing.assert_allclose(own[name], y, rtol=1e-6)


def floats(scale: float) -> Array:
    return (
        np.random.Generator(np.random.PCG64(2))
        .normal(scale=scale, size=SHAPE)
        .astype(np.float32)
    )


def test_the_results_of_a_branch_are_selected_at_run_time() -> None:
    levels = (0.2, 0.7)
    compare(
        if_net(), [{"x": floats(1), "level": np.array(v, np.float32)} for v in levels]
    )


def net_with_a_length(*, inside: bool) -> bytes:
    """Count positive elements beside a branch, or in it."""
    net = Net()
    x, level = net.input("x", SHAPE), net.input("level", ())
    places = [helper.make_node("NonZero", ["x"], ["places"])]
    then = graph("places", places, [], ["places"]) if inside else branch("Sin")
    condition = net.node("Greater", level, net.scalar(0.5))
    y = net.node("If", condition, then_branch=then, else_branch=branch("Abs"))
    return net.model(y, net.node("NonZero", net.node("Relu", x)))


def test_a_branch_may_be_beside_lengths_that_depend_on_the_data() -> None:
    module = imported(net_with_a_length(inside=False))
    sample = {"x": floats(1), "level": np.array(0.7, np.float32)}
    y, places, count = results(module, sample).values()
    np.testing.assert_allclose(y, np.sin(sample["x"]), rtol=1e-6)
    wanted = np.array(np.nonzero(np.maximum(sample["x"], 0)))
    np.testing.assert_array_equal(places[:, : int(count)], wanted)


def test_a_result_of_a_branch_has_a_known_length() -> None:
    with pytest.raises(UnsupportedError, match="results' length depends on the data"):
        imported(net_with_a_length(inside=True))


def test_branches_with_results_of_different_shapes_are_refused() -> None:
    with pytest.raises(
        UnsupportedError, match="shapes or types depend on a run-time condition"
    ):
        imported(if_net((3, 2)))


def test_a_loop_ends_by_a_condition_at_run_time() -> None:
    scales = (0.01, 1, 5, 100)
    samples = [{"x": floats(scale), "go": np.array(True)} for scale in scales]
    compare(loop_net(), [*samples, {"x": floats(1), "go": np.array(False)}])


def test_quantized_operators_of_a_scan_are_integers() -> None:
    model = quantized_scan_net()
    ops = [call.op for call in imported(model).entry.body]
    assert ops.count("byte_table") == SHAPE[0]
    assert ops.count("expression") == 1
    draw = np.random.Generator(np.random.PCG64(1))
    compare(
        model, [{"x": draw.uniform(-3, 3, SHAPE).astype(np.float32)} for _ in range(4)]
    )


def test_a_longer_scan_needs_a_higher_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "a"], ["t"]),
            helper.make_node("Identity", ["t"], ["u"]),
        ],
        "body",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])
            for name in ("s", "a")
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])
            for name in ("t", "u")
        ],
    )
    start = net.weight(np.zeros(2, np.float32))
    attrs = {"body": body, "num_scan_inputs": 1}
    last, _ = net.node("Scan", start, net.input("x", (300, 2)), outputs=2, **attrs)
    model = net.model(last)
    with pytest.raises(
        UnsupportedError, match=r"300 iterations, more than 256 \(--limit-factor"
    ):
        imported(model)
    monkeypatch.setenv("FIRMWRIGHT_LIMIT_FACTOR", "2")
    x = np.random.default_rng(2).normal(size=(300, 2)).astype(np.float32)
    (own,) = results(imported(model), {"x": x}).values()
    np.testing.assert_allclose(own, x.sum(axis=0), atol=1e-3)


def distances_net(
    nodes: list[tuple[Any, ...]], shape: tuple[int, ...] = (300, 3)
) -> bytes:
    """Scan rows, 300 of them by default, each with the sample x as the state."""
    body = [helper.make_node("Identity", ["s"], ["s_out"])]
    for op, inputs, output, attrs in nodes:
        body.append(helper.make_node(op, inputs, [output], **attrs))
    net = Net()
    rows = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    infos = [
        helper.make_tensor_value_info("s", TensorProto.FLOAT, [1, 3]),
        helper.make_tensor_value_info("row", TensorProto.FLOAT, shape[1:]),
    ]
    axis = numpy_helper.from_array(np.array([1], np.int64), "axis")
    ends = [helper.make_empty_tensor_value_info(name) for name in ("s_out", "distance")]
    scan = helper.make_graph(body, "row", infos, ends, [axis])
    sample, rows_name = net.input("x", (1, 3)), net.weight(rows)
    attrs = {"body": scan, "num_scan_inputs": 1}
    _, distances = net.node("Scan", sample, rows_name, outputs=2, **attrs)
    return net.model(net.node("Sqrt", distances))


SUBTRACT = ("Sub", ["s", "row"], "far", {})
METRICS = {
    "euclidean": (
        SUBTRACT,
        ("ReduceSumSquare", ["far"], "distance", {"axes": [1], "keepdims": 0}),
    ),
    "manhattan": (
        SUBTRACT,
        ("Abs", ["far"], "size", {}),
        ("ReduceSum", ["size", "axis"], "distance", {"keepdims": 1}),
    ),
}


@pytest.mark.parametrize("metric", METRICS)
def test_a_scan_of_independent_rows_is_a_few_calls(metric: str) -> None:
    data = distances_net(list(METRICS[metric]))
    assert len(entry_of(imported(data)).body) < 8
    compare(data, [{"x": floats(1)[:1]}])


@pytest.mark.parametrize(
    "last",
    [
        ("ReduceSum", ["far"], "distance", {}),
        ("ReduceMax", ["far"], "distance", {"axes": [0]}),
        ("Softmax", ["far"], "distance", {"axis": 0}),
        ("Abs", ["s"], "distance", {}),
    ],
)
def test_a_scan_whose_rows_may_mix_is_unrolled(last: tuple[Any, ...]) -> None:
    with pytest.raises(UnsupportedError, match="a scan of 300 iterations"):
        imported(distances_net([SUBTRACT, last]))


REDUCE = ("ReduceSum", ["far", "axis"], "distance", {"keepdims": 0})


@pytest.mark.parametrize(
    ("shape", "nodes"),
    [
        (
            (3, 3),
            [
                SUBTRACT,
                ("ReduceSum", ["far", "axis"], "total", {"keepdims": 0}),
                ("Sub", ["far", "total"], "distance", {}),
            ],
        ),
        ((3,), [SUBTRACT, REDUCE]),
        ((3, 1, 3), [SUBTRACT, REDUCE]),
        ((3, 1, 3), [("ReduceSum", ["row", "axis"], "distance", {"keepdims": 1})]),
    ],
    ids=["reduced rank", "scalar rows", "rows of rank 2", "reduced rows"],
)
def test_rows_whose_axis_would_move_are_scanned_one_by_one(
    shape: tuple[int, ...], nodes: list[tuple[Any, ...]]
) -> None:
    compare(distances_net(nodes, shape), [{"x": floats(1)[:1]}])


def test_a_scan_with_a_malformed_body_is_unsupported() -> None:
    node = ("ReduceSum", ["row", "axis"], "distance", {"keepdims": 1})
    with pytest.raises(UnsupportedError, match="its body is not supported"):
        imported(distances_net([node], (3,)))
