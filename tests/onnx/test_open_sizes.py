"""ONNX inputs with open sizes, and constants of numpy types in attributes."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from firmwright.base.errors import UnsupportedError
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


def _layers(op: str) -> tuple[Net, str]:
    """Return a net whose input `x` has open sizes, and the node that implies one."""
    net = Net()
    match op:
        case "MatMul":
            x = net.node("Relu", net.input("x", ("batch", "n")))
            return net, net.node("MatMul", x, net.random(65, 4))
        case "Gemm":
            x = net.input("x", ("batch", "n"))
            return net, net.node("Gemm", x, net.random(4, 65), transB=1)
        case "Conv":
            x = net.input("x", (-1, -1, 5, 5))
            return net, net.node("Conv", x, net.random(4, 65, 3, 3))
        case "LSTM":
            x = net.input("x", (5, "batch", "n"))
            weights = net.random(1, 8, 65), net.random(1, 8, 2)
            return net, net.node("LSTM", x, *weights, hidden_size=2)
        case "Scaler":
            x = net.input("x", ("batch", "n"))
            table = {"offset": [0.5] * 65, "scale": [2.0] * 65}
            return net, net.node("Scaler", x, domain="ai.onnx.ml", **table)
    x = net.input("x", ("n",))
    return net, net.node("Add", x, net.random(65))


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        ("MatMul", (1, 65)),
        ("Gemm", (1, 65)),
        ("Conv", (1, 65, 5, 5)),
        ("Scaler", (1, 65)),
        ("Add", (65,)),
    ],
)
def test_weights_imply_the_size_of_an_open_axis(
    op: str, shape: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    net, y = _layers(op)
    with caplog.at_level(logging.WARNING):
        module = imported(net.model(y))
    assert entry_of(module).params[0].shape == shape
    assert f"is taken as 65, which {op} {y} needs" in caplog.text


def test_one_question_asks_for_all_open_sizes() -> None:
    net, y = _layers("LSTM")
    z = net.node("Relu", net.input("z", (1, "width", "batch")))
    with pytest.raises(UnsupportedError) as caught:
        imported(net.model(y, z))
    (item,) = caught.value.items
    assert item.why == (
        "axis 1 (batch) of x and axis 1 (width) of z and axis 2 (batch) of z are open; "
        "add --input-shape x=5,batch,65 --input-shape z=1,width,batch with numbers for "
        f"batch and width (LSTM {y} needs 65)"
    )


def test_operators_of_other_domains_imply_nothing() -> None:
    net = Net()
    x = net.input("x", (1, "channels", 5, 5))
    data = net.model(net.node("Conv", x, net.random(4, 65, 3, 3), domain="own"))
    with pytest.raises(UnsupportedError, match="with a number for channels"):
        imported(data)


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
