"""Conversions and tables on RISC-V vectors have the values of the reference."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8, INT16, Array, DType
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.rvv import dequantize, logistic_tanh, quantize
from tests.unit.ir.verified import verify_prim_func


def run(call: OpCall, schedule: Schedule, x: Array) -> Array:
    assert schedule.configs(call)
    kernel = Kernel("kernel", call)
    schedule.build(call, NO_CONFIG, kernel)
    func = kernel.build()
    module = IRModule("test", {func.name: func}, kernel.constants)
    verify_prim_func(func, module, INTRINSICS)
    y = np.zeros(x.shape, call.output.dtype.np)
    interpret(func, {"x": x, "y": y}, INTRINSICS, constants=kernel.constants)
    return y


def call_of(
    op: str,
    x: Array,
    types: tuple[DType, DType],
    quants: tuple[Quantization | None, ...],
) -> OpCall:
    kinds = [
        TensorType(x.shape, dtype, quant)
        for dtype, quant in zip(types, quants, strict=True)
    ]
    attrs = attrs_from_mapping(op, {})
    return OpCall(op, (kinds[0],), (kinds[1],), attrs, (None,))


@pytest.mark.parametrize("point", [-128, -7, 127])
def test_floats_have_the_values_of_the_reference(point: int) -> None:
    rng = np.random.default_rng(point + 128)
    scale = float(np.float32(0.0235))
    halves = (np.arange(-300, 300) / 2 - point).astype(np.float32) * np.float32(scale)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42], np.float32)
    x = np.concatenate([halves, special, rng.normal(0, 3, 393).astype(np.float32)])
    x = x.reshape(1, -1)
    quants = None, Quantization((scale,), (point,))
    call = call_of("quantize", x, (FLOAT32, INT8), quants)
    (schedule,) = quantize.SCHEDULES
    is_number = ~np.isnan(x)
    given = np.where(is_number, x, np.float32(0))
    (values,) = op_table()["quantize"].reference(call, [given])
    expected = np.where(is_number, values, INT8.min)
    np.testing.assert_array_equal(run(call, schedule, x), expected)


def test_dequantized_values_are_those_of_the_reference() -> None:
    x = np.arange(-128, 128).astype(np.int8).reshape(1, -1)
    quants = Quantization((0.017,), (-7,)), None
    call = call_of("dequantize", x, (INT8, FLOAT32), quants)
    (schedule,) = dequantize.SCHEDULES
    (expected,) = op_table()["dequantize"].reference(call, [x])
    np.testing.assert_array_equal(run(call, schedule, x), expected)


@pytest.mark.parametrize("number", range(2))
def test_curves_of_halves_are_those_of_the_reference(number: int) -> None:
    schedule = logistic_tanh.SCHEDULES[number]
    x = np.arange(-(1 << 15), 1 << 15, 3).astype(np.int16).reshape(1, -1)
    for scale in (1 / 4096, 0.0007):
        quants = tuple(Quantization((each,), (0,)) for each in (scale, 1 / 32768))
        call = call_of(schedule.op, x, (INT16, INT16), quants)
        (expected,) = op_table()[schedule.op].reference(call, [x])
        np.testing.assert_array_equal(run(call, schedule, x), expected)
