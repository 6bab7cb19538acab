"""Integers have results where C has none, the same on all boards."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the divisions are those of ONNX models")

from firmwright.base.dtypes import Array
from firmwright.oracle.reference_runner import run_reference
from firmwright.pipeline import load_module_bytes
from onnx import helper
from tests.onnx.backend import run_merged
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import results
from tests.ops.generated_c import run_model_in_c
from tests.state.model_writer import ModelFile

DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
OPERATORS: tuple[tuple[str, dict[str, int]], ...] = (
    ("Div", {}),
    ("Mod", {}),
    ("Mod", {"fmod": 1}),
)
TFLITE = {"DIV": ("int32",), "FLOOR_DIV": ("int32",), "FLOOR_MOD": ("int32", "int64")}


def pairs(dtype: str) -> dict[str, Array]:
    """Return all pairs of extreme and small numbers as `a` and `b`."""
    kind = np.iinfo(dtype)
    numbers = {
        kind.min,
        kind.min + 1,
        kind.max,
        0,
        1,
        2,
        7,
        *((-1, -7) * (kind.min < 0)),
    }
    values = np.array(sorted(numbers), dtype)
    count = len(values)
    return {"a": np.repeat(values, count), "b": np.tile(values, count)}


def expected(op: str, sample: dict[str, Array], *, is_truncated: bool) -> Array:
    """Return results of unlimited integers, wrapped to the type; 0 counts as 1."""
    a, b = (sample[name].astype(object) for name in "ab")
    dtype = sample["a"].dtype
    b = np.where(b == 0, 1, b)
    quotients = a // b
    if is_truncated:
        quotients = np.where(quotients * b != a, quotients + (quotients < 0), quotients)
    wide = a - quotients * b if op.lower().endswith("mod") else quotients
    size = 1 << np.iinfo(dtype).bits
    return np.array([int(value) % size for value in wide], np.uint64).astype(dtype)


FORMULAS = (
    "(a + b) * a - b",
    "(a * b) / b",
    "(a + b) % b",
    "abs(a * b - a)",
    "-(a - b) * b",
    "a ** 3 - b ** 2",
    "(a << b) >> b",
)
"""What fused nodes compute."""
NODES: dict[str, tuple[str, dict[str, Any]]] = {
    "Add": ("Add", {}),
    "Sub": ("Sub", {}),
    "Mult": ("Mul", {}),
    "Div": ("Div", {}),
    "Mod": ("Mod", {}),
    "Pow": ("Pow", {}),
    "LShift": ("BitShift", {"direction": "LEFT"}),
    "RShift": ("BitShift", {"direction": "RIGHT"}),
}
"""The node of each operator of a formula."""


ROWS = ("ReduceSum", "ReduceProd", "CumSum")
"""Nodes that combine the elements of a column."""


def formulas_model() -> tuple[bytes, dict[str, Array]]:
    """Return a model of fused nodes, each with inputs of its own, and its sample."""
    net, outputs, sample = Net(), [], {}
    for dtype in DTYPES:
        kind = np.iinfo(dtype)
        is_offered = {"**": kind.bits >= 32 and kind.min < 0, "<<": kind.min == 0}
        code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        for number, formula in enumerate(FORMULAS):
            if not all(holds for mark, holds in is_offered.items() if mark in formula):
                continue
            names = {}
            for name, values in defined_pairs(dtype).items():
                names[name] = net.input(f"{dtype}_{number}_{name}", values.shape, code)
                sample[names[name]] = values
            body = ast.parse(formula, mode="eval").body
            outputs.append(net_of(body, net, names, dtype))
        for op in ROWS if is_offered["**"] else ():
            x, y = (array[:, np.newaxis].T for array in defined_pairs(dtype).values())
            name = net.input(f"{dtype}_{op}", (3, x.size), code)
            sample[name] = np.concatenate([x, y, x])
            axis = np.array(0 if op == "CumSum" else [0], np.int64)
            if op == "ReduceProd":
                outputs.append(net.node(op, name, axes=[0]))
            else:
                outputs.append(net.node(op, name, net.weight(axis)))
    return net.model(*outputs), sample


def wrapped_rows(names: Iterable[str], sample: dict[str, Array]) -> dict[str, Array]:
    """Return numpy's results of `ROWS`: ONNX Runtime sums and multiplies in floats."""
    inputs = [array for name, array in sample.items() if name.endswith(ROWS)]
    outputs = [name for name in names if name.startswith(("reduce", "cumsum"))]
    found = {}
    for name, array in zip(outputs, inputs, strict=True):
        step = np.multiply if "prod" in name else np.add
        rows = step.accumulate(array, 0, array.dtype.type)
        found[name] = rows if "cumsum" in name else rows[-1:]
    return found


def net_of(node: ast.expr, net: Net, names: dict[str, str], dtype: str) -> str:
    """Add the nodes of an expression; return the name of its result."""
    match node:
        case ast.Name(id=name):
            return names[name]
        case ast.Constant(value=int() as number):
            return net.weight(np.array(number, dtype))
        case ast.UnaryOp(operand=operand):
            kind = np.iinfo(dtype)
            inner = net_of(operand, net, names, dtype)
            zero = net.weight(np.array(0, dtype))
            return net.node("Neg", inner) if kind.min else net.node("Sub", zero, inner)
        case ast.Call(args=[operand]):
            return net.node("Abs", net_of(operand, net, names, dtype))
        case ast.BinOp(left=left, op=op, right=right):
            operands = (net_of(side, net, names, dtype) for side in (left, right))
            kind, attrs = NODES[type(op).__name__]
            return net.node(kind, *operands, **attrs)
    raise AssertionError(ast.dump(node))


def defined_pairs(dtype: str) -> dict[str, Array]:
    """Return the pairs for which ONNX Runtime has all results.

    It refuses a divisor of 0, and its process ends at the quotient of the least int64
    and -1. That of int32 it computes in whole vectors, of which the pairs are a multiple.
    """
    sample = pairs(dtype)
    is_defined = sample["b"] != 0
    if dtype == "int64":
        near_least = sample["a"] <= np.iinfo(dtype).min + 1
        is_defined &= ~(near_least & (sample["b"] == -1))
    return {name: array[is_defined] for name, array in sample.items()}


@pytest.mark.host_c
def test_fused_integers_wrap_as_in_onnx_runtime(tmp_path: Path) -> None:
    data, sample = formulas_model()
    model = load_module_bytes(data, "cases.onnx", name="cases")
    (reference,) = run_reference(data, [sample], "onnxruntime").outputs
    wanted = {**reference, **wrapped_rows(reference, sample)}
    feeds = [sample[value.name] for value in model.entry_graph.params]
    (found,) = run_model_in_c(model, [feeds], "onnx", tmp_path)
    for own, (name, expected) in zip(found, wanted.items(), strict=True):
        np.testing.assert_array_equal(own, expected, name)


def onnx_model(op: str, dtype: str, attrs: dict[str, int]) -> bytes:
    net, count = Net(), len(pairs(dtype)["a"])
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    operands = [net.input(name, (count,), code) for name in "ab"]
    return net.model(net.node(op, *operands, **attrs))


def tflite_model(op: str, dtype: str) -> bytes:
    file, count = ModelFile(), len(pairs(dtype)["a"])
    main = file.graph("main")
    operands = [main.input(name, dtype, (count,)) for name in "ab"]
    y = main.tensor("y", dtype, (count,))
    options = ("DivOptions",) if op == "DIV" else ()
    main.op(op, operands, [y], *options)
    main.outputs(y)
    return file.data()


def cases() -> list[tuple[Any, dict[str, Array], Array]]:
    found = []
    for op, attrs in OPERATORS:
        for dtype in DTYPES:
            module = load_module_bytes(onnx_model(op, dtype, attrs), "m.onnx")
            sample = pairs(dtype)
            truncated = op == "Div" or bool(attrs)
            found.append((module, sample, expected(op, sample, is_truncated=truncated)))
    for op, dtypes in TFLITE.items():
        for dtype in dtypes:
            module = load_module_bytes(tflite_model(op, dtype), "m.tflite")
            sample = pairs(dtype)
            wanted = expected(op, sample, is_truncated=op == "DIV")
            if op == "DIV":
                least = (sample["a"] == np.iinfo(dtype).min) & (sample["b"] == -1)
                wanted[least] = np.iinfo(dtype).max
            found.append((module, sample, wanted))
    return found


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps3-an547", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("qemu-riscv32-virt-v", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("microbit", marks=[pytest.mark.qemu, pytest.mark.deep]),
    ],
)
def test_divisions_of_extreme_integers_have_a_result(board: str) -> None:
    found = cases()
    modules = [module for module, _, _ in found]
    (values,) = run_merged(modules, [[sample for _, sample, _ in found]], board)
    for number, (module, sample, wanted) in enumerate(found):
        (name,) = (value.name for value in module.entry_graph.results)
        np.testing.assert_array_equal(values[f"{number}.{name}"], wanted)
        own = results(module, sample)[name]
        np.testing.assert_array_equal(own, wanted)
