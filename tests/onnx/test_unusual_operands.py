"""Operators with unusual operands equal ONNX Runtime, or are refused."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX needs the package onnx")
pytest.importorskip("onnxruntime", reason="the expected values come from ONNX Runtime")

import onnxruntime

from firmwright.base.errors import UnsupportedError
from firmwright.oracle.reference_runner import run_reference
from onnx import TensorProto
from tests.onnx.onnx_models import Array, Net
from tests.onnx.test_nets import imported, results


def _check(data: bytes, *inputs: Array) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    session = onnxruntime.InferenceSession(
        data, options, providers=["CPUExecutionProvider"]
    )
    names = [item.name for item in session.get_inputs()]
    feeds = dict(zip(names, inputs, strict=True))
    expected = session.run(None, feeds)
    for want, have in zip(
        expected, results(imported(data), feeds).values(), strict=True
    ):
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
    [
        ("...ij,...jk", [(2, 4, 2, 3), (4, 3, 2)]),
        ("...ij,...jk->...ik", [(2, 4, 2, 3), (3, 2)]),
    ],
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


def _gemm(
    factor: float, point: int = 0, alpha: float = 1.0, is_quantized: bool = True
) -> bytes:
    """Return a Gemm whose bias has `factor` times the product of the other scales."""
    net = Net(seed=1)

    def pair(x: str, scale: float) -> str:
        own = [
            net.weight(np.array(scale, np.float32)),
            net.weight(np.array(0, np.int8)),
        ]
        return str(
            net.node("DequantizeLinear", net.node("QuantizeLinear", x, *own), *own)
        )

    def constant(values: Array, scale: float, zero: int) -> str:
        own = [
            net.weight(np.array(scale, np.float32)),
            net.weight(np.array(zero, values.dtype)),
        ]
        return str(net.node("DequantizeLinear", net.weight(values), *own))

    x = pair(net.input("x", (3, 8)), 0.05)
    w = constant(net.rng.integers(-127, 128, (8, 5)).astype(np.int8), 0.01, 0)
    bias = constant(
        net.rng.integers(-2000, 2000, 5).astype(np.int32), 0.0005 * factor, point
    )
    y = net.node("Gemm", x, w, bias, alpha=alpha)
    return net.model(pair(y, 0.05) if is_quantized else y)


@pytest.mark.parametrize(
    ("factor", "point", "alpha"), [(1, 0, 1.0), (1, 0, 0.5), (2, 0, 0.5)]
)
def test_a_quantized_gemm_equals_onnx_runtime(
    factor: float, point: int, alpha: float
) -> None:
    data, x = _gemm(factor, point, alpha), _floats(3, 8)
    (expected,) = run_reference(data, [{"x": x}], "onnxruntime").outputs
    got = results(imported(data), {"x": x})
    np.testing.assert_array_equal(*got.values(), *expected.values())


@pytest.mark.parametrize(("factor", "point"), [(2, 0), (1.01, 0), (1, 5000)])
@pytest.mark.parametrize("is_quantized", [True, False])
def test_a_bias_whose_scale_onnx_runtime_ignores_is_refused(
    factor: float, point: int, is_quantized: bool
) -> None:
    """ONNX Runtime's QGemm ignores the scale and zero point of the bias."""
    data, x = _gemm(factor, point, is_quantized=is_quantized), _floats(3, 8)
    same = _gemm(1, is_quantized=is_quantized)
    (ours,), (plain,) = (
        run_reference(d, [{"x": x}], "onnxruntime").outputs for d in (data, same)
    )
    np.testing.assert_array_equal(*ours.values(), *plain.values())
    with pytest.raises(UnsupportedError, match="which ONNX Runtime ignores"):
        imported(data)


def _rnn(**attrs: Any) -> bytes:
    net = Net()
    x = net.input("x", (2, 1, 4))
    weights = [net.random(1, 5, 4), net.random(1, 5, 5)]
    return net.model(net.node("RNN", x, *weights, outputs=2, hidden_size=5, **attrs)[0])


def test_a_scaled_tanh_needs_its_scales() -> None:
    """ONNX states no defaults of them; ONNX Runtime takes 0 and returns 0."""
    given = {"activation_alpha": [1.5], "activation_beta": [0.5]}
    _check(_rnn(activations=["ScaledTanh"], **given), _floats(2, 1, 4))
    with pytest.raises(UnsupportedError, match="ScaledTanh without activation_alpha"):
        imported(_rnn(activations=["ScaledTanh"]))
    with pytest.raises(UnsupportedError, match="ScaledTanh without activation_beta"):
        imported(_rnn(activations=["ScaledTanh"], activation_alpha=[1.5]))


@pytest.mark.parametrize("shape", [(5,), (1, 1, 2, 3, 4)])
def test_a_cubic_resize_that_onnx_runtime_refuses_is_refused(
    shape: tuple[int, ...],
) -> None:
    net = Net()
    scales = net.weight(np.array([*(1,) * (len(shape) - 1), 2], np.float32))
    data = net.model(
        net.node("Resize", net.input("x", shape), "", scales, mode="cubic")
    )
    with pytest.raises(Exception, match=r"[Rr]esize|[Cc]ubic"):
        _check(data, _floats(*shape))
    with pytest.raises(UnsupportedError, match="a cubic resize"):
        imported(data)


def test_negative_axes_of_a_resize_that_keeps_the_aspect_ratio_are_refused() -> None:
    net = Net(opset=18)
    x, sizes = net.input("x", (1, 2, 4, 4)), net.weight(np.array([6, 2], np.int64))
    policy = {"axes": [2, -1], "keep_aspect_ratio_policy": "not_smaller"}
    with pytest.raises(UnsupportedError, match="negative axes"):
        imported(
            net.model(net.node("Resize", x, "", "", sizes, mode="nearest", **policy))
        )
