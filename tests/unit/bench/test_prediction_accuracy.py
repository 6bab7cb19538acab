"""The cost model is close to executed counts, layer by layer."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import ToolMissingError
from firmwright.bench.prediction_accuracy import (
    Prediction,
    compare_predictions,
    median_error,
    worst_error,
)
from onnx import TensorProto, helper, numpy_helper
from tests import mlperf_tiny
from tests.conformance.candidate_counts import count_candidates, enumerate_candidates
from tests.conformance.generated_layers import generate_layers
from tests.onnx.onnx_models import digits_net

ON_MICROBIT = ("kws_ref_model.tflite", "str_ww_ref_model.tflite")
"""The models that can be counted in its 16 KB of RAM."""
MEDIAN_ERROR = 0.10
WORST_ERROR = 0.25
OTHER_TOOLS_ERROR = 0.45
"""With another C library, whose functions take other numbers of instructions."""


def test_errors_are_relative_to_the_count():
    rows = [
        Prediction("m", "b", index, "conv2d", "default", error, 100)
        for index, error in enumerate((90, 105, 130))
    ]
    assert [round(row.error, 2) for row in rows] == [-0.1, 0.05, 0.3]
    assert median_error(rows) == pytest.approx(0.1)
    assert worst_error(rows) == pytest.approx(0.3)


@pytest.mark.qemu
def test_every_layer_of_a_small_model_is_predicted(digits_path: Path):
    try:
        rows = list(compare_predictions([digits_path], ["mps2-an386"]))
    except ToolMissingError as missing:
        pytest.skip(str(missing))
    assert [row.operator for row in rows] == sorted({row.operator for row in rows})
    assert all(row.predicted > 0 and row.counted > 0 for row in rows)


@pytest.mark.sampled(2)
@pytest.mark.models
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
        pytest.param("microbit", marks=pytest.mark.qemu),
        pytest.param("mps2-an385", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("mps3-an547", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param(
            "qemu-riscv32-virt", marks=[pytest.mark.qemu("riscv32"), pytest.mark.deep]
        ),
    ],
)
def test_predictions_are_close_to_counts(
    board: str, deep: bool, model_path: Callable[[str], Path]
):
    models = ON_MICROBIT if board == "microbit" else mlperf_tiny.FILES
    models = models if deep else models[:1]
    try:
        rows = list(compare_predictions([model_path(name) for name in models], [board]))
    except ToolMissingError as missing:
        pytest.skip(str(missing))
    assert {row.model for row in rows} == set(models)
    assert median_error(rows) < MEDIAN_ERROR
    far = [row for row in rows if abs(row.error) >= WORST_ERROR]
    assert far == []


@pytest.mark.sampled(2)
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an385", "microbit"])
def test_floats_in_software_are_predicted(board: str, tmp_path: Path):
    (tmp_path / "net.onnx").write_bytes(digits_net())
    try:
        rows = list(compare_predictions([tmp_path / "net.onnx"], [board]))
    except ToolMissingError as missing:
        pytest.skip(str(missing))
    total = sum(row.counted for row in rows)
    assert sum(row.predicted for row in rows) == pytest.approx(total, rel=0.15)
    assert [
        row for row in rows if row.counted > total / 20 and abs(row.error) > WORST_ERROR
    ] == []


def _float_functions() -> bytes:
    """Build a model of float functions of one input, as ONNX."""
    plain = "Abs Neg Relu Exp Log Sqrt Tanh Sin Cos Ceil Round HardSigmoid LeakyRelu"
    numbers = {
        "slopes": np.linspace(0.1, 0.9, 16, dtype=np.float32).reshape(16, 1),
        "low": np.array(-0.5, np.float32),
        "high": np.array(0.5, np.float32),
        "five": np.array([5], np.int64),
        "row": np.array([1, 256], np.int64),
    }
    nodes = [
        *(helper.make_node(name, ["x"], [name]) for name in plain.split()),
        helper.make_node("PRelu", ["x", "slopes"], ["PRelu"]),
        helper.make_node("Clip", ["x", "low", "high"], ["Clip"]),
        helper.make_node("Reshape", ["x", "row"], ["flat"]),
        helper.make_node("TopK", ["flat", "five"], ["TopK", "places"]),
    ]
    outputs = [name for node in nodes for name in node.output if name != "flat"]
    kinds = {"places": TensorProto.INT64}
    graph = helper.make_graph(
        nodes,
        "functions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 16])],
        [
            helper.make_tensor_value_info(
                name, kinds.get(name, TensorProto.FLOAT), None
            )
            for name in outputs
        ],
        [numpy_helper.from_array(array, name) for name, array in numbers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


@pytest.mark.qemu
def test_float_functions_in_software_are_predicted(
    tmp_path: Path, measuring_tools: str, recorded_tools: str
):
    (tmp_path / "functions.onnx").write_bytes(_float_functions())
    try:
        rows = list(compare_predictions([tmp_path / "functions.onnx"], ["mps2-an385"]))
    except ToolMissingError as missing:
        pytest.skip(str(missing))
    assert len(rows) >= 16
    limit = WORST_ERROR if measuring_tools == recorded_tools else OTHER_TOOLS_ERROR
    assert [row for row in rows if abs(row.error) > limit] == []


@pytest.mark.qemu
def test_all_schedules_are_counted():
    drawn = [
        call
        for call in islice(generate_layers(3), 11)
        if call.op in ("add", "fully_connected")
    ]
    try:
        result = list(
            count_candidates(enumerate_candidates(drawn, "mps2-an386"), "mps2-an386")
        )
    except ToolMissingError as missing:
        pytest.skip(str(missing))
    assert {item.schedule for item, _ in result} >= {"default", "scalar.add.unrolled"}
    for item, share in result:
        assert share.instructions > item.call.output.elements
        assert share.cycles is not None
