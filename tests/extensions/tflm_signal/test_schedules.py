"""Schedules of the signal operators give the results of the references."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT16, INT32, UINT32, UINT64, Array
from firmwright.base.errors import NotSupportedError
from firmwright.extensions.tflm_signal import (
    bank_schedules,
    channel_schedules,
    fft_schedules,
    fft_vectors,
    float_fft_vectors,
    normalized_schedules,
    root_schedules,
    scale_schedules,
    window_schedules,
)
from firmwright.extensions.tflm_signal.attributes import (
    FftAttrs,
    FilterBankAttrs,
    FilterBankLogAttrs,
    PcanAttrs,
    SpectralSubtractionAttrs,
    WindowFunctionAttrs,
)
from firmwright.extensions.tflm_signal.bank_schedules import find_run
from firmwright.ir.core import Constant
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.module import IRModule
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import Schedule
from firmwright.schedules.registry import INTRINSICS
from tests.unit.ir.verified import verify_prim_func

EXTREMES = (INT16.min, INT16.max, -1, 0, 1)


def results(call: OpCall, schedule: Schedule[Any], arrays: list[Array]) -> list[Array]:
    """Return the outputs of the interpreted kernel; it must pass the verifier."""
    (config,) = schedule.configs(call)
    kernel = Kernel("kernel", call)
    schedule.build(call, config, kernel)
    func = kernel.build()
    module = IRModule("test", {func.name: func}, kernel.constants)
    verify_prim_func(func, module, INTRINSICS)
    variable = [a for i, a in enumerate(arrays) if call.constant(i) is None]
    outputs = [np.zeros(kind.shape, kind.dtype.np) for kind in call.outputs]
    names = [param.value.name for param in kernel.params]
    values = dict(zip(names, [*variable, *outputs], strict=True))
    interpret(func, values, INTRINSICS, constants=kernel.constants)
    return outputs


def judge(call: OpCall, schedule: Schedule[Any], arrays: list[Array]) -> None:
    expected = op_table()[call.op].reference(call, arrays)
    for ours, theirs in zip(results(call, schedule, arrays), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    if kind == "extreme":
        return rng.choice(np.array(EXTREMES, np.int16), shape)
    size = {"loud": INT16.max, "quiet": 40}[kind]
    return rng.integers(-size - 1, size + 1, shape).astype(np.int16)


@pytest.mark.parametrize("kind", ["loud", "quiet", "extreme"])
@pytest.mark.parametrize("length", [8, 16, 32, 64, 128])
@pytest.mark.parametrize(
    "schedule",
    [*fft_schedules.SCHEDULES, *fft_vectors.SCHEDULES],
    ids=lambda item: item.name,
)
def test_transforms_match_the_reference(
    schedule: Schedule[Any], length: int, kind: str
) -> None:
    rng = np.random.default_rng(length)
    for width in (length, length * 5 // 8 // 2 * 2):
        call = OpCall(
            "rfft",
            (TensorType((2, width), INT16),),
            (TensorType((2, length + 2), INT16),),
            FftAttrs(length=length),
            (None,),
        )
        if schedule.configs(call):
            judge(call, schedule, [drawn(rng, (2, width), kind)])


@pytest.mark.parametrize("length", [8, 32, 64, 128, 512])
@pytest.mark.parametrize(
    "schedule", float_fft_vectors.SCHEDULES, ids=lambda item: item.name
)
def test_transforms_of_floats_equal_the_reference(
    schedule: Schedule[Any], length: int
) -> None:
    shape = TensorType((2, length), FLOAT32)
    result = TensorType((2, length + 2), FLOAT32)
    attrs = FftAttrs(length=length)
    call = OpCall("rfft", (shape,), (result,), attrs, (None,))
    padded = replace(call, inputs=(TensorType((2, length - 2), FLOAT32),))
    assert not schedule.configs(padded)
    assert bool(schedule.configs(call)) == (length in (32, 128, 512))
    if schedule.configs(call):
        x = np.random.default_rng(length).normal(size=shape.shape).astype(np.float32)
        judge(call, schedule, [x])


def bank(rng: np.random.Generator, channels: int, gap: int) -> OpCall:
    """Return a bank of triangles, padded with weights of 0, `gap` bins apart."""
    widths = rng.integers(0, 9, channels + 1)
    bins = 3 + np.concatenate([[0], np.cumsum(widths + gap)[:-1]])
    starts = np.concatenate([[0], np.cumsum(widths + 2)[:-1]])
    count = int(starts[-1] + widths[-1])
    weights = rng.integers(0, 4097, (2, count))
    for start, width in zip(starts, widths, strict=True):
        weights[:, start + max(int(width) - 1, 0) : start + width] = 0
    tables = [*weights, bins, starts, widths]
    constants = [Constant.from_array(f"c{i}", t, INT16) for i, t in enumerate(tables)]
    kinds = [TensorType(tuple(constant.shape), INT16) for constant in constants]
    spectrum = TensorType((int(bins[-1] + widths[-1]) + 1,), UINT32)
    return OpCall(
        "filter_bank",
        (spectrum, *kinds),
        (TensorType((channels,), UINT64),),
        FilterBankAttrs(num_channels=channels),
        (None, *constants),
    )


@pytest.mark.parametrize("gap", [0, 2])
@pytest.mark.parametrize(
    "schedule",
    [item for item in bank_schedules.SCHEDULES if item.op == "filter_bank"],
    ids=lambda item: item.name,
)
def test_filter_banks_match_the_reference(schedule: Schedule[Any], gap: int) -> None:
    rng = np.random.default_rng(gap)
    for channels in (1, 4, 13):
        call = bank(rng, channels, gap)
        tables = [c.array() for c in call.constants if c is not None]
        for high in (1 << 32, 1 << 20):
            spectrum = rng.integers(0, high, call.input(0).shape).astype(np.uint32)
            judge(call, schedule, [spectrum, *tables])
        largest = np.full(call.input(0).shape, UINT32.max, np.uint32)
        judge(call, schedule, [largest, *tables])


def test_bins_without_weights_are_left_out() -> None:
    call = bank(np.random.default_rng(5), 9, 0)
    run = find_run(call)
    assert run is not None
    stored = int(call.constants[5].array().sum())  # type: ignore[union-attr]
    assert run.widths.sum() == len(run.weights) < stored


def test_a_table_of_weights_may_have_more_than_the_other() -> None:
    call = bank(np.random.default_rng(2), 4, 0)
    run = find_run(call)
    longer = list(call.constants)
    table = np.append(call.constants[2].array(), 7)  # type: ignore[union-attr]
    longer[2] = Constant.from_array("longer", table, INT16)
    other = find_run(replace(call, constants=tuple(longer)))
    assert run is not None
    assert other is not None
    np.testing.assert_array_equal(run.weights, other.weights)


def test_banks_with_negative_weights_or_repeated_bins_have_default_loops() -> None:
    call = bank(np.random.default_rng(1), 4, 0)
    for index, change in ((1, -1), (3, -2)):
        changed = list(call.constants)
        table = changed[index].array().copy()  # type: ignore[union-attr]
        table[1:] += change
        changed[index] = Constant.from_array("changed", table, INT16)
        other = OpCall(call.op, call.inputs, call.outputs, call.attrs, tuple(changed))
        assert find_run(other) is None


@pytest.mark.parametrize("count", [2, 9, 33, 480])
@pytest.mark.parametrize(
    "schedule", scale_schedules.SCHEDULES, ids=lambda item: item.name
)
def test_automatic_scales_match_the_reference(
    schedule: Schedule[Any], count: int
) -> None:
    rng = np.random.default_rng(count)
    kind = TensorType((count,), INT16)
    outputs = (kind, TensorType((), INT32))
    call = OpCall("fft_auto_scale", (kind,), outputs, NO_ATTRS, (None,))
    for size in (0, 1, 2, 63, 64, 4095, 16384, 32767):
        x = rng.integers(-size, size + 1, count).astype(np.int16)
        judge(call, schedule, [x])
        x[rng.integers(count)] = -size
        judge(call, schedule, [x])
        x[rng.integers(count, size=2)] = INT16.min
        judge(call, schedule, [x])


def channel_schedules_of(op: str) -> list[Schedule[Any]]:
    return [item for item in channel_schedules.SCHEDULES if item.op == op]


@pytest.mark.parametrize("count", [2, 7, 40])
@pytest.mark.parametrize("alternate", [655, 9000])
def test_pairs_of_channels_match_the_reference(alternate: int, count: int) -> None:
    (schedule,) = channel_schedules_of("spectral_subtraction")
    kind = TensorType((count,), UINT32)
    attrs = SpectralSubtractionAttrs(
        alternate_one_minus_smoothing=15729,
        alternate_smoothing=alternate,
        clamping=0,
        min_signal_remaining=819,
        num_channels=count,
        one_minus_smoothing=15729,
        smoothing=655,
        smoothing_bits=10,
        spectral_subtraction_bits=14,
    )
    call = OpCall(schedule.op, (kind, kind), (kind, kind), attrs, (None, None))
    rng = np.random.default_rng(count)
    for high in (1 << 32, 1 << 20, 1 << 8):
        arrays = [rng.integers(0, high, count).astype(np.uint32) for _ in range(2)]
        judge(call, schedule, arrays)


@pytest.mark.parametrize("count", [3, 8, 40])
@pytest.mark.parametrize(
    "schedule",
    [
        item
        for item in (*channel_schedules.SCHEDULES, *normalized_schedules.SCHEDULES)
        if item.op == "filter_bank_log"
    ],
    ids=lambda item: item.name,
)
def test_logarithms_match_the_reference(schedule: Schedule[Any], count: int) -> None:
    outputs = (TensorType((count,), INT16),)
    rng = np.random.default_rng(count)
    for bits, scale in ((0, 1600), (3, 1600), (0, 65536)):
        attrs = FilterBankLogAttrs(input_correction_bits=bits, output_scale=scale)
        inputs = (TensorType((count,), UINT32),)
        call = OpCall(schedule.op, inputs, outputs, attrs, (None,))
        for high in (1 << 32, 1 << 16, 300, 2):
            drawn_values = rng.integers(0, high, count).astype(np.uint32)
            judge(call, schedule, [drawn_values])
        greatest = UINT32.max - np.arange(count, dtype=np.uint32)
        judge(call, schedule, [greatest])


def gains_call(count: int, gains: Array, snr_shift: int = 6) -> OpCall:
    kind = TensorType((count,), UINT32)
    table = Constant.from_array("gains", gains, INT16)
    inputs = (kind, kind, TensorType(gains.shape, INT16))
    attrs = PcanAttrs(snr_shift=snr_shift)
    return OpCall("pcan", inputs, (kind,), attrs, (None, None, table))


(HALVES,) = (item for item in normalized_schedules.SCHEDULES if item.op == "pcan")


@pytest.mark.parametrize("length", [3, 61, 125])
def test_gains_match_the_reference(length: int) -> None:
    rng = np.random.default_rng(length)
    gains = np.sort(rng.integers(2000, 32000, length))[::-1].astype(np.int16)
    gains[3::4] = -rng.integers(0, 40, len(gains[3::4]))
    gains[4::4] = rng.integers(0, 20, len(gains[4::4]))
    gains[:3] = (20000, 5, 3) if length == 3 else (32000, 31000, 30000)
    call = gains_call(30, gains)
    for high in (1 << 32, 1 << 16, 4):
        arrays = [rng.integers(0, high, 30).astype(np.uint32) for _ in range(2)]
        arrays[1][:9] = 0, 1, 2, 3, 4, 1023, 2047, 2048, UINT32.max
        judge(call, HALVES, [*arrays, gains])


def test_negative_gains_are_not_multiplied_in_halves() -> None:
    gains = np.full(125, 9, np.int16)
    gains[3::4] = gains[1::4] = gains[2::4] = 0
    assert HALVES.configs(gains_call(4, gains))
    assert not HALVES.configs(gains_call(4, gains, snr_shift=17))
    gains[64] = -1
    assert not HALVES.configs(gains_call(4, gains))


def test_shifts_that_c_does_not_define_are_refused() -> None:
    gains = np.full(125, 9, np.int16)
    outputs = (TensorType((4,), INT16),)
    inputs = (TensorType((4,), UINT32),)
    for shift in (-1, 64):
        with pytest.raises(NotSupportedError, match=f"64 bits shifted by {shift}"):
            op_table()["pcan"].infer(gains_call(4, gains, shift))
    for bits in (-1, 32):
        attrs = FilterBankLogAttrs(input_correction_bits=bits, output_scale=1600)
        call = OpCall("filter_bank_log", inputs, outputs, attrs, (None,))
        with pytest.raises(NotSupportedError, match=f"32 bits shifted by {bits}"):
            op_table()["filter_bank_log"].infer(call)


def window(weights: Array, shift: int) -> OpCall:
    constant = Constant.from_array("weights", weights, INT16)
    kind = TensorType((2, len(weights)), INT16)
    inputs = (kind, TensorType(weights.shape, INT16))
    attrs = WindowFunctionAttrs(shift=shift)
    return OpCall("window", inputs, (kind,), attrs, (None, constant))


def test_windows_of_small_weights_match_the_reference() -> None:
    (schedule,) = window_schedules.SCHEDULES
    rng = np.random.default_rng(1)
    for count in (5, 8, 30):
        weights = rng.choice([4096, 4095, 0, -4095, 17], count).astype(np.int16)
        call = window(weights, 12)
        for kind in ("loud", "extreme"):
            judge(call, schedule, [drawn(rng, (2, count), kind), weights])
    for outside in (4097, -4096):
        assert not schedule.configs(window(np.full(8, outside, np.int16), 12))


def test_roots_of_vectors_match_the_reference() -> None:
    (schedule,) = root_schedules.SCHEDULES
    rng = np.random.default_rng(1)
    roots = rng.integers(0, 1 << 32, 60).astype(np.uint64)
    squares = roots * roots
    edges = np.array([0, 1, 2, 3, 6, 7, UINT32.max, UINT64.max, 1 << 63], np.uint64)
    for x in (
        *(squares, squares + np.uint64(1), squares - np.uint64(1), squares + roots),
        *(squares + roots + np.uint64(1), edges, squares >> np.uint64(35)),
        (UINT64.max - np.arange(9, dtype=np.uint64)),
    ):
        inputs = TensorType((len(x),), UINT64), TensorType((), INT32)
        outputs = (TensorType((len(x),), UINT32),)
        call = OpCall(schedule.op, inputs, outputs, NO_ATTRS, (None, None))
        judge(call, schedule, [x, np.array(0, np.int32)])
