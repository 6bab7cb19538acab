"""Liveness on hand-written AOT mains; `use` is a call that reads and writes buffers."""

from __future__ import annotations

from firmwright.base.dtypes import BOOL, INT8, INT64
from firmwright.ir import tir
from firmwright.ir.tir.plan import LiveRange
from firmwright.usmp.liveness import build_cfg, compute_live_ranges

A, B, C, D = (tir.Buffer(name, INT8, (16,)) for name in "abcd")
TRUE = tir.IntImm(1, BOOL)


def number(value: int) -> tir.IntImm:
    return tir.IntImm(value, INT64)


def use(
    reads: tuple[tir.Buffer, ...] = (), writes: tuple[tir.Buffer, ...] = ()
) -> tir.PrimFuncCall:
    pointers = [
        tir.AccessPtr(buffer, number(0), buffer.elements, "r") for buffer in reads
    ]
    pointers += [
        tir.AccessPtr(buffer, number(0), buffer.elements, "w") for buffer in writes
    ]
    return tir.PrimFuncCall("kernel", tuple(pointers))


def rows(body: tir.Stmt) -> tir.For:
    return tir.For(tir.Var("y", INT64), number(0), number(4), body)


def allocated(
    body: tir.Stmt, *buffers: tir.Buffer, kind: str = "activation"
) -> tir.Stmt:
    for buffer in reversed(buffers):
        body = tir.Allocate(buffer, body, kind)
    return body


def lives(
    body: tir.Stmt, at_entry: tuple[str, ...] = (), at_exit: tuple[str, ...] = ()
) -> dict[str, list[tuple[int, int]]]:
    flow = build_cfg(tir.PrimFunc("run", (), body, {"aot_main": True}), {})
    ranges = compute_live_ranges(flow, at_entry, at_exit)
    return {name: [(r.first, r.end) for r in live] for name, live in ranges.items()}


def test_a_chain_lives_from_first_write_to_last_read() -> None:
    body = tir.Seq((use((), (A,)), use((A,), (B,)), use((B,), (C,)), use((A, C), (D,))))
    assert lives(allocated(body, A, B, C, D)) == {
        "a": [(0, 4)],
        "b": [(1, 3)],
        "c": [(2, 4)],
        "d": [(3, 4)],
    }


def test_buffer_that_is_never_read_lives_during_its_writer() -> None:
    body = tir.Seq((use((), (A,)), use((), (B,)), use((B,))))
    assert lives(allocated(body, A, B)) == {"a": [(0, 1)], "b": [(1, 3)]}


def test_a_buffer_live_into_a_loop_and_read_in_it_is_live_through_it() -> None:
    loop = rows(tir.Seq((use((A,), (B,)), use((B,), (C,)))))
    body = tir.Seq((use((), (A,)), loop, use((C,), (D,))))
    result = lives(allocated(body, A, B, C, D))
    assert result["a"] == [(0, 3)]
    assert result["c"] == [(1, 4)]  # rows of it are written in every iteration
    assert result["d"] == [(3, 4)]


def test_allocation_in_a_loop_is_private_to_an_iteration() -> None:
    inner = allocated(tir.Seq((use((A,), (B,)), use((B,), (C,)), use((C,), (D,)))), B)
    body = tir.Seq((use((), (A,)), rows(inner), use((D,))))
    result = lives(allocated(body, A, C, D))
    assert result["b"] == [(1, 3)]
    assert result["c"] == [(1, 4)]  # allocated outside: the next iteration may read it
    assert result["a"] == [(0, 4)]


def test_a_value_carried_by_a_loop_lives_through_it() -> None:
    loop = rows(tir.Seq((use((A,), (B,)), use((), (C,)), use((B, C), (A,)))))
    body = tir.Seq((use((), (A,)), loop, use((A,))))
    assert lives(allocated(body, A, B, C))["a"] == [(0, 5)]


def test_buffer_read_in_an_inner_loop_is_live_in_the_outer_loop() -> None:
    inner = rows(use((A,), (B,)))
    body = tir.Seq((use((), (A,)), rows(tir.Seq((inner, use((B,), (C,))))), use((C,))))
    assert lives(allocated(body, A, B, C)) == {
        "a": [(0, 3)],
        "b": [(1, 3)],
        "c": [(1, 4)],
    }


def test_each_branch_defines_before_use() -> None:
    then = tir.Seq((use((), (A,)), use((A,), (C,))))
    orelse = tir.Seq((use((), (B,)), use((B,), (C,))))
    body = tir.Seq((tir.If(TRUE, then, orelse), use((C,))))
    assert lives(allocated(body, A, B, C)) == {
        "a": [(0, 2)],
        "b": [(2, 4)],
        "c": [(1, 2), (3, 5)],
    }


def test_one_buffer_used_by_both_branches_is_dead_between_them() -> None:
    branch = tir.Seq((use((), (A,)), use((A,), (C,))))
    body = tir.Seq(
        (
            use((), (B,)),
            tir.If(TRUE, branch, tir.Seq((use((), (D,)), branch))),
            use((B, C)),
        )
    )
    result = lives(allocated(body, A, B, C, D))
    assert result["a"] == [(1, 3), (4, 6)]
    assert result["b"] == [(0, 7)]


def test_buffer_read_in_one_branch_is_not_live_in_the_other() -> None:
    branch = tir.If(TRUE, use((A,), (B,)), use((), (B,)))
    body = tir.Seq((use((), (A,)), branch, use((B,))))
    assert lives(allocated(body, A, B))["a"] == [(0, 2)]


def test_value_is_live_past_a_branch_without_else() -> None:
    body = tir.Seq((use((), (A,)), tir.If(TRUE, use((), (B,))), use((A,))))
    assert lives(allocated(body, A, B)) == {"a": [(0, 3)], "b": [(1, 2)]}


def test_a_loop_in_a_branch_in_a_loop() -> None:
    inner = tir.If(TRUE, rows(use((A,), (B,))), use((), (C,)))
    body = tir.Seq((use((), (A,)), rows(inner), use((B,))))
    result = lives(allocated(body, A, B, C))
    assert result["a"] == [(0, 3)]  # the other branch is between two reads of it
    assert result["b"] == [(1, 4)]
    assert result["c"] == [(2, 3)]


def test_a_while_condition_reads_at_its_own_time_in_every_iteration() -> None:
    cond = tir.Cast(BOOL, tir.BufferLoad(A, (number(0),)))
    loop = tir.While(cond, tir.Seq((use((), (B,)), use((B,), (A,)))))
    body = tir.Seq((use((), (A,)), loop, use((), (C,))))
    assert lives(allocated(body, A, B, C)) == {
        "a": [(0, 4)],
        "b": [(1, 4)],
        "c": [(4, 5)],
    }


def test_a_view_counts_for_its_parent() -> None:
    view = tir.Buffer("view", INT8, (4, 4))
    part = tir.Buffer("part", INT8, (4,))
    inner = tir.DeclBuffer(
        view,
        tir.AccessPtr(A, number(0), 16, "r"),
        tir.DeclBuffer(
            part, tir.AccessPtr(view, number(4), 4, "r"), use((part,), (C,))
        ),
    )
    body = tir.Seq((use((), (A,)), use((), (B,)), inner))
    assert lives(allocated(body, A, B, C))["a"] == [(0, 3)]


def test_partial_writes_do_not_end_the_life_of_earlier_ones() -> None:
    low = tir.Buffer("low", INT8, (8,))
    high = tir.Buffer("high", INT8, (8,))
    write_low = tir.DeclBuffer(
        low, tir.AccessPtr(A, number(0), 8, "w"), use((), (low,))
    )
    write_high = tir.DeclBuffer(
        high, tir.AccessPtr(A, number(8), 8, "w"), use((), (high,))
    )
    body = tir.Seq((use((), (B,)), write_low, use((), (C,)), write_high, use((A,))))
    assert lives(allocated(body, A, B, C))["a"] == [(1, 5)]


def test_held_at_entry_lives_from_the_start_and_held_at_exit_to_the_end() -> None:
    calls = tir.Seq((use((), (C,)), use((A,), (B,)), use((), (D,))))
    body = allocated(allocated(calls, B, C, D), A, kind="input")
    result = lives(body, at_entry=("a",), at_exit=("b",))
    assert result["a"] == [(0, 2)]
    assert result["b"] == [(1, 3)]
    assert lives(body, at_entry=("a",), at_exit=("a",))["a"] == [(0, 3)]


def test_kernel_roles_override_pointer_access() -> None:
    kernel = tir.PrimFunc(
        "kernel", (tir.Param(tir.Buffer("x", INT8, (16,)), "inout"),), tir.Seq(())
    )
    body = tir.Seq((use((), (B,)), use((B,), ()), use((), (A,)), use((), (A,))))
    main = tir.PrimFunc("run", (), allocated(body, A, B), {"aot_main": True})
    ranges = compute_live_ranges(build_cfg(main, {"kernel": kernel}), (), ())
    assert ranges["a"] == (LiveRange(2, 4),)


def test_buffers_that_are_not_allocated_are_ignored() -> None:
    reg = tir.Buffer("r", INT8, (1,), scope="reg")
    body = tir.Allocate(reg, use((B,), (A, reg)), "reg")
    assert lives(allocated(body, A)) == {"a": [(0, 1)]}
