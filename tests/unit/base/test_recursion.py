"""Deep trees are allowed, and functions in C still stop at the limit before the stack ends."""

import json
import sys

import pytest

from firmwright.base.recursion import FRAMES_MAX, raise_recursion_limit


def test_functions_may_be_deep_in_each_other() -> None:
    def depth(left: int) -> int:
        return 1 + depth(left - 1) if left else 0

    raise_recursion_limit()
    assert depth(6_000) == 6_000
    assert sys.getrecursionlimit() >= FRAMES_MAX


def test_a_text_of_many_brackets_is_refused_by_the_reader_of_json() -> None:
    raise_recursion_limit()
    with pytest.raises(RecursionError):
        json.loads("[" * 1_000_000)
