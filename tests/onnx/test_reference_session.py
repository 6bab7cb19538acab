"""ONNX Runtime runs the file's model as it is; requested layers change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import onnx
from firmwright.oracle import reference_worker
from firmwright.oracle.onnx_rewriting import with_unsigned_weights
from firmwright.oracle.reference_worker import LAYOUT_OPTIMIZERS, OnnxRuntimeSession
from onnx import TensorProto
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import imported, results

Array = NDArray[Any]
KINDS = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}
VALUES = 256
SCALE, STEP = 4 / 255, 32 / 255
"""Some products are near ties, which float32 and QLinearMul round differently."""


def _twice(op: str, kind: str, shape: tuple[int, ...], form: str) -> bytes:
    """Return `op` of one tensor twice, with parameters of the given shape."""
    net, point = Net(), np.array(255 if kind == "uint8" else 127, kind)
    size = (16, 16)
    x = net.input("x", size, KINDS[kind])
    scale, step = (net.weight(np.full(shape, n, np.float32)) for n in (SCALE, STEP))
    zero = net.weight(np.full(shape, point, kind))
    y_zero = net.weight(np.full(shape, np.iinfo(kind).min, kind))
    if form == "QOperator":
        operand, target = (x, scale, zero), (step, y_zero)
        if op == "MatMul":
            return net.model(net.node("QLinearMatMul", *operand, *operand, *target))
        domain: dict[str, Any] = {"domain": "com.microsoft"}
        if op == "Concat":
            return net.model(
                net.node("QLinearConcat", *target, *operand, *operand, axis=0, **domain)
            )
        return net.model(
            net.node(f"QLinear{op}", *operand, *operand, *target, **domain)
        )
    real = net.node("DequantizeLinear", x, scale, zero)
    attrs = {"axis": 0} if op == "Concat" else {}
    return net.model(
        net.node("QuantizeLinear", net.node(op, real, real, **attrs), step, y_zero)
    )


def _as_it_is(model: bytes, x: Array) -> Array:
    """Return the output of a session of the unchanged bytes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model, options, disabled_optimizers=LAYOUT_OPTIMIZERS
    )
    (y,) = session.run(None, {"x": x})
    return np.asarray(y)


CASES = [
    (op, kind, shape, form)
    for op in ("Mul", "Add", "Sub", "Concat", "MatMul")
    for kind in KINDS
    for shape in ((), (1,))
    for form in ("QDQ", "QOperator")
    if form == "QDQ" or (op != "Sub" and not (shape and op in ("Add", "Mul")))
]
"""ONNX Runtime has no QLinearSub; its QLinearAdd and QLinearMul refuse vectors."""


@pytest.mark.parametrize(("op", "kind", "shape", "form"), CASES)
def test_an_operator_of_one_tensor_twice_equals_the_unchanged_session(
    op: str, kind: str, shape: tuple[int, ...], form: str
) -> None:
    x = np.arange(VALUES).astype(np.uint8).view(kind).reshape(16, 16)
    model = _twice(op, kind, shape, form)
    expected = _as_it_is(model, x)
    for layers in (False, True):
        reference, *_ = OnnxRuntimeSession(model, layers=layers).run([x])
        np.testing.assert_array_equal(reference, expected)
    (own,) = results(imported(model), {"x": x}).values()
    np.testing.assert_array_equal(own, expected)


MOVEMENTS: dict[str, dict[str, Any]] = {
    "Identity": {},
    "Transpose": {"perm": [1, 0]},
    "Relu": {},
    "Sigmoid": {},
}
"""Operators between two quantizations."""


@pytest.mark.parametrize("op", MOVEMENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_two_quantizations_in_a_row_are_both_computed(op: str, kind: str) -> None:
    """ONNX Runtime's optimizer would merge them into one of a third scale."""
    net, point = Net(), np.iinfo(kind).min + 128
    first = net.scalar(np.float32(0.05)), net.scalar(np.dtype(kind).type(point))
    second = net.scalar(np.float32(0.07)), net.scalar(np.dtype(kind).type(point - 9))
    y = net.input("x", (8, 32))
    y = net.node("DequantizeLinear", net.node("QuantizeLinear", y, *first), *first)
    y = net.node(op, y, **MOVEMENTS[op])
    y = net.node("DequantizeLinear", net.node("QuantizeLinear", y, *second), *second)
    model = net.model(y)
    x = np.linspace(-7, 7, VALUES, dtype=np.float32).reshape(8, 32)
    expected = _without_optimizations(model, x)
    assert op != "Identity" or (_as_it_is(model, x) != expected).any()
    _assert_all_equal(model, x, expected)


@pytest.mark.parametrize("weights", KINDS)
def test_a_product_of_16_bit_activations_keeps_their_bits(weights: str) -> None:
    """ONNX Runtime would make it MatMulNBits, which rounds them to 8 bits."""
    net = Net(5, opset=21)
    scale, point = net.scalar(np.float32(1e-4)), net.scalar(np.int16(0))
    step = net.scalar(np.float32(4e-4))
    drawn = net.rng.integers(0, 100, (32, 4)).astype(weights)
    factors = (
        net.weight(np.full(4, 0.01, np.float32)),
        net.weight(np.full(4, 3, weights)),
    )
    w = net.node("DequantizeLinear", net.weight(drawn), *factors, axis=1)
    x = net.input("x", (8, 32))
    real = net.node(
        "DequantizeLinear", net.node("QuantizeLinear", x, scale, point), scale, point
    )
    y = net.node("QuantizeLinear", net.node("MatMul", real, w), step, point)
    model = net.model(net.node("DequantizeLinear", y, step, point))
    value = np.linspace(-2, 2, VALUES, dtype=np.float32).reshape(8, 32)
    expected = _without_optimizations(model, value)
    assert (_as_it_is(model, value) != expected).any()
    _assert_all_equal(model, value, expected)


def _without_optimizations(model: bytes, x: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    (y,) = onnxruntime.InferenceSession(model, options).run(None, {"x": x})
    return np.asarray(y)


def _assert_all_equal(model: bytes, x: Array, expected: Array) -> None:
    """Compare `verify`'s reference, with and without layers, and our integers."""
    for layers in (False, True):
        reference, *_ = OnnxRuntimeSession(model, layers=layers).run([x])
        np.testing.assert_array_equal(reference, expected)
    (own,) = results(imported(model), {"x": x}).values()
    np.testing.assert_array_equal(own, expected)


def test_layers_are_results_of_the_optimized_graph() -> None:
    net = Net()
    x = net.input("x", (2, 8), TensorProto.UINT8)
    operands = net.scalar(np.float32(0.02)), net.scalar(np.uint8(3))
    first = net.node("DequantizeLinear", x, *operands)
    middle = net.node("QuantizeLinear", net.node("Add", first, first), *operands)
    second = net.node("DequantizeLinear", middle, *operands)
    y = net.node("QuantizeLinear", net.node("Mul", second, second), *operands)
    session = OnnxRuntimeSession(net.model(y), layers=True)
    value = np.arange(16, dtype=np.uint8).reshape(2, 8)
    output, *layers = session.run([value])
    assert list(session.layer_names.values()) == [middle, second]
    exact = np.clip(np.rint((value.astype(float) - 3) * 2) + 3, 0, 255)
    np.testing.assert_array_equal(layers[0], exact)
    np.testing.assert_allclose(layers[1], (exact - 3) * 0.02, rtol=1e-6)
    assert output.shape == (2, 8)


def test_a_changed_output_of_the_layers_session_is_an_error() -> None:
    net, other = Net(), Net()
    model = net.model(net.node("Relu", net.input("x", (1, 4))))
    session = OnnxRuntimeSession(model, layers=True)
    other.node("Relu", other.input("x", (1, 4)))
    other.nodes[0].op_type = "Neg"
    session._layers, _ = reference_worker._open(
        other.model(other.nodes[0].output[0]), is_optimized=False
    )
    with pytest.raises(RuntimeError, match="differs if all results are requested"):
        session.run([np.ones((1, 4), np.float32)])


@pytest.mark.parametrize("saturates", [False, True])
def test_weights_are_changed_only_on_a_cpu_that_saturates(
    monkeypatch: pytest.MonkeyPatch, saturates: bool
) -> None:
    net, calls = Net(), []
    x = net.input("x", (2, 8), TensorProto.UINT8)
    operands = net.scalar(np.float32(0.02)), net.scalar(np.uint8(3))
    weights = net.weight(np.full((8, 4), 100, np.int8))
    scales = net.scalar(np.float32(0.01)), net.scalar(np.int8(0))
    real = net.node("DequantizeLinear", x, *operands)
    product = net.node("MatMul", real, net.node("DequantizeLinear", weights, *scales))
    model = net.model(net.node("QuantizeLinear", product, *operands))

    def changed(data: bytes) -> bytes:
        calls.append(data)
        return with_unsigned_weights(data)

    monkeypatch.setattr(reference_worker, "products_saturate", lambda: saturates)
    monkeypatch.setattr(reference_worker, "with_unsigned_weights", changed)
    value = np.arange(16, dtype=np.uint8).reshape(2, 8)
    (y,) = OnnxRuntimeSession(model, layers=False).run([value])
    assert len(calls) == saturates
    sums = (value.astype(int) - 3).sum(axis=1, keepdims=True) * 100
    np.testing.assert_array_equal(y[:, :1], np.clip(np.rint(sums * 0.01) + 3, 0, 255))


def test_weights_are_changed_in_models_without_quantize_linear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, calls = Net(), []
    x = net.input("x", (2, 8), TensorProto.UINT8)
    weights = net.weight(np.full((8, 4), 100, np.int8))
    model = net.model(net.node("MatMulInteger", x, weights))

    def changed(data: bytes) -> bytes:
        calls.append(with_unsigned_weights(data))
        return calls[-1]

    monkeypatch.setattr(reference_worker, "products_saturate", lambda: True)
    monkeypatch.setattr(reference_worker, "with_unsigned_weights", changed)
    value = np.full((2, 8), 255, np.uint8)
    (y,) = OnnxRuntimeSession(model, layers=False).run([value])
    assert calls != [model]
    np.testing.assert_array_equal(y, np.full((2, 4), 8 * 255 * 100))


def test_a_model_without_such_weights_keeps_its_bytes() -> None:
    net = Net()
    x = net.input("x", (2, 8))
    model = net.model(net.node("MatMul", x, net.random(8, 4)))
    # An unknown field, which writing the model again might move.
    unusual = model + b"\xa2\x06\x00"
    assert with_unsigned_weights(unusual) is unusual


def test_a_state_of_floats_starts_with_zeros_and_is_updated() -> None:
    net = Net()
    y = net.node("Add", net.input("x", (2,)), net.input("state", (2,)))
    following = net.node("Mul", y, net.scalar(0.5))
    model = onnx.ModelProto.FromString(net.model(y, following))
    entry = model.metadata_props.add()
    entry.key, entry.value = f"{reference_worker.STATE_KEY}state", following
    session = OnnxRuntimeSession(model.SerializeToString(), layers=False)
    x = np.array([1, -2], np.float32)
    for factor in (1.0, 1.5, 1.75):
        (got,) = session.run([x])
        np.testing.assert_array_equal(got, x * np.float32(factor))
