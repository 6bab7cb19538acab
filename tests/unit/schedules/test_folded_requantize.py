"""Where folded requantization applies; test_requantize_proofs.py tests exactness."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Rounding
from firmwright.ops.requantize import Requantization
from firmwright.schedules.folded_requantize import (
    FITTED_LEFT,
    fit_requantize,
    fold_requantize,
)


def test_layers_that_may_overflow_are_not_folded() -> None:
    params = Requantization((1 << 30,), (-4,), Rounding.TWICE, 0, -128, 127)
    reach = np.array([1 << 29])
    assert fold_requantize(params, -reach, reach) is None
    small = np.array([1 << 20])
    assert fold_requantize(params, -small, small) is not None


def test_the_sign_term_is_dropped_if_clamped() -> None:
    reach = np.array([1 << 16])
    hidden = fold_requantize(
        Requantization((1 << 30,), (-4,), Rounding.TWICE, -128, -128, 127),
        -reach,
        reach,
    )
    needed = fold_requantize(
        Requantization((1 << 30,), (-4,), Rounding.TWICE, 3, -128, 127), -reach, reach
    )
    assert hidden is not None
    assert needed is not None
    assert not hidden.has_sign
    assert needed.has_sign


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("zero_point", [-128, 3])
def test_fitted_forms_are_exact_for_every_accumulator(
    rounding: Rounding, zero_point: int
) -> None:
    rng = np.random.default_rng(7)
    multipliers = tuple((rng.integers(1 << 30, (1 << 31) - 1, 12) | 1).tolist())
    shifts = tuple(rng.integers(-9, -6, 12).tolist())
    params = Requantization(multipliers, shifts, rounding, zero_point, -128, 127)
    low, high = np.full(12, -90_000), np.full(12, 70_000)
    fitted = fit_requantize(params, low, high)
    assert fitted is not None
    assert fitted.has_sign == (rounding is Rounding.TWICE and zero_point == 3)
    acc = np.arange(-90_000, 70_001)[:, None]
    base = np.array(fitted.addend) + np.where(acc < 0, np.array(fitted.sign), 0)
    total = base + ((acc << FITTED_LEFT) * np.array(fitted.multiplier) >> 32)
    outputs = np.clip(total >> fitted.shift, -128, 127)
    np.testing.assert_array_equal(outputs, params.apply(acc, INT8))


def test_layers_beyond_24_bits_are_not_fitted() -> None:
    params = Requantization((1 << 30,) * 2, (-9, -8), Rounding.TWICE, -128, -128, 127)
    reach = np.array([1 << 23] * 2)
    assert fit_requantize(params, -reach, reach) is None
