"""DFT and STFT equal ONNX Runtime, with all attributes and optional inputs."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX needs the package onnx")
pytest.importorskip("onnxruntime", reason="the expected values come from ONNX Runtime")

from firmwright.base.errors import UnsupportedError
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from tests.onnx.onnx_models import Array, Net
from tests.onnx.test_nets import imported, results

LENGTHS = (None, 6, 11)
FORMS = [(1, 0, 0), (2, 0, 0), (1, 1, 0), (2, 1, 0), (1, 0, 1), (2, 1, 1)]
"""Components of the input, and whether the transform is inverse and one-sided."""


def _check(net: Net, y: str, shape: tuple[int, ...]) -> None:
    data = net.model(y)
    x = net.rng.normal(size=shape).astype(np.float32)
    (want,) = OnnxRuntimeSession(data, layers=False).run([x])
    (got,) = results(imported(data), {"x": x}).values()
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, atol=1e-5, rtol=1e-4)


def _number(net: Net, value: int | None) -> str:
    return "" if value is None else net.weight(np.array(value, np.int64))


@pytest.mark.parametrize(("components", "inverse", "onesided"), FORMS)
def test_transforms_equal_onnx_runtime(
    components: int, inverse: int, onesided: int
) -> None:
    shape = (2, 8, 3, components)
    cases = list(product(LENGTHS, (0, 1, -2)))
    if inverse and onesided:
        # Only these numbers of points have the frequencies of the input.
        cases = [(None, 0), (None, 1), (None, -2), (15, 1)]
    for opset, (length, axis) in product((17, 20), cases):
        attrs: dict[str, Any] = {"inverse": inverse, "onesided": onesided}
        net = Net(opset=opset)
        inputs = [net.input("x", shape), _number(net, length)]
        if opset < 20:
            attrs["axis"] = axis
        else:
            inputs.append(_number(net, axis))
        _check(net, net.node("DFT", *inputs, **attrs), shape)


@pytest.mark.parametrize("length", [None, 32, 64])
@pytest.mark.parametrize("axis", [1, 2])
def test_fast_transforms_equal_onnx_runtime(length: int | None, axis: int) -> None:
    net, shape = Net(opset=17), (2, 32, 32, 1)
    inputs = [net.input("x", shape), _number(net, length)]
    y = net.node("DFT", *inputs, axis=axis, onesided=1)
    assert "rfft" in {call.op for call in imported(net.model(y)).entry_graph.body}
    _check(net, y, shape)


@pytest.mark.parametrize("axis", [1, 2])
def test_fast_inverse_transforms_equal_onnx_runtime(axis: int) -> None:
    net, shape = Net(opset=17), (2, 33, 33, 2)
    y = net.node("DFT", net.input("x", shape), axis=axis, inverse=1, onesided=1)
    assert "irfft" in {call.op for call in imported(net.model(y)).entry_graph.body}
    _check(net, y, shape)


@pytest.mark.parametrize("has_window", [True, False])
@pytest.mark.parametrize(
    ("length", "step"), [(70, 10), (64, 64), (200, 24), (256, 64), (300, 1), (64, 1)]
)
def test_fast_transforms_over_time_equal_onnx_runtime(
    length: int, step: int, has_window: bool
) -> None:
    net, shape = Net(opset=17), (2, length, 1)
    window = net.weight(np.hanning(64).astype(np.float32)) if has_window else ""
    inputs = [net.input("x", shape), _number(net, step), window, _number(net, 64)]
    y = net.node("STFT", *inputs)
    called = {call.op for call in imported(net.model(y)).entry_graph.body}
    assert "stft" in called
    _check(net, y, shape)


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize(
    ("frame", "has_window"), [(None, True), (16, True), (16, False)]
)
def test_transforms_over_time_equal_onnx_runtime(
    components: int, frame: int | None, has_window: bool
) -> None:
    net, shape = Net(opset=17), (2, 70, components)
    window = net.weight(np.hanning(16).astype(np.float32)) if has_window else ""
    inputs = [net.input("x", shape), _number(net, 5), window, _number(net, frame)]
    onesided = 1 if components == 1 else 0
    _check(net, net.node("STFT", *inputs, onesided=onesided), shape)


@pytest.mark.parametrize("length", [20, 70])
def test_real_signals_may_have_no_axis_of_components(length: int) -> None:
    net, shape = Net(opset=17), (2, length)
    window = net.weight(np.hanning(16).astype(np.float32))
    inputs = [net.input("x", shape), _number(net, 5), window]
    _check(net, net.node("STFT", *inputs), shape)


def test_the_window_scales_the_filters() -> None:
    net = Net(opset=17)
    window = net.weight(np.zeros(4, np.float32))
    inputs = [net.input("x", (1, 8, 1)), _number(net, 4), window]
    data = net.model(net.node("STFT", *inputs))
    x: Array = np.ones((1, 8, 1), np.float32)
    (got,) = results(imported(data), {"x": x}).values()
    assert got.shape == (1, 2, 3, 2)
    assert not got.any()


@pytest.mark.parametrize(
    ("shape", "length"),
    [((1, 8, 1), 2**33), ((1, 200_000, 1), None), ((1, 8, 1), 0), ((1, 8, 3), None)],
)
def test_a_matrix_that_is_too_large_or_empty_is_refused(
    shape: tuple[int, ...], length: int | None
) -> None:
    net = Net(opset=17)
    data = net.model(net.node("DFT", net.input("x", shape), _number(net, length)))
    with pytest.raises(UnsupportedError, match="the most are 2,048 numbers"):
        imported(data)


def test_a_window_of_another_size_than_its_frames_is_refused() -> None:
    net = Net(opset=17)
    window = net.weight(np.ones(8, np.float32))
    inputs = [net.input("x", (1, 32, 1)), _number(net, 4), window, _number(net, 16)]
    with pytest.raises(UnsupportedError, match="a window of 8 for frames of 16"):
        imported(net.model(net.node("STFT", *inputs)))
