from __future__ import annotations

from collections.abc import Callable

from firmwright.ir.tir.plan import BufferInfo, LiveRange, OffsetConstraint
from firmwright.usmp.inplace_analysis import InplacePair
from firmwright.usmp.interference import build_interference

Make = Callable[..., BufferInfo]


def test_only_buffers_alive_together_conflict(make_buffer: Make) -> None:
    a, b, c = make_buffer("a", 8, (0, 2)), make_buffer("b", 4, (1, 3)), make_buffer("c", 2, (2, 4))
    assert build_interference((a, b, c)) == (
        OffsetConstraint("a", "b", -4, 8),
        OffsetConstraint("b", "c", -2, 4),
    )


def test_a_gap_between_two_lives_is_free_for_others(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 1), (3, 4)), make_buffer("b", 4, (1, 3))
    assert build_interference((a, b)) == ()


def test_two_common_moments_give_one_conflict(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 1), (3, 4)), make_buffer("b", 4, (0, 4))
    assert build_interference((a, b)) == (OffsetConstraint("a", "b", -4, 8),)


def allowed(conflicts, *differences: int) -> list[int]:
    return [d for d in differences if all(c.allows(20, 20 + d) for c in conflicts)]


def test_a_pair_that_overlaps_conflicts_in_its_interval_alone(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 3)), make_buffer("b", 4, (2, 4))
    pair = InplacePair("a", "b", LiveRange(2, 3), (OffsetConstraint("a", "b", -2, 8),))
    assert build_interference((a, b), [pair]) == (OffsetConstraint("a", "b", -2, 8),)


def test_a_conflict_is_seen_from_the_input_in_whatever_order(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 3)), make_buffer("b", 4, (2, 4))
    pair = InplacePair("a", "b", LiveRange(2, 3), (OffsetConstraint("a", "b", -2, 8),))
    assert build_interference((b, a), [pair]) == (OffsetConstraint("a", "b", -2, 8),)


def test_a_periodic_pair_has_two_conflicts(make_buffer: Make) -> None:
    a, b = make_buffer("a", 16, (0, 3)), make_buffer("b", 16, (2, 4))
    pair = InplacePair(
        "a",
        "b",
        LiveRange(2, 3),
        (OffsetConstraint("a", "b", -5, 16), OffsetConstraint("a", "b", -14, 16, 4)),
    )
    found = build_interference((a, b), [pair])
    assert allowed(found, *range(-16, 17)) == [-16, -15, -14, -12, -8, 16]


def test_a_pair_in_which_nothing_is_forbidden_may_lie_anywhere(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 3)), make_buffer("b", 8, (2, 4))
    found = build_interference((a, b), [InplacePair("a", "b", LiveRange(2, 3), ())])
    assert [(c.a, c.b) for c in found] == [("a", "b")]
    assert allowed(found, *range(-9, 10)) == list(range(-9, 10))


def test_an_input_read_later_is_not_overwritten(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 4)), make_buffer("b", 8, (2, 4))
    pair = InplacePair("a", "b", LiveRange(2, 3), (OffsetConstraint("a", "b", 0, 8),))
    assert build_interference((a, b), [pair]) == (OffsetConstraint("a", "b", -8, 8),)
