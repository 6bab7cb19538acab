"""Pools whose channels are in vectors: of integers, on Helium and RISC-V."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, DType
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes.layers import AveragePoolAttrs, PoolAttrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import Builder
from firmwright.ir.tir.inplace_distance import find_offset_constraints
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.pooling import pool_window
from firmwright.ops.schedule import Schedule
from firmwright.schedules.helium import pool2d, pool_rows
from firmwright.schedules.pool_windows import spans
from firmwright.schedules.pooling import exact_reciprocal
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.rvv import pool2d as riscv_pool2d
from tests.unit.ir.verified import verify_prim_func

HELIUM_MAX, HELIUM_MEAN = pool2d.SCHEDULES
CASES = [
    *((schedule, dtype) for schedule in pool2d.SCHEDULES for dtype in (INT8, INT16)),
    *((schedule, INT8) for schedule in riscv_pool2d.SCHEDULES),
]
CASE_NAMES = [f"{schedule.name}-{dtype.name}" for schedule, dtype in CASES]


def pool(
    op: str,
    seed: int,
    dtype: DType,
    size: tuple[int, int] | None = None,
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    channels: int | None = None,
) -> OpCall:
    rng = np.random.default_rng(seed)
    rows, columns = size or tuple(map(int, rng.integers(1, 12, 2)))
    stride = tuple(map(int, rng.integers(1, 4, 2)))
    outputs = tuple(map(int, rng.integers(1, 4, 2) + 2 * any(padding)))
    height = (outputs[0] - 1) * stride[0] + rows - sum(padding[:2])
    width = (outputs[1] - 1) * stride[1] + columns - sum(padding[2:])
    batch = int(rng.integers(1, 3))
    channels = channels or int(rng.integers(1, 40))
    point = int(rng.integers(-128, 128)) if dtype == INT8 else 0
    quantization = Quantization((0.1,), (point,))
    attrs = {
        "stride": (stride[0], stride[1]),
        "padding": padding,
        "dilation": (1, 1),
        "activation": ("none", "relu", "relu6")[seed % 3],
        "size": (rows, columns),
    }
    kind = AveragePoolAttrs if op == "average_pool2d" else PoolAttrs
    x = TensorType((batch, height, width, channels), dtype, quantization)
    y = TensorType((batch, *outputs, channels), dtype, quantization)
    return OpCall(op, (x,), (y,), kind(**attrs), (None,))


@pytest.mark.parametrize(("schedule", "dtype"), CASES, ids=CASE_NAMES)
def test_pools_match_the_reference(judge, schedule: Schedule, dtype: DType) -> None:
    fitting = 0
    for seed in range(16):
        call = pool(schedule.op, seed, dtype)
        for config in schedule.configs(call):
            judge(call, schedule, config)
            fitting += 1
    assert fitting >= 14


@pytest.mark.parametrize("schedule", [HELIUM_MEAN, riscv_pool2d.SCHEDULES[1]])
def test_means_of_values_without_a_sign(judge, schedule: Schedule) -> None:
    for seed, size in enumerate([(2, 2), (3, 3), (1, 6), (7, 7), (1, 1)]):
        call = pool("average_pool2d", seed, INT8, size)
        attrs = replace(call.attributes(AveragePoolAttrs), unsigned=True)
        unsigned = replace(call, attrs=attrs)
        (config,) = schedule.configs(unsigned)
        judge(unsigned, schedule, config)


def test_sums_that_fit_no_half_are_words(judge) -> None:
    call = pool("average_pool2d", 1, INT8, (17, 16))
    assert not riscv_pool2d.SCHEDULES[1].configs(call)
    (config,) = HELIUM_MEAN.configs(call)
    judge(call, HELIUM_MEAN, config)


def test_floats_have_other_schedules() -> None:
    for schedule in (*pool2d.SCHEDULES, *riscv_pool2d.SCHEDULES):
        call = pool(schedule.op, 3, INT8)
        x, y = (replace(t, dtype=FLOAT32) for t in (call.input(0), call.output))
        floats = replace(call, inputs=(x,), outputs=(y,))
        assert not schedule.configs(floats)


@pytest.mark.parametrize(("schedule", "dtype"), CASES, ids=CASE_NAMES)
def test_windows_over_the_border_have_fewer_taps(
    judge, schedule: Schedule, dtype: DType
) -> None:
    for seed, padding in enumerate([(1, 0, 0, 0), (0, 2, 1, 1), (1, 1, 1, 1)]):
        call = pool(schedule.op, seed, dtype, (3, 3), padding, 1 + 9 * seed)
        (config,) = schedule.configs(call)
        judge(call, schedule, config)


def test_many_different_windows_have_other_schedules() -> None:
    few, many = (3, 3, 0, 0), (3, 3, 3, 3)
    for padding in (few, many):
        x = TensorType((1, 9, 9, 16), INT8, Quantization((0.1,), (0,)))
        call = pool("max_pool2d", 2, INT8, (7, 7))
        attrs = replace(call.attributes(PoolAttrs), padding=padding, stride=(1, 1))
        padded = replace(call, inputs=(x,), outputs=(x,), attrs=attrs)
        assert len(spans(pool_window(padded), 0)) == 7
        assert bool(HELIUM_MAX.configs(padded)) == (padding == few)


@pytest.mark.parametrize("dtype", [INT8, INT16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("words", [1, 2, 4])
def test_pixels_of_few_words_are_gathered(judge, words: int, dtype: DType) -> None:
    schedule, _ = pool_rows.SCHEDULES
    channels = words * 4 // dtype.size_bytes
    sides = [(0, 0, 0, 0), (1, 0, 2, 1), (0, 1, 0, 1)]
    for seed in range(9):
        call = pool(schedule.op, seed, dtype, (3, 3), sides[seed % 3], channels)
        (config,) = schedule.configs(call)
        judge(call, schedule, config)
    column = pool(schedule.op, 1, dtype, (3, 6), channels=channels)
    x, y = column.input(0), column.output
    x = replace(x, shape=(*x.shape[:2], 6, channels))
    y = replace(y, shape=(*y.shape[:2], 1, channels))
    judge(replace(column, inputs=(x,), outputs=(y,)), schedule, config)
    wide = pool(schedule.op, 0, dtype, channels=channels + 1)
    assert not schedule.configs(wide)


def test_reciprocals_are_exact_for_all_sums() -> None:
    found = 0
    for taps in range(1, 256):
        most = 255 * taps + taps // 2
        reciprocal = exact_reciprocal(taps, most, 16)
        if reciprocal is not None:
            sums = np.arange(most + 1, dtype=np.int64)
            quotients = sums * reciprocal.factor >> 16 + reciprocal.shift
            np.testing.assert_array_equal(quotients, sums // taps)
            assert reciprocal.factor < 1 << 16
            found += 1
    assert found >= 150
    assert exact_reciprocal(1, 255, 16) is None


def unsafe_distances(call: OpCall, vector: int) -> tuple[int, int]:
    """Return the hull of the differences at which a byte is written before it is read.

    `vector` channels are read, then written.
    """
    window = call.attributes(PoolAttrs)
    _, height, width, channels = call.output.shape
    rows, cols = call.input(0).shape[1:3]
    last_write: list[int] = []
    found: list[int] = []
    for n, oy, ox in np.ndindex(*call.output.shape[:3]):
        for first in range(0, channels, vector):
            block = np.arange(first, min(first + vector, channels))
            pixels = []
            for ky, kx in np.ndindex(*window.size):
                row = n * rows + oy * window.stride[0] + ky
                pixels.append(row * cols + ox * window.stride[1] + kx)
            read = np.add.outer(np.array(pixels) * channels, block).reshape(-1)
            if last_write:
                differences = np.subtract.outer(read, np.array(last_write))
                found += [int(differences.min()), int(differences.max())]
            pixel = (n * height + oy) * width + ox
            last_write += (pixel * channels + block).tolist()
    return min(found), max(found)


@pytest.mark.parametrize("op", ["max_pool2d", "average_pool2d"])
def test_output_never_overlaps_input_that_is_read_later(op: str) -> None:
    schedules = {schedule.op: schedule for schedule in pool2d.SCHEDULES}
    for seed in range(3):
        call = pool(op, seed, INT8, (2, 3))
        (config,) = schedules[op].configs(call)
        kernel = Kernel("kernel", call)
        schedules[op].build(call, config, kernel)
        (constraint,) = find_offset_constraints(kernel.build(), "x", "y") or ()
        for vector in (1, 8, 16):
            low, high = unsafe_distances(call, vector)
            assert constraint.lo < low
            assert high < constraint.hi
        low, high = unsafe_distances(call, 1)
        assert constraint.lo == low - 1


@pytest.mark.parametrize("channels", [4, 9, 16])
def test_rows_are_added_to_one_sum_per_channel(channels: int) -> None:
    assert HELIUM_MEAN.fold is not None
    kernel = Builder("rows")
    x = kernel.buffer_param("x", INT8, (1, 2, 5, channels), "in")
    acc = kernel.buffer_param("acc", INT32, (channels,), "inout")
    HELIUM_MEAN.fold(pool("average_pool2d", 1, INT8), kernel, x, acc)
    func = kernel.build()
    verify_prim_func(func, IRModule("test", {func.name: func}), INTRINSICS)
    rng = np.random.default_rng(channels)
    rows = rng.integers(-128, 128, x.shape).astype(np.int8)
    sums = rng.integers(-(1 << 20), 1 << 20, channels).astype(np.int32)
    expected = sums + rows.astype(np.int32).sum(axis=(0, 1, 2))
    interpret(func, {"x": rows, "acc": sums}, INTRINSICS)
    np.testing.assert_array_equal(sums, expected)
