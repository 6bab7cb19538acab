"""quantize of floats on Helium: exact at all bounds, for infinities and for NaN."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8, INT16, DType
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.kernels.elementwise import helium_program
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.ops.quantize import reference
from firmwright.ops.schedule import NO_CONFIG
from firmwright.schedules.helium import requantize_values
from firmwright.schedules.helium_floats import quantize
from firmwright.schedules.scalar.quantize_search import floats_of_order, least_floats


def quantization(scale: float, point: int) -> OpCall:
    quant = Quantization((float(np.float32(scale)),), (point,))
    return OpCall(
        "quantize",
        (TensorType((1,), FLOAT32),),
        (TensorType((1,), INT8, quant),),
        attrs_from_mapping("quantize", {}),
        (None,),
    )


@pytest.mark.parametrize(
    ("scale", "point"), [(1 / 255, -128), (0.0235, 3), (1.0, 0), (7.3e-6, 127)]
)
def test_vectors_quantize_as_the_operator(scale: float, point: int) -> None:
    op = quantization(scale, point)
    assert quantize._configs(op)
    order = least_floats(op)
    special = np.array([np.inf, -np.inf, np.nan, 0, -0.0, 3e38, -3e38], np.float32)
    x = np.concatenate([floats_of_order(order), floats_of_order(order - 1), special])
    lanes = [np.resize(x, (4, len(x) // 4 + 1))[lane] for lane in range(4)]
    numbers = {
        "minus_scale": -np.float32(scale),
        "inverse": quantize._inverse(np.float32(scale)),
        "least": np.float32(-512),
        "far": np.float32(512),
    }
    count = lanes[0].shape
    registers = {name: (np.full(count, n, np.float32),) for name, n in numbers.items()}
    registers["zero_point"] = (np.full(count, point, np.int32),)
    memory = {"x": lanes, "y": [np.zeros(count, np.int8)] * 4}
    program = helium_program(quantize.QUANTIZE_LOOP).chosen({"zero_point": point})
    with np.errstate(all="ignore"):  # infinity times 1 / scale, and its remainder
        state = run_program(program, evaluate, memory, registers)
    given = np.stack(lanes).reshape(-1)
    with np.errstate(invalid="ignore"):
        (expected,) = reference(op, [given])
    expected = np.where(np.isnan(given), -128, expected)
    np.testing.assert_array_equal(np.stack(state.memory["y"]).reshape(-1), expected)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scales_whose_remainders_may_vanish_are_left(scale: float) -> None:
    assert not quantize._configs(quantization(scale, 0))


@pytest.mark.parametrize("dtype", [INT8, INT16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("point", [-128, 4])
def test_integers_match_the_reference(dtype: DType, point: int, judge) -> None:
    (schedule,) = requantize_values.SCHEDULES
    x_quant = Quantization((1 / 512,), (0 if dtype == INT16 else 7,))
    y_quant = Quantization((0.25 if dtype == INT16 else 0.003,), (point,))
    op = replace(
        quantization(1.0, 0),
        inputs=(TensorType((3, 7), dtype, x_quant),),
        outputs=(TensorType((3, 7), INT8, y_quant),),
    )
    assert schedule.configs(op) == (NO_CONFIG,)
    judge(op, schedule, NO_CONFIG)
    finer = Quantization((1 / 4096,), (point,))
    upward = replace(op, outputs=(TensorType((3, 7), INT8, finer),))
    assert not schedule.configs(upward)
