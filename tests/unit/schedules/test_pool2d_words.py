"""Pool schedules that work on words, and the instructions of the DSP extension."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.attributes.layers import AveragePoolAttrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.schedule import NO_CONFIG
from firmwright.schedules.dsp_and_scalar import pool2d
from firmwright.schedules.registry import INTRINSICS

AVERAGE, *_ = pool2d.SCHEDULES
AVERAGES = [item for item in pool2d.SCHEDULES if item.op == "average_pool2d"]


def pool(
    op: str, seed: int, channels: int, window: tuple[int, int] | None = None
) -> OpCall:
    rng = np.random.default_rng(seed)
    size, stride, outputs = (rng.integers(1, most, 2) for most in (12, 4, 5))
    size = size if window is None else np.array(window)
    height, width = ((outputs - 1) * stride + size).tolist()
    batch = int(rng.integers(1, 3))
    quant = Quantization((0.1,), (int(rng.integers(-128, 128)),))
    attrs = {
        "size": tuple(size.tolist()),
        "stride": tuple(stride.tolist()),
        "dilation": (1, 1),
        "padding": (0, 0, 0, 0),
        "activation": ("none", "relu", "relu6")[seed % 3]
        if op == "average_pool2d"
        else "none",
    }
    x = TensorType((batch, height, width, channels), INT8, quant)
    y = TensorType((batch, *outputs.tolist(), channels), INT8, quant)
    return OpCall(op, (x,), (y,), attrs_from_mapping(op, attrs), (None,))


@pytest.mark.parametrize(
    "schedule", pool2d.SCHEDULES, ids=lambda schedule: schedule.name
)
def test_pools_match_the_reference(schedule, judge) -> None:
    for seed in range(16):
        call = pool(schedule.op, seed, 4 * (seed % 4 + 1))
        assert schedule.configs(call) or schedule in AVERAGES[1:]
        for config in schedule.configs(call):
            judge(call, schedule, config)


@pytest.mark.parametrize("is_unsigned", [False, True])
@pytest.mark.parametrize("schedule", AVERAGES, ids=lambda schedule: schedule.name)
def test_windows_of_a_power_of_two_match_the_reference(
    schedule, is_unsigned, judge
) -> None:
    for window in ((1, 2), (2, 2), (4, 2), (8, 16)):
        call = pool("average_pool2d", 3, 4, window)
        attrs = call.attributes(AveragePoolAttrs)
        one = replace(
            call, attrs=replace(attrs, unsigned=is_unsigned, activation="none")
        )
        assert schedule.configs(one)
        judge(one, schedule, NO_CONFIG)


@pytest.mark.parametrize(
    "schedule", pool2d.SCHEDULES, ids=lambda schedule: schedule.name
)
def test_the_last_word_overlaps_if_addresses_need_no_alignment(schedule, judge) -> None:
    for seed in range(6):
        call = pool(schedule.op, seed, 5 + seed + seed // 3)
        assert bool(schedule.configs(call)) == schedule.name.startswith("dsp.")
        for config in schedule.configs(call):
            judge(call, schedule, config)


@pytest.mark.parametrize(
    "schedule", pool2d.SCHEDULES, ids=lambda schedule: schedule.name
)
def test_there_must_be_four_channels(schedule) -> None:
    assert not schedule.configs(pool(schedule.op, 1, 3))


def test_windows_of_256_elements_are_not_supported() -> None:
    call = pool("average_pool2d", 1, 4)
    shapes = {255: (15, 17), 256: (16, 16)}
    for count, size in shapes.items():
        x = TensorType((1, *size, 4), INT8, call.input(0).quantization)
        y = TensorType((1, 1, 1, 4), INT8, call.output.quantization)
        one = OpCall(
            "average_pool2d",
            (x,),
            (y,),
            replace(call.attributes(AveragePoolAttrs), size=size),
            (None,),
        )
        assert bool(AVERAGE.configs(one)) == (count < 256)


@pytest.mark.host_c
@pytest.mark.parametrize("name", ["sxtab16", "sxtab16_ror8", "smax8"])
def test_portable_c_of_instructions_matches_their_meaning(name, tmp_path: Path) -> None:
    item = INTRINSICS[name]
    a, b = (
        np.random.default_rng(3)
        .integers(0, 1 << 32, (2, 2000), np.uint64)
        .astype(np.uint32)
    )
    first, second = (operand.name for operand in item.operands)
    (tmp_path / "f.c").write_text(
        f"#include <stdint.h>\nuint32_t f(uint32_t {first}, uint32_t {second});\n"
        f"uint32_t f(uint32_t {first}, uint32_t {second})\n{{\n{item.portable}\n}}\n"
    )
    compiler = shutil.which("gcc") or shutil.which("clang") or "cc"
    flags = (
        "-std=c99",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        "-shared",
        "-fPIC",
    )
    subprocess.run([compiler, *flags, "f.c", "-o", "f.so"], check=True, cwd=tmp_path)
    function = ctypes.CDLL(str(tmp_path / "f.so")).f
    function.restype, function.argtypes = ctypes.c_uint32, [ctypes.c_uint32] * 2
    results = [function(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert results == item.meaning(a, b).tolist()
