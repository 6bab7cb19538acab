"""svdf with the features by GEMM micro-kernels, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT16, INT32, DType
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule
from firmwright.schedules.registry import INTRINSICS, SCHEDULES

PRODUCTS = [item for item in SCHEDULES if item.op == "svdf" and item.requires]
BATCH = 2
STATE_SCALES = {
    (INT8, False): 0.07,
    (INT8, True): 0.07,
    (INT16, False): 0.0008,
    (INT16, True): 0.00004,
}
"""The scales of a state by its type, and whether features are shifted to the left."""


def quantized(
    shape: tuple[int, ...], dtype: DType, scale: float, point: int = 0
) -> TensorType:
    return TensorType(shape, dtype, Quantization((scale,), (point,)))


def limits(dtype: DType) -> tuple[int, int]:
    """Return the range of elements: whole, so that sums of int16 wrap; biases less."""
    return (-128, 128) if dtype == INT32 else (dtype.min, dtype.max + 1)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("state", [INT8, INT16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(
    ("inputs", "filters", "steps"), [(4, 16, 12), (5, 24, 4), (8, 6, 6), (16, 40, 8)]
)
@pytest.mark.parametrize("seed", range(8))  # two have weights that cannot be paired
@pytest.mark.parametrize("schedule", PRODUCTS, ids=lambda schedule: schedule.name)
def test_svdf_matches_the_reference(
    schedule: Schedule, state: DType, inputs: int, filters: int, steps: int, seed: int
) -> None:
    rng, units = np.random.default_rng(seed), filters // 2
    kinds = (
        quantized((BATCH, inputs), INT8, 0.05, 9),
        quantized((filters, inputs), INT8, 0.01),
        quantized((filters, steps), state, 0.0001 if state == INT16 else 0.01),
        quantized((units,), INT32, 0.0007),
        quantized(
            (BATCH, filters * steps), state, STATE_SCALES[state, seed % 4 == 3], -50
        ),
    )
    x, *weights, history = (
        rng.integers(*limits(kind.dtype), kind.shape).astype(kind.dtype.np)
        for kind in kinds
    )
    constants = [
        Constant.from_array("c", array, kind.dtype)
        for array, kind in zip(weights, kinds[1:4], strict=True)
    ]
    outputs = quantized((BATCH, units), INT8, 0.06, -128), kinds[-1]
    attrs = {"rank": 2, "activation": "relu"}
    call = OpCall(
        "svdf",
        kinds,
        outputs,
        attrs_from_mapping("svdf", attrs),
        (None, *constants, None),
        numerics="tflm",
    )
    if not schedule.configs(call):
        pytest.skip("the schedule does not apply")
    expected = op_table()["svdf"].reference(call, [x, *weights, history])
    kernel, y, after = (
        Kernel("kernel", call),
        np.zeros((BATCH, units), np.int8),
        history * 0,
    )
    schedule.build(call, NO_CONFIG, kernel)
    arrays = {"x": x, "x_1": history, "y": y, "y_1": after}
    interpret(kernel.build(), arrays, INTRINSICS, constants=kernel.constants)
    np.testing.assert_array_equal(y, expected[0])
    np.testing.assert_array_equal(after, expected[1])
