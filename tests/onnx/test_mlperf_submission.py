"""QDQ networks of an MLPerf Tiny submission equal ONNX Runtime.

Integers are equal exactly, floats nearly. Each network has its last quantized tensor as
an additional output, before its float softmax.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import onnx
from firmwright.boards.new_board import copy_board
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.sample_batches import SampleBatch
from firmwright.flows.verify.verification import verify
from tests.onnx.test_random_qdq_graphs import expected

PATH_VARIABLE = "TINY_RESULTS_PATH"
CHECKOUT = os.environ.get(PATH_VARIABLE, "")
FOLDER = Path(CHECKOUT) / "closed/kai_jiang/code"
FILES = {
    "resnet": "ic/K1_BOARD_V1.0/models/resnet.onnx",
    "keyword": "kws/K1_BOARD_V1.0/models/kws_ref_model.onnx",
    "autoencoder": "ad/K1_BOARD_V1.0/models/deep_autoencoder.onnx",
    "mobilenet": "vww/K1_BOARD_614.4MHz_V1.0/models/mobilenet_v1.onnx",
}
INT8 = onnx.TensorProto.INT8
SAMPLES = {"resnet": 1000, "keyword": 100, "autoencoder": 100, "mobilenet": 30}

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(
        not CHECKOUT,
        reason=f"{PATH_VARIABLE} does not name a checkout of tiny_results_v1.3",
    ),
]


def quantization(model: onnx.ModelProto, node: onnx.NodeProto) -> tuple[float, int]:
    arrays = {w.name: onnx.numpy_helper.to_array(w) for w in model.graph.initializer}
    return float(arrays[node.input[1]]), int(arrays[node.input[2]])


def with_logits(model: bytes) -> tuple[onnx.ModelProto, tuple[float, int]]:
    """Return the model with its last quantized tensor as an output, and its input type.

    The type consists of the scale and zero point of the first QuantizeLinear.
    """
    whole = onnx.ModelProto.FromString(model)
    quantize = [node for node in whole.graph.node if node.op_type == "QuantizeLinear"]
    logits = onnx.helper.make_tensor_value_info(quantize[-1].output[0], INT8, None)
    whole.graph.output.append(logits)
    return whole, quantization(whole, quantize[0])


def images(
    shape: tuple[int, ...], count: int, quantized: tuple[float, int]
) -> list[NDArray[np.float32]]:
    """Return pictures: smooth fields with noise, contrast and brightness, in 8 bits."""
    scale, point = quantized
    rng = np.random.Generator(np.random.PCG64(18))
    coarse = (1, *(max(1, size // 8) for size in shape[1:3]), *shape[3:])
    pictures = []
    for _ in range(count):
        field = rng.uniform(0, 1, coarse)
        for axis in range(1, min(3, len(shape))):
            field = np.repeat(field, -(-shape[axis] // field.shape[axis]), axis)
        field = field[tuple(slice(size) for size in shape)]
        field = rng.uniform(20, 220) * (field - 0.5) + rng.normal(
            0, rng.uniform(0, 25), shape
        )
        pixels = np.clip(np.rint(field + rng.uniform(60, 190)), 0, 255) - 128
        pictures.append(((pixels - point) * scale).astype(np.float32))
    return pictures


def board_with_link_in_memory(name: str, folder: Path) -> str:
    """Create a variant of an emulated board that receives inputs many times faster."""
    file = copy_board(f"{name}-rtt", name, folder)
    text = file.read_text().replace("stack = 4096", "stack = 8192\nlink_payload = 4096")
    file.write_text(
        text.replace("[counter]", '[console]\ndriver = "rtt"\n\n[counter]', 1)
    )
    return f"{name}-rtt"


@pytest.mark.parametrize("network", FILES)
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
        pytest.param("mps2-an385", marks=pytest.mark.qemu),
    ],
)
def test_a_submission_equals_onnx_runtime(
    board: str, network: str, tmp_path: Path
) -> None:
    original = (FOLDER / FILES[network]).read_bytes()
    model, quantized = with_logits(original)
    data = model.SerializeToString()
    path = tmp_path / f"{network}.onnx"
    path.write_bytes(data)
    if board != "host":
        board = board_with_link_in_memory(board, tmp_path)
    compiled = compile_for(load_model(path), board, board_dirs=(tmp_path,))
    (source,) = compiled.module.io.inputs
    names = [output.name for output in compiled.module.io.outputs]
    assert names == [output.name for output in model.graph.output]
    pictures = images(source.type.shape, SAMPLES[network], quantized)
    samples = [{source.name: x} for x in pictures]
    outputs = expected(data, samples)
    for whole, (first, _) in zip(
        expected(original, samples[:50]), outputs, strict=False
    ):
        np.testing.assert_array_equal(whole[0], first)
    recorded = [dict(zip(names, values, strict=True)) for values in outputs]
    report = verify(compiled, batch=SampleBatch(tuple(samples)), expected=recorded)
    assert (report.samples, report.exact) == (SAMPLES[network], True), report.first
