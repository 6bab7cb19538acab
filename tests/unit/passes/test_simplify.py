"""`simplify` and `narrow_indices`: random expressions keep values; single rules."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firmwright.base.dtypes import BOOL, INT8, INT32, INT64
from firmwright.ir import tir
from firmwright.ir.tir.affine import Bounds
from firmwright.ir.tir.builder import Builder
from firmwright.ir.tir.interpreter import Interpreter, interpret
from firmwright.ir.tir.traversal import walk
from firmwright.passes.tir.narrow_index import narrow_indices
from firmwright.passes.tir.simplify import simplify, simplify_expr

ROW, COLUMN = tir.Var("i", INT64), tir.Var("j", INT64)
X = tir.Buffer("x", INT8, (8,))


def leaves() -> st.SearchStrategy[tir.Expr]:
    load = tir.BufferLoad(X, (tir.Binary("add", COLUMN, tir.IntImm(3, INT64)),))
    return st.one_of(
        st.integers(-9, 9).map(lambda value: tir.IntImm(value, INT64)),
        st.sampled_from([ROW, COLUMN, tir.Cast(INT64, load)]),
    )


def compound(parts: st.SearchStrategy[tir.Expr]) -> st.SearchStrategy[tir.Expr]:
    comparisons = st.builds(
        tir.Binary, st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]), parts, parts
    )
    conditions = st.one_of(
        comparisons,
        comparisons.map(tir.Not),
        st.builds(tir.Binary, st.sampled_from(["and", "or"]), comparisons, comparisons),
    )
    positive = st.integers(1, 7).map(lambda value: tir.IntImm(value, INT64))
    return st.one_of(
        st.builds(
            tir.Binary,
            st.sampled_from(["add", "sub", "mul", "min", "max"]),
            parts,
            parts,
        ),
        st.builds(tir.Binary, st.sampled_from(["div", "mod", "shr"]), parts, positive),
        st.builds(tir.Select, conditions, parts, parts),
        parts.map(lambda part: tir.Cast(INT64, tir.Cast(INT32, part))),
    )


EXPRESSIONS = st.recursive(leaves(), compound, max_leaves=8)


def evaluated(
    func: tir.PrimFunc, values: np.ndarray[tuple[int], np.dtype[np.int8]]
) -> list[int]:
    """Return the values that `func` stores, checked in lanes and serially."""
    out, serial = np.zeros((6, 8), np.int64), np.zeros((6, 8), np.int64)
    interpret(func, {"x": values, "y": out}, {})
    Interpreter({"f": func}, {}, {}, lanes_max=1).run("f", {"x": values, "y": serial})
    np.testing.assert_array_equal(out, serial)
    return [int(value) for value in out.reshape(-1)]


def tabulated(value: tir.Expr) -> tir.PrimFunc:
    """Return a kernel that stores `value` for every i and j."""
    y = tir.Buffer("y", INT64, (6, 8))
    store = tir.BufferStore(
        y, (ROW, tir.Binary("add", COLUMN, tir.IntImm(3, INT64))), value
    )
    inner = tir.For(COLUMN, tir.IntImm(-3, INT64), tir.IntImm(8, INT64), store)
    outer = tir.For(ROW, tir.IntImm(0, INT64), tir.IntImm(6, INT64), inner)
    return tir.PrimFunc("f", (tir.Param(X, "in"), tir.Param(y, "out")), outer)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "change",
    [simplify, narrow_indices, lambda f: simplify(narrow_indices(simplify(f)))],
)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(value=EXPRESSIONS)
def test_simplification_preserves_random_expressions(
    change: Callable[[tir.PrimFunc], tir.PrimFunc], value: tir.Expr
) -> None:
    func = tabulated(value)
    values = np.random.default_rng(0).integers(-128, 128, 8).astype(np.int8)
    assert evaluated(change(func), values) == evaluated(func, values)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(value=EXPRESSIONS)
def test_simplification_is_idempotent(value: tir.Expr) -> None:
    once = simplify(tabulated(value))
    assert simplify(once) == once


def i32(value: int) -> tir.IntImm:
    return tir.IntImm(value, INT32)


A, B = tir.Var("a", INT32), tir.Var("b", INT32)
TRUE, FALSE = tir.IntImm(1, BOOL), tir.IntImm(0, BOOL)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (tir.Binary("add", A, i32(0)), A),
        (tir.Binary("add", i32(0), A), A),
        (tir.Binary("mul", A, i32(1)), A),
        (tir.Binary("mul", A, i32(0)), i32(0)),
        (tir.Binary("sub", A, A), i32(0)),
        (tir.Binary("mod", A, i32(1)), i32(0)),
        (
            tir.Binary("add", tir.Binary("add", A, i32(3)), i32(4)),
            tir.Binary("add", A, i32(7)),
        ),
        (tir.Binary("sub", tir.Binary("add", A, i32(3)), i32(3)), A),
        (
            tir.Binary("sub", tir.Binary("add", A, i32(3)), i32(5)),
            tir.Binary("sub", A, i32(2)),
        ),
        (
            tir.Binary("min", tir.Binary("min", A, i32(3)), i32(4)),
            tir.Binary("min", A, i32(3)),
        ),
        (tir.Binary("div", i32(-7), i32(2)), i32(-3)),
        (tir.Binary("mod", i32(-7), i32(2)), i32(-1)),
        (tir.Binary("lt", A, tir.Binary("add", A, i32(1))), TRUE),
        (tir.Not(tir.Binary("lt", A, B)), tir.Binary("ge", A, B)),
        (tir.Not(tir.Not(tir.Binary("lt", A, B))), tir.Binary("lt", A, B)),
        (tir.Binary("lt", i32(3), A), tir.Binary("gt", A, i32(3))),
        (tir.Select(TRUE, A, B), A),
        (tir.Select(tir.Binary("lt", A, B), A, A), A),
        (tir.Cast(INT32, A), A),
        (tir.Cast(INT8, i32(5)), tir.IntImm(5, INT8)),
        (tir.Binary("and", tir.Binary("lt", A, B), TRUE), tir.Binary("lt", A, B)),
        (tir.Binary("and", tir.Binary("lt", A, B), FALSE), FALSE),
        (tir.Binary("or", tir.Binary("lt", A, B), TRUE), TRUE),
    ],
)
def test_algebraic_identities(before: tir.Expr, after: tir.Expr) -> None:
    assert simplify_expr(before, Bounds()) == after


@pytest.mark.parametrize(
    "kept",
    [
        tir.Binary("add", i32(2**31 - 1), i32(1)),
        tir.Binary("div", i32(1), i32(0)),
        tir.Cast(INT8, i32(300)),
        tir.Binary("div", tir.Binary("mul", A, i32(2)), i32(2)),
        tir.Binary("mul", A, i32(2)),
    ],
)
def test_undecidable_expressions_stay_identical(kept: tir.Expr) -> None:
    assert simplify_expr(kept, Bounds()) is kept


def test_a_branch_does_not_assume_memory_that_it_writes() -> None:
    """The inner guard reads memory that the outer branch has just written."""
    b = Builder("f")
    y = b.buffer_param("y", INT32, (1,), "inout")
    with b.if_(b.load(y, [0]) > 3):
        b.store(y, [0], 0)
        with b.if_(b.load(y, [0]) > 3):
            b.store(y, [0], 99)
    func = b.build()
    out = np.array([5], np.int32)
    interpret(simplify(func), {"y": out}, {})
    assert out[0] == 0


def test_loops_of_one_iteration_and_lets_of_a_variable_disappear() -> None:
    b = Builder("f")
    y = b.buffer_param("y", INT32, (8,), "out")
    with b.for_("i", 8) as i, b.for_("one", 1) as one:
        at = b.let("at", i + one)
        b.store(y, [at], 3)
    body = simplify(b.build()).body
    assert not any(isinstance(node, tir.Let) for node in walk(body))
    assert sum(isinstance(node, tir.For) for node in walk(body)) == 1


def test_a_store_of_the_value_that_is_there_disappears() -> None:
    """A C compiler warns of `acc0 = acc0`, from depthwise columns outside the input."""
    acc = tir.Buffer("acc", INT32, (2,), scope="reg")
    first, second = tir.IntImm(0, INT64), tir.IntImm(1, INT64)
    same = tir.BufferStore(acc, (first,), tir.BufferLoad(acc, (first,)))
    other = tir.BufferStore(acc, (second,), tir.BufferLoad(acc, (first,)))
    func = tir.PrimFunc("f", (), tir.Allocate(acc, tir.Seq((same, other))))
    assert list(walk(simplify(func).body)).count(same) == 0
    assert list(walk(simplify(func).body)).count(other) == 1
