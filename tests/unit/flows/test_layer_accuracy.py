"""Errors of layers tell rounding from values that the range clips."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import onnx
from firmwright.base.dtypes import INT8, INT16
from firmwright.base.quant import Quantization
from firmwright.cli.evaluate import format_evaluation, format_layers
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.evaluation import evaluate
from firmwright.flows.verify.layer_accuracy import (
    LayerKind,
    ValueRange,
    measure_layers,
    value_range,
)
from firmwright.flows.verify.onnx_quantization import quantize_onnx_model
from firmwright.ir.graph.nodes import TensorType
from firmwright.oracle.reference_runner import run_reference
from firmwright.report.evaluation import (
    LayerAccuracy,
    describe_clipping,
    describe_first_loss,
    render_evaluation,
)
from tests.onnx.onnx_models import Net

LIMITS = ValueRange(-1.0, 0.75, 0.25)


def measured(reals: np.ndarray, limits: ValueRange | None) -> LayerAccuracy:
    rounded = np.clip(np.rint(reals * 4) / 4, -1.0, 0.75)
    pairs = [({"y": reals}, {"y": rounded})]
    (layer,) = measure_layers(
        1,
        lambda _: pairs,
        {"y": LayerKind("add", 0)},
        {} if limits is None else {"y": limits},
    )
    return layer


def test_values_outside_of_the_range_are_counted_and_their_error_is_separate() -> None:
    inside = np.float32([-0.9, -0.3, 0.1, 0.6])
    clean = measured(inside, LIMITS)
    assert (clean.clipped, clean.unclipped_sqnr_db) == (0, None)
    assert not clean.loses_by_clipping
    assert describe_clipping([clean]) == ()
    layer = measured(np.append(inside, np.float32([3.0])), LIMITS)
    assert (layer.values, layer.clipped, layer.clipped_share) == (5, 1, "20.0 %")
    assert layer.unclipped_sqnr_db == pytest.approx(clean.sqnr_db)
    assert layer.loses_by_clipping
    ((name, text),) = describe_clipping([layer])
    assert name == "y"
    assert text.startswith("20.0 % of the values clip: the float model's, -0.9 to 3,")
    assert "outside of the calibrated range, -1 to 0.75" in text
    assert f"{clean.sqnr_db:.1f} dB instead of {layer.sqnr_db:.1f} dB" in text


def test_a_value_within_a_step_of_the_range_is_rounded_not_clipped() -> None:
    assert measured(np.float32([1.0, -1.25]), LIMITS).clipped == 0
    assert measured(np.float32([1.01, -1.26]), LIMITS).clipped == 2
    assert measured(np.float32([9.0]), None).clipped == 0


def test_a_clipped_share_that_matters_little_is_not_explained() -> None:
    many = np.tile(np.float32([0.13, -0.38, 0.62]), 4000)
    layer = measured(np.append(many, np.float32([1.1])), LIMITS)
    assert layer.clipped_share == "less than 0.1 %"
    assert layer.clipping == ""


def test_the_loss_begins_at_the_first_bad_layer_in_the_order_of_the_model() -> None:
    fused = "sequential_1/conv1d_1/Relu;sequential_1/conv1d_1/BiasAdd"
    layers = [
        LayerAccuracy("scores", "softmax", 8, 1.5, 0, 0, 1, index=9),
        LayerAccuracy(fused, "conv2d", 8, 7.5, 0, 0, 1, index=3, shape=(1, 5, 4)),
        LayerAccuracy("good", "conv2d", 8, 42.0, 0, 0, 1, index=1),
    ]
    assert layers[1].label == "conv2d 3, 5x4"
    assert describe_first_loss(layers).startswith("conv2d 3, 5x4 is the first below 20")
    assert describe_first_loss(layers[2:]) == ""


@pytest.mark.parametrize("columns", ["100", "60", "40"])
def test_no_column_of_the_layers_is_left_out(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    layer = LayerAccuracy("scores", "softmax", 8, 1.5, 0.25, 0.375, 12.5)
    shown = format_layers([layer])
    for words in ("softmax", "1.50", "0.25", "0.375", "12.5"):
        assert words in shown


def test_ranges_follow_from_the_type() -> None:
    kind = TensorType((4,), INT8, Quantization((0.5,), (-128,)))
    assert value_range(kind) == ValueRange(0.0, 127.5, 0.5)
    wide = value_range(TensorType((4,), INT16, Quantization((0.25,), (0,))))
    assert wide == ValueRange(-8192.0, 8191.75, 0.25)
    assert value_range(TensorType((4,), INT8)) is None
    several = Quantization((0.5, 0.25), (0, 0), 0)
    assert value_range(TensorType((2, 4), INT8, several)) is None


def test_data_beyond_the_calibration_explain_the_loss_of_evaluate(
    tmp_path: Path,
) -> None:
    """Quantize with small inputs and evaluate with larger ones; ONNX Runtime judges."""
    net = Net(8)
    x = net.node("Flatten", net.input("image", (1, 2, 6, 6)))
    hidden = net.node("Relu", net.node("Gemm", x, net.random(72, 12), net.random(12)))
    scores = net.node("Gemm", hidden, net.random(12, 4), net.random(4))
    data = net.model(scores)
    (tmp_path / "net.onnx").write_bytes(data)
    model = load_model(tmp_path / "net.onnx")
    rng = np.random.default_rng(4)
    images = rng.uniform(-1, 1, (24, 1, 2, 6, 6)).astype(np.float32)
    result = quantize_onnx_model(model, [{"image": image} for image in images])
    (calibrated,) = (layer for layer in result.layers if layer.name == scores)
    assert (calibrated.clipped, calibrated.loses_by_clipping) == (0, False)

    # Larger hidden values, within the range of the input.
    wide = np.sign(images) * np.abs(images) ** np.float32(0.2)
    wide = np.clip(wide, images.min(), images.max())
    (tmp_path / "q.onnx").write_bytes(result.model)
    compiled = compile_for(load_model(tmp_path / "q.onnx"))
    evaluation = evaluate(compiled, {"x": wide}, against=model)
    (layer,) = (item for item in evaluation.layers if item.name == scores)
    low, high, step = stored_range(result.model, scores)
    floats = run_reference(data, [{"image": image} for image in wide], "onnxruntime")
    values = np.stack([row[scores] for row in floats.outputs])
    outside = (values < low - step) | (values > high + step)
    assert 0 < np.count_nonzero(outside) == layer.clipped
    assert layer.value_range == pytest.approx((low, high))
    assert layer.float_range == pytest.approx((values.min(), values.max()))
    assert layer.unclipped_sqnr_db is not None
    assert layer.sqnr_db < layer.unclipped_sqnr_db < math.inf
    assert scores in dict(evaluation.clipping)
    assert f"{layer.clipped_share} of the values clip" in format_evaluation(evaluation)
    page = render_evaluation(evaluation)
    assert f"<b>{scores}</b>: {layer.clipped_share} of the values clip" in page


def stored_range(model: bytes, name: str) -> tuple[float, float, float]:
    """Return the range and the step of a result, from the file's QuantizeLinear."""
    graph = onnx.load_from_string(model).graph
    constants = {
        item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer
    }
    (node,) = (
        node
        for node in graph.node
        if node.op_type == "QuantizeLinear"
        and node.output[0] == f"{name}_QuantizeLinear_Output"
    )
    scale, zero = (constants[operand] for operand in node.input[1:])
    ends = [(end - int(zero)) * float(scale) for end in (-128, 127)]
    return ends[0], ends[1], float(scale)
