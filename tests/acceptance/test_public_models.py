"""Public models of older quantization schemes equal LiteRT on the host and in QEMU."""

import hashlib
import os
from functools import cache
from pathlib import Path

import pytest

from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.verification import verify

PATH_VARIABLE = "PUBLIC_MODELS_PATH"
FOLDER = os.environ.get(PATH_VARIABLE, "")
MODELS = {
    "google-coral/test_data: mobilenet_v1_0.25_128_quant.tflite, uint8": "cb273c23ee",
    "metanav/Handwriting_Recognition_IMU: model_quantized.tflite, dynamic range": "408a14cab2",
    "breizhn/DTLN: model_quant_1.tflite, dynamic range": "5008c2121d",
    "alrevuelta/cONNXr: quantized_model.onnx, ConvInteger": "4a7caa8071",
}
"""The first digits of the SHA-256 of each model's file."""

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(
        not FOLDER, reason=f"{PATH_VARIABLE} does not name a folder of models"
    ),
]


@cache
def files() -> dict[str, Path]:
    paths = [
        path for end in ("tflite", "onnx") for path in Path(FOLDER).rglob(f"*.{end}")
    ]
    return {hashlib.sha256(path.read_bytes()).hexdigest()[:10]: path for path in paths}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
        pytest.param("mps3-an547", marks=pytest.mark.qemu),
    ],
)
def test_a_public_model_equals_its_runtime(board: str, model: str) -> None:
    """Compile for size, since the MobileNet must fit the 512 KB of mps3-an547."""
    compiled = compile_for(load_model(files()[MODELS[model]]), board, optimize="size")
    result = verify(compiled, samples=3)
    assert result.exact, result
