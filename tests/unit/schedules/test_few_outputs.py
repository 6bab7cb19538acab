"""Fully connected layers on Helium, few of whose channels are not constant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.schedule import NO_CONFIG
from firmwright.schedules.computed_channels import count_computed
from firmwright.schedules.helium.few_outputs import SCHEDULES

OUTPUTS, TAPS = 16, 40


def relu_rows(computed: int) -> OpCall:
    """Return a layer with so many computed channels; others never exceed zero."""
    rng = np.random.default_rng(computed)
    bias = np.full(OUTPUTS, -(1 << 24))
    bias[rng.permutation(OUTPUTS)[:computed]] = 100
    weights = rng.integers(-127, 128, (OUTPUTS, TAPS))
    constants = (
        Constant.from_array("w", weights.astype(np.int8), INT8),
        Constant.from_array("b", bias.astype(np.int32), INT32),
    )
    inputs = (
        TensorType((2, TAPS), INT8, Quantization((0.05,), (3,))),
        TensorType((OUTPUTS, TAPS), INT8, Quantization((0.01,), (0,))),
        TensorType((OUTPUTS,), INT32),
    )
    y = TensorType((2, OUTPUTS), INT8, Quantization((0.8,), (-128,)))
    attrs = {"activation": "relu", "keep_dims": False}
    op = "fully_connected"
    return OpCall(op, inputs, (y,), attrs_from_mapping(op, attrs), (None, *constants))


@pytest.mark.parametrize("computed", [0, 1, 4])
def test_few_computed_channels_are_dot_products(computed: int, judge) -> None:
    (schedule,) = SCHEDULES
    call = relu_rows(computed)
    assert count_computed(call) == computed
    assert schedule.configs(call) == (NO_CONFIG,)
    judge(call, schedule, NO_CONFIG)
    assert not schedule.configs(replace(call, any_weights=True))


def test_many_computed_channels_are_blocks_of_rows() -> None:
    (schedule,) = SCHEDULES
    assert not schedule.configs(relu_rows(5))
