"""Functions of one int8 on vectors are lookups in a table of all bytes."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG
from firmwright.schedules.helium import byte_tables
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.rvv import byte_tables as riscv_byte_tables


@pytest.mark.parametrize("family", [byte_tables, riscv_byte_tables])
@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("logistic", {}),
        ("hard_swish", {}),
        ("leaky_relu", {"alpha": 0.1}),
        ("relu6", {}),
    ],
)
def test_every_value_is_the_operators(
    family: ModuleType, op: str, attrs: dict[str, object]
) -> None:
    (schedule,) = (each for each in family.SCHEDULES if each.op == op)
    x, y = (
        TensorType((1, 256), INT8, Quantization((scale,), (point,)))
        for scale, point in ((0.0625, 11), (1 / 256, -128))
    )
    call = OpCall(op, (x,), (y,), attrs_from_mapping(op, attrs), (None,))
    assert schedule.configs(call)
    values = np.arange(-128, 128).astype(np.int8).reshape(1, 256)
    (expected,) = op_table()[op].reference(call, [values])
    kernel = Kernel("kernel", call)
    schedule.build(call, NO_CONFIG, kernel)
    found = np.zeros((1, 256), np.int8)
    arrays = {"x": values, "y": found}
    interpret(kernel.build(), arrays, INTRINSICS, constants=kernel.constants)
    np.testing.assert_array_equal(found, expected)


def test_a_vector_is_one_gather_of_stored_bytes() -> None:
    text = byte_tables.LOOKUP.text["gnu"]
    assert "vldrbq_gather_offset_u8(table, x_lanes)" in text
