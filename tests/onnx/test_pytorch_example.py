"""The files of examples/03_pytorch, as PyTorch's exporters wrote them: import, int8, C."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_nets import entry_of, optimized, results

from firmwright.flows.access_checking import open_checked_session
from firmwright.flows.compilation import compile_for
from firmwright.flows.model import load_model
from firmwright.flows.onnx_quantization import quantize_onnx_model
from firmwright.flows.verification import verify
from firmwright.oracle.reference_runner import run_reference

FOLDER = Path(__file__).parents[2] / "examples" / "03_pytorch"
LAYERS = {"conv2d": 3, "depthwise_conv2d": 2, "mean": 1, "fully_connected": 1}


def images() -> list[dict[str, Any]]:
    with np.load(FOLDER / "calibration.npz") as archive:
        return [{"image": image[None]} for image in archive["images"]]


def calls(name: str) -> Counter[str]:
    """The operators that are left, without the views."""
    module = optimized(load_model(FOLDER / name).module)
    found = Counter(call.op for call in entry_of(module).body)
    del found["reshape"]
    return found


@pytest.mark.parametrize("name", ["digits.onnx", "digits_script.onnx"])
def test_both_exporters_networks_become_their_layers_and_nothing_else(name: str) -> None:
    assert calls(name) == LAYERS
    module, data = load_model(FOLDER / name).module, (FOLDER / name).read_bytes()
    expected = run_reference(data, images()[:4], "onnxruntime").outputs
    for sample, outputs in zip(images(), expected, strict=False):
        for key, array in outputs.items():
            np.testing.assert_allclose(results(module, sample)[key], array, rtol=1e-4, atol=1e-5)


@pytest.mark.host_c
def test_a_network_trained_with_roundings_runs_on_integers_all_through() -> None:
    assert calls("digits_qat.onnx") == {**LAYERS, "expression": 1, "dequantize": 1}
    compiled = compile_for(load_model(FOLDER / "digits_qat.onnx"), "host")
    found = verify(compiled, samples=3, open_with=open_checked_session)
    assert found.exact


def test_the_network_in_floats_is_quantised_after_training() -> None:
    found = quantize_onnx_model(load_model(FOLDER / "digits.onnx"), images(), compared=8)
    assert not found.in_floats
    assert found.worst_first[0].sqnr_db > 25
