"""Divisions of integers without a result in C have one, the same on all boards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the divisions are those of ONNX models")

from firmwright.base.dtypes import Array
from firmwright.pipeline import load_module_bytes
from onnx import helper
from tests.onnx.backend import run_merged
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import results
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
