from __future__ import annotations

from collections.abc import Callable
from itertools import product

from firmwright.ir.tir.plan import LiveRange, OffsetConstraint
from firmwright.usmp.interference import InplacePair, build_interference
from firmwright.usmp.lower_bound import lower_bound_bytes, peak_buffers


def test_bound_is_the_peak_of_live_bytes(make_buffer: Callable) -> None:
    buffers = (
        make_buffer("a", 8, (0, 2)),
        make_buffer("b", 4, (1, 3)),
        make_buffer("c", 9, (2, 4)),
    )
    assert lower_bound_bytes(buffers, build_interference(buffers)) == 13
    assert [b.name for b in peak_buffers(buffers)] == ["c", "b"]


def test_branches_do_not_add_up(make_buffer: Callable) -> None:
    then, orelse = make_buffer("then", 100, (1, 2)), make_buffer("orelse", 90, (2, 3))
    around = make_buffer("around", 10, (0, 4))
    buffers = (then, orelse, around)
    assert lower_bound_bytes(buffers, build_interference(buffers)) == 110


def test_alignment_padding_counts_except_at_the_top(make_buffer: Callable) -> None:
    buffers = tuple(make_buffer(name, 10, (0, 1), alignment=16) for name in "abc")
    assert lower_bound_bytes(buffers, build_interference(buffers)) == 42


def test_each_pool_has_a_top_without_padding(make_buffer: Callable) -> None:
    pools = ("fast", "slow")
    buffers = tuple(
        make_buffer(n, 10, (0, 1), alignment=16, pools=pools) for n in "abc"
    )
    assert lower_bound_bytes(buffers, build_interference(buffers)) == 36


def test_a_small_unaligned_buffer_may_fill_a_gap(make_buffer: Callable) -> None:
    aligned = tuple(make_buffer(name, 10, (0, 1), alignment=16) for name in "ab")
    buffers = (*aligned, make_buffer("c", 6, (0, 1)))
    assert lower_bound_bytes(buffers, build_interference(buffers)) == 26


def overlapped(
    make_buffer: Callable, sizes: tuple[int, int], *constraints: OffsetConstraint[str]
) -> int:
    buffers = (make_buffer("a", sizes[0], (0, 2)), make_buffer("b", sizes[1], (1, 3)))
    pair = InplacePair(
        LiveRange(1, 2), constraints or (OffsetConstraint("a", "b", 0, 0),)
    )
    return lower_bound_bytes(buffers, build_interference(buffers, [pair]))


def test_in_place_pair_counts_once(make_buffer: Callable) -> None:
    assert overlapped(make_buffer, (8, 8), OffsetConstraint("a", "b", 0, 8)) == 8


def test_overlapped_pair_counts_with_its_distance(make_buffer: Callable) -> None:
    assert overlapped(make_buffer, (8, 8), OffsetConstraint("a", "b", -3, 8)) == 11
    assert overlapped(make_buffer, (8, 8), OffsetConstraint("a", "b", -8, 2)) == 10
    assert overlapped(make_buffer, (4, 8), OffsetConstraint("a", "b", -3, 4)) == 8
    assert overlapped(make_buffer, (4, 8), OffsetConstraint("a", "b", -6, 4)) == 10
    assert overlapped(make_buffer, (8, 4), OffsetConstraint("a", "b", -2, 8)) == 10
    assert overlapped(make_buffer, (8, 4)) == 8


def test_nonperiodic_constraint_bounds_a_periodic_pair(make_buffer: Callable) -> None:
    constraints = (
        OffsetConstraint("a", "b", -3, 8),
        OffsetConstraint("a", "b", -7, 8, 4),
    )
    assert overlapped(make_buffer, (8, 8), *constraints) == 11


def test_bound_of_overlapped_pairs_equals_the_result_of_enumeration(
    make_buffer: Callable,
) -> None:
    for a, b, lo, hi in product((3, 5, 8), (2, 5, 9), range(-10, 4), range(0, 10)):
        constraint = OffsetConstraint("a", "b", max(lo, -b), min(hi, a))
        places = (d for d in range(-b, a + 1) if not constraint.lo < d < constraint.hi)
        least = min(max(a, d + b) - min(0, d) for d in places)
        assert overlapped(make_buffer, (a, b), constraint) == least


def test_no_buffers_need_no_bytes() -> None:
    assert lower_bound_bytes((), ()) == 0
    assert peak_buffers(()) == ()
