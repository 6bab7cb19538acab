"""A trained network equals ONNX Runtime in every quantized form of its tools."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)

from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.sample_batches import SampleBatch
from firmwright.flows.verify.verification import verify
from firmwright.ir.graph.nodes import Function
from onnx import numpy_helper
from tests.onnx.onnx_models import Net, quantized_conv, quantized_tensor
from tests.onnx.test_nets import imported, results
from tests.onnx.test_random_qdq_graphs import expected

FOLDER = Path(__file__).parent / "networks"
TYPES = {"s": QuantType.QInt8, "u": QuantType.QUInt8}
QDQ, QOPERATOR = QuantFormat.QDQ, QuantFormat.QOperator
FORMS: dict[str, tuple[QuantFormat, str, dict[str, Any]]] = {
    "qdq": (QDQ, "ss", {"per_channel": True}),
    "qdq_unsigned": (QDQ, "us", {"per_channel": True}),
    "qdq_unsigned_weights": (QDQ, "uu", {}),
    "qdq_weight_zero_point": (QDQ, "ss", {"extra_options": {"WeightSymmetric": False}}),
    "qdq_reduced": (QDQ, "us", {"reduce_range": True}),
    "qdq_symmetric": (QDQ, "ss", {"extra_options": {"ActivationSymmetric": True}}),
    "operators": (QOPERATOR, "ss", {"per_channel": True}),
    "operators_unsigned": (QOPERATOR, "us", {}),
    "operators_unsigned_weights": (QOPERATOR, "uu", {"reduce_range": True}),
}
SAMPLES, DEEP_SAMPLES = 12, 1000


@cache
def images() -> list[dict[str, Any]]:
    with np.load(FOLDER / "digits.npz") as archive:
        return [
            {"image": (image[None, None] / 16).astype(np.float32)}
            for image in archive["images"]
        ]


class Reader(CalibrationDataReader):  # type: ignore[misc]  # the package has no types
    """Gives the first images for calibration."""

    def __init__(self) -> None:
        self.rows = iter(images()[:24])

    def get_next(self) -> dict[str, Any] | None:
        return next(self.rows, None)


@pytest.fixture(scope="module", params=[*FORMS, "qat"])
def network(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    if request.param == "qat":
        return FOLDER / "residual_qat.onnx"
    path = tmp_path_factory.mktemp("network") / f"{request.param}.onnx"
    form, (activations, weights), options = FORMS[request.param]
    logging.disable(logging.WARNING)  # it advises to prepare the model
    quantize_static(
        FOLDER / "residual.onnx",
        path,
        Reader(),
        quant_format=form,
        activation_type=TYPES[activations],
        weight_type=TYPES[weights],
        **options,
    )
    logging.disable(logging.NOTSET)
    return path


def test_a_network_equals_onnx_runtime(network: Path) -> None:
    data, samples = network.read_bytes(), images()[:SAMPLES]
    module = imported(data)
    assert isinstance(module.entry, Function)
    (result,) = module.entry.results
    for sample, (share,) in zip(samples, expected(data, samples), strict=True):
        np.testing.assert_array_equal(results(module, sample)[result.name], share)


@pytest.mark.host_c
def test_the_first_differing_layer_is_named(tmp_path: Path) -> None:
    """The firmware's network has another bias in the second of three layers."""
    net = Net(3)
    x = quantized_tensor(net, net.input("image", (1, 2, 5, 5)), 0.02, False)
    for _ in range(3):
        x = quantized_conv(net, x, 2, 2, (3, 3), 0.05, False, False, pads=[1] * 4)
    (tmp_path / "net.onnx").write_bytes(net.model(x))
    bias = next(w for w in net.weights if w.name == net.nodes[8].input[2])
    bias.CopyFrom(numpy_helper.from_array(np.array([0.9, -0.9], np.float32), bias.name))
    (tmp_path / "other.onnx").write_bytes(net.model(x))
    other = compile_for(load_model(tmp_path / "other.onnx"), "host")
    mixed = replace(other, source=load_model(tmp_path / "net.onnx").source)
    report = verify(mixed, samples=2, find_first_divergence=True)
    assert report.layer is not None
    assert report.layer.where.endswith(f"({net.nodes[8].output[0]})")


@pytest.mark.deep
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
        pytest.param("mps2-an385", marks=pytest.mark.qemu),
        pytest.param("mps3-an547", marks=pytest.mark.qemu),
    ],
)
def test_firmware_equals_onnx_runtime_on_1000_images(network: Path, board: str) -> None:
    batch = SampleBatch(tuple(images()[:DEEP_SAMPLES]))
    report = verify(compile_for(load_model(network), board), batch=batch)
    assert (report.samples, report.exact) == (DEEP_SAMPLES, True)
