"""softmax of int8 on Helium matches the reference."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.schedule import NO_CONFIG
from firmwright.schedules.helium import softmax


def tensor(shape: tuple[int, ...], scale: float, point: int) -> TensorType:
    return TensorType(shape, INT8, Quantization((float(np.float32(scale)),), (point,)))


@pytest.mark.parametrize("scale", [0.004, 0.07, 1.5])
@pytest.mark.parametrize("depth", [1, 3, 10, 16, 37, 600])
def test_rows_match_the_reference(depth: int, scale: float, judge) -> None:
    (schedule,) = softmax.SCHEDULES
    call = OpCall(
        "softmax",
        (tensor((3, depth), scale, 4),),
        (tensor((3, depth), 1 / 256, -128),),
        attrs_from_mapping("softmax", {"beta": 1.0}),
        (None,),
    )
    assert schedule.configs(call) == (NO_CONFIG,)
    judge(call, schedule, NO_CONFIG)
