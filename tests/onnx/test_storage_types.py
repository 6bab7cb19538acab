"""Inputs and outputs of narrow types are verified with ONNX Runtime."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import onnx
from firmwright.flows.export.package_export import export_model
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.samples.reference_outputs import (
    float_tolerance,
    run_numpy_reference,
)
from firmwright.flows.verify.verification import verify
from firmwright.oracle.onnx_rewriting import with_array_types
from firmwright.oracle.reference_runner import run_reference
from firmwright.pipeline import Compilation, load_module_bytes
from onnx import TensorProto, helper, numpy_helper

KINDS = {
    "bfloat16": 13,
    "float16": 13,
    "float8_e4m3fn": 19,
    "float8_e5m2": 19,
    "float8_e8m0fnu": 24,
    "int4": 21,
    "uint4": 21,
}
"""Types with the first opset whose Cast ONNX Runtime computes for them."""


def saved(nodes: list[onnx.NodeProto], dtype: int, opset: int) -> bytes:
    """Return a model whose input x and output y [2, 3] have the element type."""
    x, y = (helper.make_tensor_value_info(name, dtype, (2, 3)) for name in "xy")
    graph = helper.make_graph(nodes, "narrow", [x], [y])
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=12)
    return bytes(model.SerializeToString())


def element_type(name: str) -> int:
    names = {"float16": "FLOAT16"}
    plain = names.get(name, name.upper().replace("FLOAT8_", "FLOAT8"))
    return int(getattr(TensorProto, plain.replace("E8M0FNU", "E8M0")))


def compiled_sine(name: str) -> Compilation:
    """Return a model of a sine; results of two signed types have the other sign."""
    dtype = element_type(name)
    last = "Neg" if name in ("int4", "float16") else "Abs"
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Sin", ["f"], ["s"]),
        helper.make_node(last, ["s"], ["a"]),
        helper.make_node("Cast", ["a"], ["y"], to=dtype),
    ]
    data = saved(nodes, dtype, KINDS[name])
    return compile_for(load_module_bytes(data, "narrow.onnx"), board="host")


@pytest.mark.host_c
@pytest.mark.parametrize("name", KINDS)
def test_inputs_and_outputs_of_narrow_types_are_verified(name: str) -> None:
    result = verify(compiled_sine(name), samples=6)
    assert result.exact
    assert result.values == 36
    assert result.is_float == ("float" in name)


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("float16", "Each uint16_t has the bits of an IEEE 754 binary16."),
        ("bfloat16", "Each uint16_t has the upper 16 bits of a float."),
        ("int4", "Each int8_t has the bits of a number of int4, one to a byte."),
    ],
)
def test_the_header_says_how_numbers_are_stored(name: str, stored: str) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    data = saved([node], element_type(name), KINDS[name])
    compiled = compile_for(load_module_bytes(data, "m.onnx"), board="host")
    header = str(compiled.tree.files["model/m.h"])
    for kind in ("Input 0: x", "Output 0: y"):
        assert f"/* {kind}, {name} */\n/* {stored} */\n" in header


@pytest.mark.host_c
@pytest.mark.parametrize("name", KINDS)
def test_a_package_of_narrow_types_passes_its_self_test(
    name: str, tmp_path: Path
) -> None:
    export_model(compiled_sine(name), "makefile", tmp_path)
    words = ["make", "check", "CFLAGS=-O1 -Wall -Wextra -Wpedantic -Werror"]
    ran = subprocess.run(
        words, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300
    )
    assert "narrow: self-test passed" in ran.stdout


def test_casts_keep_the_names_of_inputs_and_outputs() -> None:
    body = helper.make_graph(
        [helper.make_node("Transpose", ["x"], ["t"])],
        "body",
        [],
        [helper.make_tensor_value_info("t", TensorProto.BFLOAT16, (3, 2))],
    )
    yes = numpy_helper.from_array(np.array(True))
    nodes = [
        helper.make_node("Constant", [], ["yes"], value=yes),
        helper.make_node("If", ["yes"], ["u"], then_branch=body, else_branch=body),
        helper.make_node("Transpose", ["u"], ["y"]),
    ]
    data = saved(nodes, TensorProto.BFLOAT16, 21)
    changed = onnx.ModelProto.FromString(with_array_types(data))
    onnx.checker.check_model(changed)
    graph = changed.graph
    types = [item.type.tensor_type.elem_type for item in (*graph.input, *graph.output)]
    assert types == [TensorProto.FLOAT] * 2
    assert [item.name for item in (*graph.input, *graph.output)] == ["x", "y"]
    assert graph.node[2].attribute[0].g.node[0].input[0] == graph.node[0].output[0]
    assert with_array_types(bytes(changed.SerializeToString())) == bytes(
        changed.SerializeToString()
    )


def cast(source: str, result: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [result], to=to)


def node(op: str, source: str, result: str) -> onnx.NodeProto:
    return helper.make_node(op, [source], [result])


HALF, FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT
SQRT = (cast("x", "h", HALF), node("Sqrt", "h", "s"), cast("s", "y", FLOAT))
ROUNDINGS: dict[str, tuple[tuple[onnx.NodeProto, ...], str]] = {
    "read by a node that computes": (SQRT, "float32"),
    "of float64": (SQRT, "float64"),
    "of int32": (SQRT, "int32"),
    "of bool": (SQRT, "bool"),
    "read by a Cast": (
        (cast("x", "h", HALF), cast("h", "f", FLOAT), node("Sqrt", "f", "y")),
        "float32",
    ),
    "read by both": (
        (*SQRT, cast("h", "f", FLOAT), node("Sqrt", "f", "z")),
        "float32",
    ),
    "moved": (
        (
            cast("x", "h", HALF),
            node("Transpose", "h", "t"),
            node("Sqrt", "t", "s"),
            cast("s", "y", FLOAT),
        ),
        "float32",
    ),
    "also moved": ((*SQRT, node("Transpose", "h", "z")), "float32"),
    "also an output": ((*SQRT, node("Identity", "h", "z")), "float32"),
    "between nodes": (
        (
            cast("x", "h", HALF),
            node("Abs", "h", "a"),
            cast("a", "f", FLOAT),
            node("Sqrt", "f", "y"),
        ),
        "float32",
    ),
}


@pytest.mark.parametrize("name", ROUNDINGS)
def test_casts_to_float16_round_where_those_of_onnx_runtime_do(name: str) -> None:
    nodes, dtype = ROUNDINGS[name]
    x = np.array([[0.1, 1.0003, 2049.3]]).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    made = {item.output[0] for item in nodes}
    outputs = [
        helper.make_tensor_value_info(item, onnx.TensorProto.UNDEFINED, None)
        for item in ("y", "z")
        if item in made
    ]
    sized = helper.make_tensor_value_info("x", kind, x.shape)
    graph = helper.make_graph(nodes, "casts", [sized], outputs)
    for item in graph.output:
        is_half = item.name == "z" and name != "read by both"
        item.type.tensor_type.elem_type = HALF if is_half else FLOAT
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    data = bytes(model.SerializeToString())
    (expected,) = run_reference(data, [{"x": x}], "onnxruntime").outputs
    module = load_module_bytes(data, "casts.onnx")
    (found,) = run_numpy_reference(module, [{"x": x}]).outputs
    for item, values in expected.items():
        np.testing.assert_allclose(found[item], values, rtol=2e-7, strict=True)


def test_a_narrow_float_adds_its_rounding_to_the_tolerance() -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"])]
    half = load_module_bytes(saved(nodes, TensorProto.FLOAT16, 13), "half.onnx")
    wide = load_module_bytes(saved(nodes, TensorProto.FLOAT, 13), "wide.onnx")
    assert float_tolerance(half).relative == 1e-4 + 2**-10
    assert float_tolerance(half).absolute == 1e-5 + 2**-24
    assert float_tolerance(wide).relative == 1e-4
