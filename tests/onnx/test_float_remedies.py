"""`quantize` recognizes functions that exporters write as several nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from firmwright.cli.quantize import format_summary
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.float_remedies import find_remedies
from firmwright.flows.verify.onnx_quantization import (
    QuantizationResult,
    quantize_onnx_model,
)
from firmwright.oracle.onnx_quantizer import PreparedNode
from tests.onnx.onnx_models import Net

WIDTH = 12


def gelu_by_erf(net: Net, x: str) -> str:
    """Build what PyTorch's exporter writes before opset 20."""
    erf = net.node("Erf", net.node("Div", x, net.scalar(2**0.5)))
    product = net.node("Mul", x, net.node("Add", erf, net.scalar(1.0)))
    return str(net.node("Mul", product, net.scalar(0.5)))


def gelu_with_half_inside(net: Net, x: str) -> str:
    """Build what PyTorch's newer exporter writes before opset 20."""
    erf = net.node("Erf", net.node("Div", x, net.scalar(2**0.5)))
    plus_one = net.node("Add", erf, net.scalar(1.0))
    return str(net.node("Mul", x, net.node("Mul", net.scalar(0.5), plus_one)))


def gelu_by_tanh(net: Net, x: str) -> str:
    """Build the approximation as PyTorch's exporter writes it."""
    cube = net.node("Mul", x, net.node("Mul", x, x))
    inner = net.node("Add", x, net.node("Mul", cube, net.scalar(0.044715)))
    tanh = net.node("Tanh", net.node("Mul", inner, net.scalar(0.7978846)))
    half = net.node("Mul", x, net.scalar(0.5))
    return str(net.node("Mul", half, net.node("Add", tanh, net.scalar(1.0))))


def gelu_by_power(net: Net, x: str) -> str:
    """Build the approximation of GPT-2."""
    cube = net.node("Pow", x, net.scalar(3.0))
    inner = net.node("Add", x, net.node("Mul", cube, net.scalar(0.044715)))
    tanh = net.node("Tanh", net.node("Mul", inner, net.scalar(0.7978846)))
    half = net.node("Mul", x, net.scalar(0.5))
    return str(net.node("Mul", half, net.node("Add", tanh, net.scalar(1.0))))


def layer_normalization(net: Net, x: str) -> str:
    centered = net.node("Sub", x, net.node("ReduceMean", x, axes=[-1]))
    square = net.node("Pow", centered, net.scalar(2.0))
    mean = net.node("ReduceMean", square, axes=[-1])
    root = net.node("Sqrt", net.node("Add", mean, net.scalar(1e-5)))
    scaled = net.node("Mul", net.node("Div", centered, root), net.random(WIDTH))
    return str(net.node("Add", scaled, net.random(WIDTH)))


def rms_normalization(net: Net, x: str) -> str:
    mean = net.node("ReduceMean", net.node("Mul", x, x), axes=[-1])
    root = net.node("Sqrt", net.node("Add", mean, net.scalar(1e-5)))
    scaled = net.node("Mul", x, net.node("Reciprocal", root))
    return str(net.node("Mul", scaled, net.random(WIDTH)))


def softmax(net: Net, x: str) -> str:
    axes = net.weight(np.array([-1]))
    shifted = net.node("Sub", x, net.node("ReduceMax", x, axes=[-1]))
    power = net.node("Exp", shifted)
    return str(net.node("Div", power, net.node("ReduceSum", power, axes)))


def quantized(
    block: Callable[[Net, str], str], tmp_path: Path, opset: int = 17
) -> QuantizationResult:
    """Quantize a network with the block between two dense layers."""
    net = Net(9, opset)
    x = net.node("Gemm", net.input("x", (1, 8)), net.random(8, WIDTH))
    y = net.node("Gemm", block(net, x), net.random(WIDTH, 4))
    path = tmp_path / "net.onnx"
    path.write_bytes(net.model(y))
    rows = np.random.default_rng(2).normal(size=(8, 1, 8)).astype(np.float32)
    samples = [{"x": row} for row in rows]
    return quantize_onnx_model(load_model(path), samples, compared=2)


@pytest.mark.parametrize(
    ("block", "opset", "remedy", "ops"),
    [
        (gelu_by_erf, 17, "export GELU as one node", {"Erf"}),
        (gelu_with_half_inside, 17, "export GELU as one node", {"Erf"}),
        (layer_normalization, 13, "LayerNormalization has no integer", {"Sqrt"}),
        # ONNX Runtime makes one node of it.
        (layer_normalization, 17, "if you can train", {"LayerNormalization"}),
        (rms_normalization, 17, "RMSNormalization has no integer form", {"Sqrt"}),
        (softmax, 17, "export Softmax as one node", {"Exp", "ReduceSum"}),
    ],
)
def test_remedies_name_the_function(
    block: Callable[[Net, str], str],
    opset: int,
    remedy: str,
    ops: set[str],
    tmp_path: Path,
) -> None:
    result = quantized(block, tmp_path, opset)
    found = {item.op: item.remedy for item in result.in_floats}
    assert ops <= found.keys()
    for item in result.in_floats:
        assert item.remedy.startswith(remedy), item
    text = format_summary(result, (), "net.onnx", "out.onnx", 1)
    assert " ".join(text.split()).count(remedy) == 1


def test_the_remedies_of_gelu_and_softmax_leave_nothing_in_floats(
    tmp_path: Path,
) -> None:
    after = quantized(lambda net, x: str(net.node("Gelu", x)), tmp_path, opset=20)
    assert after.in_floats == ()
    hard = quantized(lambda net, x: str(net.node("HardSwish", x)), tmp_path)
    assert hard.in_floats == ()
    single = quantized(lambda net, x: str(net.node("Softmax", x)), tmp_path)
    assert single.in_floats == ()


def prepared(net: Net) -> list[PreparedNode]:
    return [
        PreparedNode(node.output[0], node.op_type, node.name, tuple(node.input), "")
        for node in net.nodes
    ]


def test_every_node_of_a_function_has_the_remedy() -> None:
    for block in (gelu_by_erf, gelu_with_half_inside, gelu_by_tanh, gelu_by_power):
        net = Net()
        block(net, net.input("x", (1, WIDTH)))
        remedies = find_remedies(prepared(net), {"x"})
        assert set(remedies) == {node.output[0] for node in net.nodes}
        assert len(set(remedies.values())) == 1


def test_other_uses_of_the_same_operators_are_no_gelu() -> None:
    net = Net()
    x = net.input("x", (1, WIDTH))
    net.node("Mul", x, net.node("Tanh", net.node("Softplus", x)))  # Mish
    net.node("Mul", x, net.node("Add", net.node("Tanh", x), net.scalar(1.0)))
    net.node("Add", net.node("Erf", x), x)
    assert find_remedies(prepared(net), {"x"}) == {}


@pytest.mark.parametrize(
    ("op", "constant_first", "helps"),
    [("Div", False, True), ("Div", True, False), ("Max", True, True)],
)
def test_the_remedy_of_an_operator_depends_on_its_constants(
    op: str, constant_first: bool, helps: bool
) -> None:
    net = Net()
    operands = [net.input("x", (1, WIDTH)), net.scalar(2.0)]
    result = net.node(op, *(operands[::-1] if constant_first else operands))
    assert (result in find_remedies(prepared(net), {"x"})) == helps
    both = net.node(op, "x", result)
    assert both not in find_remedies(prepared(net), {"x"})


def test_a_hostile_graph_takes_linear_time() -> None:
    """A chain in which every node reads the one before it many times over."""
    nodes = [PreparedNode("n0", "Exp", "", ("x",), "")]
    for number in range(1, 400):
        operands = tuple(f"n{max(0, number - back)}" for back in range(1, 40))
        op = ("Exp", "Sqrt", "Erf", "ReduceSum", "Div", "Add", "Mul")[number % 7]
        nodes.append(PreparedNode(f"n{number}", op, "", operands, ""))
    assert isinstance(find_remedies(nodes, {"x"}), dict)
