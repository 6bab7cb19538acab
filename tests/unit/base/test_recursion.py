"""Deep recursion works, and C functions still stop at the limit before the stack overflows."""

import json
import sys

import pytest

from firmwright.base.recursion import FRAMES_MAX, call_with_stack, raise_recursion_limit


def test_deep_recursion_is_allowed() -> None:
    def depth(left: int) -> int:
        return 1 + depth(left - 1) if left else 0

    raise_recursion_limit()
    assert depth(6_000) == 6_000
    assert sys.getrecursionlimit() >= FRAMES_MAX


def test_deeply_nested_json_is_rejected() -> None:
    raise_recursion_limit()
    with pytest.raises(RecursionError):
        json.loads("[" * 1_000_000)


def test_a_large_stack_has_room_for_ten_thousand_levels() -> None:
    limit = sys.getrecursionlimit()

    def depth(left: int) -> int:  # map() calls it from C, which takes more of the stack
        return 1 + next(map(depth, [left - 1])) if left else 0

    assert call_with_stack(lambda: depth(30_000)) == 30_000
    assert sys.getrecursionlimit() == limit
    with pytest.raises(ZeroDivisionError):
        call_with_stack(lambda: 1 // 0)
