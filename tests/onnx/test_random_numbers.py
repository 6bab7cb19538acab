"""Random results that matter are refused; compilations of a file are equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from firmwright.base.errors import UnsupportedError
from firmwright.ir.printer import print_module
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import imported, results

HALF = np.full((1, 4), 0.5, np.float32)


def _random(op: str) -> Net:
    net, attrs = (
        Net(),
        {"shape": [1, 4]} if op in ("RandomNormal", "RandomUniform") else {},
    )
    operands = [] if attrs else [net.weight(HALF)]
    if op == "Dropout":
        operands += [net.scalar(0.5), net.scalar(np.bool_(True))]
    net.node("Add", net.input("x", (1, 4)), net.node(op, *operands, **attrs))
    return net


@pytest.mark.parametrize(
    "op",
    [
        "Bernoulli",
        "Dropout",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    ],
)
def test_random_numbers_are_refused_and_not_computed_once(op: str) -> None:
    net = _random(op)
    net.nodes[0].name = "noise"
    with pytest.raises(UnsupportedError, match=f"{op} .*noise.*random numbers"):
        imported(net.model(net.nodes[-1].output[0]))


def test_multinomial_is_refused() -> None:
    net = Net()
    y = net.node("Multinomial", net.weight(HALF), sample_size=3, dtype=6)
    total = net.node("Add", net.node("Cast", y, to=1), net.input("x", (1, 3)))
    with pytest.raises(UnsupportedError, match="random numbers"):
        imported(net.model(total))


@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniformLike"])
def test_unused_random_numbers_do_not_matter(op: str) -> None:
    net = _random(op)
    module = imported(net.model(net.node("Relu", "x")))
    (y,) = results(module, {"x": -HALF}).values()
    assert not y.any()


@pytest.mark.parametrize(("ratio", "is_training"), [(0.5, False), (0.0, True)])
def test_a_dropout_that_drops_nothing_is_its_input(
    ratio: float, is_training: bool
) -> None:
    net = Net()
    operands = net.weight(HALF), net.scalar(ratio), net.scalar(np.bool_(is_training))
    y = net.node("Add", net.input("x", (1, 4)), net.node("Dropout", *operands))
    (own,) = results(imported(net.model(y)), {"x": HALF}).values()
    np.testing.assert_array_equal(own, 2 * HALF)


def test_two_imports_of_a_file_are_the_same_text() -> None:
    net = Net()
    noise: Any = net.random(3, 4)
    folded = net.node(
        "Softmax", net.node("Exp", net.node("MatMul", noise, net.random(4, 4)))
    )
    y = net.node("Add", net.input("x", (3, 4)), net.node("Dropout", folded))
    data = net.model(y)
    assert print_module(imported(data)) == print_module(imported(data))
