"""Integers of NaN, infinities and huge floats, undefined in C, are alike everywhere.

Quantization makes NaN the least integer, as ONNX Runtime does on x86, and saturates
numbers beyond the range. Casts equal the reference runtimes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.conformance.case_tables import CaseTensor, ConformanceCase
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from firmwright.oracle.tflite_interpreters import RESOLVERS, LiteRtRuntime
from onnx import TensorProto
from tests.onnx.onnx_models import Net
from tests.ops.tflite_writer import write_cases

VALUES = np.array(
    [
        np.nan,
        -np.nan,
        np.inf,
        -np.inf,
        3e38,
        -3e38,
        2.0**31,
        -(2.0**31),
        1e-40,
        -0.0,
        2.6,
        -1.4,
    ],
    np.float32,
)
TYPES: tuple[type[np.integer], ...] = (np.int8, np.uint8, np.int16)
PARAMETERS = ((1.0, 3), (0.3, 0))
"""Steps and zero points."""
BOARDS = [
    pytest.param("host", marks=pytest.mark.host_c),
    pytest.param("mps2-an386", marks=pytest.mark.qemu),
    pytest.param("mps3-an547", marks=[pytest.mark.qemu, pytest.mark.deep]),
    pytest.param("microbit", marks=[pytest.mark.qemu, pytest.mark.deep]),
]
CAST_VALUES = np.array(
    [
        *VALUES,
        300.7,
        -300.7,
        -0.9,
        127.9,
        -129.0,
        70000.5,
        4e9,
        1e10,
        -(2.0**31) - 256,
        2.0**63,
    ],
    np.float32,
)
CASTS = ("INT8", "UINT8", "INT16", "UINT16", "INT32", "INT64")


def _quantized(
    kind: type[np.integer], step: float, zero_point: int
) -> NDArray[np.generic]:
    limits = np.iinfo(kind)
    with np.errstate(over="ignore"):
        steps = np.rint(VALUES / np.float32(step)) + zero_point
    saturated = np.clip(
        np.where(np.isnan(steps), limits.min, steps), limits.min, limits.max
    )
    return saturated.astype(kind)


@pytest.mark.parametrize("board", BOARDS)
def test_onnx_quantizes_nan_and_huge_numbers_alike_on_every_board(
    board: str, tmp_path: Path
) -> None:
    net = Net(opset=21)
    x = net.input("x", VALUES.shape)
    results = [
        net.node("QuantizeLinear", x, net.scalar(step), net.scalar(kind(zero_point)))
        for kind in TYPES
        for step, zero_point in PARAMETERS
    ]
    path = tmp_path / "model.onnx"
    path.write_bytes(net.model(*results))
    with open_session(compile_for(load_model(path), board)) as session:
        (outputs,) = session.run_all([{"x": VALUES}])
    values = iter(outputs.values())
    for kind in TYPES:
        for step, zero_point in PARAMETERS:
            expected = _quantized(kind, step, zero_point)
            np.testing.assert_array_equal(next(values), expected, f"{kind}, {step}")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("kind", TYPES)
def test_tflite_quantizes_nan_and_huge_numbers_alike_on_every_board(
    kind: type[np.integer], board: str, tmp_path: Path
) -> None:
    zero_point = 0 if kind is np.int16 else 3
    x = CaseTensor(VALUES.shape, "float32")
    y = CaseTensor(VALUES.shape, np.dtype(kind).name, (0.3,), (zero_point,))
    path = tmp_path / "model.tflite"
    path.write_bytes(
        write_cases([ConformanceCase("quantize", "QUANTIZE", (x,), (y,), {})])
    )
    with open_session(compile_for(load_model(path), board)) as session:
        (outputs,) = session.run_all([{"0.x0": VALUES}])
    (result,) = outputs.values()
    np.testing.assert_array_equal(result, _quantized(kind, 0.3, zero_point))


@pytest.mark.parametrize("board", BOARDS)
def test_an_onnx_cast_equals_onnx_runtime_for_every_float(
    board: str, tmp_path: Path
) -> None:
    net = Net(opset=13)
    x = net.input("x", CAST_VALUES.shape)
    results = [
        net.node("Cast", x, to=TensorProto.DataType.Value(kind)) for kind in CASTS
    ]
    model = net.model(*results)
    expected = OnnxRuntimeSession(model, layers=False).run([CAST_VALUES])
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    with open_session(compile_for(load_model(path), board)) as session:
        (outputs,) = session.run_all([{"x": CAST_VALUES}])
    for kind, own, y in zip(CASTS, outputs.values(), expected, strict=True):
        np.testing.assert_array_equal(own, y, kind)


@pytest.mark.parametrize("board", BOARDS)
def test_a_tflite_cast_equals_litert_for_every_float(
    board: str, tmp_path: Path
) -> None:
    x, y = (CaseTensor(CAST_VALUES.shape, kind) for kind in ("float32", "int32"))
    model = write_cases([ConformanceCase("cast", "CAST", (x,), (y,), {})])
    (expected,) = LiteRtRuntime(model, layers=False, resolver=RESOLVERS["litert"]).run(
        [CAST_VALUES]
    )
    path = tmp_path / "model.tflite"
    path.write_bytes(model)
    with open_session(compile_for(load_model(path), board)) as session:
        (outputs,) = session.run_all([{"0.x0": CAST_VALUES}])
    (own,) = outputs.values()
    np.testing.assert_array_equal(own, expected)
