"""Tests of affine forms and intervals: exact where possible and always sound."""

from __future__ import annotations

import itertools
import random

from firmwright.base.dtypes import INT32, INT64, UINT8
from firmwright.ir import tir
from firmwright.ir.tir.affine import Bounds, linearize
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum, select

Y, K, P = (ArithExpr(tir.Var(name, INT64)) for name in ("y", "k", "p"))


def at(expr: tir.Expr, values: dict[str, int]) -> int:
    """Evaluate `expr` by definition."""
    match expr:
        case tir.IntImm(value):
            return value
        case tir.Var(name):
            return values[name]
        case tir.Select(cond, a, b):
            return at(a, values) if at(cond, values) else at(b, values)
        case tir.Binary(op, a, b):
            x, y = at(a, values), at(b, values)
            quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else 0
            table = {
                "add": x + y,
                "sub": x - y,
                "mul": x * y,
                "min": min(x, y),
                "max": max(x, y),
                "div": quotient,
                "mod": x - quotient * y,
                "and": x & y,
                "lt": int(x < y),
            }
            return table[op]
        case _:
            raise AssertionError(expr)


def test_a_linear_form_gathers_coefficients_and_the_constant() -> None:
    form = linearize(((Y * 2 + K - 1) * 8 - Y).expr)
    assert form.constant == -8
    assert (form.coefficient(Y.expr), form.coefficient(K.expr)) == (15, 8)


def test_widening_casts_are_transparent_and_narrowing_ones_are_not() -> None:
    y = tir.Var("y", INT32)
    assert linearize(tir.Cast(INT64, y)).coefficient(y) == 1
    narrow = tir.Cast(UINT8, y)
    assert linearize(narrow).terms == {narrow: 1}


def test_non_affine_parts_become_atoms() -> None:
    form = linearize((Y * K * 3 + 1).expr)
    assert form.coefficient((Y * K).expr) == 3


def test_quotient_and_remainder_recombine() -> None:
    form = linearize(((P + 3) / 5 * 40 + (P + 3) % 5 * 8).expr)
    assert (form.coefficient(P.expr), form.constant) == (8, 24)


def test_correlated_terms_cancel() -> None:
    assert Bounds({"y": (0, 1000)}).interval_of((Y * 2 - Y - Y + 5).expr) == (5, 5)


def test_loads_have_the_range_of_their_dtype() -> None:
    load = tir.BufferLoad(tir.Buffer("x", UINT8, (4,)), (tir.IntImm(0, INT64),))
    assert Bounds().interval_of(tir.Binary("add", load, tir.IntImm(1, UINT8))) == (
        1,
        256,
    )


def test_a_condition_on_a_linear_form_bounds_a_multiple_of_it() -> None:
    row = Y * 2 + K - 1
    known = Bounds({"y": (0, 4), "k": (0, 2)})
    index = (row * 64 + P).expr
    known = known.with_range("p", 0, 63)
    assert not known.proves_within(index, 0, 10 * 64 - 1)
    guarded = known.assume((row >= 0).expr).assume((row < 9).expr)
    assert guarded.proves_within(index, 0, 9 * 64 - 1)
    assert not guarded.proves_within(index, 0, 9 * 64 - 2)


def test_the_failed_branch_of_a_condition_is_known_too() -> None:
    known = Bounds({"y": (0, 9)}).assume((Y < 4).expr, False)
    assert known.interval_of(Y.expr) == (4, 9)


def test_a_tail_loop_stays_inside_through_its_extent() -> None:
    i = tir.Var("i", INT64)
    known = Bounds({"y": (0, 2)}).with_loop(
        i, tir.IntImm(0, INT64), minimum(4, 10 - Y * 4).expr
    )
    assert known.proves_within((Y * 4 + ArithExpr(i)).expr, 0, 9)
    assert not known.proves_within((Y * 4 + ArithExpr(i)).expr, 0, 8)


def test_a_let_variable_has_the_bounds_of_its_definition() -> None:
    row = tir.Var("row", INT64)
    known = Bounds({"y": (0, 4), "k": (0, 2)}).with_let(row, (Y * 2 + K - 1).expr)
    assert known.interval_of(row) == (-1, 9)
    assert known.assume((ArithExpr(row) >= 0).expr).proves_within(
        (Y * 2 + K - 1).expr, 0, 9
    )
    assert known.assume((Y * 2 + K >= 1).expr).proves_within(row, 0, 9)


def test_contradicting_assumptions_prove_everything() -> None:
    dead = Bounds({"y": (0, 3)}).assume((Y > 7).expr)
    assert dead.dead
    assert dead.proves_within((Y * 1000).expr, 0, 1)


def random_expr(rng: random.Random, depth: int) -> ArithExpr:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([Y, K, P, ArithExpr(tir.IntImm(rng.randint(-9, 9), INT64))])
    a, b = random_expr(rng, depth - 1), random_expr(rng, depth - 1)
    match rng.randrange(9):
        case 0:
            return a + b
        case 1:
            return a - b
        case 2:
            return a * rng.randint(-3, 5)
        case 3:
            return minimum(a, b)
        case 4:
            return maximum(a, b)
        case 5:
            return a / rng.randint(1, 5)
        case 6:
            return a % rng.randint(1, 5)
        case 7:
            return ArithExpr(
                tir.Binary("and", a.expr, tir.IntImm(rng.randint(0, 7), INT64))
            )
        case _:
            return select(a < b, a, b)


def test_intervals_hold_for_every_value_of_random_expressions_under_conditions() -> (
    None
):
    rng = random.Random(1)
    ranges = {"y": (0, 3), "k": (-2, 2), "p": (1, 4)}
    points = [
        dict(zip(ranges, point, strict=True))
        for point in itertools.product(
            *(range(lo, hi + 1) for lo, hi in ranges.values())
        )
    ]
    for _ in range(400):
        index, cond = (
            random_expr(rng, 3).expr,
            (random_expr(rng, 2) < random_expr(rng, 2)).expr,
        )
        for known, holds in (
            (Bounds(ranges), None),
            (Bounds(ranges).assume(cond), True),
        ):
            values = [at(index, p) for p in points if holds is None or at(cond, p)]
            if known.dead:
                assert not values
                continue
            for found in (known.interval_of(index), known.tight_interval_of(index)):
                assert found is not None
                assert not values or (
                    found[0] <= min(values) and max(values) <= found[1]
                )
