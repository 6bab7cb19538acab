"""Every schedule of lstm computes what the reference does."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, DType
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.schedules.registry import INTRINSICS, SCHEDULES

BATCH, TIME, INPUTS = 2, 3, 6
GATES = 4
OF_LSTM = [schedule for schedule in SCHEDULES if schedule.op == "lstm"]


def kind(
    shape: tuple[int, ...], dtype: DType, scale: float, zero: int = 0
) -> TensorType:
    if dtype == FLOAT32:
        return TensorType(shape, dtype)
    return TensorType(shape, dtype, Quantization((scale,), (zero,)))


def drawn_call(
    rng: np.random.Generator,
    dtype: DType,
    units: int,
    major: bool,
    numerics: str,
    cell_exponent: int,
) -> tuple[OpCall, list[np.ndarray]]:
    """Return a layer and its arrays; steps are odd, and scales shift both ways."""
    is_real = dtype == FLOAT32
    x = kind((TIME, BATCH, INPUTS) if major else (BATCH, TIME, INPUTS), dtype, 0.1, -7)
    hidden = kind((BATCH, units), dtype, 1 / 128, 3)
    cells = kind((BATCH, units), dtype if is_real else INT16, 2.0**cell_exponent)
    weights = [
        kind((units, size), dtype, scale * (1 + gate / 8))
        for size, scale in ((INPUTS, 0.02), (units, 0.005))
        for gate in range(GATES)
    ]
    biases = [kind((units,), dtype if is_real else INT32, 0.002)] * GATES
    kinds = (x, *weights, *biases, hidden, cells)
    arrays = []
    for each in kinds:
        if is_real:
            arrays.append(rng.normal(0, 0.7, each.shape).astype(np.float32))
        else:
            reach = {INT8: 127, INT16: 9000, INT32: 2000}[each.dtype]
            values = rng.integers(-reach, reach + 1, each.shape)
            arrays.append(values.astype(each.dtype.np))
    constants: list[Constant | None] = [None]
    for array, each in zip(arrays[1:-2], kinds[1:-2], strict=True):
        constants.append(Constant.from_array("c", array, each.dtype))
    clip = min(3.0, 2.0 ** (cell_exponent + 14))
    attrs = attrs_from_mapping("lstm", {"cell_clip": clip, "time_major": major})
    y = kind((*x.shape[:2], units), dtype, 1 / 128, 3)
    call = OpCall(
        "lstm",
        kinds,
        (y, hidden, cells),
        attrs,
        (*constants, None, None),
        numerics=numerics,
    )
    return call, arrays


@pytest.mark.parametrize("schedule", OF_LSTM, ids=lambda schedule: schedule.name)
def test_lstm_matches_the_reference(schedule) -> None:
    found = 0
    scales = ((3, -11), (8, -9), (8, -15), (3, -17))
    for dtype, (units, exponent) in product((INT8, FLOAT32), scales):
        for numerics, major in (("litert", False), ("tflm", True)):
            rng = np.random.default_rng(units)
            call, arrays = drawn_call(rng, dtype, units, major, numerics, exponent)
            expected = op_table()["lstm"].reference(call, arrays)
            for config in schedule.configs(call):
                kernel = Kernel("kernel", call)
                outputs = [np.zeros_like(each) for each in expected]
                schedule.build(call, config, kernel)
                names = ("x", "x_1", "x_2", "y", "y_1", "y_2")
                given = [arrays[0], *arrays[-2:], *outputs]
                interpret(
                    kernel.build(),
                    dict(zip(names, given, strict=True)),
                    INTRINSICS,
                    constants=kernel.constants,
                )
                tolerance = 1e-5 if dtype == FLOAT32 else 0
                for result, right in zip(outputs, expected, strict=True):
                    np.testing.assert_allclose(result, right, rtol=0, atol=tolerance)
                found += 1
    assert found
