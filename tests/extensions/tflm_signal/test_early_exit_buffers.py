"""Streaming models with circular buffers that end a run early, compared with TFLM."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.errors import UnsupportedError
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.verify.verification import verify
from firmwright.ir.graph.nodes import Function
from firmwright.pipeline import load_module_bytes
from tests.state.model_writer import GraphFile, ModelFile

KIND = ("int8", (1, 1, 1, 2), 0.5, 3)


def buffered(graph: GraphFile, name: str, x: int, slots: int, **options: int) -> int:
    y = graph.tensor(name, "int8", (1, slots, 1, 2), 0.5, 3, variable=True)
    graph.op("custom:CIRCULAR_BUFFER", [x], [y], **options)
    return y


def averaged(graph: GraphFile, name: str, x: int) -> int:
    y = graph.tensor(name, *KIND)
    axes = graph.constant(f"{name}/axes", np.array([1], np.int32))
    graph.op("MEAN", [x, axes], [y], "ReducerOptions", keepDims=True)
    return y


def streaming() -> bytes:
    """Build a model that passes buffer one every second run, buffer two every sixth."""
    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", *KIND)
    doubled = main.tensor("doubled", *KIND)
    main.op("ADD", [x, x], [doubled], "AddOptions")
    first = averaged(main, "first", buffered(main, "slots", doubled, 4))
    steady = averaged(main, "steady", buffered(main, "slots'", first, 5))
    last = averaged(main, "last", buffered(main, "slots''", steady, 3, cycles_max=3))
    mixed = main.tensor("mixed", *KIND)
    main.op("ADD", [last, doubled], [mixed], "AddOptions")
    main.outputs(doubled, first, last, mixed)
    return file.data()


@pytest.mark.host_c
def test_calls_after_a_buffer_run_once_per_cycle() -> None:
    data = streaming()
    compiled = compile_for(
        Model(load_module_bytes(data, "streaming"), data), "host", numerics="tflm"
    )
    entry = compiled.imported.entry
    assert isinstance(entry, Function)
    assert [value.name for value in entry.results] == [
        "doubled",
        "first",
        "last",
        "mixed",
    ]
    verification = verify(compiled, samples=13, find_first_divergence=True)
    assert verification.exact
    assert verification.values == 13 * 8
    samples = [tuple(outputs.values()) for outputs in verification.outputs]
    first = [outputs[1].ravel().tolist() for outputs in samples]
    assert first[0] == [3, 3]  # the zero point, before the first complete run
    assert first[5] != [3, 3]
    assert first[5] == first[10] != first[11]


def test_buffer_inside_a_branch_is_rejected() -> None:
    file = ModelFile()
    main, then = file.graph("main"), file.graph("then")
    other = file.graph("else")
    x, is_it = main.input("x", *KIND), main.input("is_it", "bool", (1,))
    y = main.tensor("y", *KIND)
    options = {"thenSubgraphIndex": 1, "elseSubgraphIndex": 2}
    main.op("IF", [is_it, x], [y], "IfOptions", **options)
    main.outputs(y)
    inner = then.input("inner", *KIND)
    then.outputs(
        averaged(then, "mean", buffered(then, "slots", inner, 4, cycles_max=2))
    )
    other.outputs(other.input("same", *KIND))
    with pytest.raises(UnsupportedError, match="ends runs early inside a branch"):
        load_module_bytes(file.data(), "branches")


def test_buffer_without_cycles_max_is_rejected() -> None:
    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", "int8", (1, 1, 2, 96), 0.5, 3)
    y = main.tensor("y", "int8", (1, 4, 2, 96), 0.5, 3, variable=True)
    main.op("custom:CIRCULAR_BUFFER", [x], [y], cycles_max=0)
    main.outputs(y)
    with pytest.raises(UnsupportedError, match="without cycles_max"):
        load_module_bytes(file.data(), "counted")


def test_run_counters_are_state() -> None:
    entry = load_module_bytes(streaming(), "streaming").entry
    assert isinstance(entry, Function)
    counters = [state for state in entry.state if state.value.name.endswith("/runs")]
    assert len(counters) == 2
