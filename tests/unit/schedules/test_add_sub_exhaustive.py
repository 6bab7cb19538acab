"""Every add and sub schedule on all 65,536 pairs of int8 values, for random scales."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import Schedule
from firmwright.schedules.registry import INTRINSICS, SCHEDULES

DRAWS = 2
DEEP_DRAWS = 200
SHAPE = (1, 256, 256, 1)
VALUES = np.arange(-128, 128, dtype=np.int8)
PAIRS = [
    np.ascontiguousarray(each).reshape(SHAPE) for each in np.meshgrid(VALUES, VALUES)
]
ELEMENTS = np.array([*VALUES[::16], -1, 1, 127], np.int8)
CHANNELS = [np.repeat(VALUES, ELEMENTS.size).reshape(-1, ELEMENTS.size), ELEMENTS]
"""All values as pixels of each channel, and an element for each channel."""


def operands(schedule: Schedule) -> list[np.ndarray]:
    return CHANNELS if schedule.name.endswith(".channels") else PAIRS


def drawn_sum(op: str, seed: int, arrays: list[np.ndarray]) -> OpCall:
    rng = np.random.default_rng(seed)
    first = 2.0 ** rng.uniform(-8, 2)
    second = first * 2.0 ** rng.choice([0.0, rng.uniform(-3, 3), rng.uniform(-12, 12)])
    third = max(first, second) * 2.0 ** rng.uniform(-3, 3)
    kinds = [
        TensorType(
            shape, INT8, Quantization((float(np.float32(scale)),), (int(point),))
        )
        for shape, scale, point in zip(
            [x.shape for x in (*arrays, arrays[0])],
            (first, second, third),
            rng.integers(-128, 128, 3),
            strict=True,
        )
    ]
    activation = str(rng.choice(["none", "relu", "relu6"]))
    call = OpCall(
        op,
        (kinds[0], kinds[1]),
        (kinds[2],),
        attrs_from_mapping(op, {"activation": activation}),
        (None, None),
    )
    op_table()[op].infer(call)
    return call


QUANTIZED = [
    schedule
    for schedule in SCHEDULES
    if schedule.op in ("add", "sub", "mul")
    and not schedule.name.endswith((".floats", ".in_line", ".lanes"))
]


@pytest.mark.parametrize("schedule", QUANTIZED, ids=lambda schedule: schedule.name)
def test_every_pair_of_values_matches_the_reference(
    schedule: Schedule, deep: bool
) -> None:
    done, seed = 0, 0
    arrays = operands(schedule)
    while done < (DEEP_DRAWS if deep else DRAWS):
        seed += 1
        assert seed < 40 * (done + 1), "the schedule hardly ever applies"
        try:
            call = drawn_sum(schedule.op, seed, arrays)
        except NotSupportedError:
            continue
        configs = schedule.configs(call)
        done += bool(configs)
        (expected,) = op_table()[call.op].reference(call, arrays)
        for config in configs:
            kernel = Kernel("kernel", call)
            schedule.build(call, config, kernel)
            y = np.zeros(arrays[0].shape, np.int8)
            named = {"x": arrays[0], "x_1": arrays[1], "y": y}
            interpret(kernel.build(), named, INTRINSICS, constants=kernel.constants)
            np.testing.assert_array_equal(y, expected, err_msg=f"seed {seed}")
