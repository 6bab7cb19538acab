"""ONNX inputs with open sizes, and constants of numpy types in attributes."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from firmwright.ir.graph.attributes.base import attrs_to_mapping
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.oracle.reference_runner import run_reference
from onnx import TensorProto
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import entry_of, imported, results


@pytest.mark.parametrize("sizes", [(-1, 4), ("N", 4), ("N",)])
def test_an_open_batch_becomes_one_and_is_logged(
    sizes: tuple[int | str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    net = Net()
    y = net.node("Relu", net.input("x", sizes))
    with caplog.at_level(logging.WARNING):
        module = imported(net.model(y))
    assert entry_of(module).params[0].shape == (1, *sizes[1:])
    symbol = " N" if sizes[0] == "N" else ""
    shape = ",".join(map(str, (1, *sizes[1:])))
    message = f"batch size{symbol} of input x is taken as 1; --input-shape x={shape} states it."
    assert message in caplog.text


def test_constant_indices_of_a_gather_are_plain_numbers() -> None:
    for seed in range(12):
        net, rng = Net(seed), np.random.Generator(np.random.PCG64(seed))
        x = net.input("x", (3, 7))
        indices = net.weight(rng.integers(-7, 7, int(rng.integers(2, 9))))
        data = net.model(net.node("Gather", x, indices, axis=1))
        module = imported(data)
        values = [
            n
            for call in entry_of(module).body
            for v in attrs_to_mapping(call.attrs).values()
            for n in _flat(v)
        ]
        assert all(type(value) in (int, float, str, bool) for value in values)
        assert _text(parse_module(_text(module), "t")) == _text(module)
        sample = {"x": rng.normal(size=(3, 7)).astype(np.float32)}
        (expected,) = (
            run_reference(data, [sample], "onnxruntime").outputs if seed < 1 else ({},)
        )
        for name, array in expected.items():
            assert np.array_equal(results(module, sample)[name], array)


def _flat(value: object) -> list[object]:
    return (
        [n for item in value for n in _flat(item)]
        if isinstance(value, tuple)
        else [value]
    )


def _text(module: IRModule) -> str:
    return print_module(module)


def test_quantized_values_join_plain_integers_as_stored() -> None:
    net = Net()
    x = net.input("x", (1, 4))
    plain = net.input("p", (1, 3), TensorProto.INT8)
    scale, point = net.weight(np.float32(0.25)), net.weight(np.int8(3))
    q = net.node("QuantizeLinear", x, scale, point)
    data = net.model(net.node("Concat", q, plain, axis=1))
    sample = {
        "x": np.array([[0.1, -1.0, 2.0, 7.0]], np.float32),
        "p": np.array([[1, -2, 3]], np.int8),
    }
    (got,) = results(imported(data), sample).values()
    assert got.tolist() == [[3, -1, 11, 31, 1, -2, 3]]
