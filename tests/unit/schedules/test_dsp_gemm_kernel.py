"""GEMM kernels with paired or constant channels, at the limits of their proofs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.quant import Rounding
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.cortex_m_dsp import (
    conv2d_fully_connected,
    depthwise_sliding_window,
)
from firmwright.schedules.cortex_m_dsp.microkernels import (
    SHORT_UNROLL,
    RepeatedSteps,
    repeated_steps,
)
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.skip_constant_channels import constant_channel_values

SEEDS = range(100, 112)
CONVOLUTION, MATRIX, SHARED = conv2d_fully_connected.SCHEDULES


def symmetric(call: OpCall) -> OpCall:
    """Return the layer with weights of magnitude 127 at most, as TFLite specifies."""
    weights = np.maximum(call.constants[1].array(), -127)
    constants = (None, Constant.from_array("w", weights, INT8), *call.constants[2:])
    return replace(call, constants=constants)


def unpaired(call: OpCall) -> OpCall:
    """Return the layer with weights whose sum, 256 * -128 - 128, does not fit int16."""
    weights = call.constants[1].array().copy()
    weights[:2] = INT8.min
    constants = (None, Constant.from_array("w", weights, INT8), *call.constants[2:])
    return replace(call, constants=constants)


def with_dead_channels(call: OpCall, seed: int) -> OpCall:
    """Give about half of the channels a bias that no input can outweigh."""
    rng = np.random.default_rng(seed)
    bias = call.constants[2].array().copy()
    reach = 256 * np.abs(call.constants[1].array().astype(np.int64)).sum() + 1
    if reach > 1 << 27:
        return call
    dead = rng.random(len(bias)) < 0.5
    bias[dead] = rng.choice([-(1 << 29), 1 << 29], int(dead.sum()))
    return replace(
        call, constants=(*call.constants[:2], Constant.from_array("b", bias, INT32))
    )


def function(call: OpCall, config: ScheduleConfig) -> tir.PrimFunc:
    kernel = Kernel("kernel", call)
    schedule = CONVOLUTION if call.op == "conv2d" else MATRIX
    schedule.build(call, config, kernel)
    return kernel.build()


def built(call: OpCall, config: ScheduleConfig) -> str:
    return str(function(call, config))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dead", [False, True])
def test_convolutions_with_paired_channels_match_the_reference(
    dead, judge, random_convolution
) -> None:
    paired = 0
    for seed in SEEDS:
        call = symmetric(random_convolution(seed, depthwise=False))
        call = with_dead_channels(call, seed) if dead else call
        for config in CONVOLUTION.configs(call):
            judge(call, CONVOLUTION, config)
            paired += "paired_" in built(call, config)
    assert paired > len(SEEDS)


def test_convolutions_in_shared_code_match_the_reference(
    judge, random_convolution
) -> None:
    calls = (
        symmetric(random_convolution(seed, depthwise=False)) for seed in range(100, 300)
    )
    fitting = [call for call in calls if SHARED.configs(call)]
    assert len(fitting) > len(SEEDS)
    for call in fitting[: len(SEEDS)]:
        for config in SHARED.configs(call):
            judge(call, SHARED, config)


def test_steps_without_a_large_divisor_are_a_loop_and_a_rest(
    judge, random_convolution, random_fully_connected
) -> None:
    assert repeated_steps(32) == RepeatedSteps(32)
    assert repeated_steps(59) == RepeatedSteps(1)
    assert repeated_steps(72) == RepeatedSteps(18)
    assert repeated_steps(109) == RepeatedSteps(18, rest=1)
    assert repeated_steps(37, 8) == RepeatedSteps(8, rest=5)
    convolution = random_convolution(82, depthwise=False)
    used: set[str] = set()
    for call, limit in ((convolution, 8), (random_fully_connected(0), 3)):
        layer = symmetric(call)
        schedule = CONVOLUTION if call.op == "conv2d" else MATRIX
        for config in schedule.configs(layer):
            limited = replace(config, steps=limit)
            judge(layer, schedule, limited)
            used.update(re.findall(r"[a-z]+_\dx\d\w*", built(layer, limited)))
    assert {"paired_2x4_loop_8", "paired_2x4_1", "paired_4x2_1"} <= used
    assert {"bytes_8x1_loop_3", "bytes_8x1_1"} <= used


def test_a_short_loop_is_left_out_where_it_has_the_same_code(
    random_convolution, random_fully_connected
) -> None:
    left_out = shortened = 0
    for seed in SEEDS:
        for call in (
            symmetric(random_convolution(seed, depthwise=False)),
            symmetric(random_fully_connected(seed)),
        ):
            schedule = CONVOLUTION if call.op == "conv2d" else MATRIX
            offered = schedule.with_short_loops(only=False).configs(call)
            short = schedule.with_short_loops().configs(call)
            for config, other in zip(schedule.configs(call), short, strict=True):
                assert other in offered
                if other != config:
                    shortened += 1
                else:
                    left_out += 1
                    limited = replace(config, steps=SHORT_UNROLL)
                    assert function(call, limited) == function(call, config)
    assert min(left_out, shortened) > 10


@pytest.mark.parametrize("dead", [False, True])
def test_fully_connected_with_paired_channels_matches_the_reference(
    dead, judge, random_fully_connected
) -> None:
    paired = 0
    for seed in SEEDS:
        call = symmetric(random_fully_connected(seed))
        call = with_dead_channels(call, seed) if dead else call
        for config in MATRIX.configs(call):
            judge(call, MATRIX, config)
            paired += "paired_" in built(call, config)
    assert paired > 2


def test_layers_whose_channels_cannot_be_paired_match_the_reference(
    judge, random_convolution, random_fully_connected
) -> None:
    used: set[str] = set()
    for seed in SEEDS[:6]:
        for call in (
            unpaired(random_convolution(seed, depthwise=False)),
            unpaired(random_fully_connected(seed)),
        ):
            schedule = CONVOLUTION if call.op == "conv2d" else MATRIX
            for config in schedule.configs(call):
                judge(call, schedule, config)
                used.update(re.findall(r"mac\w*?_\dx\d", built(call, config)))
    assert used == {"mac_2x4", "mac_4x2", "mac_8x1", "mac_bytes_8x1"}


def test_depthwise_layers_with_dead_channels_match_the_reference(
    judge, random_convolution
) -> None:
    (schedule,) = depthwise_sliding_window.SCHEDULES
    for seed in SEEDS:
        call = with_dead_channels(random_convolution(seed, depthwise=True), seed)
        for config in schedule.configs(call):
            judge(call, schedule, config)


@pytest.mark.parametrize(
    "shape",
    ["mac_2x4", "mac_4x2", "mac_8x1", "paired_2x4", "paired_4x2", "paired_8x1"],
)
def test_a_microkernel_is_the_sum_of_its_steps(shape) -> None:
    rng = np.random.default_rng(1)
    whole, step = INTRINSICS[f"{shape}_3"], INTRINSICS[f"{shape}_1"]
    words, columns = (operand.extent for operand in whole.operands[:2])
    w = rng.integers(0, 1 << 32, (words, 1), dtype=np.uint32)
    x = rng.integers(0, 1 << 32, (columns, 1), dtype=np.uint32)
    sums = tuple(np.zeros(1, np.int32) for _ in range(8))
    expected = whole.meaning(w, x, *sums)
    for i in range(3):
        part = slice(i * words // 3, (i + 1) * words // 3)
        there = slice(i * columns // 3, (i + 1) * columns // 3)
        sums = step.meaning(w[part], x[there], *sums)
    assert [int(s[0]) for s in sums] == [int(s[0]) for s in expected]


@pytest.mark.parametrize(
    "shape",
    [
        *("mac_2x4", "mac_4x2", "mac_8x1", "mac_bytes_8x1"),
        *("paired_2x4", "paired_4x2", "paired_8x1", "bytes_8x1"),
    ],
)
def test_a_loop_repeats_its_steps_as_often_as_requested(shape) -> None:
    rng = np.random.default_rng(1)
    loop, whole = INTRINSICS[f"{shape}_loop_2"], INTRINSICS[f"{shape}_6"]
    w, x = (
        rng.integers(0, 1 << 32, (operand.extent + 8, 1), dtype=np.uint32)
        for operand in whole.operands[:2]
    )
    sums = tuple(np.full(1, place, np.int32) for place in range(8))
    expected = whole.meaning(w[:-8], x[:-8], *sums)
    assert [int(s[0]) for s in loop.meaning(w, x, 6, *sums)] == [
        int(s[0]) for s in expected
    ]
    assert loop.count is not None
    first, second, third = (loop.count([0, 0, steps]) for steps in (2, 4, 6))
    assert third - second == second - first > loop.instructions // 2


def test_channels_with_equal_outputs_at_both_bounds_are_constant() -> None:
    params = Requantization(
        (1 << 30, 1 << 30, 1 << 30), (-8, -20, 2), Rounding.TWICE, -128, -128, 127
    )
    low, high = np.array([-5000, -5000, 1 << 28]), np.array([5000, 5000, (1 << 28) + 1])
    # The third may exceed 32 bits, so it is not proven constant.
    assert constant_channel_values(params, low, high) == {1: -128}
