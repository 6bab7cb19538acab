"""mean and sum of int8 channels on Helium match the reference."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.schedule import NO_CONFIG
from firmwright.schedules.helium import means


def tensor(shape: tuple[int, ...], scale: float, point: int) -> TensorType:
    return TensorType(shape, INT8, Quantization((float(np.float32(scale)),), (point,)))


@pytest.mark.parametrize("scale", [0.004, 0.02, 0.3])
@pytest.mark.parametrize("point", [-128, 17])
@pytest.mark.parametrize("op", ["mean", "sum"])
def test_channels_match_the_reference(op: str, point: int, scale: float, judge) -> None:
    (schedule,) = (each for each in means.SCHEDULES if each.op == op)
    for channels in (4, 7, 24):
        call = OpCall(
            op,
            (tensor((1, 3, 5, channels), 0.02, -3),),
            (tensor((1, channels), scale, point),),
            attrs_from_mapping(op, {"axes": (1, 2), "keep_dims": False}),
            (None,),
        )
        assert schedule.configs(call) == (NO_CONFIG,)
        judge(call, schedule, NO_CONFIG)
