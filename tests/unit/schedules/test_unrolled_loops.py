"""Unrolled default loops: fewer instructions by prediction, and every iteration once."""

from __future__ import annotations

import pytest

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.quant import Quantization
from firmwright.ir.core import Target
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.cost_model import estimate_cost
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.scalar.unrolled_loops import SCHEDULES
from firmwright.targets.cost_weights import cost_weights_for

IMAGE = TensorType((1, 7, 7, 32), INT8, Quantization((0.1,), (3,)))
MEAN = TensorType((1, 32), INT8, Quantization((0.1,), (3,)))
ROW = TensorType((1, 1000), FLOAT32)
CALLS = (
    (OpCall("mean", (IMAGE,), (MEAN,), {"axes": (1, 2), "keep_dims": 0}), 0.5),
    (OpCall("add", (ROW, ROW), (ROW,), {"activation": "none"}), 0.8),
    (OpCall("expression", (ROW, ROW), (ROW,), {"formula": "max(a, 0.0) * b"}), 0.85),
)


@pytest.mark.parametrize(("call", "bar"), CALLS, ids=lambda value: getattr(value, "op", ""))
def test_unrolled_loops_take_fewer_instructions(call: OpCall, bar: float) -> None:
    (schedule,) = (item for item in SCHEDULES if item.op == call.op)
    default, unrolled = Kernel("kernel", call), Kernel("kernel", call)
    op_table()[call.op].lower(call, default)
    schedule.build(call, {}, unrolled)
    weights = cost_weights_for(Target("cortex-m", (("mcpu", "cortex-m4"),)))
    before, after = (
        estimate_cost(kernel.build(), INTRINSICS, weights).instructions
        for kernel in (default, unrolled)
    )
    assert after <= bar * before
