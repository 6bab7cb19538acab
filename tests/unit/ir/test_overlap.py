"""What input and output may share, on kernels made to mislead the analysis of accesses."""

from __future__ import annotations

from firmwright.base.dtypes import INT8, INT64, UINT8, UINT32
from firmwright.ir.tir.builder import Builder
from firmwright.ir.tir.nodes import (
    AccessPtr,
    Binary,
    Buffer,
    BufferLoad,
    BufferStore,
    Cast,
    DeclBuffer,
    For,
    If,
    IntImm,
    Param,
    PrimFunc,
    Seq,
    Stmt,
    Var,
)
from firmwright.ir.tir.overlap import Forbidden, forbidden

N = 8
INDEX = Var("i", INT64)


def number(value: int) -> IntImm:
    return IntImm(value, INT64)


def loop(body: Stmt, var: Var = INDEX, extent: int = N) -> For:
    return For(var, IntImm(0, var.dtype), IntImm(extent, var.dtype), body)


def kernel(body: Stmt, *more: Param, x: Buffer, y: Buffer) -> PrimFunc:
    return PrimFunc("kernel", (Param(x, "in"), Param(y, "out"), *more), body)


def test_a_row_chosen_by_the_input_is_read_where_the_window_opens() -> None:
    x, y = Buffer("x", UINT8, (N,)), Buffer("y", INT8, (N, 4))
    table, row = Buffer("table", INT8, (256, 4)), Buffer("row", INT8, (4,))
    j = Var("j", INT64)
    at = Binary("mul", Cast(INT64, BufferLoad(x, (INDEX,))), number(4))
    stored = loop(BufferStore(y, (INDEX, j), BufferLoad(row, (j,))), j, 4)
    body = loop(DeclBuffer(row, AccessPtr(table, at, 4, "r"), stored))
    # Row i is written over x[4 i ..] before x[i + 1] is read: y must lie 4 (N - 2) + 3 below.
    spans = forbidden(kernel(body, Param(table, "const"), x=x, y=y), "x", "y")
    assert spans == (Forbidden(-(4 * (N - 2) + 4 - (N - 1)), N - 1 + 1),)


def test_a_range_check_that_wraps_hides_no_read() -> None:
    x, y = Buffer("x", INT8, (N,)), Buffer("y", INT8, (N,))
    i = Var("i", UINT32)
    shifted = Binary("sub", i, IntImm(1, UINT32))  # 0 - 1 is 2^32 - 1: not below N
    first = BufferStore(y, (number(0),), IntImm(0, INT8))
    copied = BufferStore(y, (i,), BufferLoad(x, (Binary("sub", IntImm(N - 1, UINT32), i),)))
    inside = Binary("lt", shifted, IntImm(N, UINT32))
    body = Seq((first, loop(If(inside, first, copied), i)))
    # The copy happens at i = 0 alone, and reads x[N - 1] after y[0] is written.
    spans = forbidden(kernel(body, x=x, y=y), "x", "y")
    assert spans is not None
    assert any(span.lo < N - 1 < span.hi for span in spans)


def test_an_output_read_back_hinders_nothing() -> None:
    b = Builder("sums")
    x = b.buffer_param("x", INT8, (N, 4), "in")
    y = b.buffer_param("y", INT8, (N,), "out")
    with b.for_("i", N) as i:
        b.store(y, [i], 0)
        with b.for_("j", 4) as j:
            b.store(y, [i], b.load(y, [i]) + b.load(x, [i, j]))
    # y[i] is written before x[i, 0 .. 3] are read; y above x by up to 4 N - N is not safe.
    spans = forbidden(b.build(op="sums"), "x", "y")
    assert spans == (Forbidden(-1, 4 * N),)


def test_a_loop_that_runs_no_time_writes_nothing() -> None:
    x, y = Buffer("x", INT8, (N,)), Buffer("y", INT8, (N,))
    store = BufferStore(y, (INDEX,), IntImm(0, INT8))
    k = Var("k", INT64)
    copied = BufferStore(y, (k,), BufferLoad(x, (k,)))
    empty = For(INDEX, number(0), number(0), store)
    func = kernel(Seq((empty, loop(copied, k))), x=x, y=y)
    assert forbidden(func, "x", "y") == (Forbidden(0, N),)


def test_a_branch_on_data_counts_both_ways() -> None:
    x, y = Buffer("x", INT8, (N,)), Buffer("y", INT8, (N,))
    chosen = Binary("lt", BufferLoad(x, (INDEX,)), IntImm(0, INT8))
    mirrored = BufferLoad(x, (Binary("sub", number(N - 1), INDEX),))
    plain, swapped = (BufferStore(y, (INDEX,), v) for v in (BufferLoad(x, (INDEX,)), mirrored))
    spans = forbidden(kernel(loop(If(chosen, plain, swapped)), x=x, y=y), "x", "y")
    assert spans == (Forbidden(-N, N),)
