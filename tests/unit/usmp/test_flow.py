"""Liveness on hand-made AOT mains; `use` is a call that reads some buffers and writes others."""

from __future__ import annotations

from firmwright.base.dtypes import BOOL, INT8, INT64
from firmwright.ir.tir.nodes import (
    AccessPtr,
    Allocate,
    Buffer,
    BufferLoad,
    CallPrim,
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
    While,
)
from firmwright.ir.tir.plan import LiveRange
from firmwright.usmp.flow import live_ranges, trace

A, B, C, D = (Buffer(name, INT8, (16,)) for name in "abcd")
TRUE = IntImm(1, BOOL)


def number(value: int) -> IntImm:
    return IntImm(value, INT64)


def use(reads: tuple[Buffer, ...] = (), writes: tuple[Buffer, ...] = ()) -> CallPrim:
    pointers = [AccessPtr(buffer, number(0), buffer.elements, "r") for buffer in reads]
    pointers += [AccessPtr(buffer, number(0), buffer.elements, "w") for buffer in writes]
    return CallPrim("kernel", tuple(pointers))


def rows(body: Stmt) -> For:
    return For(Var("y", INT64), number(0), number(4), body)


def allocated(body: Stmt, *buffers: Buffer, kind: str = "activation") -> Stmt:
    for buffer in reversed(buffers):
        body = Allocate(buffer, body, kind)
    return body


def lives(
    body: Stmt, at_entry: tuple[str, ...] = (), at_exit: tuple[str, ...] = ()
) -> dict[str, list[tuple[int, int]]]:
    flow = trace(PrimFunc("run", (), body, {"aot_main": True}), {})
    ranges = live_ranges(flow, at_entry, at_exit)
    return {name: [(r.first, r.end) for r in live] for name, live in ranges.items()}


def test_a_chain_lives_from_first_write_to_last_read() -> None:
    body = Seq((use((), (A,)), use((A,), (B,)), use((B,), (C,)), use((A, C), (D,))))
    assert lives(allocated(body, A, B, C, D)) == {
        "a": [(0, 4)],
        "b": [(1, 3)],
        "c": [(2, 4)],
        "d": [(3, 4)],
    }


def test_what_is_written_and_never_read_lives_during_its_writer() -> None:
    body = Seq((use((), (A,)), use((), (B,)), use((B,))))
    assert lives(allocated(body, A, B)) == {"a": [(0, 1)], "b": [(1, 3)]}


def test_a_buffer_live_into_a_loop_and_read_in_it_is_live_through_it() -> None:
    loop = rows(Seq((use((A,), (B,)), use((B,), (C,)))))
    body = Seq((use((), (A,)), loop, use((C,), (D,))))
    found = lives(allocated(body, A, B, C, D))
    assert found["a"] == [(0, 3)]
    assert found["c"] == [(1, 4)]  # rows of it are written in every iteration
    assert found["d"] == [(3, 4)]


def test_what_a_loop_allocates_is_private_to_an_iteration() -> None:
    inner = allocated(Seq((use((A,), (B,)), use((B,), (C,)), use((C,), (D,)))), B)
    body = Seq((use((), (A,)), rows(inner), use((D,))))
    found = lives(allocated(body, A, C, D))
    assert found["b"] == [(1, 3)]
    assert found["c"] == [(1, 4)]  # allocated outside: the next iteration may read it
    assert found["a"] == [(0, 4)]


def test_a_value_carried_by_a_loop_lives_through_it() -> None:
    loop = rows(Seq((use((A,), (B,)), use((), (C,)), use((B, C), (A,)))))
    body = Seq((use((), (A,)), loop, use((A,))))
    assert lives(allocated(body, A, B, C))["a"] == [(0, 5)]


def test_nested_loops_keep_what_the_inner_one_reads_alive_in_the_outer_one() -> None:
    inner = rows(use((A,), (B,)))
    body = Seq((use((), (A,)), rows(Seq((inner, use((B,), (C,))))), use((C,))))
    assert lives(allocated(body, A, B, C)) == {"a": [(0, 3)], "b": [(1, 3)], "c": [(1, 4)]}


def test_branches_define_before_use_on_their_own() -> None:
    then = Seq((use((), (A,)), use((A,), (C,))))
    orelse = Seq((use((), (B,)), use((B,), (C,))))
    body = Seq((If(TRUE, then, orelse), use((C,))))
    assert lives(allocated(body, A, B, C)) == {
        "a": [(0, 2)],
        "b": [(2, 4)],
        "c": [(1, 2), (3, 5)],
    }


def test_one_buffer_used_by_both_branches_is_dead_between_them() -> None:
    branch = Seq((use((), (A,)), use((A,), (C,))))
    body = Seq((use((), (B,)), If(TRUE, branch, Seq((use((), (D,)), branch))), use((B, C))))
    found = lives(allocated(body, A, B, C, D))
    assert found["a"] == [(1, 3), (4, 6)]
    assert found["b"] == [(0, 7)]


def test_what_only_one_branch_reads_is_not_live_in_the_other() -> None:
    branch = If(TRUE, use((A,), (B,)), use((), (B,)))
    body = Seq((use((), (A,)), branch, use((B,))))
    assert lives(allocated(body, A, B))["a"] == [(0, 2)]


def test_a_branch_without_else_passes_values_by() -> None:
    body = Seq((use((), (A,)), If(TRUE, use((), (B,))), use((A,))))
    assert lives(allocated(body, A, B)) == {"a": [(0, 3)], "b": [(1, 2)]}


def test_a_loop_in_a_branch_in_a_loop() -> None:
    inner = If(TRUE, rows(use((A,), (B,))), use((), (C,)))
    body = Seq((use((), (A,)), rows(inner), use((B,))))
    found = lives(allocated(body, A, B, C))
    assert found["a"] == [(0, 3)]  # the other branch lies between two reads of it
    assert found["b"] == [(1, 4)]
    assert found["c"] == [(2, 3)]


def test_a_while_condition_reads_at_its_own_time_in_every_iteration() -> None:
    cond = Cast(BOOL, BufferLoad(A, (number(0),)))
    loop = While(cond, Seq((use((), (B,)), use((B,), (A,)))))
    body = Seq((use((), (A,)), loop, use((), (C,))))
    assert lives(allocated(body, A, B, C)) == {"a": [(0, 4)], "b": [(1, 4)], "c": [(4, 5)]}


def test_a_view_counts_for_its_parent() -> None:
    view = Buffer("view", INT8, (4, 4))
    part = Buffer("part", INT8, (4,))
    inner = DeclBuffer(
        view,
        AccessPtr(A, number(0), 16, "r"),
        DeclBuffer(part, AccessPtr(view, number(4), 4, "r"), use((part,), (C,))),
    )
    body = Seq((use((), (A,)), use((), (B,)), inner))
    assert lives(allocated(body, A, B, C))["a"] == [(0, 3)]


def test_partial_writes_do_not_end_the_life_of_earlier_ones() -> None:
    low = Buffer("low", INT8, (8,))
    high = Buffer("high", INT8, (8,))
    write_low = DeclBuffer(low, AccessPtr(A, number(0), 8, "w"), use((), (low,)))
    write_high = DeclBuffer(high, AccessPtr(A, number(8), 8, "w"), use((), (high,)))
    body = Seq((use((), (B,)), write_low, use((), (C,)), write_high, use((A,))))
    assert lives(allocated(body, A, B, C))["a"] == [(1, 5)]


def test_held_at_entry_lives_from_the_start_and_held_at_exit_to_the_end() -> None:
    calls = Seq((use((), (C,)), use((A,), (B,)), use((), (D,))))
    body = allocated(allocated(calls, B, C, D), A, kind="input")
    found = lives(body, at_entry=("a",), at_exit=("b",))
    assert found["a"] == [(0, 2)]
    assert found["b"] == [(1, 3)]
    assert lives(body, at_entry=("a",), at_exit=("a",))["a"] == [(0, 3)]


def test_the_roles_of_a_kernel_count_where_the_pointer_says_less() -> None:
    kernel = PrimFunc("kernel", (Param(Buffer("x", INT8, (16,)), "inout"),), Seq(()))
    body = Seq((use((), (B,)), use((B,), ()), use((), (A,)), use((), (A,))))
    main = PrimFunc("run", (), allocated(body, A, B), {"aot_main": True})
    ranges = live_ranges(trace(main, {"kernel": kernel}), (), ())
    assert ranges["a"] == (LiveRange(2, 4),)


def test_buffers_that_are_not_allocated_are_nobodys_business() -> None:
    reg = Buffer("r", INT8, (1,), scope="reg")
    body = Allocate(reg, use((B,), (A, reg)), "reg")
    assert lives(allocated(body, A)) == {"a": [(0, 1)]}
