"""IF and WHILE: comparison with both runtimes, generated C, and rejected models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from firmwright.base.errors import ModelError, UnsupportedError
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.samples.reference_outputs import (
    run_interpreter,
    run_numpy_reference,
)
from firmwright.flows.samples.sample_batches import SampleBatch
from firmwright.flows.verify.access_checking import open_checked_session
from firmwright.flows.verify.verification import verify
from firmwright.ir.graph.verify import verify_graph
from firmwright.ir.printer import parse_module, print_module
from firmwright.ops.registry import op_table
from firmwright.pipeline import Compilation, load_module_bytes
from tests.state.model_writer import GraphFile, ModelFile

KIND = ("int8", (1, 6), 0.5, 3)
COUNT = ("int32", (1,))


def branch(graph: GraphFile, op: str, table: str, *, swap: bool = False) -> None:
    """Build outputs x op y and max(x op y, y); with `swap` the second output is y."""
    x, y = graph.input("x", *KIND), graph.input("y", *KIND)
    total = graph.tensor("total", *KIND)
    graph.op(op, [x, y], [total], table)
    if swap:
        graph.outputs(total, y)
        return
    larger = graph.tensor("larger", *KIND)
    graph.op("MAXIMUM", [total, y], [larger], "MaximumMinimumOptions")
    graph.outputs(total, larger)


def branches_and_a_loop(*, plain: bool = False) -> bytes:
    """Build a model where `up` selects a branch, followed by a loop of `rounds` sums.

    Each round swaps two values. With `plain` the swap is direct; LiteRT then duplicates
    one value, because it copies loop values one by one in place.
    """
    file = ModelFile()
    main = file.graph("main")
    then, orelse, cond, body = (file.graph(n) for n in ("then", "else", "cond", "body"))
    branch(then, "ADD", "AddOptions")
    branch(orelse, "SUB", "SubOptions", swap=True)

    for graph in (cond, body):
        rounds = graph.input("rounds", *COUNT)
        values = [graph.input(name, *KIND) for name in ("sum", "a", "b")]
        if graph is cond:
            more = graph.tensor("more", "bool", (1,))
            zero = graph.constant("zero", np.array([0], np.int32))
            graph.op("GREATER", [rounds, zero], [more], "GreaterOptions")
            graph.outputs(more)
            continue
        left, total = graph.tensor("left", *COUNT), graph.tensor("total", *KIND)
        one = graph.constant("one", np.array([1], np.int32))
        graph.op("SUB", [rounds, one], [left], "SubOptions")
        graph.op("ADD", [values[0], values[1]], [total], "AddOptions")
        swapped = [values[2], values[1]]
        if not plain:
            swapped = [graph.tensor(name, *KIND) for name in ("new_a", "new_b")]
            for value, copy in zip(values[:0:-1], swapped, strict=True):
                graph.op("MAXIMUM", [value, value], [copy], "MaximumMinimumOptions")
        graph.outputs(left, total, *swapped)

    up = main.input("up", "bool", (1,))
    x, y = main.input("x", *KIND), main.input("y", *KIND)
    rounds = main.input("rounds", *COUNT)
    total, larger = main.tensor("total", *KIND), main.tensor("larger", *KIND)
    options = {"thenSubgraphIndex": 1, "elseSubgraphIndex": 2}
    main.op("IF", [up, x, y], [total, larger], "IfOptions", **options)
    carried = [main.tensor(name, *kind) for name, kind in _CARRIED]
    options = {"condSubgraphIndex": 3, "bodySubgraphIndex": 4}
    main.op("WHILE", [rounds, total, larger, x], carried, "WhileOptions", **options)
    after = main.tensor("after", *KIND)
    main.op("ADD", [carried[1], carried[2]], [after], "AddOptions")
    main.outputs(after, carried[3], carried[0])
    return file.data()


_CARRIED: tuple[tuple[str, Any], ...] = (
    ("rounds_left", COUNT),
    ("sum", KIND),
    ("a", KIND),
    ("b", KIND),
)


def samples() -> SampleBatch:
    rng = np.random.default_rng(3)
    return SampleBatch(
        tuple(
            {
                "up": np.array([number % 2 == 0]),
                "x": rng.integers(-30, 30, (1, 6), np.int8),
                "y": rng.integers(-30, 30, (1, 6), np.int8),
                "rounds": np.array([number], np.int32),
            }
            for number in range(5)
        )
    )


def compiled_for(board: str, **options: Any) -> Compilation:
    data = branches_and_a_loop(plain=options.get("numerics") == "tflm")
    return compile_for(
        Model(load_module_bytes(data, "flow.tflite"), data), board, **options
    )


@pytest.mark.host_c
@pytest.mark.parametrize("numerics", ["litert", "tflm"])
def test_branches_and_loops_match_the_runtimes(numerics: str) -> None:
    verification = verify(compiled_for("host", numerics=numerics), batch=samples())
    assert verification.values == 5 * (6 + 6 + 1)
    assert verification.exact


def test_references_and_interpreter_agree() -> None:
    compiled = compiled_for("mps2-an386")
    inputs = samples().samples
    theirs, ours = (
        run_numpy_reference(compiled.imported, inputs),
        run_interpreter(compiled.module, inputs),
    )
    for expected, got in zip(theirs.outputs, ours.outputs, strict=True):
        for name, value in expected.items():
            np.testing.assert_array_equal(got[name], value)
    assert parse_module(print_module(compiled.imported)) == compiled.imported
    assert parse_module(print_module(compiled.module)) == compiled.module


def test_branches_and_loops_are_statements_of_the_run_function() -> None:
    text = compiled_for("mps2-an386").tree.files["model/flow.c"]
    assert isinstance(text, str)
    main = text[text.index("int32_t flow_run(") :]
    assert main.count("if (up[0] != 0)") + main.count("if (up[0])") == 1
    assert main.count("while (") == 1
    assert "} else {" in main


@pytest.mark.host_c
@pytest.mark.gcc
def test_plan_of_branches_and_loops_passes_access_tracing() -> None:
    assert verify(
        compiled_for("host"), batch=samples(), open_with=open_checked_session
    ).exact


def variables_in_branches_and_loops() -> bytes:
    """Build a branch that may add x to `sum`, and a loop on `count` and `last`."""
    file = ModelFile()
    main = file.graph("main")
    then, orelse, cond, body = (file.graph(n) for n in ("then", "else", "cond", "body"))
    for graph in (then, orelse):
        x, handle = graph.input("x", *KIND), graph.handle("sum")
        before = graph.read(handle, "before", *KIND)
        total = graph.tensor("total", *KIND)
        graph.op("ADD", [before, x], [total], "AddOptions")
        if graph is then:
            graph.assign(handle, total)
            graph.assign(graph.handle("last"), x)
        graph.outputs(total if graph is then else before)
    for graph in (cond, body):
        rounds = graph.input("rounds", *COUNT)
        if graph is cond:
            more = graph.tensor("more", "bool", (1,))
            zero = graph.constant("zero", np.array([0], np.int32))
            graph.op("GREATER", [rounds, zero], [more], "GreaterOptions")
            graph.outputs(more)
            continue
        one = graph.constant("one", np.array([1], np.int32))
        left, more = graph.tensor("left", *COUNT), graph.tensor("more", *COUNT)
        graph.op("SUB", [rounds, one], [left], "SubOptions")
        handle = graph.handle("count")
        graph.op(
            "ADD", [graph.read(handle, "so_far", *COUNT), one], [more], "AddOptions"
        )
        graph.assign(handle, more)
        handle, step = graph.handle("last"), graph.tensor("step", *KIND)
        last = graph.read(handle, "was", *KIND)
        graph.op(
            "ADD",
            [last, graph.read(graph.handle("sum"), "sum", *KIND)],
            [step],
            "AddOptions",
        )
        graph.assign(handle, step)
        graph.outputs(left)
    once = file.graph("once")
    for name, first in (("sum", np.int8(3)), ("last", np.int8(5))):
        start = once.constant(f"{name}/first", np.full((1, 6), first), 0.5, 3)
        once.assign(once.handle(name), start)
    once.assign(once.handle("count"), once.constant("none", np.array([0], np.int32)))
    main.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=5)
    up, x = main.input("up", "bool", (1,)), main.input("x", *KIND)
    rounds = main.input("rounds", *COUNT)
    y, left = main.tensor("y", *KIND), main.tensor("rounds_left", *COUNT)
    main.op("IF", [up, x], [y], "IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2)
    main.op(
        "WHILE",
        [rounds],
        [left],
        "WhileOptions",
        condSubgraphIndex=3,
        bodySubgraphIndex=4,
    )
    reads = [
        main.read(main.handle(n), n, *k) for n, k in (("last", KIND), ("count", COUNT))
    ]
    main.outputs(y, *reads)
    return file.data()


@pytest.mark.host_c
@pytest.mark.parametrize("numerics", ["litert", "tflm"])
def test_variables_in_branches_and_loops_become_inputs_and_outputs(
    numerics: str,
) -> None:
    data = variables_in_branches_and_loops()
    model = Model(load_module_bytes(data, "kept.tflite"), data)
    inputs = [
        {name: value for name, value in sample.items() if name != "y"}
        for sample in samples().samples
    ]
    verification = verify(
        compile_for(model, "host", numerics=numerics), batch=SampleBatch(tuple(inputs))
    )
    assert verification.values == 5 * (6 + 6 + 1)
    assert verification.exact
    assert {state.value.name for state in model.module.entry.state} == {
        "sum",
        "last",
        "count",
    }  # type: ignore[union-attr]  # a graph


def test_variable_assigned_by_a_loop_condition_is_rejected() -> None:
    file = ModelFile()
    main, cond, body = file.graph("main"), file.graph("cond"), file.graph("body")
    x, y = main.input("x", "bool", (1,)), main.tensor("y", "bool", (1,))
    main.op("WHILE", [x], [y], "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)
    main.outputs(y)
    for graph in (cond, body):
        value = graph.input("x", "bool", (1,))
        graph.outputs(value)
    cond.assign(cond.handle("v"), 0)
    with pytest.raises(
        UnsupportedError, match="a variable that a loop's condition assigns"
    ):
        load_module_bytes(file.data(), "v.tflite")


def test_functions_that_do_not_match_a_call_are_reported() -> None:
    text = """firmwright ir 2
module @m
attrs {entry="main"}
graph @main(%up: bool[1], %x: i8[4]) -> (%y) { %y: i8[4] = if(%up, %x) {then="a", else="b"} }
graph @a(%x: i8[4]) -> (%y) { %y: i8[4] = neg(%x) }
graph @b(%x: i8[2]) -> (%y) { %y: i8[2] = neg(%x) }
"""
    module = parse_module(text)
    entry = module.entry
    with pytest.raises(ModelError, match="inputs and outputs do not match those of @b"):
        verify_graph(entry, module, op_table())  # type: ignore[arg-type]  # a graph


def loop_over_a_list() -> bytes:
    """Build a loop that stores x + index in a list, as TensorFlow writes it."""
    file = ModelFile()
    main, cond, body = (file.graph(name) for name in ("main", "cond", "body"))

    def ints(graph: GraphFile, *values: int) -> int:
        return graph.constant(
            f"c{len(graph.table.tensors)}", np.array(values, np.int32)
        )

    def computed(
        graph: GraphFile, op: str, kind: Any, inputs: list[int], **options: Any
    ) -> int:
        result = graph.tensor(f"{op}{len(graph.table.tensors)}", *kind)
        title = {"EXPAND_DIMS": "ExpandDims"}.get(op, op.title())
        graph.op(op, inputs, [result], f"{title}Options", **options)
        return result

    item, whole, places = ("float32", (1, 3)), ("float32", (4, 1, 3)), ("int32", (3,))
    open_part = ("float32", (1, 1, 1))
    for graph in (cond, body):
        index, x = graph.input("index", "int32", (1,)), graph.input("x", *item)
        listed = graph.input("list", "float32", (1, 1, 3))
        if graph is cond:
            more = computed(graph, "LESS", ("bool", (1,)), [index, ints(graph, 4)])
            graph.outputs(more)
            continue
        following = computed(graph, "ADD", COUNT, [index, ints(graph, 1)])
        total = computed(
            graph, "ADD", item, [x, computed(graph, "CAST", item, [index])]
        )
        sizes = computed(graph, "CONCATENATION", places, [index, ints(graph, -1, -1)])
        before = computed(
            graph, "SLICE", open_part, [listed, ints(graph, 0, 0, 0), sizes]
        )
        begins = computed(
            graph, "CONCATENATION", places, [following, ints(graph, 0, 0)]
        )
        after = computed(
            graph, "SLICE", open_part, [listed, begins, ints(graph, -1, -1, -1)]
        )
        for part in (before, after):
            graph.table.tensors[part].shapeSignature = [-1, -1, -1]
        row = computed(
            graph, "EXPAND_DIMS", ("float32", (1, 1, 3)), [total, ints(graph, 0)]
        )
        new = computed(
            graph, "CONCATENATION", ("float32", (1, 1, 3)), [before, row, after]
        )
        graph.outputs(following, total, new)
    x = main.input("x", *item)
    zeros = main.constant("zeros", np.zeros((4, 1, 3), np.float32))
    results = [
        main.tensor("end", *COUNT),
        main.tensor("sum", *item),
        main.tensor("y", *whole),
    ]
    options = {"condSubgraphIndex": 1, "bodySubgraphIndex": 2}
    main.op("WHILE", [ints(main, 0), x, zeros], results, "WhileOptions", **options)
    main.outputs(results[2])
    return file.data()


@pytest.mark.host_c
def test_a_loop_that_sets_elements_of_a_list_equals_litert() -> None:
    data = loop_over_a_list()
    compiled = compile_for(Model(load_module_bytes(data, "list.tflite"), data))
    result = verify(compiled, samples=3)
    assert (result.values, result.mismatches) == (3 * 12, 0)
    assert (
        len({tuple(row) for row in result.outputs[2]["y"].reshape(4, 3).tolist()}) == 4
    )
