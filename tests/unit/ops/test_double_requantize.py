"""Multipliers that round once agree with a product in double for a layer's sums."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, Array
from firmwright.base.quant import Rounding, quantize_multiplier
from firmwright.ops.double_requantize import (
    find_exact_multipliers,
    requantize_in_double,
)
from firmwright.ops.requantize import Requantization

LAYERS = 400
DEEP_LAYERS = 40_000


def usual(
    factor: float, zero_point: int = 0, low: int = -128, high: int = 127
) -> Requantization:
    multiplier, shift = quantize_multiplier(factor)
    return Requantization((multiplier,), (shift,), Rounding.ONCE, zero_point, low, high)


def found(factor: float, low: int, high: int) -> Requantization | None:
    return find_exact_multipliers(
        usual(factor), [factor], np.array([low]), np.array([high])
    )


def differing(params: Requantization, factor: float, sums: Array) -> int:
    scaled = requantize_in_double(sums, np.array([factor])) + params.zero_point
    expected = np.clip(scaled, params.clamp_min, params.clamp_max)
    return int(np.count_nonzero(params.apply(sums[:, None], INT8)[:, 0] != expected))


@pytest.mark.parametrize(
    ("total", "factor", "expected"),
    [
        (-9, 0.5, -5),
        (9, 0.5, 5),
        (-8, 0.5, -4),
        (-1, 0.5, -1),
        (-2, 0.25, -1),
        (-1, 0.25, 0),
    ],
)
def test_halves_round_away_from_zero(total: int, factor: float, expected: int) -> None:
    assert requantize_in_double(np.array([total]), np.array([factor])).tolist() == [
        expected
    ]


def test_value_just_below_a_half_is_not_rounded_up() -> None:
    just_below = 0.5 - 2.0**-54
    assert requantize_in_double(np.array([1, -1]), np.array([just_below])).tolist() == [
        0,
        0,
    ]


def test_negative_ties_increase_the_multiplier_by_one() -> None:
    assert found(0.5, -100, 100) == Requantization(
        (2**30 + 1,), (0,), Rounding.ONCE, 0, -128, 127
    )


@pytest.mark.parametrize(("low", "high"), [(0, 300), (-1, 300), (5, 1 << 30)])
def test_usual_multiplier_is_kept_without_negative_ties(low: int, high: int) -> None:
    # A quarter of -1 is not a tie.
    assert found(0.25, low, high) == usual(0.25)


def test_channels_without_ties_keep_their_multipliers() -> None:
    factors = [0.5, 0.0123456789, 0.0123456789]
    pairs = [quantize_multiplier(factor) for factor in factors]
    params = Requantization(
        *map(tuple, zip(*pairs, strict=True)), Rounding.ONCE, 3, -128, 127
    )  # type: ignore[arg-type]
    reach = np.full(3, 5000)
    mended = find_exact_multipliers(params, factors, -reach, reach)
    assert mended is not None
    assert mended.multipliers == (2**30 + 1, *params.multipliers[1:])
    assert mended.shifts == params.shifts


def test_no_multiplier_exists_for_sums_beyond_31_bits() -> None:
    factor = float(np.float32(0.9)) * float(np.float32(5.1e-8)) / float(np.float32(0.7))
    assert found(factor, -(1 << 20), 1 << 20) == usual(factor)
    assert found(factor, -(1 << 31) + 1, (1 << 31) - 1) is None


def test_adjusted_multipliers_are_exact_and_minimal(deep: bool) -> None:
    rng = np.random.Generator(np.random.PCG64(17))
    mended = 0
    for _ in range(DEEP_LAYERS if deep else LAYERS):
        factor = drawn_factor(rng)
        reach = min(2.0 ** rng.uniform(3, 31), 2.0**31 - 1, 2.0**30 / factor)
        low, high = sorted(rng.integers(-int(reach), int(reach) + 1, 2).tolist())
        zero_point = int(rng.choice([-128, 0, 127, 5]))
        clamp_min = int(rng.choice([zero_point, -128, -7]))
        params = usual(
            factor, zero_point, clamp_min, int(rng.choice([127, max(clamp_min, 9)]))
        )
        result = find_exact_multipliers(
            params, [factor], np.array([low]), np.array([high])
        )
        sums = telling_sums(rng, factor, low, high)
        is_usual_right = differing(params, factor, sums) == 0
        assert (result == params) == is_usual_right, (factor, low, high)
        if result is not None:
            assert differing(result, factor, sums) == 0, (factor, low, high)
            mended += result != params
    assert mended > LAYERS // 50


def drawn_factor(rng: np.random.Generator) -> float:
    """Return a power of two, a factor with few bits, or a quotient of three scales."""
    octave = 2.0 ** int(rng.integers(-30, 3))
    match int(rng.integers(3)):
        case 0:
            return octave
        case 1:
            return float(rng.integers(1, 256)) / 256 * octave
        case _:
            x, w, y = (float(np.float32(value)) for value in rng.uniform(0.5, 1, 3))
            return x * w / y * octave


def telling_sums(rng: np.random.Generator, factor: float, low: int, high: int) -> Array:
    """Return sums near every tie, near zero, at both ends and between."""
    halves = np.rint((np.arange(-260, 260) + 0.5) / factor).clip(-(2.0**33), 2.0**33)
    near = [halves.astype(np.int64) + step for step in (-1, 0, 1)]
    others = [
        rng.integers(low, high + 1, 200),
        np.arange(-200, 200),
        np.array([low, high]),
    ]
    return np.concatenate([*near, *others]).clip(low, high)
