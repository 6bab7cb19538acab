"""add and sub by a table: every pair of inputs, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Quantization
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.interpreter import interpret
from firmwright.ir.tir.schedule import Schedule
from firmwright.ir.tir.verify import verify_prim_func
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.schedules.dsp_and_scalar import add_sub
from firmwright.schedules.registry import INTRINSICS

ADD, SUB = add_sub.SCHEDULES[:2]


def tensor(shape: tuple[int, ...], scale: float, point: int) -> TensorType:
    return TensorType(shape, INT8, Quantization((float(np.float32(scale)),), (point,)))


def random_sum(op: str, seed: int) -> OpCall:
    rng = np.random.default_rng(seed)
    shape = (1, int(rng.integers(1, 9)), int(rng.integers(1, 9)), int(rng.integers(1, 40)))
    scales = rng.uniform(0.01, 0.1, 3) if seed % 4 else (0.02, 0.02, 0.05)
    points = (int(point) for point in rng.integers(-128, 128, 3))
    a, b, y = (tensor(shape, scale, point) for scale, point in zip(scales, points, strict=True))
    activation = str(rng.choice(["none", "relu", "relu6"]))
    return OpCall(op, (a, b), (y,), {"activation": activation}, (None, None))


def check(call: OpCall, schedule: Schedule) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-128, 128, call.output.shape).astype(np.int8) for _ in "ab")
    (expected,) = op_table()[call.op].reference(call, [a, b])
    y = np.zeros(call.output.shape, np.int8)
    kernel = Kernel("kernel", call)
    schedule.build(call, {}, kernel)
    func = kernel.build()
    verify_prim_func(func, IRModule("test", {func.name: func}, kernel.constants), INTRINSICS)
    arrays = {"x": a, "x_1": b, "y": y}
    interpret(func, arrays, INTRINSICS, constants=kernel.constants)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("schedule", [ADD, SUB], ids=lambda schedule: schedule.name)
def test_add_and_sub_match_the_reference(schedule) -> None:
    applied = 0
    for seed in range(24):
        call = random_sum(schedule.op, seed)
        if schedule.configs(call):
            check(call, schedule)
            applied += 1
    assert applied >= 20


def test_broadcasting_is_not_supported() -> None:
    a, b = tensor((1, 2, 2, 4), 0.1, 0), tensor((1, 1, 1, 4), 0.1, 0)
    call = OpCall("add", (a, b), (a,), {"activation": "none"}, (None, None))
    assert not ADD.configs(call)
