"""add and sub by two products and mul by one multiply-high, against the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.schedules.dsp_and_scalar import mul
from firmwright.schedules.registry import INTRINSICS, SCHEDULES
from firmwright.schedules.scalar import channel_sums
from tests.unit.ir.verified import verify_prim_func

MUL = mul.SCHEDULES[0]
ADD, SUB = (
    item
    for item in SCHEDULES
    if item.name in ("scalar.add.unrolled", "scalar.sub.unrolled")
)
CHANNEL_SUMS = channel_sums.SCHEDULES
BROADCAST = (
    ((1, 3, 2, 8), (8,)),
    ((4, 5), (1,)),
    ((2, 1, 6), (2, 5, 1)),
    ((3, 7), (3, 7)),
)


def tensor(shape: tuple[int, ...], scale: float, point: int) -> TensorType:
    return TensorType(shape, INT8, Quantization((float(np.float32(scale)),), (point,)))


def random_call(op: str, seed: int) -> OpCall:
    """Return a call on inputs of one shape; from seed 24 on, one is broadcast."""
    rng = np.random.default_rng(seed)
    same = (
        1,
        int(rng.integers(1, 9)),
        int(rng.integers(1, 9)),
        int(rng.integers(1, 40)),
    )
    shapes = (same, same) if seed < 24 else BROADCAST[seed % 4]
    scales = rng.uniform(0.01, 0.1, 3) if seed % 4 else (0.02, 0.02, 0.05)
    points = (int(point) for point in rng.integers(-128, 128, 3))
    shapes = (*shapes, np.broadcast_shapes(*shapes))
    a, b, y = map(tensor, shapes, scales, points)
    values = rng.integers(-128, 128, b.shape).astype(np.int8)
    constant = (
        Constant.from_array("c", values, INT8) if seed % 8 >= 4 and seed >= 24 else None
    )
    attrs = {"activation": str(rng.choice(["none", "relu", "relu6"]))}
    return OpCall(op, (a, b), (y,), attrs_from_mapping(op, attrs), (None, constant))


def check(call: OpCall, schedule: Schedule, config: ScheduleConfig) -> None:
    rng = np.random.default_rng(7)
    a, b = (
        rng.integers(-128, 128, call.input(i).shape).astype(np.int8) for i in (0, 1)
    )
    constant = call.constant(1)
    arrays = {"x": a} | ({"x_1": b} if constant is None else {})
    b = b if constant is None else constant.array()
    (expected,) = op_table()[call.op].reference(call, [a, b])
    y = np.zeros(call.output.shape, np.int8)
    kernel = Kernel("kernel", call)
    schedule.build(call, config, kernel)
    func = kernel.build()
    verify_prim_func(
        func, IRModule("test", {func.name: func}, kernel.constants), INTRINSICS
    )
    interpret(func, arrays | {"y": y}, INTRINSICS, constants=kernel.constants)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    "schedule", [ADD, SUB, MUL], ids=lambda schedule: schedule.name
)
def test_schedules_match_the_reference(schedule) -> None:
    applied: set[int] = set()
    for seed in range(40):
        call = random_call(schedule.op, seed)
        for config in schedule.configs(call):
            check(call, schedule, config)
            applied.add(seed)
    assert len(applied) >= 36


@pytest.mark.parametrize(
    "schedule", [*CHANNEL_SUMS, MUL], ids=lambda schedule: schedule.name
)
def test_channels_have_elements_of_either_input(schedule) -> None:
    applied = 0
    for seed in range(24, 56, 4):
        call = random_call(schedule.op, seed)
        turned = replace(
            call,
            inputs=call.inputs[::-1],
            constants=(call.constants[1], call.constants[0]),
        )
        for each in (call, turned) if call.constant(1) is None else (call,):
            for config in schedule.configs(each)[-1:]:
                check(each, schedule, config)
                applied += 1
    assert applied >= 8
