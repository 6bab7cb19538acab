"""Every exact form of requantization equals the definition where its proof holds."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT16, Array
from firmwright.base.quant import Rounding
from firmwright.ops.requantize import Requantization
from firmwright.schedules.folded_requantize import FoldedRequantize, fold_requantize
from firmwright.schedules.helium import vector_requantize
from firmwright.schedules.helium.vector_requantize import LaneRounding
from firmwright.schedules.skip_constant_channels import constant_channel_values

# Accumulators, multipliers, shifts, zero points, clamps and bounds are random, up to
# the last value that a proof allows. Every intermediate must fit 32 bits as on the
# device. docs/reference/numerics.md states the obligations. By default a hundred thousand draws,
# with --deep millions.

LAYERS = 16
DEEP_LAYERS = 2000
CHANNELS = 64
DRAWS = 100
"""Accumulators per channel: LAYERS * CHANNELS * DRAWS in total."""
ODD_SHIFT = 8
PAIRED_LIMIT = 1 << 23
MULTIPLIERS = (1 << 30, (1 << 30) + 1, (1 << 31) - 1)


@pytest.fixture
def layers(deep: bool) -> range:
    return range(DEEP_LAYERS if deep else LAYERS)


def generator(seed: int, test: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, test]))


def drawn_requant(
    rng: np.random.Generator, rounding: Rounding, shifts: Array
) -> Requantization:
    count = len(shifts)
    multipliers = rng.integers(1 << 30, 1 << 31, count)
    edges = rng.random(count) < 0.2
    multipliers[edges] = rng.choice(MULTIPLIERS, int(edges.sum()))
    zero_point = int(rng.choice([-128, 0, 127, int(rng.integers(-128, 128))]))
    clamp_min = int(rng.choice([zero_point, -128, int(rng.integers(-128, 128))]))
    clamp_max = int(rng.choice([127, max(clamp_min, int(rng.integers(-128, 128)))]))
    return Requantization(
        tuple(map(int, multipliers)),
        tuple(map(int, shifts)),
        rounding,
        zero_point,
        clamp_min,
        clamp_max,
    )


def accumulators(
    rng: np.random.Generator, params: Requantization, reach: Array
) -> Array:
    """Return [draws, channels]: near ties, near zero, up to each channel's bounds."""
    scale = np.array(params.multipliers) * 2.0 ** (np.array(params.shifts) - 31.0)
    shape = (DRAWS // 4, len(reach))
    ties = np.rint((rng.integers(-140, 140, shape) + 0.5) / scale).clip(
        -(2.0**31), 2.0**31
    )
    parts = [
        ties.astype(np.int64) + rng.integers(-2, 3, shape),
        rng.integers(-reach, reach + 1, shape),
        rng.integers(-4, 5, shape),
        np.where(rng.random(shape) < 0.5, reach, -reach) + rng.integers(-1, 2, shape),
    ]
    return np.clip(np.concatenate(parts), -reach, reach)


def in_32_bits(values: Array) -> Array:
    assert values.min(initial=0) >= -(1 << 31)
    assert values.max(initial=0) < 1 << 31
    return values


def folded_layer(
    seed: int, test: int
) -> tuple[Requantization, FoldedRequantize, Array]:
    """Return a layer that folds, with accumulators as large as its proof allows."""
    rng = generator(seed, test)
    rounding = Rounding.TWICE if rng.random() < 0.6 else Rounding.ONCE
    least = int(rng.integers(-21, 2))
    shifts = rng.integers(least, min(least + int(rng.integers(1, 12)), 3), CHANNELS)
    params = drawn_requant(rng, rounding, shifts)
    left = max(-shifts.min() + 1, 1) + 1 + shifts
    reach = ((1 << 31) - 1) >> left
    kind = rng.random(CHANNELS)
    reach = np.where(kind < 0.3, reach, (reach * kind).astype(np.int64) + 1)
    folded = fold_requantize(params, -reach, reach)
    while folded is None:  # the zero point takes no place in the addend that is left
        params = Requantization(
            params.multipliers,
            params.shifts,
            rounding,
            params.zero_point // 2,
            -128,
            127,
        )
        folded = fold_requantize(params, -reach, reach)
    return params, folded, accumulators(rng, params, reach)


def folded_result(folded: FoldedRequantize, shifted: Array, acc: Array) -> Array:
    """Evaluate the instructions, with every intermediate in 32 bits."""
    high = (in_32_bits(shifted) * np.array(folded.multiplier)) >> 32
    base = in_32_bits(
        np.array(folded.addend) + np.where(acc < 0, np.array(folded.sign), 0)
    )
    total = in_32_bits(base + in_32_bits(high))
    return np.clip(total >> folded.shift, folded.clamp_min, folded.clamp_max)


def test_folded_requantization_is_exact_up_to_its_bounds(layers: range) -> None:
    for seed in layers:
        params, folded, acc = folded_layer(seed, 1)
        result = folded_result(folded, acc << np.array(folded.left), acc)
        np.testing.assert_array_equal(
            result, params.apply(acc, INT8), err_msg=str(seed)
        )


def test_16_bit_multipliers_need_no_left_shift(layers: range) -> None:
    for seed in layers:
        rng = generator(seed, 8)
        least = int(rng.integers(-14, -1))
        shifts = rng.integers(least - int(rng.integers(0, 16)), least + 1, CHANNELS)
        drawn = drawn_requant(rng, Rounding.ONCE, shifts)
        multipliers = tuple(value >> 16 << 16 for value in drawn.multipliers)
        params = Requantization(
            multipliers, drawn.shifts, Rounding.ONCE, 0, INT16.min, INT16.max
        )
        reach = np.full(CHANNELS, (1 << 31) - 1)
        folded = fold_requantize(params, -reach, reach)
        assert folded is not None
        assert not any(folded.left)
        acc = accumulators(rng, params, reach)
        expected = params.apply(acc, INT16)
        np.testing.assert_array_equal(
            folded_result(folded, acc, acc), expected, err_msg=str(seed)
        )


def test_larger_shifts_are_exact_while_their_proof_holds(layers: range) -> None:
    for seed in layers:
        params, minimal, acc = folded_layer(seed, 1)
        more = 1 + seed % 6
        reach = np.abs(acc).max(axis=0) >> more
        folded = fold_requantize(params, -reach, reach, minimal.shift + more)
        if folded is None:  # a zero point far up leaves no room
            continue
        assert folded.shift == minimal.shift + more
        within = np.clip(acc >> more, -reach, reach)
        result = folded_result(folded, within << np.array(folded.left), within)
        np.testing.assert_array_equal(
            result, params.apply(within, INT8), err_msg=str(seed)
        )


def test_values_beyond_the_bounds_are_not_folded(layers: range) -> None:
    for seed in layers:
        params, folded, _ = folded_layer(seed, 1)
        beyond = np.zeros(CHANNELS, np.int64)
        channel = seed % CHANNELS
        beyond[channel] = (1 << 31) >> folded.left[channel]
        assert fold_requantize(params, -beyond, beyond) is None
        assert (
            fold_requantize(params, 1 - beyond, np.maximum(beyond - 1, 0)) is not None
        )


def test_an_odd_accumulator_needs_only_a_right_shift(layers: range) -> None:
    """Odd channels pass 256 times their sum; a right shift replaces the left one."""
    met = 0
    for seed in layers:
        _, folded, acc = folded_layer(seed, 2)
        allowed = np.array(folded.left) <= ODD_SHIFT
        met += int(allowed.sum())
        left = np.array(folded.left)[allowed]
        sums = np.clip(acc[:, allowed], 1 - PAIRED_LIMIT, PAIRED_LIMIT - 1)
        shifted = in_32_bits(sums << ODD_SHIFT) >> (ODD_SHIFT - left)
        np.testing.assert_array_equal(shifted, sums << left)
    assert met > len(layers)


def test_vector_requantization_is_exact_for_all_int32(layers: range) -> None:
    """VQRDMULH, 1 less for negative values that would round up, VRSHL."""
    for seed in layers:
        rng = generator(seed, 3)
        shifts = rng.integers(int(rng.integers(-31, 1)), 1, CHANNELS)
        params = drawn_requant(rng, Rounding.TWICE, shifts)
        assert vector_requantize.supports_requantize(params)
        acc = accumulators(rng, params, np.full(CHANNELS, (1 << 31) - 1))
        doubled = in_32_bits((acc * np.array(params.multipliers) + (1 << 30)) >> 31)
        mode = vector_requantize.rounding_mode(params)
        seen = doubled if mode is LaneRounding.HALVES_AWAY else doubled & shifts
        less = 0 if mode is LaneRounding.HALVES_UP else (seen < 0).astype(np.int64)
        right = -shifts
        nudged = in_32_bits(doubled - less) + np.where(
            right > 0, 1 << np.maximum(right - 1, 0), 0
        )
        result = np.clip(
            (nudged >> right) + params.zero_point, params.clamp_min, params.clamp_max
        )
        np.testing.assert_array_equal(
            result, params.apply(acc, INT8), err_msg=str(seed)
        )


def test_a_constant_channel_has_one_output_for_every_accumulator(layers: range) -> None:
    constant_channels = 0
    for seed in layers:
        rng = generator(seed, 4)
        rounding = Rounding.TWICE if rng.random() < 0.5 else Rounding.ONCE
        params = drawn_requant(rng, rounding, rng.integers(-31, 4, CHANNELS))
        middle = rng.integers(-(1 << 29), 1 << 29, CHANNELS) >> rng.integers(
            0, 29, CHANNELS
        )
        width = rng.integers(0, 1 << 24, CHANNELS) >> rng.integers(0, 24, CHANNELS)
        low, high = middle - width, middle + width
        values = constant_channel_values(params, low, high)
        constant_channels += len(values)
        acc = rng.integers(low, high + 1, (DRAWS, CHANNELS))
        acc = np.concatenate([acc, low[None], high[None]])
        channels = list(values)
        if channels:
            outputs = params.apply(acc, INT8)[:, channels]
            assert (outputs == np.array(list(values.values()))).all(), seed
    assert constant_channels > len(layers)


def test_shifts_folded_into_int16_weights_and_bias_fit(layers: range) -> None:
    """A sum of scaled products is the accumulator times 2^left and fits 32 bits."""
    met = 0
    for seed in layers:
        rng = generator(seed, 5)
        _, folded, acc = folded_layer(seed, 1)
        left = np.array(folded.left)
        weights = rng.integers(-128, 128, (9, CHANNELS))
        fits = np.abs(weights).max(axis=0) << left <= INT16.max
        met += int(fits.sum())
        x = rng.integers(-128, 128, (DRAWS, 9))
        bias = acc - x @ weights
        total = x @ (weights << left) + (bias << left)
        np.testing.assert_array_equal(total[:, fits], (acc << left)[:, fits])
        in_32_bits(total[:, fits])
    assert met > len(layers)
