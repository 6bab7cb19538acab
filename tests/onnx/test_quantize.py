"""`firmwright quantize` makes int8 models that firmware computes exactly."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.errors import UsageError
from firmwright.cli.main import main
from firmwright.cli.quantize import format_summary
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model, model_inputs
from firmwright.flows.samples.labeled_data import read_dataset
from firmwright.flows.samples.reference_outputs import compute_reference
from firmwright.flows.verify.onnx_quantization import FloatResult, quantize_onnx_model
from firmwright.oracle.onnx_quantizer import QuantizeOptions
from firmwright.oracle.reference_runner import run_reference
from tests.onnx.onnx_models import Net

SAMPLES = 12
SHAPE = (1, 2, 11, 9)
RESULT = "gemm8_0"


@dataclass(frozen=True)
class QuantizeRun:
    """A float model in a folder, and the result of the command."""

    folder: Path
    status: int
    said: dict[str, Any]
    model: Model


def small_cnn() -> bytes:
    """Build a convolution, a depthwise one, their sum, a mean, and a dense layer."""
    net = Net(6)
    x = net.batch_norm(
        net.conv(net.input("image", SHAPE), 2, 4, (3, 3), strides=[2, 2]), 4
    )
    short = x = net.node("Relu", x)
    x = net.node("Relu", net.conv(x, 4, 4, (3, 3), pads=[1] * 4, group=4))
    x = net.node("Flatten", net.node("GlobalAveragePool", net.node("Add", x, short)))
    return net.model(net.node("Gemm", x, net.random(4, 5), net.random(5)))


def images(count: int = SAMPLES) -> NDArray[np.float32]:
    rng = np.random.Generator(np.random.PCG64(7))
    return rng.normal(size=(count, *SHAPE)).astype(np.float32)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> QuantizeRun:
    folder = tmp_path_factory.mktemp("quantize")
    (folder / "net.onnx").write_bytes(small_cnn())
    (folder / "data").mkdir()
    for number, image in enumerate(images()):
        if number % 2:
            np.save(folder / "data" / f"{number:02}.npy", image[0])  # without the batch
        else:
            np.savez(folder / "data" / f"{number:02}.npz", image=image)
    command = quantize_by_command(folder)
    return QuantizeRun(folder, *command, load_model(folder / "out.onnx"))


def quantize_by_command(folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    spoken = io.StringIO()
    words = [
        "quantize",
        folder / "net.onnx",
        "--data",
        folder / "data",
        "-o",
        folder / "out.onnx",
    ]
    with contextlib.redirect_stdout(spoken):
        status = main([*map(str, words), "--json", *more])
    return status, json.loads(spoken.getvalue())


def test_layer_errors_are_sorted_by_size(quantized: QuantizeRun) -> None:
    assert (quantized.status, quantized.said["ok"]) == (0, True)
    assert (quantized.said["samples"], quantized.said["compared"]) == (SAMPLES, SAMPLES)
    ratios = [layer["sqnr_db"] for layer in quantized.said["layers"]]
    assert ratios == sorted(ratios)
    assert 25 < ratios[0] < ratios[-1] < 60
    operators = sorted(layer["op"] for layer in quantized.said["layers"])
    assert operators == ["Add", "Gemm", "GlobalAveragePool", "Relu", "Relu"]
    for layer in quantized.said["layers"]:
        assert 0 < layer["mean_abs_error"] <= layer["max_abs_error"] < layer["largest"]
    assert quantized.said["in_floats"] == []


def test_the_result_error_compares_the_two_models(quantized: QuantizeRun) -> None:
    inputs = [{"image": image} for image in images()]
    (reference,) = zip(
        *(r.values() for r in run(quantized.folder / "net.onnx", inputs)), strict=True
    )
    (got,) = zip(
        *(r.values() for r in run(quantized.folder / "out.onnx", inputs)), strict=True
    )
    (layer,) = (item for item in quantized.said["layers"] if item["op"] == "Gemm")
    error = np.abs(np.stack(got) - np.stack(reference))
    assert layer["values"] == error.size
    assert layer["mean_abs_error"] == pytest.approx(error.mean(), rel=1e-4)
    assert layer["max_abs_error"] == pytest.approx(error.max(), rel=1e-4)


def run(path: Path, inputs: list[dict[str, NDArray[np.float32]]]) -> Any:
    return run_reference(path.read_bytes(), inputs, "onnxruntime").outputs


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
    ],
)
def test_firmware_equals_onnx_runtime(quantized: QuantizeRun, board: str) -> None:
    compiled = compile_for(quantized.model, board=board)
    inputs = [{"image": image} for image in images()]
    with open_session(compiled) as session:
        got = session.run_all(inputs)
    expected = compute_reference(compiled, inputs)
    assert expected.name.startswith("ONNX Runtime")
    for ours, reference in zip(got, expected.outputs, strict=True):
        np.testing.assert_array_equal(ours[RESULT], reference[RESULT])


def test_quantization_is_deterministic(quantized: QuantizeRun) -> None:
    model = load_model(quantized.folder / "net.onnx")
    samples = read_dataset(quantized.folder / "data", model_inputs(model)).samples
    again = quantize_onnx_model(model, samples, compared=0)
    assert again.model == (quantized.folder / "out.onnx").read_bytes()
    assert "left in floats   nothing" in format_summary(
        again, (), "net.onnx", "out.onnx", 1
    )


def test_excluded_operators_stay_float(quantized: QuantizeRun) -> None:
    model = load_model(quantized.folder / "net.onnx")
    samples = read_dataset(quantized.folder / "data", model_inputs(model)).samples[:2]
    how = QuantizeOptions("Percentile", "QUInt8", per_channel=False, exclude=(RESULT,))
    result = quantize_onnx_model(model, samples, how, compared=0)
    assert result.in_floats == (FloatResult(RESULT, "Gemm", "it is excluded"),)


def test_floats_have_a_reason_and_labels_give_the_accuracy(tmp_path: Path) -> None:
    net = Net(6)
    x = net.node("ReduceMean", net.node("Relu", net.input("image", SHAPE)), axes=[2, 3])
    lost = net.node("Reshape", net.node("Cos", x), net.weight(np.array([1, 2])))
    y = net.node("MatMul", lost, net.random(2, 3))
    (tmp_path / "net.onnx").write_bytes(net.model(y))
    np.savez(tmp_path / "data", x=images(), y=np.arange(SAMPLES) % 3)
    command = ["--data", str(tmp_path / "data.npz")]
    _, said = quantize_by_command(tmp_path, *command)
    reasons = {item["op"]: item["reason"] for item in said["in_floats"]}
    assert (
        reasons
        == {
            "Relu": "there is no integer form with its operands",  # those of ReduceMean have one
            "Cos": "Cos is not among the operators that are quantized",
            "Reshape": "its operand cos2_0 is in floats",
        }
    )
    assert [run["what"] for run in said["runs"]] == ["float model", "quantized model"]
    assert said["runs"][1]["figures"]["same_class"] > 0.8


def test_networks_of_scikit_learn_are_quantized(tmp_path: Path) -> None:
    """skl2onnx writes biases of 1xN, and a scaler whose result has no known type."""
    net = Net(9)
    x = net.node("MatMul", net.input("x", (1, 6)), net.random(6, 8))
    x = net.node("Relu", net.node("Add", x, net.random(1, 8)))
    x = net.node("Scaler", x, domain="ai.onnx.ml", offset=[0.5], scale=[0.5])
    x = net.node("Add", net.node("MatMul", x, net.random(8, 3)), net.random(1, 3))
    scores = net.node("Identity", net.node("Softmax", x))
    (tmp_path / "net.onnx").write_bytes(net.model(scores))
    rng = np.random.Generator(np.random.PCG64(1))
    samples = [{"x": row} for row in rng.normal(size=(9, 1, 6)).astype(np.float32)]
    result = quantize_onnx_model(load_model(tmp_path / "net.onnx"), samples)
    assert [item.op for item in result.in_floats] == ["Scaler"]
    kinds = {layer.op for layer in result.layers}
    assert {"Relu", "Add", "Softmax"} <= kinds
    assert min(layer.sqnr_db for layer in result.layers) > 20


def test_a_model_without_integer_forms_is_refused(tmp_path: Path) -> None:
    net = Net(3)
    x = net.input("x", (1, 6))
    scaled = net.node("Scaler", x, domain="ai.onnx.ml", offset=[0.5], scale=[2.0])
    (tmp_path / "net.onnx").write_bytes(net.model(scaled))
    model = load_model(tmp_path / "net.onnx")
    with pytest.raises(UsageError, match=r"nothing to quantize.*\(Scaler\)"):
        quantize_onnx_model(model, [{"x": np.zeros((1, 6), np.float32)}])


# ---- what goes wrong -----------------------------------------------------------------


def test_a_quantized_model_and_an_unknown_name_are_refused(
    quantized: QuantizeRun,
) -> None:
    samples = [{"image": images(1)[0]}]
    with pytest.raises(
        UsageError, match="the model is already quantized: it has DequantizeLinear"
    ):
        quantize_onnx_model(quantized.model, samples)
    with pytest.raises(
        UsageError, match="the model has no operator 'nothing' to exclude"
    ):
        quantize_onnx_model(
            load_model(quantized.folder / "net.onnx"),
            samples,
            QuantizeOptions(exclude=("nothing",)),
        )


def test_a_tflite_model_is_refused(digits_path: Path) -> None:
    model = load_model(digits_path)
    with pytest.raises(UsageError, match="only float ONNX models can be quantized"):
        quantize_onnx_model(model, [{}])


def test_unsupported_models_are_refused_before_quantization(tmp_path: Path) -> None:
    net = Net()
    x, regions = net.input("x", (1, 1, 3, 3)), net.input("regions", (1, 5))
    y = net.node("MaxRoiPool", x, regions, pooled_shape=[2, 2])
    (tmp_path / "net.onnx").write_bytes(net.model(y))
    status, said = quantize_by_command(tmp_path)
    assert (status, said["error"]["code"]) == (2, "unsupported")
    assert [item["op"] for item in said["error"]["items"]] == ["MaxRoiPool"]
    assert not (tmp_path / "out.onnx").exists()
