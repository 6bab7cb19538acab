"""Helium's rules for floats: those that keep every bit, and those that round once a term."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from firmwright.schedules.helium_floats.terms import add_term


def nearest(value: Fraction) -> np.float32:
    """The float32 next to an exact value: of two as near, the even one."""
    if value == 0:
        return np.float32(0)
    exponent = max(math.frexp(float(value))[1] - 24, -149)
    return np.float32(math.ldexp(round(value / Fraction(2) ** exponent), exponent))


def test_a_fused_term_is_rounded_once() -> None:
    rng = np.random.default_rng(1)
    for _ in range(2000):
        x, w = (np.float32(v) for v in rng.normal(size=2) * 2.0 ** rng.integers(-8, 8, 2))
        exact = Fraction(float(x)) * Fraction(float(w))
        near = np.float32(float(exact))
        # Addends that cancel most of the product, or leave a tie but for one far bit.
        for total in (near, -near, np.float32(rng.normal()), near * np.float32(2.0**24)):
            value = add_term("fused", total, x, w)
            assert value == nearest(exact + Fraction(float(total)))
