"""Applicability of folded requantization; its exactness is tested in test_requantize_proofs.py."""

from __future__ import annotations

import numpy as np

from firmwright.base.quant import Rounding
from firmwright.ops.requantize import Requantization
from firmwright.schedules.folded_requantize import fold_requantize


def test_layers_that_may_overflow_are_not_folded() -> None:
    params = Requantization((1 << 30,), (-4,), Rounding.TWICE, 0, -128, 127)
    reach = np.array([1 << 29])
    assert fold_requantize(params, -reach, reach) is None
    small = np.array([1 << 20])
    assert fold_requantize(params, -small, small) is not None


def test_the_sign_term_is_dropped_if_clamped() -> None:
    reach = np.array([1 << 16])
    hidden = fold_requantize(
        Requantization((1 << 30,), (-4,), Rounding.TWICE, -128, -128, 127), -reach, reach
    )
    needed = fold_requantize(
        Requantization((1 << 30,), (-4,), Rounding.TWICE, 3, -128, 127), -reach, reach
    )
    assert hidden is not None
    assert needed is not None
    assert not hidden.has_sign
    assert needed.has_sign
