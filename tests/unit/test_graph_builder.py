"""Networks written by hand: they are checked as written, and the result is a model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from firmwright.base.errors import UsageError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.verify.verification import verify
from firmwright.graph_builder import GraphBuilder
from firmwright.ir.graph.nodes import Function, Value
from firmwright.pipeline import load_module_bytes


def gate() -> tuple[GraphBuilder, Value]:
    graph = GraphBuilder("gate")
    return graph, graph.input("x", (1, 8), scale=0.5, zero_point=3)


@pytest.mark.host_c
def test_a_network_with_state_and_parts_is_a_model_like_any_other() -> None:
    graph, x = gate()
    before = graph.state("before", np.full((1, 8), 3, np.int8), scale=0.5, zero_point=3)
    total = graph.call("add", x, before, scale=0.5, zero_point=3, activation="relu")
    graph.set_next_state(before, total)
    first, last = graph.calls(
        "split", total, results=("first", "last"), axis=1, sizes=(4, 4)
    )
    model = graph.model(first, last)
    entry = model.module.entry
    assert isinstance(entry, Function)
    assert [value.name for value in entry.results] == ["first", "last"]
    assert [value.type.shape for value in entry.results] == [(1, 4), (1, 4)]
    found = verify(compile_for(model, "host"), samples=3)
    assert found.exact
    assert found.values == 3 * 8


REPEATED = """\
firmwright ir 2
module @gate
attrs {entry="main"}
const @limit = f32[1] [0.5]
graph @main(%x: f32[1,8]) -> (%y, %y, %x, %limit) {
  %y: f32[1,8] = relu(%x)
  %limit = const @limit: f32[1]
}
"""


def test_a_result_that_is_not_its_own_tensor_is_copied() -> None:
    graph = GraphBuilder("gate")
    x = graph.input("x", (1, 8), "float32")
    limit = graph.constant(np.array([0.5], np.float32), name="limit")
    y = graph.call("relu", x, name="y")
    built = graph.model(y, y, x, limit).module
    for module in (built, load_module_bytes(REPEATED.encode(), "gate.fwir")):
        names = [value.name for value in module.entry_graph.results]
        assert names == ["y", "y/copy", "x/copy", "limit/copy"]


@pytest.mark.host_c
def test_copied_results_have_the_values_of_the_others() -> None:
    model = Model(load_module_bytes(REPEATED.encode(), "gate.fwir"))
    with open_session(compile_for(model, "host")) as session:
        x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)
        first, again, same, limit = session.run_all([{"x": x}])[0].values()
    np.testing.assert_array_equal(first, np.maximum(x, 0))
    np.testing.assert_array_equal(again, first)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(limit, [0.5])


def test_a_result_has_the_type_that_the_operator_infers() -> None:
    graph, x = gate()
    flat = graph.call("reshape", x, shape=(2, 4))
    assert flat.type.shape == (2, 4)
    assert flat.type.quantization == x.type.quantization
    reals = graph.call("dequantize", x, dtype="float32", name="reals")
    assert (reals.name, reals.type.dtype.name) == ("reals", "float32")
    channels = graph.constant(np.zeros((4, 1, 1, 2), np.int8), scale=[0.1] * 4, axis=0)
    assert channels.type.quantization is not None
    assert channels.type.quantization.scales == (float(np.float32(0.1)),) * 4


def test_an_attribute_that_is_called_shape_is_one() -> None:
    graph, x = gate()
    wide = graph.call("broadcast_to", x, shape=(3, 8))
    assert wide.type.shape == (3, 8)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda g, x: g.call("softmux", x), "no operator 'softmux'.*softmax"),
        (
            lambda g, x: g.call("split", x, axis=1),
            "the attribute sizes of split is missing",
        ),
        (
            lambda g, x: g.call("reshape", x, shape=(3,)),
            "reshape does not support this call: 8 elements",
        ),
        (lambda g, x: g.call("relu", None), "without an input"),
        (
            lambda g, x: g.call("split", x, axis=1, sizes=(4, 4)),
            "split does not .* 1 outputs, expected 2",
        ),
        (
            lambda g, x: g.call("softmax", x, scale=1 / 256, zero_point=-128, beta="1"),
            "the attribute beta of softmax is '1', expected a number",
        ),
        (lambda g, x: g.input("x", (1,)), "two tensors are called 'x'"),
        (lambda g, x: g.input("y", (1,), "int7"), "no element type 'int7'.*int8"),
        (lambda g, x: g.set_next_state(x, x), "x is not a state"),
        (
            lambda g, x: g.set_next_state(g.state("s", np.zeros((1, 4), np.int8)), x),
            r"x cannot become s: the one is int8 \[1, 8\] of scale .* the other int8 \[1, 4\]",
        ),
    ],
)
def test_what_cannot_be_is_said_where_it_is_written(
    write: Callable[[GraphBuilder, Value], object], said: str
) -> None:
    graph, x = gate()
    with pytest.raises(UsageError, match=said):
        write(graph, x)
