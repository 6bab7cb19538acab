"""add, sub and mul on Helium match the reference."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT16, DType
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule
from firmwright.schedules.helium import add_sub
from firmwright.schedules.registry import INTRINSICS
from tests.unit.ir.verified import verify_prim_func


def tensor(
    shape: tuple[int, ...], scale: float, point: int, dtype: DType = INT8
) -> TensorType:
    return TensorType(shape, dtype, Quantization((float(np.float32(scale)),), (point,)))


def random_sum(op: str, seed: int, dtype: DType) -> OpCall:
    rng = np.random.default_rng(seed)
    shape = (
        1,
        int(rng.integers(1, 9)),
        int(rng.integers(1, 9)),
        int(rng.integers(1, 40)),
    )
    scales = rng.uniform(0.01, 0.1, 3) if seed % 4 else (0.02, 0.02, 0.05)
    points = [
        int(point) if dtype == INT8 else 0 for point in rng.integers(-128, 128, 3)
    ]
    a, b, y = (tensor(shape, *pair, dtype) for pair in zip(scales, points, strict=True))
    activation = str(rng.choice(["none", "relu", "relu6"]))
    return OpCall(
        op,
        (a, b),
        (y,),
        attrs_from_mapping(op, {"activation": activation}),
        (None, None),
    )


def check(call: OpCall, schedule: Schedule) -> None:
    rng = np.random.default_rng(7)
    dtype = call.output.dtype
    ends = (dtype.min, dtype.max + 1)
    arrays = []
    for kind, constant in zip(call.inputs, call.constants, strict=True):
        drawn = rng.integers(*ends, kind.shape).astype(dtype.np)
        arrays.append(drawn if constant is None else constant.array())
    (expected,) = op_table()[call.op].reference(call, arrays)
    y = np.zeros(call.output.shape, dtype.np)
    kernel = Kernel("kernel", call)
    schedule.build(call, NO_CONFIG, kernel)
    func = kernel.build()
    verify_prim_func(
        func, IRModule("test", {func.name: func}, kernel.constants), INTRINSICS
    )
    inputs = [x for x, kept in zip(arrays, call.constants, strict=True) if kept is None]
    named = dict(zip(("x", "x_1"), inputs, strict=False))
    interpret(func, {**named, "y": y}, INTRINSICS, constants=kernel.constants)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("dtype", [INT8, INT16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(
    "schedule", add_sub.SCHEDULES, ids=lambda schedule: schedule.name
)
def test_sums_and_products_match_the_reference(schedule, dtype: DType) -> None:
    calls = [random_sum(schedule.op, seed, dtype) for seed in range(24)]
    fitting = [call for call in calls if schedule.configs(call)]
    assert len(fitting) >= 20
    for call in fitting:
        check(call, schedule)


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_a_row_and_a_tensor_match_the_reference(
    op: str, first: bool, is_constant: bool
) -> None:
    (schedule,) = (each for each in add_sub.SCHEDULES if each.op == op)
    for channels in (1, 3, 8, 24) if is_constant else (1, 8, 24):
        call = random_sum(op, 2, INT8)
        row = tensor((channels,), 0.03, 5)
        whole, y = (
            TensorType((1, 6, 4, channels), INT8, kind.quantization)
            for kind in (call.input(0), call.output)
        )
        data = np.arange(-channels, channels, 2).astype(np.int8)
        constant = Constant.from_array("row", data, INT8) if is_constant else None
        ends = [(whole, None), (row, constant)][:: -1 if first else 1]
        inputs, constants = zip(*ends, strict=True)
        check(replace(call, inputs=inputs, outputs=(y,), constants=constants), schedule)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_an_element_for_each_row_matches_the_reference(op: str, first: bool) -> None:
    (schedule,) = (each for each in add_sub.SCHEDULES if each.op == op)
    for dtype, shape in product((INT8, INT16), ((1, 3, 4, 1), (3, 1, 1), (1,))):
        call = random_sum(op, 3, dtype)
        column, whole, y = (
            replace(kind, shape=size)
            for kind, size in (
                (call.input(0), shape),
                (call.input(1), (1, 3, 4, 24)),
                (call.output, (1, 3, 4, 24)),
            )
        )
        ends = (column, whole) if first else (whole, column)
        call = replace(call, inputs=ends, outputs=(y,), constants=(None, None))
        assert schedule.configs(call)
        check(call, schedule)
