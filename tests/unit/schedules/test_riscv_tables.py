"""Conversions and tables on RISC-V vectors have the values of the reference."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, Array, DType
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.inplace_distance import find_offset_constraints
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.rvv import (
    dequantize,
    logistic_tanh,
    means,
    quantize,
    requantize_values,
    softmax,
)
from tests.unit.ir.verified import verify_prim_func


def run(call: OpCall, schedule: Schedule, x: Array) -> Array:
    assert schedule.configs(call)
    kernel = Kernel("kernel", call)
    schedule.build(call, NO_CONFIG, kernel)
    func = kernel.build()
    module = IRModule("test", {func.name: func}, kernel.constants)
    verify_prim_func(func, module, INTRINSICS)
    y = np.zeros(call.output.shape, call.output.dtype.np)
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
    attrs = attrs_from_mapping(op, {"beta": 1.0} if op == "softmax" else {})
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


@pytest.mark.parametrize(("x", "y"), requantize_values.CONVERSIONS)
@pytest.mark.parametrize("scale", [0.3, 1.5, 40.0, 9000.0])
def test_integers_are_requantized_as_by_the_reference(
    x: DType, y: DType, scale: float
) -> None:
    """A value is the result of the reference; `scale` is that of outputs."""
    rng = np.random.default_rng(7)
    values = np.concatenate([np.arange(-300, 300), rng.integers(x.min, x.max, 777)])
    given = np.clip(values, x.min, x.max).astype(x.np).reshape(1, -1)
    points = 5 if x == INT8 else 0, -9 if y == INT8 else 0
    quants = tuple(map(Quantization, ((1.0,), (scale,)), ((each,) for each in points)))
    call = call_of("quantize", given, (x, y), quants)
    (schedule,) = requantize_values.SCHEDULES
    if x == INT32 and scale < 2:
        assert not schedule.configs(call)
        return
    (expected,) = op_table()["quantize"].reference(call, [given])
    np.testing.assert_array_equal(run(call, schedule, given), expected)


@pytest.mark.parametrize(("x", "y"), requantize_values.CONVERSIONS)
def test_results_overlap_integers_of_their_type_or_if_one_is_bytes(
    x: DType, y: DType
) -> None:
    """C compilers may reorder accesses of other types."""
    given = np.zeros((1, 40), x.np)
    quants = Quantization((1.0,), (0,)), Quantization((9.0,), (0,))
    call = call_of("quantize", given, (x, y), quants)
    (schedule,) = requantize_values.SCHEDULES
    kernel = Kernel("kernel", call)
    schedule.build(call, NO_CONFIG, kernel)
    spans = find_offset_constraints(kernel.build(), "x", "y")
    assert (spans is None) == ((x, y) == (INT32, INT16))


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


@pytest.mark.parametrize("scale", [0.004, 0.0625, 0.6])
@pytest.mark.parametrize("depth", [3, 10, 35, 1000])
def test_softmax_has_the_values_of_the_reference(depth: int, scale: float) -> None:
    rng = np.random.default_rng(depth)
    x = rng.integers(-128, 128, (4, depth)).astype(np.int8)
    x[1], x[2, 1:], x[3, ::2] = 127, -128, 127
    quants = Quantization((scale,), (5,)), Quantization((1 / 256,), (-128,))
    call = call_of("softmax", x, (INT8, INT8), quants)
    (schedule,) = softmax.SCHEDULES
    (expected,) = op_table()["softmax"].reference(call, [x])
    np.testing.assert_array_equal(run(call, schedule, x), expected)


@pytest.mark.parametrize("channels", [4, 33])
@pytest.mark.parametrize("number", range(2))
def test_means_have_the_values_of_the_reference(number: int, channels: int) -> None:
    schedule = means.SCHEDULES[number]
    x = np.random.default_rng(channels).integers(-128, 128, (1, 5, 7, channels))
    kinds = [
        TensorType((1, *size, channels), INT8, Quantization((scale,), (point,)))
        for size, scale, point in (((5, 7), 0.1, 7), ((1, 1), 0.4, -9))
    ]
    attrs = attrs_from_mapping(schedule.op, {"axes": (1, 2), "keep_dims": True})
    call = OpCall(schedule.op, (kinds[0],), (kinds[1],), attrs, (None,))
    values = x.astype(np.int8)
    (expected,) = op_table()[schedule.op].reference(call, [values])
    np.testing.assert_array_equal(run(call, schedule, values), expected)
