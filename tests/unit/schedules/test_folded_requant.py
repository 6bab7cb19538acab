"""The folded requantise step against its definition, near every place where roundings differ."""

from __future__ import annotations

import numpy as np

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Rounding
from firmwright.ops.fixed_point import Requant
from firmwright.schedules.folded_requant import FoldedRequant, fold

CASES = 400
ACCUMULATORS = 2000


def _folded_result(folded: FoldedRequant, acc: np.ndarray, channel: int) -> np.ndarray:
    """What the emitted instructions compute, in 64 bits."""
    high = ((acc << folded.left[channel]) * folded.multiplier[channel]) >> 32
    base = folded.addend[channel] + np.where(acc < 0, folded.sign[channel], 0)
    return np.clip((base + high) >> folded.shift, folded.clamp_min, folded.clamp_max)


def _random_requant(rng: np.random.Generator) -> Requant:
    channels = int(rng.integers(1, 5))
    shifts = rng.integers(-12, 3, channels)
    zero_point = int(rng.choice([-128, 0, 127, int(rng.integers(-128, 128))]))
    clamp_min = zero_point if rng.random() < 0.5 else -128
    return Requant(
        tuple(int(m) for m in rng.integers(1 << 30, 1 << 31, channels)),
        tuple(int(s) for s in shifts),
        Rounding.TWICE if rng.random() < 0.5 else Rounding.ONCE,
        zero_point,
        clamp_min,
        int(rng.choice([127, max(clamp_min, int(rng.integers(-128, 128)))])),
    )


def _accumulators(rng: np.random.Generator, params: Requant, channel: int, reach: int):
    """Uniform ones, small ones, and the neighbours of values that land half-way."""
    scale = params.multipliers[channel] * 2.0 ** (params.shifts[channel] - 31)
    halves = np.round((rng.integers(-130, 130, ACCUMULATORS) + 0.5) / scale)
    near = halves + rng.integers(-2, 3, ACCUMULATORS)
    spread = rng.integers(-reach, reach + 1, ACCUMULATORS)
    small = rng.integers(-4, 5, ACCUMULATORS)
    everything = np.concatenate([near, spread, small, [-reach, reach, 0]])
    return np.clip(everything, -reach, reach).astype(np.int64)


def test_the_folded_step_equals_the_definition_wherever_it_is_proved() -> None:
    rng = np.random.Generator(np.random.PCG64(11))
    folded_count = 0
    for _ in range(CASES):
        params = _random_requant(rng)
        channels = len(params.multipliers)
        reach = int(2 ** rng.uniform(8, 24))
        bound = np.full(channels, reach)
        folded = fold(params, -bound, bound)
        if folded is None:
            continue
        folded_count += 1
        for channel in range(channels):
            acc = _accumulators(rng, params, channel, reach)
            one = Requant(
                (params.multipliers[channel],), (params.shifts[channel],), params.rounding,
                params.zero_point, params.clamp_min, params.clamp_max,
            )  # fmt: skip
            expected = one.apply(acc, INT8).astype(np.int64)
            np.testing.assert_array_equal(_folded_result(folded, acc, channel), expected)
    assert folded_count > CASES // 3


def test_a_layer_that_may_overflow_is_not_folded() -> None:
    params = Requant((1 << 30,), (-4,), Rounding.TWICE, 0, -128, 127)
    reach = np.array([1 << 29])
    assert fold(params, -reach, reach) is None
    small = np.array([1 << 20])
    assert fold(params, -small, small) is not None


def test_the_sign_term_is_dropped_where_the_clamp_hides_it() -> None:
    reach = np.array([1 << 16])
    hidden = fold(Requant((1 << 30,), (-4,), Rounding.TWICE, -128, -128, 127), -reach, reach)
    needed = fold(Requant((1 << 30,), (-4,), Rounding.TWICE, 3, -128, 127), -reach, reach)
    assert hidden is not None
    assert needed is not None
    assert not hidden.has_sign
    assert needed.has_sign
