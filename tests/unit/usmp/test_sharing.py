from __future__ import annotations

from collections.abc import Callable

from firmwright.ir.tir.plan import BufferInfo, Conflict
from firmwright.usmp.sharing import find_conflicts

Make = Callable[..., BufferInfo]


def test_only_buffers_alive_together_conflict(make_buffer: Make) -> None:
    a, b, c = make_buffer("a", 8, (0, 2)), make_buffer("b", 4, (1, 3)), make_buffer("c", 2, (2, 4))
    assert find_conflicts((a, b, c)) == (Conflict("a", "b", -4, 8), Conflict("b", "c", -2, 4))


def test_a_gap_between_two_lives_is_free_for_others(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 1), (3, 4)), make_buffer("b", 4, (1, 3))
    assert find_conflicts((a, b)) == ()


def test_two_common_moments_give_one_conflict(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 1), (3, 4)), make_buffer("b", 4, (0, 4))
    assert find_conflicts((a, b)) == (Conflict("a", "b", -4, 8),)


def test_an_in_place_pair_may_have_one_offset_or_none_in_common(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 3)), make_buffer("b", 8, (2, 4))
    (conflict,) = find_conflicts((a, b), [("a", "b", 2)])
    allowed = [difference for difference in range(-9, 10) if conflict.allows(20, 20 + difference)]
    assert allowed == [-9, -8, 0, 8, 9]


def test_a_single_byte_may_be_in_place_too(make_buffer: Make) -> None:
    a, b = make_buffer("a", 1, (0, 3)), make_buffer("b", 1, (2, 4))
    (conflict,) = find_conflicts((b, a), [("a", "b", 2)])
    assert conflict.allows(5, 5)


def test_an_input_read_later_is_not_overwritten_in_place(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 4)), make_buffer("b", 8, (2, 4))
    assert find_conflicts((a, b), [("a", "b", 2)]) == (Conflict("a", "b", -8, 8),)


def test_unequal_sizes_are_not_computed_in_place(make_buffer: Make) -> None:
    a, b = make_buffer("a", 8, (0, 3)), make_buffer("b", 4, (2, 4))
    assert find_conflicts((a, b), [("a", "b", 2)]) == (Conflict("a", "b", -4, 8),)
