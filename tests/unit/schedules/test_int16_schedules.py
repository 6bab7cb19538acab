"""int16 schedules match the reference, with both bias widths and rounding profiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT16, INT32, INT64
from firmwright.base.quant import Quantization
from firmwright.ir.core import Attr, Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.settings import NumericsProfile
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.conv_window import same_padding
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import Schedule
from firmwright.schedules.cortex_m_dsp import depthwise_sliding_window
from firmwright.schedules.dsp_and_scalar import depthwise_strips, int16_im2col
from firmwright.schedules.helium import (
    depthwise_channel_groups,
    int16_conv2d_fully_connected,
)
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.rvv import conv2d_fully_connected as riscv_layers
from firmwright.schedules.rvv import depthwise_conv2d as riscv_depthwise
from tests.unit.ir.verified import verify_prim_func

SCHEDULES = (
    *depthwise_sliding_window.SCHEDULES,
    *(
        schedule
        for schedule in int16_conv2d_fully_connected.SCHEDULES
        if schedule != int16_conv2d_fully_connected.INT16_ROW_RULE
    ),
    depthwise_channel_groups.SCHEDULES[0],
    *int16_im2col.SCHEDULES,
    *depthwise_strips.SCHEDULES,
    *(
        schedule
        for schedule in (*riscv_layers.SCHEDULES, *riscv_depthwise.SCHEDULES)
        if schedule.name.endswith(".int16")
    ),
)
LARGE = (*depthwise_channel_groups.SCHEDULES, *depthwise_strips.SCHEDULES[1:])
FOR_32_BIT_SUMS = (
    "helium.depthwise",
    "helium.conv2d",
    "dsp.depthwise.sliding_window",
    "rvv.",
)
DEEP = (
    *(r for r in SCHEDULES if not r.name.startswith(FOR_32_BIT_SUMS)),
    int16_conv2d_fully_connected.INT16_ROW_RULE,
)
"""Schedules for sums that exceed 32 bits."""
SEEDS = 14


def as_int16(call: OpCall, seed: int) -> OpCall:
    """Convert a layer to int16; a third has biases of 32 bits, a fifth extreme ones."""
    rng = np.random.default_rng(seed)
    x, y = (
        TensorType(kind.shape, INT16, Quantization((float(np.float32(scale)),), (0,)))
        for kind, scale in (
            (call.input(0), 0.0003),
            (call.output, 2.0 ** rng.uniform(-13, -6)),
        )
    )
    dtype, reach = (INT32, 1 << 20) if seed % 3 == 0 else (INT64, 1 << 24)
    count = call.output.shape[-1]
    bias = rng.integers(-reach, reach, count) if seed % 5 else np.full(count, reach)
    inputs = (x, call.input(1), TensorType((count,), dtype))
    constants = (None, call.constants[1], Constant.from_array("b", bias, dtype))
    return replace(call, inputs=inputs, outputs=(y,), constants=constants)


def check(call: OpCall, schedule: Schedule) -> int:
    rng = np.random.default_rng(3)
    x = rng.integers(-32768, 32768, call.input(0).shape).astype(np.int16)
    arrays = [x, *(c.array() for c in call.constants[1:] if c is not None)]
    (expected,) = op_table()[call.op].reference(call, arrays)
    configs = schedule.configs(call)
    for config in configs:
        kernel = Kernel("kernel", call)
        schedule.build(call, config, kernel)
        func = kernel.build()
        verify_prim_func(
            func, IRModule("test", {func.name: func}, kernel.constants), INTRINSICS
        )
        y = np.zeros(call.output.shape, np.int16)
        interpret(func, {"x": x, "y": y}, INTRINSICS, constants=kernel.constants)
        np.testing.assert_array_equal(y, expected)
    return len(configs)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.name)
def test_int16_layers_match_the_reference(
    schedule: Schedule, random_convolution, random_row, random_fully_connected
) -> None:
    judged = 0
    for seed in range(SEEDS):
        if schedule.op == "fully_connected":
            drawn = [random_fully_connected(seed)]
        else:
            depthwise = schedule.op == "depthwise_conv2d"
            drawn = [
                make(seed, depthwise=depthwise)
                for make in (random_convolution, random_row)
            ]
        for call in drawn:
            judged += check(as_int16(call, seed), schedule)
    assert judged >= SEEDS


def deep_layer(op: str, depth: int, outputs: int, numerics: NumericsProfile) -> OpCall:
    """Build a layer with sums over 32 bits: one sign per channel, biases of 35 bits."""
    rng = np.random.default_rng(depth)
    shapes = {
        "fully_connected": ((3, depth), (outputs, depth)),
        "conv2d": ((1, 1, 3, depth), (outputs, 1, 1, depth)),
        "depthwise_conv2d": ((1, 1, 3, outputs), (1, 1, 1, outputs)),
    }
    image, shape = shapes[op]
    axis = 3 if op == "depthwise_conv2d" else 0
    weights = np.moveaxis(rng.integers(100, 128, shape), axis, 0)
    signs = rng.choice((-1, 1), (outputs, *[1] * (weights.ndim - 1)))
    weights = np.moveaxis(weights * signs, 0, axis).astype(np.int8)
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.001, 0.01, outputs))
    types = (
        TensorType(image, INT16, Quantization((0.0003,), (0,))),
        TensorType(shape, INT8, Quantization(scales, (0,) * outputs, axis)),
        TensorType((outputs,), INT64),
    )
    y = TensorType((*image[:-1], outputs), INT16, Quantization((8.0,), (0,)))
    attrs: dict[str, Attr] = {"activation": "none"}
    if op == "fully_connected":
        attrs["keep_dims"] = False
    else:
        attrs |= {"stride": (1, 1), "dilation": (1, 1), "padding": (0, 0, 0, 0)}
    bias = rng.integers(-(1 << 34), 1 << 34, outputs)
    constants = (
        None,
        Constant.from_array("w", weights, INT8),
        Constant.from_array("b", bias, INT64),
    )
    return OpCall(op, types, (y,), attrs_from_mapping(op, attrs), constants, numerics)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("schedule", DEEP, ids=lambda schedule: schedule.name)
def test_64_bit_sums_match_the_reference(schedule: Schedule) -> None:
    for depth, outputs in ((8, 2), (600, 6), (1031, 10)):
        for numerics in ("litert", "tflm"):
            assert check(deep_layer(schedule.op, depth, outputs, numerics), schedule)


@pytest.mark.parametrize("schedule", LARGE, ids=lambda schedule: schedule.name)
@pytest.mark.parametrize(
    ("size", "stride"), [((5, 5), (1, 1)), ((4, 7), (2, 2)), ((5, 3), (1, 3))]
)
def test_large_int8_windows_match_the_reference(
    schedule: Schedule, size: tuple[int, int], stride: tuple[int, int], judge
) -> None:
    rng = np.random.default_rng(5)
    rows, columns = (
        -(-length // step) for length, step in zip((7, 9), stride, strict=True)
    )
    sides = zip((7, 9), size, stride, strict=True)
    padding = [side for each in sides for side in same_padding(*each, 1)]
    x, y = (
        TensorType((1, *image, 9), INT8, Quantization((scale,), (point,)))
        for image, scale, point in (((7, 9), 0.05, -90), ((rows, columns), 0.25, 7))
    )
    weights = rng.integers(-128, 128, (1, *size, 9)).astype(np.int8)
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.001, 0.01, 9))
    w = TensorType(weights.shape, INT8, Quantization(scales, (0,) * 9, 3))
    attrs = {
        "stride": stride,
        "dilation": (1, 1),
        "padding": tuple(padding),
        "activation": "none",
    }
    constants = (
        None,
        Constant.from_array("w", weights, INT8),
        Constant.from_array("b", rng.integers(-9000, 9000, 9), INT32),
    )
    numerics: NumericsProfile = (
        "onnx" if schedule.name.endswith(".float32") else "litert"
    )
    kinds = x, w, TensorType((9,), INT32)
    call = OpCall(
        "depthwise_conv2d",
        kinds,
        (y,),
        attrs_from_mapping("depthwise_conv2d", attrs),
        constants,
        numerics,
    )
    configs = schedule.configs(call)
    assert configs
    for config in configs:
        judge(call, schedule, config)
