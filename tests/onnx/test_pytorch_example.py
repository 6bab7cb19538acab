"""The files of examples/03_pytorch as exported by PyTorch: import, int8, C."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.access_checking import open_checked_session
from firmwright.flows.verify.onnx_quantization import quantize_onnx_model
from firmwright.flows.verify.verification import verify
from firmwright.oracle.reference_runner import run_reference
from tests.onnx.test_nets import entry_of, optimized, results

FOLDER = Path(__file__).parents[2] / "examples" / "03_pytorch"
LAYERS = {"conv2d": 3, "depthwise_conv2d": 2, "mean": 1, "fully_connected": 1}


def images() -> list[dict[str, Any]]:
    with np.load(FOLDER / "calibration.npz") as archive:
        return [{"image": image[None]} for image in archive["images"]]


def calls(name: str) -> Counter[str]:
    """Return the remaining operators without views."""
    module = optimized(load_model(FOLDER / name).module)
    counts = Counter(call.op for call in entry_of(module).body)
    del counts["reshape"]
    return counts


@pytest.mark.parametrize("name", ["digits.onnx", "digits_script.onnx"])
def test_networks_of_both_exporters_become_only_their_layers(name: str) -> None:
    assert calls(name) == LAYERS
    module, data = load_model(FOLDER / name).module, (FOLDER / name).read_bytes()
    expected = run_reference(data, images()[:4], "onnxruntime").outputs
    for sample, outputs in zip(images(), expected, strict=False):
        for key, array in outputs.items():
            np.testing.assert_allclose(
                results(module, sample)[key], array, rtol=1e-4, atol=1e-5
            )


@pytest.mark.host_c
def test_a_quantization_aware_network_runs_on_integers() -> None:
    assert calls("digits_qat.onnx") == {**LAYERS, "expression": 1, "dequantize": 1}
    compiled = compile_for(load_model(FOLDER / "digits_qat.onnx"), "host")
    report = verify(compiled, samples=3, open_with=open_checked_session)
    assert report.exact


def test_the_float_network_is_quantized_after_training() -> None:
    result = quantize_onnx_model(
        load_model(FOLDER / "digits.onnx"), images(), compared=8
    )
    assert not result.in_floats
    assert result.layers[0].sqnr_db > 25
