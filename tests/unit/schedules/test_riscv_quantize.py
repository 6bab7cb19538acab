"""quantize on RISC-V vectors: every float has the value of the reference."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.rvv.quantize import SCHEDULES
from tests.unit.ir.verified import verify_prim_func


@pytest.mark.parametrize("point", [-128, -7, 127])
def test_floats_have_the_values_of_the_reference(point: int) -> None:
    rng = np.random.default_rng(point + 128)
    scale = float(np.float32(0.0235))
    halves = (np.arange(-300, 300) / 2 - point).astype(np.float32) * np.float32(scale)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42], np.float32)
    x = np.concatenate([halves, special, rng.normal(0, 3, 393).astype(np.float32)])
    x = x.reshape(1, -1)
    kind = TensorType(x.shape, FLOAT32)
    y_kind = TensorType(x.shape, INT8, Quantization((scale,), (point,)))
    attrs = attrs_from_mapping("quantize", {})
    call = OpCall("quantize", (kind,), (y_kind,), attrs, (None,))
    (schedule,) = SCHEDULES
    assert schedule.configs(call)
    kernel = Kernel("kernel", call)
    schedule.build(call, NO_CONFIG, kernel)
    func = kernel.build()
    module = IRModule("test", {func.name: func}, kernel.constants)
    verify_prim_func(func, module, INTRINSICS)
    y = np.zeros(x.shape, np.int8)
    interpret(func, {"x": x, "y": y}, INTRINSICS, constants=kernel.constants)
    is_number = ~np.isnan(x)
    given = np.where(is_number, x, np.float32(0))
    (values,) = op_table()["quantize"].reference(call, [given])
    expected = np.where(is_number, values, INT8.min)
    np.testing.assert_array_equal(y, expected)
