"""Small ONNX files that would take time or memory without bound end in a message."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from firmwright.base import resource_limits
from firmwright.base.errors import NotSupportedError, UnsupportedError
from firmwright.frontends.onnx import constant_folding, import_onnx
from firmwright.frontends.onnx.importer import _OnnxImporter
from firmwright.frontends.onnx.node_context import CallEmitter
from firmwright.frontends.onnx.reader import read_onnx
from firmwright.frontends.onnx.value_table import ValueTable
from firmwright.ops.registry import op_table
from onnx import TensorProto, helper

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
MEMORY_MAX = 200 << 20


def message(
    nodes: Sequence[Any], constants: dict[str, Any], functions: Sequence[Any] = ()
) -> str:
    """Return the error of a model that adds the last result to its input."""
    nodes = [
        *nodes,
        helper.make_node("ReduceSum", [nodes[-1].output[0]], ["sum"], keepdims=0),
    ]
    nodes.append(helper.make_node("Cast", ["sum"], ["real"], to=TensorProto.FLOAT))
    nodes.append(helper.make_node("Add", ["x", "real"], ["y"]))
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"
    )
    tensors = [helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])]
    for name, value in constants.items():
        shape = [len(value)] if isinstance(value, list) else []
        tensors.append(
            helper.make_tensor(
                name, TensorProto.INT64, shape, value if shape else [value]
            )
        )
    graph = helper.make_graph(nodes, "small", [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=OPSETS, functions=functions)
    data = model.SerializeToString()
    assert len(data) < 20_000
    tracemalloc.start()
    with pytest.raises(UnsupportedError) as caught:
        import_onnx(data, "small.onnx", "small", op_table())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY_MAX
    return str(caught.value)


def node(op: str, *inputs: str, result: str = "big", **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), [result], **attributes)


@pytest.mark.parametrize(
    ("made", "constants"),
    [
        (node("ConstantOfShape", "n"), {"n": [100_000, 100_000, 1000]}),
        (node("Range", "a", "b", "c"), {"a": 0, "b": 10**13, "c": 1}),
        (node("Tile", "one", "n"), {"n": [10**12]}),
        (node("Expand", "one", "n"), {"n": [10**6, 10**6]}),
        (node("OneHot", "i", "n", "v"), {"i": [1] * 1000, "n": 10**10, "v": [0, 1]}),
        (node("HannWindow", "n"), {"n": 10**11}),
        (node("Pad", "one", "n"), {"n": [10**12, 0]}),
    ],
    ids=lambda made: getattr(made, "op_type", ""),
)
def test_a_constant_is_limited_before_it_is_computed(
    made: Any, constants: dict[str, Any]
) -> None:
    assert "its constant result has " in message([made], constants)


def test_constants_that_double_are_limited_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constant_folding, "CONSTANT_ELEMENTS_MAX", 1 << 20)
    names = ["one", *(f"c{i}" for i in range(40))]
    doubled = [
        node("Concat", before, before, result=after, axis=0)
        for before, after in pairwise(names)
    ]
    assert "(c19): its constant result has 1,048,576 elements" in message(doubled, {})


def function(name: str, *nodes: Any) -> Any:
    return helper.make_function("f", name, ["a"], ["b"], list(nodes), OPSETS)


def test_functions_that_call_themselves_are_refused() -> None:
    again = function("Again", node("Again", "a", result="b", domain="f"))
    assert "64 levels" in message([node("Again", "x", domain="f")], {}, [again])


def test_functions_that_double_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_limits, "EXPANDED_CALLS_MAX", 100)
    functions = [function("F0", node("Relu", "a", result="b"))]
    for i in range(40):
        call = f"F{i}"
        functions.append(
            function(
                f"F{i + 1}",
                node(call, "a", result="t", domain="f"),
                node(call, "t", result="b", domain="f"),
            )
        )
    assert "more than 100 operators" in message(
        [node("F40", "x", domain="f")], {}, functions
    )


def test_a_regular_expression_is_not_evaluated() -> None:
    slow = helper.make_tensor("text", TensorProto.STRING, [1], [b"a" * 60 + b"!"])
    text = node("Constant", result="text", value=slow)
    match = node("RegexFullMatch", "text", pattern="(a+)+$")
    assert "RegexFullMatch" in message([text, match], {})


def test_loops_inside_one_another_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_limits, "EXPANDED_CALLS_MAX", 100)
    values = [helper.make_tensor_value_info("i", TensorProto.INT64, [])]
    values += [
        helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("c", "d")
    ]
    values += [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])
        for name in ("a", "b")
    ]
    i, c, d, a, b = values
    inner = node("Relu", "a", result="b")
    for _ in range(3):
        going = node("Identity", "c", result="d")
        body = helper.make_graph([inner, going], "body", [i, c, a], [d, b])
        inner = node("Loop", "n", "", "a", result="b", body=body)
    inner.input[2], inner.output[0] = "x", "big"
    assert "loops that expand to more than 100 operators" in message(
        [inner], {"n": 100}
    )


def test_a_body_that_is_too_large_leaves_the_names_of_the_graph_around_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource_limits, "EXPANDED_CALLS_MAX", 1)
    x, y, b = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xyb"
    )
    outer = helper.make_graph([node("Relu", "x", result="y")], "outer", [x], [y])
    hidden = helper.make_tensor("hidden", TensorProto.FLOAT, [1], [1.0])
    twice = [node("Relu", "hidden", result="a"), node("Relu", "a", result="b")]
    body = helper.make_graph(twice, "body", [], [b], [hidden])
    model = helper.make_model(outer, opset_imports=OPSETS[:1])
    emitter = CallEmitter(op_table())
    values = ValueTable(emitter)
    graph = read_onnx(model.SerializeToString(), "outer.onnx")
    importer = _OnnxImporter(graph, emitter, values)
    importer.run()
    tensors, readers = values.tensors, values.readers
    with pytest.raises(NotSupportedError, match="more than 1 operators"):
        importer._import_subgraph(body, {})
    assert values.tensors is tensors
    assert values.readers is readers
    assert "hidden" not in values.tensors
