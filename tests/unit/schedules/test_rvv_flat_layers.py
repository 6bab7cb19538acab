"""Fully connected layers on RISC-V vectors that flatten axes of their input."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.rvv_floats.conv2d_fully_connected import SCHEDULES
from tests.unit.ir.verified import verify_prim_func


@pytest.mark.parametrize("shape", [(8, 12), (8, 2, 6), (8, 1, 3, 4)])
def test_layers_read_all_elements_of_a_sample(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-9, 10, shape).astype(np.float32)
    weights = rng.integers(-9, 10, (4, 12)).astype(np.float32)
    constant = Constant.from_array("weights", weights, FLOAT32)
    kinds = (TensorType(shape, FLOAT32), TensorType((4, 12), FLOAT32))
    values = {"activation": "none", "keep_dims": False}
    attrs = attrs_from_mapping("fully_connected", values)
    result = TensorType((8, 4), FLOAT32)
    call = OpCall("fully_connected", kinds, (result,), attrs, (None, constant))
    for schedule in SCHEDULES:
        if schedule.op != "fully_connected":
            continue
        for config in schedule.configs(call):
            kernel = Kernel("kernel", call)
            schedule.build(call, config, kernel)
            func = kernel.build()
            module = IRModule("test", {func.name: func}, kernel.constants)
            verify_prim_func(func, module, INTRINSICS)
            y = np.full((8, 4), np.nan, np.float32)
            interpret(func, {"x": x, "y": y}, INTRINSICS, constants=kernel.constants)
            # Sums of small integers are exact in every order.
            np.testing.assert_array_equal(y, x.reshape(8, 12) @ weights.T)
