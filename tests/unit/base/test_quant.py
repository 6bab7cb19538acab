"""Requantization against independent exact arithmetic on integers and fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firmwright.base.errors import InternalError, ModelError
from firmwright.base.quant import (
    INT32_MAX,
    INT32_MIN,
    Quantization,
    Rounding,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)

int32s = st.one_of(
    st.integers(INT32_MIN, INT32_MAX),
    st.integers(-300, 300),
    st.sampled_from(
        [INT32_MIN, INT32_MIN + 1, -(1 << 30), 1 << 30, INT32_MAX - 1, INT32_MAX]
    ),
)
multipliers = st.one_of(st.integers(1 << 30, INT32_MAX), st.just(0))
shifts = st.integers(-31, 30)


def wrap(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def nearest_half_away(value: Fraction) -> int:
    magnitude = math.floor(abs(value) + Fraction(1, 2))
    return magnitude if value >= 0 else -magnitude


def slow_once(x: int, multiplier: int, shift: int) -> int:
    return wrap(
        math.floor(Fraction(x * multiplier, 1 << (31 - shift)) + Fraction(1, 2))
    )


def slow_high_mul(a: int, b: int) -> int:
    if a == b == INT32_MIN:
        return INT32_MAX
    return math.floor(Fraction(a * b, 1 << 31) + Fraction(1, 2))


def slow_twice(x: int, multiplier: int, shift: int) -> int:
    high = slow_high_mul(wrap(x * 2 ** max(shift, 0)), multiplier)
    return nearest_half_away(Fraction(high, 2 ** max(-shift, 0)))


def slow_float32(x: int, multiplier: int, shift: int) -> int:
    if multiplier % 2 == 0:
        return slow_once(x, multiplier, shift)
    factor = np.float32(math.ldexp(multiplier & -128, shift - 31))
    return min(int(np.rint(np.float32(x) * factor)), INT32_MAX)


SLOW = {
    Rounding.ONCE: slow_once,
    Rounding.TWICE: slow_twice,
    Rounding.FLOAT32: slow_float32,
}


@settings(max_examples=500)
@given(x=int32s, multiplier=multipliers, shift=shifts)
@example(x=INT32_MIN, multiplier=INT32_MAX, shift=-31)
@example(x=INT32_MIN, multiplier=INT32_MAX, shift=30)
@example(x=-1, multiplier=1 << 30, shift=0)
def test_both_roundings_equal_their_definitions(
    x: int, multiplier: int, shift: int
) -> None:
    once = multiply_by_quantized_multiplier(x, multiplier, shift, Rounding.ONCE)
    twice = multiply_by_quantized_multiplier(x, multiplier, shift, Rounding.TWICE)
    assert int(once) == slow_once(x, multiplier, shift)
    assert int(twice) == slow_twice(x, multiplier, shift)


@given(a=int32s, b=int32s)
@example(a=INT32_MIN, b=INT32_MIN)
@example(a=INT32_MIN, b=INT32_MAX)
@example(a=-1, b=1 << 30)
def test_the_high_product_rounds_halves_up(a: int, b: int) -> None:
    assert int(saturating_rounding_doubling_high_mul(a, b)) == slow_high_mul(a, b)


@given(x=int32s, exponent=st.integers(0, 31))
def test_the_power_of_two_division_rounds_halves_away(x: int, exponent: int) -> None:
    assert int(rounding_divide_by_pot(x, exponent)) == nearest_half_away(
        Fraction(x, 1 << exponent)
    )


def test_the_roundings_differ_where_two_halves_meet() -> None:
    # 3 * 2^-2 * 0.5: the high product 1.5 goes to 2, then to 1; rounded once it is 0.
    once = multiply_by_quantized_multiplier(3, 1 << 30, -2, Rounding.ONCE)
    twice = multiply_by_quantized_multiplier(3, 1 << 30, -2, Rounding.TWICE)
    assert (int(once), int(twice)) == (0, 1)


@pytest.mark.parametrize("rounding", Rounding)
def test_channels_broadcast_along_the_last_axis(rounding: Rounding) -> None:
    x = np.array([[100, -100, 7], [5, -5, 1 << 20]], np.int32)
    multiplier, shift = np.array([1 << 30, 1518500250, INT32_MAX]), np.array([-3, 0, 4])
    out = multiply_by_quantized_multiplier(x, multiplier, shift, rounding)
    slow = SLOW[rounding]
    rows = [
        [
            slow(int(v), int(m), int(s))
            for v, m, s in zip(row, multiplier, shift, strict=True)
        ]
        for row in x
    ]
    assert out.dtype == np.int64
    assert out.tolist() == rows


def test_values_beyond_int32_and_shifts_beyond_31_are_internal_errors() -> None:
    with pytest.raises(InternalError, match="x leaves the int32 range"):
        multiply_by_quantized_multiplier(1 << 31, 1 << 30, 0, Rounding.ONCE)
    with pytest.raises(InternalError, match="shift is outside"):
        multiply_by_quantized_multiplier(1, 1 << 30, -32, Rounding.TWICE)


@given(st.floats(min_value=2.0**-30, max_value=2.0**29))
def test_a_multiplier_has_31_significant_bits(real: float) -> None:
    multiplier, shift = quantize_multiplier(real)
    assert 1 << 30 <= multiplier <= INT32_MAX
    value = Fraction(multiplier) * Fraction(2) ** (shift - 31)
    assert abs(value - Fraction(real)) <= Fraction(2) ** (shift - 32)


def test_multipliers_at_the_edges_of_the_definition() -> None:
    assert quantize_multiplier(0.0) == (0, 0)
    assert quantize_multiplier(1.0) == (1 << 30, 1)
    assert quantize_multiplier(0.5) == (1 << 30, 0)
    assert quantize_multiplier(math.nextafter(1.0, 0.0)) == (1 << 30, 1)
    assert quantize_multiplier(2.0**-32) == (1 << 30, -31)
    assert quantize_multiplier(math.nextafter(2.0**-32, 0.0)) == (1 << 30, -31)
    assert quantize_multiplier(2.0**-33) == (0, 0)


@pytest.mark.parametrize("real", [math.inf, math.nan, -1.0, 2.0**30])
def test_impossible_factors_are_model_errors(real: float) -> None:
    with pytest.raises(ModelError, match="requantize factor"):
        quantize_multiplier(real)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (0.5, 1),
        (-0.5, -1),
        (1.5, 2),
        (2.5, 3),
        (-2.5, -3),
        (0.49999999999999994, 0),
        (7.0, 7),
    ],
)
def test_halves_round_away_from_zero(value: float, rounded: int) -> None:
    assert round_half_away(value) == rounded


def test_a_valid_quantization_is_accepted() -> None:
    plain = Quantization((0.5,), (-3,))
    assert (plain.scale, plain.zero_point, plain.per_channel) == (0.5, -3, False)
    channels = Quantization((0.5, 0.25), (0, 0), axis=3)
    assert channels.per_channel
    with pytest.raises(InternalError, match="per-channel"):
        _ = channels.scale


@pytest.mark.parametrize(
    ("scales", "zero_points", "axis"),
    [
        ((), (), None),
        ((1.0,), (), None),
        ((1.0, 1.0), (0, 0), None),
        ((1.0,), (0,), -1),
        ((0.0,), (0,), None),
        ((math.nan,), (0,), None),
        ((math.inf,), (0,), None),
        ((-1.0,), (0,), None),
    ],
)
def test_an_invalid_quantization_is_rejected(
    scales: tuple[float, ...], zero_points: tuple[int, ...], axis: int | None
) -> None:
    with pytest.raises(ModelError, match="a quantization has"):
        Quantization(scales, zero_points, axis)
