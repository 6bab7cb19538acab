"""Small model files that would take time or memory without bound end in a message.

tests/onnx/test_resource_limits.py has the ONNX files.
"""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.base import resource_limits
from firmwright.base.array_files import read_npz
from firmwright.base.errors import FirmwrightError, UsageError
from firmwright.frontends.tflite import read_c_array
from firmwright.ir.module import IRModule
from firmwright.pipeline import compilation, load_module_bytes
from tests.pytorch import archive_writer
from tests.state.model_writer import GraphFile, ModelFile

MEMORY_MAX = 200 << 20
BYTES_MAX = 2_000_000
FLOAT = "float32"
RAISED = "--limit-factor raises the limit"


def message(data: bytes, file: str) -> str:
    """Return the error of a model file, which must not take much memory."""
    assert len(data) < BYTES_MAX
    tracemalloc.start()
    try:
        with pytest.raises(FirmwrightError) as caught:
            load_module_bytes(data, file)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()
    return str(caught.value)


def branching(levels: int, uses: int) -> bytes:
    """Return a graph of ifs; each level runs the next `uses` times in both branches."""
    file = ModelFile()
    for level in range(levels):
        graph = file.graph(f"g{level}")
        p, y = graph.input("p", "bool", (1,)), graph.input("x", FLOAT, (4,))
        for use in range(uses):
            x, y = y, graph.tensor(f"y{use}", FLOAT, (4,))
            index = {"thenSubgraphIndex": level + 1, "elseSubgraphIndex": level + 1}
            graph.op("IF", [p, p, x], [y], "IfOptions", **index)
        graph.outputs(y)
    leaf = file.graph("leaf")
    leaf.input("p", "bool", (1,))
    y = leaf.tensor("y", FLOAT, (4,))
    leaf.op("RELU", [leaf.input("x", FLOAT, (4,))], [y])
    leaf.outputs(y)
    return file.data()


@pytest.mark.parametrize(("levels", "uses"), [(40, 1), (20, 2), (100, 1)])
def test_branches_that_double_are_refused(levels: int, uses: int) -> None:
    found = message(branching(levels, uses), "ifs.tflite")
    assert (
        "its branches and loops expand to more than 32,768 operators or 64 levels"
        in found
    )
    assert found.endswith(f"Try: {RAISED}.")


def doubling(file: ModelFile, graph: GraphFile, times: int) -> int:
    tensor, size = graph.constant("c", np.ones(64, np.float32)), 64
    for index in range(times):
        size *= 2
        twice = graph.tensor(f"c{index}", FLOAT, (size,))
        graph.op(
            "CONCATENATION", [tensor, tensor], [twice], "ConcatenationOptions", axis=0
        )
        tensor = twice
    return tensor


def test_constants_that_double_are_limited_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource_limits, "CONSTANT_BYTES_MAX", 1 << 20)
    file = ModelFile()
    graph = file.graph("main")
    tensor = doubling(file, graph, 16)
    graph.outputs(tensor)
    graph.input("x", FLOAT, (1,))
    found = message(file.data(), "doubled.tflite")
    assert f"constants that expand to more than 1,048,576 bytes ({RAISED})" in found
    monkeypatch.setenv(resource_limits.LIMIT_FACTOR_VARIABLE, "100")
    assert load_module_bytes(file.data(), "doubled.tflite")


def test_an_initialization_without_end_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("firmwright.ir.graph.evaluate.EVALUATED_CALLS_MAX", 1000)
    file = ModelFile()
    main, start, cond, body = (
        file.graph(name) for name in ("main", "start", "cond", "body")
    )
    handle = main.handle("v")
    main.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    read, y = main.read(handle, "r", FLOAT, (1,)), main.tensor("y", FLOAT, (1,))
    main.op("ADD", [main.input("x", FLOAT, (1,)), read], [y], "AddOptions")
    main.outputs(y)
    last = start.tensor("last", FLOAT, (1,))
    loop = {"condSubgraphIndex": 2, "bodySubgraphIndex": 3}
    start.op(
        "WHILE",
        [start.constant("c", np.ones(1, np.float32))],
        [last],
        "WhileOptions",
        **loop,
    )
    start.assign(start.handle("v"), last)
    a, more = cond.input("a", FLOAT, (1,)), cond.tensor("b", "bool", (1,))
    cond.op("GREATER_EQUAL", [a, a], [more])
    cond.outputs(more)
    b = body.tensor("b", FLOAT, (1,))
    body.op("RELU", [body.input("a", FLOAT, (1,))], [b])
    body.outputs(b)
    assert "loops that take more than 1,000 operators" in message(
        file.data(), "endless.tflite"
    )


def parted(count: int) -> bytes:
    file = ModelFile()
    graph = file.graph("main")
    axis = graph.constant("a", np.array(0, np.int32))
    x = graph.input("x", FLOAT, (count,))
    parts = [graph.tensor(f"y{i}", FLOAT, (1,)) for i in range(count)]
    graph.op("SPLIT", [axis, x], parts, "SplitOptions", numSplits=count)
    graph.outputs(*parts)
    return file.data()


def test_an_operator_with_many_results_is_refused() -> None:
    found = message(parted(5000), "parts.tflite")
    assert "the operator has 5,002 inputs and outputs, more than 4,096" in found


def test_many_results_get_a_large_stack() -> None:
    assert compilation._is_large(load_module_bytes(parted(600), "parts.tflite"))


# ---- programs of torch.export --------------------------------------------------------

node = archive_writer.node


def program(nodes: list[dict[str, Any]], size: int, **types: Any) -> bytes:
    shapes = dict.fromkeys(("y", *types), (size,))
    return archive_writer.archive(nodes, {"x": (size,)}, {}, {**shapes, **types}, "y")


def test_tensors_that_share_a_storage_are_limited_together() -> None:
    ones = {f"w{i}": np.ones(4, np.float32) for i in range(40)}
    nodes = [node("aten.relu.default", "y", self="x")]
    whole = archive_writer.archive(nodes, {"x": (4,)}, ones, {"y": (4,)}, "y")
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (path,) = (name for name in files if name.endswith("weights_config.json"))
    config = json.loads(files[path])
    for row in config["config"].values():
        row["tensor_meta"]["sizes"] = [{"as_int": 4000}, {"as_int": 4000}]
        row["tensor_meta"]["strides"] = [{"as_int": 0}, {"as_int": 0}]
    files[path] = json.dumps(config).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource_limits, "CONSTANT_BYTES_MAX", 1 << 26)
        assert "constants that expand" in message(
            archive_writer.pack(files), "shared.pt2"
        )


@pytest.mark.parametrize(
    ("nodes", "size", "expected"),
    [
        (
            [
                node("aten.full.default", f"f{i}", size=[1], fill_value=1.0)
                for i in range(40)
            ],
            1 << 19,
            "constants that expand",
        ),
        (
            [
                node(
                    "aten.unfold.default",
                    "f0",
                    self="x",
                    dimension=0,
                    size=10**12,
                    step=1,
                )
            ],
            8,
            "windows of 1000000000000 of an axis of 8",
        ),
        (
            [node("aten.arange.start_step", "f0", start=0, end=10**7, step=1)],
            1 << 26,
            "constants that expand",
        ),
        (
            [node("aten.repeat.default", "f0", self="x", repeats=[10**12])],
            8,
            "tensor f0 has 32,000,000,000,000 bytes, more than 268,435,456",
        ),
    ],
    ids=["full", "unfold", "arange", "repeat"],
)
def test_a_large_value_is_refused(nodes: list[Any], size: int, expected: str) -> None:
    last = node("aten.relu.default", "y", self="f0")
    made = {f"f{i}": (size,) for i in range(len(nodes))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource_limits, "CONSTANT_BYTES_MAX", 1 << 22)
        assert expected in message(program([*nodes, last], size, **made), "large.pt2")


# ---- other files ---------------------------------------------------------------------


@pytest.mark.parametrize("text", ['\\"', '"\\', "'\\", "{0x1c,", "/*", '"\\\n', '"0""'])
def test_c_source_takes_linear_time(text: str) -> None:
    with pytest.raises(FirmwrightError, match="no array in it"):
        read_c_array((text * 50_000).encode(), "odd.c")


def module_text(body: str) -> bytes:
    return f"firmwright ir 2\nmodule @m\n{body}".encode()


def loaded(text: str) -> IRModule:
    return load_module_bytes(module_text(text), "text.fwir")


def test_functions_that_run_each_other_are_refused() -> None:
    functions = "".join(
        f"graph @{name}(%p: bool[1], %x: f32[4]) -> (%y) {{\n"
        f'  %y: f32[4] = if(%p, %p, %x) {{then="{other}", else="{other}"}}\n}}\n'
        for name, other in (("main", "a"), ("a", "b"), ("b", "a"))
    )
    with pytest.raises(FirmwrightError, match="its call of a is recursive"):
        loaded(f'attrs {{entry="main"}}\n{functions}')


def test_an_archive_of_zeros_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firmwright.base.array_files._UNPACKED_BYTES_MAX", 1 << 20)
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(1 << 22, np.float32))
    with pytest.raises(UsageError, match="bytes unpack to 16,777"):
        read_npz(tmp_path / "x.npz")


@pytest.mark.parametrize("factor", ["0", "abc", "-3", "1.5", "²", "1" * 5000])
def test_a_limit_factor_that_is_no_positive_integer_is_an_error(
    factor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(resource_limits.LIMIT_FACTOR_VARIABLE, factor)
    with pytest.raises(
        UsageError, match="is not an integer from 1 to 999,999,999"
    ) as caught:
        load_module_bytes(parted(5), "parts.tflite")
    assert caught.value.where == resource_limits.LIMIT_FACTOR_VARIABLE


def test_a_node_without_inputs_or_outputs_is_described() -> None:
    file = ModelFile()
    graph = file.graph("main")
    x = graph.input("x", FLOAT, (4,))
    graph.op("RELU", [x], [])
    graph.op("RELU", [], [graph.tensor("y", FLOAT, (4,))])
    graph.op("ADD", [x], [graph.tensor("z", FLOAT, (4,))], "AddOptions")
    graph.outputs(x)
    found = message(file.data(), "nodes.tflite")
    assert "a node without outputs" in found
    assert "(y): a node without its input\n" in found
    assert "a node without all of its 2 inputs" in found
