from __future__ import annotations

from collections.abc import Callable

from firmwright.ir.tir.plan import BufferInfo, LiveRange, OffsetConstraint
from firmwright.usmp.interference import InplacePair, build_interference

Make = Callable[..., BufferInfo]


def test_only_simultaneously_live_buffers_conflict(make_buffer: Make) -> None:
    a, b, c = (
        make_buffer("a", 8, (0, 2)),
        make_buffer("b", 4, (1, 3)),
        make_buffer("c", 2, (2, 4)),
    )
    assert build_interference((a, b, c)) == (
        OffsetConstraint("a", "b", -4, 8),
        OffsetConstraint("b", "c", -2, 4),
    )


def test_buffers_do_not_conflict_in_a_gap_of_a_live_range(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 1), (3, 4)), make_buffer("b", 4, (1, 3))
    assert build_interference((a, b)) == ()


def test_two_common_live_ranges_give_one_constraint(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 1), (3, 4)), make_buffer("b", 4, (0, 4))
    assert build_interference((a, b)) == (OffsetConstraint("a", "b", -4, 8),)


def allowed(conflicts, *differences: int) -> list[int]:
    return [d for d in differences if all(c.allows(20, 20 + d) for c in conflicts)]


def test_inplace_pair_has_the_constraint_of_its_kernel(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 3)), make_buffer("b", 4, (2, 4))
    pair = InplacePair(LiveRange(2, 3), (OffsetConstraint("a", "b", -2, 8),))
    assert build_interference((a, b), [pair]) == (OffsetConstraint("a", "b", -2, 8),)


def test_constraint_of_a_pair_is_independent_of_buffer_order(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 3)), make_buffer("b", 4, (2, 4))
    pair = InplacePair(LiveRange(2, 3), (OffsetConstraint("a", "b", -2, 8),))
    assert build_interference((b, a), [pair]) == (OffsetConstraint("a", "b", -2, 8),)


def test_periodic_pair_has_two_constraints(make_buffer: Make) -> None:
    a, b = make_buffer("a", 16, (0, 3)), make_buffer("b", 16, (2, 4))
    pair = InplacePair(
        LiveRange(2, 3),
        (OffsetConstraint("a", "b", -5, 16), OffsetConstraint("a", "b", -14, 16, 4)),
    )
    constraints = build_interference((a, b), [pair])
    assert allowed(constraints, *range(-16, 17)) == [-16, -15, -14, -12, -8, 16]


def test_unconstrained_pair_may_have_any_offsets(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 3)), make_buffer("b", 8, (2, 4))
    constraints = build_interference(
        (a, b), [InplacePair(LiveRange(2, 3), (OffsetConstraint("a", "b", 0, 0),))]
    )
    assert [(c.a, c.b) for c in constraints] == [("a", "b")]
    assert allowed(constraints, *range(-9, 10)) == list(range(-9, 10))


def test_input_that_is_read_later_stays_disjoint(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 4)), make_buffer("b", 8, (2, 4))
    pair = InplacePair(LiveRange(2, 3), (OffsetConstraint("a", "b", 0, 8),))
    assert build_interference((a, b), [pair]) == (OffsetConstraint("a", "b", -8, 8),)
