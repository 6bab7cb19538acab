"""NaN, infinities, zeros and subnormal numbers in float operators, on every board.

One model has every operator; its results are those of ONNX Runtime, except for rows of
`OWN`, in which ONNX Runtime's depends on the place of NaN in its tensor, or a missing
limit makes infinity the greatest number. docs/reference/numerics.md states both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX needs the package onnx")
pytest.importorskip("onnxruntime", reason="the expected values come from ONNX Runtime")

from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from tests.onnx.onnx_models import Array, Net
from tests.special_floats import BOARDS, MANY_OPERATORS, draw_special

SUBNORMAL = np.array([1e-40, -1e-40, 1e-45], np.float32)
FLUSHING = frozenset({"mps3-an547"})
"""Boards whose vectors take subnormal numbers as zeros."""


MATRIX, OTHER = draw_special((8, 13), 3), draw_special((8, 13), 3, seed=2)
ROWS, IMAGE = draw_special((8, 13), 12), draw_special((1, 4, 7, 9), 12)
SERIES = draw_special((5, 2, 4), 12)
CONSTANTS = np.random.default_rng(3)


@dataclass(frozen=True, slots=True)
class Row:
    """A node: operator, inputs, constants behind them, and attributes."""

    op: str
    inputs: Sequence[Array] = (MATRIX,)
    constants: Sequence[Array | None] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    relu: bool = False
    """Whether a Relu follows, which layers fuse."""
    outputs: int = 1

    def __str__(self) -> str:
        return f"{self.op} {dict(self.attributes)}{' and Relu' * self.relu}"


def weights(*shape: int) -> Array:
    return CONSTANTS.normal(size=shape).astype(np.float32)


def floats(*values: float) -> list[Array]:
    return [np.array(value, np.float32) for value in values]


def elementwise() -> Iterator[Row]:
    for op in [
        "Relu",
        "LeakyRelu",
        "Elu",
        "Selu",
        "Celu",
        "HardSigmoid",
        "HardSwish",
        "Mish",
        "Softplus",
        "Softsign",
        "Sigmoid",
        "Tanh",
        "Erf",
        "Sign",
        "Shrink",
        "ThresholdedRelu",
        "Abs",
        "Neg",
        "Exp",
        "Log",
        "Sqrt",
        "Reciprocal",
        "Floor",
        "Ceil",
        "Round",
        "Sin",
        "Cos",
        "IsNaN",
        "IsInf",
        "Gelu",
    ]:
        yield Row(op)
    yield Row("Gelu", attributes={"approximate": "tanh"})
    for op in [
        "Max",
        "Min",
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "PRelu",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
    ]:
        yield Row(op, (MATRIX, OTHER))
    for op in ("Add", "Sub", "Mul", "Div"):
        yield Row(op, (MATRIX, OTHER), relu=True)
    yield Row("Max", (MATRIX, OTHER, draw_special((8, 13), 3, seed=4)))
    yield Row("Min", constants=floats(0.5))
    yield Row("Max", constants=floats(0))
    yield Row("Mod", (MATRIX, OTHER), attributes={"fmod": 1})
    for limits in (floats(0, 6), floats(-1, 1), floats(0, 3e38)):
        yield Row("Clip", constants=limits)


def reductions() -> Iterator[Row]:
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        yield Row(op, (ROWS,))
    for op in ["Mean", "Sum", "L1", "L2", "SumSquare", "LogSum", "LogSumExp", "Prod"]:
        for axis in (0, 1):
            yield Row(f"Reduce{op}", (ROWS,), (np.array([axis]),))
    for op in ("ArgMax", "ArgMin"):
        yield Row(op, (ROWS,), attributes={"axis": 1})
    yield Row("LayerNormalization", (ROWS,), (np.ones(13, np.float32),))
    unit = np.ones(4, np.float32), np.zeros(4, np.float32)
    yield Row("InstanceNormalization", (IMAGE,), unit)
    yield Row("LpNormalization", (ROWS,))
    yield Row("CumSum", (ROWS,), (np.array(1),))


def layers() -> Iterator[Row]:
    for relu in (False, True):
        yield Row("Conv", (IMAGE,), (weights(6, 4, 3, 3),), relu=relu)
        depthwise = weights(4, 1, 3, 3)
        yield Row("Conv", (IMAGE,), (depthwise,), {"group": 4}, relu)
        kernel = weights(4, 3, 2, 2)
        yield Row("ConvTranspose", (IMAGE,), (kernel,), {"strides": [2, 2]}, relu)
        yield Row("Gemm", (ROWS,), (weights(13, 5), np.ones(5, np.float32)), {}, relu)
        yield Row("MatMul", (ROWS, draw_special((13, 4), 12)), relu=relu)
        window = {"kernel_shape": [2, 2]}
        yield Row("AveragePool", (IMAGE,), attributes=window, relu=relu)
    yield Row("GlobalAveragePool", (IMAGE,))
    yield Row("LpPool", (IMAGE,), attributes={"kernel_shape": [2, 2], "p": 2})
    nearest = {"mode": "nearest"}
    yield Row("Resize", (IMAGE,), (None, np.array([1, 1, 2, 2], np.float32)), nearest)
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        matrices = weights(1, gates * 3, 4), weights(1, gates * 3, 3)
        for clip in ({}, {"clip": 1.0}):
            yield Row(op, (SERIES,), matrices, {"hidden_size": 3, **clip}, outputs=2)


AS_ONNX_RUNTIME = (*elementwise(), *reductions(), *layers())


def model_of(rows: Sequence[Row]) -> tuple[bytes, dict[str, Array]]:
    """Return a model with an output for each row, and its inputs."""
    net = Net(opset=22)
    feeds: dict[str, Array] = {}
    results = []
    for row in rows:
        names = []
        for value in row.inputs:
            name = net.input(f"x{len(feeds)}", value.shape)
            feeds[name] = value
            names.append(name)
        for constant in row.constants:
            names.append("" if constant is None else net.weight(np.asarray(constant)))
        y = net.node(row.op, *names, outputs=row.outputs, **row.attributes)
        first = y if row.outputs == 1 else y[0]
        results.append(net.node("Relu", first) if row.relu else first)
    return net.model(*results), feeds


def run_on(
    board: str, model: bytes, feeds: Mapping[str, Array], folder: Path
) -> list[Array]:
    path = folder / "model.onnx"
    path.write_bytes(model)
    with open_session(compile_for(load_model(path), board)) as session:
        (outputs,) = session.run_all([dict(feeds)])
    return list(outputs.values())


def differences(row: Row, own: Array, expected: Array) -> str:
    """Return a sentence about the first result that differs, or ""."""
    with np.errstate(all="ignore"):
        same = (own == expected) | ((own != own) & (expected != expected))
        if expected.dtype.kind == "f":
            same |= np.isclose(own, expected, 1e-4, 1e-5)
    if same.all():
        return ""
    return f"{row}: {own[~same][0]} instead of {expected[~same][0]}"


@pytest.mark.parametrize("board", MANY_OPERATORS)
def test_special_floats_give_the_results_of_onnx_runtime(
    board: str, tmp_path: Path
) -> None:
    model, feeds = model_of(AS_ONNX_RUNTIME)
    session = OnnxRuntimeSession(model, layers=False)
    expected = session.run([feeds[name] for name in session.input_names])
    own = run_on(board, model, feeds, tmp_path)
    found = map(differences, AS_ONNX_RUNTIME, own, expected)
    assert [text for text in found if text] == []


# ---- where the runtime's result depends on the place ---------------------------------


OWN = (
    (Row("Clip", constants=floats(0)), np.where(MATRIX < 0, 0, MATRIX)),
    (
        Row("ReduceMax", (ROWS,), (np.array([1]),), {"keepdims": 0}),
        np.fmax.reduce(ROWS, axis=1),
    ),
    (
        Row("ReduceMin", (ROWS,), (np.array([1]),), {"keepdims": 0}),
        np.fmin.reduce(ROWS, axis=1),
    ),
    (
        Row("GlobalMaxPool", (IMAGE,)),
        np.fmax.reduce(IMAGE, axis=(2, 3), keepdims=True),
    ),
    (
        Row("MaxPool", (IMAGE,), attributes={"kernel_shape": [2, 2]}),
        np.fmax(
            np.fmax(IMAGE[..., :-1, :-1], IMAGE[..., :-1, 1:]),
            np.fmax(IMAGE[..., 1:, :-1], IMAGE[..., 1:, 1:]),
        ),
    ),
)
"""Rows with their results: maxima and minima pass over NaN, infinities stay."""


@pytest.mark.parametrize("board", BOARDS)
def test_maxima_of_windows_pass_over_nan_and_infinities_stay(
    board: str, tmp_path: Path
) -> None:
    model, feeds = model_of([row for row, _ in OWN])
    own = run_on(board, model, feeds, tmp_path)
    for (row, expected), y in zip(OWN, own, strict=True):
        assert differences(row, y, np.asarray(expected)) == ""


@pytest.mark.parametrize("board", BOARDS)
def test_subnormal_numbers_are_kept_unless_vectors_take_them_as_zeros(
    board: str, tmp_path: Path
) -> None:
    values = np.tile(SUBNORMAL, 3)
    model, feeds = model_of([Row("Add", (values, values))])
    (own,) = run_on(board, model, feeds, tmp_path)
    expected = np.zeros_like(values) if board in FLUSHING else values + values
    np.testing.assert_array_equal(own, expected)


@pytest.mark.qemu
def test_code_that_assumes_no_nan_has_the_results_of_numbers(tmp_path: Path) -> None:
    numbers = weights(1, 4, 7, 9)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    rows = [
        Row("Conv", (numbers,), (weights(6, 4, 3, 3),), {}, True),
        Row("MaxPool", (numbers,), (), window, True),
        Row("MaxPool", (numbers,), (), window),
    ]
    model, feeds = model_of(rows)
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    compiled = [
        compile_for(load_model(path), "mps2-an386", no_nan=no_nan)
        for no_nan in (False, True)
    ]
    usual, shorter = (str(each.tree.files) for each in compiled)
    assert "fpu_relu_f32" in usual
    assert "fpu_relu_of_number_f32" in shorter
    with open_session(compiled[1]) as session:
        (outputs,) = session.run_all([feeds])
    runtime = OnnxRuntimeSession(model, layers=False)
    expected = runtime.run([feeds[name] for name in runtime.input_names])
    assert [*map(differences, rows, outputs.values(), expected)] == [""] * len(rows)
