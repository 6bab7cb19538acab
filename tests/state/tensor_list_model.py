"""A network with TensorFlow's tensor lists, as the converter writes a loop over time.

It reads the steps from the last to the second and appends the states to a list, whose
last element is never set:

    h = 0
    for t in 0 .. STEPS - 2:
        h = tanh(W x[STEPS - 1 - t] + U h + b)
        states[t] = h
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from flatbuffers import flexbuffers
from numpy.typing import NDArray

from tests.state.model_writer import GraphFile, ModelFile

STEPS, FEATURES, UNITS = 5, 3, 4
FLOATS = NDArray[np.float32]
_RNG = np.random.default_rng(44)
W = _RNG.normal(size=(UNITS, FEATURES)).astype(np.float32)
U = _RNG.normal(size=(UNITS, UNITS)).astype(np.float32)
B = _RNG.normal(size=UNITS).astype(np.float32)
_ATTRIBUTES = {
    "FromTensor": ("element_dtype", "shape_type"),
    "GetItem": ("element_dtype",),
    "Reserve": ("element_dtype", "shape_type"),
    "SetItem": ("element_dtype",),
    "Stack": ("element_dtype",),
}
_TYPES = {"element_dtype": b"\x30\x01", "shape_type": b"\x30\x03"}
"""Values of attributes in protocol buffers: DT_FLOAT and DT_INT32."""


def expected_states(x: FLOATS) -> tuple[FLOATS, FLOATS]:
    """Return the list [STEPS, 1, UNITS] and the last state [1, UNITS] in double."""
    states = np.zeros((STEPS, 1, UNITS))
    h = np.zeros((1, UNITS))
    for t in range(STEPS - 1):
        h = np.tanh(x[:, STEPS - 1 - t] @ W.T.astype(np.float64) + h @ U.T + B)
        states[t] = h
    return states.astype(np.float32), h.astype(np.float32)


def tensor_list_model(element: Sequence[int] = (-1, UNITS)) -> bytes:
    """Return the .tflite file; `element` is the stated shape of the states."""
    file = ModelFile()
    main, cond, body = (file.graph(name) for name in ("main", "cond", "body"))
    _condition(cond)
    _body(body)
    x = main.input("x", "float32", (1, STEPS, FEATURES))
    by_time = main.tensor("by_time", "float32", (STEPS, 1, FEATURES))
    axes = main.constant("axes", np.array([1, 0, 2], np.int32))
    main.op("TRANSPOSE", [x, axes], [by_time], "TransposeOptions")
    inputs, states = main.tensor("inputs", "variant"), main.tensor("states", "variant")
    stated = main.constant("stated", np.array([1, FEATURES], np.int32))
    list_op(main, "FromTensor", [by_time, stated], inputs)
    shape = main.constant("shape", np.array(element, np.int32))
    count = main.constant("count", np.array(STEPS, np.int32))
    list_op(main, "Reserve", [shape, count], states)
    start = main.constant("start", np.array(0, np.int32))
    zeros = main.constant("zeros", np.zeros((1, UNITS), np.float32))
    carried = [
        main.tensor("time", "int32"),
        main.tensor("inputs_after", "variant"),
        main.tensor("states_after", "variant"),
        main.tensor("h_after", "float32", (1, UNITS)),
    ]
    options = {"condSubgraphIndex": 1, "bodySubgraphIndex": 2}
    main.op("WHILE", [start, inputs, states, zeros], carried, "WhileOptions", **options)
    stacked = main.tensor("stacked", "float32", (STEPS, 1, UNITS))
    list_op(main, "Stack", [carried[2], shape], stacked)
    double = main.tensor("double", "float32", (STEPS, 1, UNITS))
    main.op("ADD", [stacked, stacked], [double], "AddOptions")
    main.outputs(double, carried[3])
    return file.data()


def list_op(graph: GraphFile, name: str, inputs: Sequence[int], output: int) -> None:
    """Append an operator of TensorFlow on lists of floats, with its definition."""
    op = f"TensorList{name}"
    definition = b"\x12" + bytes([len(op)]) + op.encode() + b"\x1a\x00" * len(inputs)
    for attribute in _ATTRIBUTES[name]:
        entry = b"\x0a" + bytes([len(attribute)]) + attribute.encode()
        entry += b"\x12" + bytes([len(_TYPES[attribute])]) + _TYPES[attribute]
        definition += b"\x2a" + bytes([len(entry)]) + entry
    graph.op(f"custom:Flex{op}", inputs, [output])
    options = flexbuffers.Dumps([op, definition.decode("latin-1")])
    graph.table.operators[-1].customOptions = np.frombuffer(options, np.uint8)


def _condition(graph: GraphFile) -> None:
    time, *_ = _carried(graph)
    last = graph.constant("last", np.array(STEPS - 1, np.int32))
    more = graph.tensor("more", "bool")
    graph.op("LESS", [time, last], [more], "LessOptions")
    graph.outputs(more)


def _body(graph: GraphFile) -> None:
    time, inputs, states, h = _carried(graph)
    last = graph.constant("last", np.array(STEPS - 1, np.int32))
    place = graph.tensor("place", "int32")
    graph.op("SUB", [last, time], [place], "SubOptions")
    step = graph.tensor("step", "float32", (1, FEATURES))
    shape = graph.constant("shape", np.array([1, FEATURES], np.int32))
    list_op(graph, "GetItem", [inputs, place, shape], step)
    products: list[int] = []
    for name, x, weights, bias in (("wx", step, W, B), ("uh", h, U, np.zeros_like(B))):
        y = graph.tensor(name, "float32", (1, UNITS))
        constants = [graph.constant(f"{name}/w", weights), graph.constant("b", bias)]
        graph.op("FULLY_CONNECTED", [x, *constants], [y], "FullyConnectedOptions")
        products.append(y)
    total = graph.tensor("total", "float32", (1, UNITS))
    graph.op("ADD", products, [total], "AddOptions")
    following = graph.tensor("h_next", "float32", (1, UNITS))
    graph.op("TANH", [total], [following])
    updated = graph.tensor("states_next", "variant")
    list_op(graph, "SetItem", [states, time, following], updated)
    one, later = (
        graph.constant("one", np.array(1, np.int32)),
        graph.tensor("t", "int32"),
    )
    graph.op("ADD", [time, one], [later], "AddOptions")
    graph.outputs(later, inputs, updated, following)


def _carried(graph: GraphFile) -> list[int]:
    return [
        graph.input("time", "int32"),
        graph.input("inputs", "variant"),
        graph.input("states", "variant"),
        graph.input("h", "float32", (1, UNITS)),
    ]
