from __future__ import annotations

from collections.abc import Callable

from firmwright.usmp.bound import lower_bound_bytes, peak
from firmwright.usmp.sharing import find_conflicts


def test_the_bound_is_the_worst_moment(make_buffer: Callable) -> None:
    buffers = (
        make_buffer("a", 8, (0, 2)),
        make_buffer("b", 4, (1, 3)),
        make_buffer("c", 9, (2, 4)),
    )
    assert lower_bound_bytes(buffers, find_conflicts(buffers)) == 13
    assert [b.name for b in peak(buffers)] == ["c", "b"]


def test_branches_do_not_add_up(make_buffer: Callable) -> None:
    then, orelse = make_buffer("then", 100, (1, 2)), make_buffer("orelse", 90, (2, 3))
    around = make_buffer("around", 10, (0, 4))
    buffers = (then, orelse, around)
    assert lower_bound_bytes(buffers, find_conflicts(buffers)) == 110


def test_gaps_that_alignment_forces_count_but_not_one_at_the_top(make_buffer: Callable) -> None:
    buffers = tuple(make_buffer(name, 10, (0, 1), alignment=16) for name in "abc")
    assert lower_bound_bytes(buffers, find_conflicts(buffers)) == 42


def test_each_pool_has_a_top_of_its_own(make_buffer: Callable) -> None:
    pools = ("fast", "slow")
    buffers = tuple(make_buffer(n, 10, (0, 1), alignment=16, pools=pools) for n in "abc")
    assert lower_bound_bytes(buffers, find_conflicts(buffers)) == 36


def test_a_small_unaligned_buffer_may_fill_a_gap(make_buffer: Callable) -> None:
    aligned = tuple(make_buffer(name, 10, (0, 1), alignment=16) for name in "ab")
    buffers = (*aligned, make_buffer("c", 6, (0, 1)))
    assert lower_bound_bytes(buffers, find_conflicts(buffers)) == 26


def test_an_in_place_pair_counts_once(make_buffer: Callable) -> None:
    buffers = (make_buffer("a", 8, (0, 2)), make_buffer("b", 8, (1, 3)))
    conflicts = find_conflicts(buffers, [("a", "b", 1)])
    assert lower_bound_bytes(buffers, conflicts) == 8


def test_no_buffers_need_no_bytes() -> None:
    assert lower_bound_bytes((), ()) == 0
    assert peak(()) == ()
