"""Every configuration of a schedule matches the reference on random layers and rows."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from firmwright.base.quant import Quantization
from firmwright.ir.graph.op_call import OpCall
from firmwright.schedules.cortex_m_dsp.depthwise_sliding_window import SlideConfig
from firmwright.schedules.registry import SCHEDULES
from firmwright.schedules.row_band import PixelBlock

SEEDS = range(30)
ROW_SEEDS = range(8)
FOR_OTHER_LAYERS = (
    ".conv2d.line",
    ".depthwise.block",
    ".depthwise.line",
    ".depthwise_conv2d.pixels",
    ".depthwise_conv2d.single",
    ".direct",
    ".int16_im2col",
    ".int16_rows",
    ".int16",
    ".fused",
    ".separate",
    ".strips",
    ".sums",
    ".winograd",
    ".float32",
)
"""Schedules for other dtypes or numerics, few outputs, lines, large windows or whole tiles."""
LAYERS = ("conv2d", "depthwise_conv2d", "fully_connected")
FOR_SOME_LAYERS = {
    "helium.conv2d.short_columns",
    "helium.depthwise.channels",
    "helium.fully_connected.dots",
    "thumb1.conv2d.windows",
}
FOR_ROW_SCALES = "helium.fully_connected.channels"
"""A schedule for weights with a scale for each output."""


def _is_for_others(schedule) -> bool:
    is_float = schedule.name.startswith(("fpu.", "soft_float."))
    return is_float or schedule.name.endswith(FOR_OTHER_LAYERS)


def _rules(op: str):
    return [schedule for schedule in SCHEDULES if schedule.op == op]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "schedule", _rules("conv2d"), ids=lambda schedule: schedule.name
)
def test_convolution_schedules_match_the_reference(
    schedule, judge, random_convolution
) -> None:
    for seed in SEEDS:
        call = random_convolution(seed, depthwise=False)
        for config in schedule.configs(call):
            judge(call, schedule, config)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "schedule", _rules("depthwise_conv2d"), ids=lambda schedule: schedule.name
)
def test_depthwise_schedules_match_the_reference(
    schedule, judge, random_convolution
) -> None:
    for seed in SEEDS:
        call = random_convolution(seed, depthwise=True)
        for config in schedule.configs(call):
            judge(call, schedule, config)


@pytest.mark.parametrize(
    "schedule", _rules("depthwise_conv2d"), ids=lambda schedule: schedule.name
)
def test_windows_wider_than_their_input_match_the_reference(
    schedule, judge, narrow_depthwise
) -> None:
    for width, size in ((1, 5), (1, 7), (2, 5), (2, 4), (3, 7), (4, 5)):
        call = narrow_depthwise(width, size)
        for config in schedule.configs(call):
            judge(call, schedule, config)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "schedule",
    [*_rules("conv2d"), *_rules("depthwise_conv2d")],
    ids=lambda schedule: schedule.name,
)
def test_windows_outside_their_input_match_the_reference(
    schedule, judge, outside_convolution
) -> None:
    call = outside_convolution(depthwise=schedule.op == "depthwise_conv2d")
    for config in schedule.configs(call):
        judge(call, schedule, config)


@pytest.mark.parametrize("size", [5, 10, 16])
def test_long_windows_of_one_row_match_the_reference(
    size: int, judge, narrow_depthwise
) -> None:
    sliding, line = (
        next(s for s in SCHEDULES if s.name == f"dsp.depthwise.{name}")
        for name in ("sliding_window", "line")
    )
    call = narrow_depthwise(20, size, rows=1)
    assert SlideConfig("y") in sliding.configs(call)
    assert PixelBlock(8 if size == 5 else 3) in line.configs(call)
    for schedule in (sliding, line):
        for config in schedule.configs(call):
            judge(call, schedule, config)


@pytest.mark.parametrize(
    ("size", "channels", "outputs"),
    [((21, 1), 8, 1), ((1, 5), 6, 2), ((3, 3), 7, 1), ((1, 17), 4, 4)],
)
def test_windows_of_the_whole_input_match_the_reference(
    size: tuple[int, int], channels: int, outputs: int, judge, whole_depthwise
) -> None:
    schedule = next(s for s in SCHEDULES if s.name == "dsp.depthwise.block")
    call = whole_depthwise(size, channels, outputs)
    (config,) = schedule.configs(call)
    judge(call, schedule, config)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "schedule",
    [*_rules("conv2d"), *_rules("depthwise_conv2d")],
    ids=lambda schedule: schedule.name,
)
def test_schedules_match_the_reference_on_single_rows(
    schedule, judge, random_row
) -> None:
    depthwise = schedule.op == "depthwise_conv2d"
    for seed, dilation in product(ROW_SEEDS, (1, 3)):
        call = random_row(seed, depthwise=depthwise, dilation=dilation)
        for config in schedule.configs(call):
            judge(call, schedule, config)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "schedule", _rules("fully_connected"), ids=lambda schedule: schedule.name
)
def test_fully_connected_schedules_match_the_reference(
    schedule, judge, random_fully_connected
) -> None:
    for seed in SEEDS:
        call = random_fully_connected(seed, has_row_scales=seed % 3 == 0)
        for config in schedule.configs(call):
            judge(call, schedule, config)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "schedule",
    [item for item in SCHEDULES if item.takes_weight_zero_point and item.op in LAYERS],
    ids=lambda schedule: schedule.name,
)
def test_schedules_match_the_reference_with_a_weight_zero_point(
    schedule, judge, random_convolution, random_fully_connected
) -> None:
    for seed, point in enumerate((-128, 127, 3, -60)):
        if schedule.op == "fully_connected":
            call = random_fully_connected(seed)
        else:
            call = random_convolution(seed, depthwise=schedule.op == "depthwise_conv2d")
        x, w, *rest = call.inputs
        kind = replace(
            w, quantization=Quantization((w.quantization.scales[0],), (point,))
        )
        numerics = "onnx" if schedule.name.endswith(".float32") else call.numerics
        call = replace(call, inputs=(x, kind, *rest), numerics=numerics)
        for config in schedule.configs(call):
            judge(call, schedule, config)


def as_onnx(call: OpCall, *, has_ties: bool) -> OpCall:
    """Return `call` in ONNX Runtime's profile; powers of two as scales give ties."""

    def kind(item):
        quant = item.quantization
        if quant is None or not has_ties:
            return item
        scales = tuple(2.0 ** round(math.log2(scale)) for scale in quant.scales)
        return replace(item, quantization=replace(quant, scales=scales))

    x, w, *rest = call.inputs
    (y,) = call.outputs
    return replace(
        call, inputs=(kind(x), kind(w), *rest), outputs=(kind(y),), numerics="onnx"
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "schedule",
    [
        item
        for item in SCHEDULES
        if item.op in LAYERS and not item.name.startswith(("fpu.", "soft"))
    ],
    ids=lambda schedule: schedule.name,
)
def test_layers_of_onnx_runtime_match_the_reference(
    schedule, judge, random_convolution, random_fully_connected, deep
) -> None:
    for seed in SEEDS if deep else range(4):
        if schedule.op == "fully_connected":
            call = random_fully_connected(seed)
        else:
            call = random_convolution(seed, depthwise=schedule.op == "depthwise_conv2d")
        layer = as_onnx(call, has_ties=seed % 2 == 1)
        for config in schedule.configs(layer):
            judge(layer, schedule, config)


def test_each_schedule_supports_most_random_layers(
    random_convolution, random_fully_connected
) -> None:
    makers = {
        "conv2d": lambda seed: random_convolution(seed, depthwise=False),
        "depthwise_conv2d": lambda seed: random_convolution(seed, depthwise=True),
        "fully_connected": random_fully_connected,
    }
    rare = {}
    for schedule in SCHEDULES:
        if schedule.op in makers and not schedule.goal and not _is_for_others(schedule):
            make = makers[schedule.op]
            if schedule.name == FOR_ROW_SCALES:
                make = partial(random_fully_connected, has_row_scales=True)
            applied = sum(bool(schedule.configs(make(seed))) for seed in SEEDS)
            least = 0.25 if schedule.name in FOR_SOME_LAYERS else 0.8
            if applied < least * len(SEEDS):
                rare[schedule.name] = applied
    assert rare == {}
