"""GridSample equals ONNX Runtime in all modes, also beyond the borders of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX needs the package onnx")
pytest.importorskip("onnxruntime", reason="the expected values come from ONNX Runtime")

from firmwright.base.errors import UnsupportedError
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from tests.onnx.backend import run_merged
from tests.onnx.onnx_models import Array, Net
from tests.onnx.test_nets import imported, results

MODES = {16: ("nearest", "bilinear", "bicubic"), 20: ("nearest", "linear", "cubic")}
PADDINGS = ("zeros", "border", "reflection")
GATE_CASES, DEEP_CASES, FIRMWARE_CASES = 40, 600, 9


def _case(seed: int) -> tuple[bytes, dict[str, Array]]:
    """Return a model and its inputs, with places on, between and beyond pixels."""
    rng = np.random.Generator(np.random.PCG64(seed))
    opset = (16, 20)[seed % 2]
    attrs: dict[str, Any] = {
        "mode": str(rng.choice(MODES[opset])),
        "padding_mode": PADDINGS[seed % 3],
        "align_corners": int(rng.integers(2)),
    }
    samples, channels, height, width = rng.integers(1, [3, 4, 7, 7]).tolist()
    rows, columns = rng.integers(1, 5, 2).tolist()
    net = Net(opset=opset)
    x = net.input("x", (samples, channels, height, width))
    grid = net.input("grid", (samples, rows, columns, 2))
    model = net.model(net.node("GridSample", x, grid, **attrs))
    places = rng.uniform(-2.5, 2.5, (samples, rows, columns, 2))
    if seed % 4 == 0:
        places = np.round(places * 2) / 2
    image = rng.normal(size=(samples, channels, height, width))
    return model, {"x": image.astype(np.float32), "grid": places.astype(np.float32)}


def _expected(model: bytes, inputs: dict[str, Array]) -> Array:
    session = OnnxRuntimeSession(model, layers=False)
    return np.asarray(session.run(list(inputs.values()))[0])


def _check(seed: int) -> None:
    model, inputs = _case(seed)
    (got,) = results(imported(model), inputs).values()
    np.testing.assert_allclose(got, _expected(model, inputs), atol=1e-5, rtol=1e-5)


def test_samples_equal_onnx_runtime() -> None:
    for seed in range(GATE_CASES):
        _check(seed)


@pytest.mark.deep
def test_hundreds_of_samples_equal_onnx_runtime() -> None:
    for seed in range(DEEP_CASES):
        _check(seed)


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("mps3-an547", marks=[pytest.mark.qemu, pytest.mark.deep]),
    ],
)
def test_firmware_samples_as_onnx_runtime(board: str) -> None:
    cases = [_case(seed) for seed in range(FIRMWARE_CASES)]
    modules = [imported(model) for model, _ in cases]
    (values,) = run_merged(modules, [[inputs for _, inputs in cases]], board)
    for result, case in zip(values.values(), cases, strict=True):
        np.testing.assert_allclose(result, _expected(*case), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("grid", [(3, 4, 2), (1, 3, 4, 3)])
def test_a_grid_of_another_shape_is_refused(grid: tuple[int, ...]) -> None:
    net = Net(opset=20)
    x = net.input("x", (1, 2, 4, 5))
    data = net.model(net.node("GridSample", x, net.input("grid", grid)))
    with pytest.raises(UnsupportedError, match="a grid"):
        imported(data)
