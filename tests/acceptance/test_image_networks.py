"""Image networks on small parts: MobileNetV2 at 224 pixels, detection of TinyEngine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.samples.sample_batches import generate_samples, measured_sample
from firmwright.flows.verify.verification import verify

pytestmark = [pytest.mark.qemu, pytest.mark.deep, pytest.mark.filterwarnings("ignore")]

BOARD = "mps2-an500"
ROWS: dict[str, Any] = {"board": BOARD, "optimize": "ram", "stream_input_rows": True}
TIME_RATIO_MAX = 1.5
"""Instructions of a row-streamed program relative to the fastest."""
TINYENGINE_BYTES = 245_760 + 10_824 + 864
"""RAM of TinyEngine 47bb283 for detection.tflite: tensors, columns, kernel."""


@pytest.fixture(scope="module")
def mobilenet(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Return MobileNetV2 0.35 for 224 x 224 pixels: random weights, int8."""
    tensorflow = pytest.importorskip("tensorflow", reason="needs TensorFlow")
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(1)
    shape = (224, 224, 3)
    network = keras.applications.MobileNetV2(
        shape, alpha=0.35, weights=None, classes=1000
    )
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0  # statistics of the one batch
    images = np.random.default_rng(1).uniform(-1, 1, (8, *shape)).astype(np.float32)
    network(images, training=True)
    converter = tensorflow.lite.TFLiteConverter.from_keras_model(network)
    converter.optimizations = [tensorflow.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([image[None]] for image in images)
    converter.target_spec.supported_ops = [tensorflow.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tensorflow.int8
    path = tmp_path_factory.mktemp("mobilenet") / "mobilenet.tflite"
    path.write_bytes(converter.convert())
    return load_model(path)


def _instructions(model: Model, **options: Any) -> int:
    compiled = compile_for(model, **options)
    with open_session(compiled, image=build_image(compiled)) as session:
        return session.device.measure(measured_sample(compiled.module))


def test_mobilenet_by_rows(mobilenet: Model) -> None:
    compiled = compile_for(mobilenet, **ROWS)
    assert compiled.summary.workspace_bytes <= 64 << 10
    assert verify(compiled, batch=generate_samples(compiled.module.io.inputs, 4)).exact
    fastest = _instructions(mobilenet, board=BOARD, optimize="speed")
    assert _instructions(mobilenet, **ROWS) <= TIME_RATIO_MAX * fastest


def test_mobilenet_with_the_image_in_a_buffer_of_the_caller(mobilenet: Model) -> None:
    """The image alone is 150,528 bytes."""
    compiled = compile_for(mobilenet, board=BOARD, optimize="ram", io_buffers="caller")
    assert compiled.summary.workspace_bytes <= 96 << 10


@pytest.mark.skipif(
    "TINYENGINE_PATH" not in os.environ,
    reason="TINYENGINE_PATH names no copy of TinyEngine",
)
def test_detection_needs_two_thirds_of_tinyengines_ram() -> None:
    model = load_model(Path(os.environ["TINYENGINE_PATH"]) / "assets/detection.tflite")
    compiled = compile_for(model, **ROWS)
    assert compiled.summary.workspace_bytes <= TINYENGINE_BYTES * 2 // 3
    assert verify(compiled, batch=generate_samples(compiled.module.io.inputs, 2)).exact
