"""int4 weights with --optimize size: packing, results and flash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.conformance.case_tables import conformance_cases
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.samples.reference_outputs import run_numpy_reference
from firmwright.flows.verify.operator_conformance import NamedCase, cases_module
from firmwright.ir.core import Constant
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.schedules.cortex_m_dsp import conv2d_fully_connected as dsp_gemm
from firmwright.schedules.helium import conv2d as helium_conv2d
from firmwright.schedules.helium import fully_connected as helium_matrix
from firmwright.schedules.scalar.int4_weights import SCHEDULES, pack_int4_weights

OF = {schedule.op: schedule for schedule in SCHEDULES}
PACKED = (helium_conv2d.SCHEDULES[0], helium_matrix.SCHEDULES[0], dsp_gemm.SCHEDULES[0])


def narrow(call: OpCall, least: int = -8) -> OpCall:
    """Return `call` with int4 weights, including the least value."""
    x, weights, *rest = call.constants
    assert weights is not None
    halves = np.maximum(weights.array() >> 4, least)
    return replace(call, constants=(x, Constant.from_array("w", halves, INT8), *rest))


def test_the_first_of_two_weights_is_in_the_low_half_byte() -> None:
    rows = np.array([[-8, 7, 0], [1, -1, -8]], np.int8)
    assert pack_int4_weights(rows).tolist() == [[0xF0, 0x08], [0x79, 0x00]]


@pytest.mark.parametrize("seed", range(12))
def test_convolutions_match_the_reference(judge, random_convolution, seed: int) -> None:
    call = narrow(random_convolution(seed, depthwise=False))
    for config in OF["conv2d"].configs(call):
        judge(call, OF["conv2d"], config)


@pytest.mark.parametrize("seed", range(8))
def test_rows_of_convolutions_match_the_reference(judge, random_row, seed: int) -> None:
    call = narrow(random_row(seed, depthwise=False))
    for config in OF["conv2d"].configs(call):
        judge(call, OF["conv2d"], config)


@pytest.mark.parametrize("seed", range(12))
def test_fully_connected_matches_the_reference(
    judge, random_fully_connected, seed: int
) -> None:
    call = narrow(random_fully_connected(seed))
    for config in OF["fully_connected"].configs(call):
        judge(call, OF["fully_connected"], config)


def packed_configs(
    schedule: Schedule[ScheduleConfig], call: OpCall
) -> list[ScheduleConfig]:
    return [
        config
        for config in schedule.configs(call)
        if config.settings().get("weights") == "int4"
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", PACKED, ids=lambda schedule: schedule.name)
def test_kernels_of_two_weights_to_a_byte_match_the_reference(
    schedule: Schedule, judge, random_convolution, random_row, random_fully_connected
) -> None:
    judged = 0
    for seed in range(14):
        drawn = [random_fully_connected(seed)]
        if schedule.op == "conv2d":
            drawn = [
                make(seed, depthwise=False) for make in (random_convolution, random_row)
            ]
        for call in drawn:
            assert not packed_configs(schedule, call)
            for config in packed_configs(schedule, narrow(call, least=-7)):
                judge(narrow(call, least=-7), schedule, config)
                judged += 1
    assert judged >= 10


def test_two_weights_to_a_byte_read_padded_copies_of_rows(
    judge, random_convolution
) -> None:
    schedule, judged = dsp_gemm.SCHEDULES[0], 0
    for seed in (226, 243):
        call = narrow(random_convolution(seed, depthwise=False), least=-7)
        for config in packed_configs(schedule, call):
            if config.settings().get("source") == "band":
                judge(call, schedule, config)
                judged += 1
    assert judged == 2


def test_schedules_require_int4_weights(
    random_convolution: Callable[..., OpCall],
    random_fully_connected: Callable[[int], OpCall],
) -> None:
    calls = [random_convolution(seed, depthwise=False) for seed in range(20)]
    calls += [random_fully_connected(seed) for seed in range(20)]
    applied = [bool(OF[call.op].configs(narrow(call))) for call in calls]
    assert sum(applied) > 30
    assert not any(OF[call.op].configs(call) for call in calls)


@pytest.mark.host_c
def test_optimize_size_halves_the_flash_of_the_weights() -> None:
    (case,) = (
        one
        for one in conformance_cases("fully_connected")
        if one.name == "long_int8_int4"
    )
    model = Model(cases_module([NamedCase("fully_connected", case)]))
    sizes = {}
    for goal, flash_bytes in (("balanced", None), ("size", 4000)):
        compiled = compile_for(model, "host", optimize=goal, flash_bytes=flash_bytes)
        constants = compiled.module.constants
        sizes[goal] = max(constant.size_bytes for constant in constants.values())
    assert sizes == {"balanced": 7 * 640, "size": 7 * 320}
    rng = np.random.Generator(np.random.PCG64(1))
    samples = [
        {"0.x0": rng.integers(-128, 128, (1, 640)).astype(np.int8)} for _ in range(3)
    ]
    expected = run_numpy_reference(compiled.imported, samples).outputs
    with open_session(compiled, in_process=True) as session:
        actual = session.run_all(samples)
    for expected_rows, got in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(expected_rows["0.y0"], got["0.y0"])
