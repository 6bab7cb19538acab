from __future__ import annotations

import pytest

from firmwright.base.size_formula import SizeFormula, fit_size_formula

SIZES = range(1, 20)


@pytest.mark.parametrize(
    "formula",
    [
        SizeFormula(offset=7),
        SizeFormula(factor=1),
        SizeFormula(factor=-16, offset=400),
        SizeFormula(square=2, factor=3, offset=1),
        SizeFormula(factor=1, offset=1, divisor=2),
        SizeFormula(factor=3, offset=2, divisor=4),
        SizeFormula(factor=5, divisor=16),
    ],
)
def test_the_values_of_a_formula_give_a_formula_with_the_same_values(
    formula: SizeFormula,
) -> None:
    values = {size: formula.at(size) for size in SIZES}
    found = fit_size_formula(values)
    assert found is not None
    assert {size: found.at(size) for size in SIZES} == values


def test_the_sizes_of_one_remainder_have_a_quotient_of_their_own() -> None:
    found = fit_size_formula({size: (size - 3) // 4 for size in range(3, 40, 4)})
    assert found is not None
    assert found.at(43) == 10


@pytest.mark.parametrize(
    "value", [lambda n: n * n * n, lambda n: 2**n, lambda n: n % 3]
)
def test_other_values_have_no_formula(value) -> None:  # type: ignore[no-untyped-def]  # a lambda
    assert fit_size_formula({size: value(size) for size in SIZES}) is None


def test_a_quotient_is_of_no_negative_number() -> None:
    """C rounds quotients toward 0, so that they would differ."""
    assert fit_size_formula({n: (n - 10) // 4 for n in SIZES}) is None


def test_a_formula_is_computed_below_a_limit() -> None:
    parabola = SizeFormula(square=3, factor=-10, offset=7)
    assert parabola.fits(10, 208)
    assert not parabola.fits(10, 207)
    assert not SizeFormula(offset=-(1 << 31)).fits(1, 1 << 31)
    assert SizeFormula(factor=1 << 20, divisor=4).fits(2047, 1 << 31)
    assert not SizeFormula(factor=1 << 20, divisor=4).fits(2048, 1 << 31)
