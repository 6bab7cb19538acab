"""Quantization of NaN, infinities and huge numbers, which C does not define, is alike everywhere.

NaN becomes the least integer, as in ONNX Runtime on x86; numbers beyond the range are saturated.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx_models import Net
from tflite_writer import write_cases

from firmwright.conformance.case_tables import CaseTensor, ConformanceCase
from firmwright.flows.compilation import compile_for
from firmwright.flows.model import load_model
from firmwright.flows.model_session import open_session

VALUES = np.array(
    [np.nan, -np.nan, np.inf, -np.inf, 3e38, -3e38, 2.0**31, -(2.0**31), 1e-40, -0.0, 2.6, -1.4],
    np.float32,
)
TYPES: tuple[type[np.integer], ...] = (np.int8, np.uint8, np.int16)
PARAMETERS = ((1.0, 3), (0.3, 0))
"""Steps and zero points."""
BOARDS = [
    pytest.param("host", marks=pytest.mark.host_c),
    pytest.param("mps2-an386", marks=pytest.mark.qemu),
    pytest.param("mps3-an547", marks=pytest.mark.qemu),
    pytest.param("microbit", marks=pytest.mark.qemu),
]
WITHOUT_FPU = pytest.mark.xfail(
    strict=False, reason="QUANTIZE of bytes in software floats gives 127 for a negative NaN"
)
TFLITE_BOARDS = [*BOARDS[:-1], pytest.param("microbit", marks=[pytest.mark.qemu, WITHOUT_FPU])]


def _quantized(kind: type[np.integer], step: float, zero_point: int) -> NDArray[np.generic]:
    limits = np.iinfo(kind)
    with np.errstate(over="ignore"):
        steps = np.rint(VALUES / np.float32(step)) + zero_point
    saturated = np.clip(np.where(np.isnan(steps), limits.min, steps), limits.min, limits.max)
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


@pytest.mark.parametrize("board", TFLITE_BOARDS)
@pytest.mark.parametrize("kind", TYPES)
def test_tflite_quantizes_nan_and_huge_numbers_alike_on_every_board(
    kind: type[np.integer], board: str, tmp_path: Path
) -> None:
    zero_point = 0 if kind is np.int16 else 3
    x = CaseTensor(VALUES.shape, "float32")
    y = CaseTensor(VALUES.shape, np.dtype(kind).name, (0.3,), (zero_point,))
    path = tmp_path / "model.tflite"
    path.write_bytes(write_cases([ConformanceCase("quantize", "QUANTIZE", (x,), (y,), {})]))
    with open_session(compile_for(load_model(path), board)) as session:
        (outputs,) = session.run_all([{"0.x0": VALUES}])
    (result,) = outputs.values()
    np.testing.assert_array_equal(result, _quantized(kind, 0.3, zero_point))
