"""Tests of the in-place analysis on kernels that are difficult to analyze."""

from __future__ import annotations

import random

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT64, UINT8, UINT32
from firmwright.ir import tir
from firmwright.ir.tir.access_trace import AccessTracer
from firmwright.ir.tir.builder import Builder
from firmwright.ir.tir.inplace_distance import find_offset_constraints
from firmwright.ir.tir.plan import OffsetConstraint

N = 8
INDEX = tir.Var("i", INT64)


def number(value: int) -> tir.IntImm:
    return tir.IntImm(value, INT64)


def loop(body: tir.Stmt, var: tir.Var = INDEX, extent: int = N) -> tir.For:
    return tir.For(var, tir.IntImm(0, var.dtype), tir.IntImm(extent, var.dtype), body)


def kernel(
    body: tir.Stmt, *more: tir.Param, x: tir.Buffer, y: tir.Buffer
) -> tir.PrimFunc:
    return tir.PrimFunc(
        "kernel", (tir.Param(x, "in"), tir.Param(y, "out"), *more), body
    )


def test_a_data_dependent_row_is_read_where_its_view_starts() -> None:
    x, y = tir.Buffer("x", UINT8, (N,)), tir.Buffer("y", INT8, (N, 4))
    table, row = tir.Buffer("table", INT8, (256, 4)), tir.Buffer("row", INT8, (4,))
    j = tir.Var("j", INT64)
    at = tir.Binary("mul", tir.Cast(INT64, tir.BufferLoad(x, (INDEX,))), number(4))
    stored = loop(tir.BufferStore(y, (INDEX, j), tir.BufferLoad(row, (j,))), j, 4)
    body = loop(tir.DeclBuffer(row, tir.AccessPtr(table, at, 4, "r"), stored))
    # Row i is written over x[4 i ..] before x[i + 1] is read:
    # y must lie 4 (N - 2) + 3 below.
    spans = find_offset_constraints(
        kernel(body, tir.Param(table, "const"), x=x, y=y), "x", "y"
    )
    assert spans == (
        OffsetConstraint("x", "y", -(4 * (N - 2) + 4 - (N - 1)), N - 1 + 1),
    )


def test_an_element_from_a_table_may_be_anywhere_in_its_range() -> None:
    x, y = tir.Buffer("x", INT8, (N, 4)), tir.Buffer("y", INT8, (N, 4))
    order, row = tir.Buffer("order", UINT8, (4,)), tir.Var("row", INT64)
    channel = tir.Var("channel", INT64)
    place = tir.Cast(INT64, tir.BufferLoad(order, (row,)))
    value = tir.BufferLoad(x, (INDEX, number(3)))
    stored = tir.BufferStore(y, (INDEX, channel), value)
    at = tir.Binary("min", place, number(3))
    body = loop(loop(tir.Let(channel, at, stored), row, 4))
    # y[i, 0 .. 3] may be written before x[i, 3] is read again.
    spans = find_offset_constraints(
        kernel(body, tir.Param(order, "const"), x=x, y=y), "x", "y"
    )
    assert spans == (OffsetConstraint("x", "y", -1, 4 * N),)


def test_a_wrapping_range_check_does_not_hide_reads() -> None:
    x, y = tir.Buffer("x", INT8, (N,)), tir.Buffer("y", INT8, (N,))
    i = tir.Var("i", UINT32)
    shifted = tir.Binary(
        "sub", i, tir.IntImm(1, UINT32)
    )  # 0 - 1 is 2^32 - 1: not below N
    first = tir.BufferStore(y, (number(0),), tir.IntImm(0, INT8))
    copied = tir.BufferStore(
        y, (i,), tir.BufferLoad(x, (tir.Binary("sub", tir.IntImm(N - 1, UINT32), i),))
    )
    inside = tir.Binary("lt", shifted, tir.IntImm(N, UINT32))
    body = tir.Seq((first, loop(tir.If(inside, first, copied), i)))
    # The copy happens at i = 0 alone, and reads x[N - 1] after y[0] is written.
    spans = find_offset_constraints(kernel(body, x=x, y=y), "x", "y")
    assert spans is not None
    assert any(span.lo < N - 1 < span.hi for span in spans)


def test_reading_back_the_output_adds_no_constraint() -> None:
    b = Builder("sums")
    x = b.buffer_param("x", INT8, (N, 4), "in")
    y = b.buffer_param("y", INT8, (N,), "out")
    with b.for_("i", N) as i:
        b.store(y, [i], 0)
        with b.for_("j", 4) as j:
            b.store(y, [i], b.load(y, [i]) + b.load(x, [i, j]))
    # y[i] is written before x[i, 0 .. 3] are read:
    # y above x by up to 4 N - N is not safe.
    spans = find_offset_constraints(b.build(op="sums"), "x", "y")
    assert spans == (OffsetConstraint("x", "y", -1, 4 * N),)


@pytest.mark.parametrize("stride", [4, 1])
def test_a_plane_of_a_channel_is_overwritten_in_place_at_whole_pixels(
    stride: int,
) -> None:
    """Each channel is read whole before it is written, by pointers to every 4th byte.

    Pointers to all bytes of the plane would reach into other channels.
    """
    b = Builder("planes")
    x = b.buffer_param("x", INT8, (N, 4), "in")
    y = b.buffer_param("y", INT8, (N, 4), "out")
    plane = b.allocate("plane", INT8, (N,))
    reach = 4 * (N - 1) + 1
    with b.for_("c", 4) as c:
        whole = b.pointer(plane, 0, N, "rw")
        b.evaluate("gather", [whole, b.pointer(x, c, reach, stride=stride)])
        b.evaluate("scatter", [b.pointer(y, c, reach, "rw", stride), whole])
    spans = find_offset_constraints(b.build(), "x", "y")
    assert spans is not None
    in_place = all(not span.lo < 0 < span.hi or span.modulus == 4 for span in spans)
    assert in_place == (stride == 4)
    assert all(span.lo < 1 < span.hi for span in spans)


def test_a_loop_without_iterations_writes_nothing() -> None:
    x, y = tir.Buffer("x", INT8, (N,)), tir.Buffer("y", INT8, (N,))
    store = tir.BufferStore(y, (INDEX,), tir.IntImm(0, INT8))
    k = tir.Var("k", INT64)
    copied = tir.BufferStore(y, (k,), tir.BufferLoad(x, (k,)))
    empty = tir.For(INDEX, number(0), number(0), store)
    func = kernel(tir.Seq((empty, loop(copied, k))), x=x, y=y)
    assert find_offset_constraints(func, "x", "y") == (
        OffsetConstraint("x", "y", 0, N),
    )


def test_both_sides_of_a_data_dependent_branch_count() -> None:
    x, y = tir.Buffer("x", INT8, (N,)), tir.Buffer("y", INT8, (N,))
    chosen = tir.Binary("lt", tir.BufferLoad(x, (INDEX,)), tir.IntImm(0, INT8))
    mirrored = tir.BufferLoad(x, (tir.Binary("sub", number(N - 1), INDEX),))
    plain, swapped = (
        tir.BufferStore(y, (INDEX,), v) for v in (tir.BufferLoad(x, (INDEX,)), mirrored)
    )
    spans = find_offset_constraints(
        kernel(loop(tir.If(chosen, plain, swapped)), x=x, y=y), "x", "y"
    )
    assert spans == (OffsetConstraint("x", "y", -N, N),)


def random_nest(rng: random.Random, x: tir.Buffer, y: tir.Buffer) -> tir.Stmt:
    """Return nested loops with copies at every level, at random linear addresses."""

    def place(variables: list[tir.Var]) -> tir.Expr:
        total: tir.Expr = number(rng.randrange(9))
        for var in variables:
            scaled = tir.Binary("mul", var, number(rng.randrange(-4, 5)))
            total = tir.Binary("add", total, scaled)
        return total

    def level(variables: list[tir.Var]) -> tir.Stmt:
        parts: list[tir.Stmt] = []
        for _ in range(rng.randrange(1, 3)):
            load = tir.BufferLoad(x, (place(variables),))
            value = load if rng.random() < 0.7 else tir.IntImm(0, INT8)
            parts.append(tir.BufferStore(y, (place(variables),), value))
        if len(variables) < 3:
            var = tir.Var(f"v{len(variables)}", INT64)
            parts.append(loop(level([*variables, var]), var, rng.randrange(1, 7)))
        rng.shuffle(parts)
        return tir.Seq(tuple(parts))

    return level([])


@pytest.mark.parametrize("seed", range(20))
def test_shortened_loops_have_the_hull_of_all_iterations(seed: int) -> None:
    x, y = tir.Buffer("x", INT8, (999,)), tir.Buffer("y", INT8, (999,))
    body = random_nest(random.Random(seed), x, y)
    hulls = set()
    for shortened in (0, 1):
        log = AccessTracer("x", "y", body).run(shortened)
        reads = log.write == 0
        late = log.time[reads][:, None] > log.time[~reads][None, :]
        below = (log.start[reads][:, None] - log.end[~reads][None, :])[late]
        above = (log.end[reads][:, None] - log.start[~reads][None, :])[late]
        hulls.add((int(np.min(below, initial=0)), int(np.max(above, initial=0))))
    assert len(hulls) == 1


def test_an_equal_kernel_is_not_analyzed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def copy() -> tir.PrimFunc:
        x, y = tir.Buffer("x", INT8, (N, 7)), tir.Buffer("y", INT8, (N, 7))
        return kernel(
            loop(
                tir.BufferStore(
                    y, (INDEX, number(3)), tir.BufferLoad(x, (INDEX, number(5)))
                )
            ),
            x=x,
            y=y,
        )

    spans = find_offset_constraints(copy(), "x", "y")
    assert spans
    monkeypatch.setattr(AccessTracer, "run", None)
    assert find_offset_constraints(copy(), "x", "y") == spans
