"""Operators with unusual operands equal ONNX Runtime, or are refused."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX needs the package onnx")
pytest.importorskip("onnxruntime", reason="the expected values come from ONNX Runtime")

import onnxruntime
from onnx_models import Array, Net
from test_nets import imported, results

from firmwright.base.errors import UnsupportedError
from onnx import TensorProto


def _check(data: bytes, *inputs: Array) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    feeds = dict(zip(names, inputs, strict=True))
    expected = session.run(None, feeds)
    for want, have in zip(expected, results(imported(data), feeds).values(), strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


def _floats(*shape: int) -> Array:
    return np.random.Generator(np.random.PCG64(1)).normal(size=shape).astype(np.float32)


def _einsum(equation: str, *shapes: tuple[int, ...]) -> bytes:
    net = Net()
    names = [net.input(f"x{k}", shape) for k, shape in enumerate(shapes)]
    return net.model(net.node("Einsum", *names, equation=equation))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk", [(2, 4, 2, 3), (2, 4, 3, 2)]),
        ("...i", [(2, 3)]),
        ("b...a", [(2, 3, 4)]),
        ("ij,...jk", [(2, 3), (2, 3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("...ij,...jk->...ik", [(1, 2, 3), (4, 3, 2)]),
    ],
)
def test_an_einsum_has_the_result_of_onnx_runtime(
    equation: str, shapes: list[tuple[int, ...]]
) -> None:
    _check(_einsum(equation, *shapes), *(_floats(*shape) for shape in shapes))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("...ij,...jk", [(2, 4, 2, 3), (4, 3, 2)]), ("...ij,...jk->...ik", [(2, 4, 2, 3), (3, 2)])],
)
def test_an_einsum_with_dots_of_different_sizes_is_refused(
    equation: str, shapes: list[tuple[int, ...]]
) -> None:
    """ONNX Runtime refuses them, too."""
    data = _einsum(equation, *shapes)
    with pytest.raises(Exception, match=r"[Ee]llips"):
        _check(data, *(_floats(*shape) for shape in shapes))
    with pytest.raises(UnsupportedError, match="different numbers of axes"):
        imported(data)


@pytest.mark.parametrize("op", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.INT64])
def test_roots_and_logarithms_of_integers_are_refused(op: str, kind: int) -> None:
    net = Net(opset=13)
    x = net.input("x", (3, 4), kind)
    with pytest.raises(UnsupportedError, match=r"int(32|64) elements"):
        imported(net.model(net.node(op, x, axes=[1])))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_gather_without_indices_has_no_elements(axis: int) -> None:
    net = Net()
    x = net.input("x", (3, 4))
    none = net.node("Gather", x, net.weight(np.zeros(0, np.int64)), axis=axis)
    _check(net.model(net.node("Concat", none, x, axis=axis)), _floats(3, 4))


def test_the_sign_of_nan_is_nan() -> None:
    net = Net()
    x = net.input("x", (6,))
    values = np.array([np.nan, -np.inf, -2, 0, 1e-40, np.inf], np.float32)
    _check(net.model(net.node("Sign", x)), values)


def _rnn(**attrs: Any) -> bytes:
    net = Net()
    x = net.input("x", (2, 1, 4))
    weights = [net.random(1, 5, 4), net.random(1, 5, 5)]
    return net.model(net.node("RNN", x, *weights, outputs=2, hidden_size=5, **attrs)[0])


def test_a_scaled_tanh_needs_its_scales() -> None:
    """ONNX states no defaults of them; ONNX Runtime takes 0, so that the result is 0."""
    given = {"activation_alpha": [1.5], "activation_beta": [0.5]}
    _check(_rnn(activations=["ScaledTanh"], **given), _floats(2, 1, 4))
    with pytest.raises(UnsupportedError, match="ScaledTanh without activation_alpha"):
        imported(_rnn(activations=["ScaledTanh"]))
    with pytest.raises(UnsupportedError, match="ScaledTanh without activation_beta"):
        imported(_rnn(activations=["ScaledTanh"], activation_alpha=[1.5]))
