"""Deep recursion works, and C functions still stop before the stack overflows."""

import json
import sys

import pytest

from firmwright.base.recursion import FRAMES_MAX, call_with_stack, raise_recursion_limit
from firmwright.ir import tir
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.traversal import map_children


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

    def depth(left: int) -> int:
        return 1 + depth(left - 1) if left else 0

    assert call_with_stack(lambda: depth(30_000)) == 30_000
    assert sys.getrecursionlimit() == limit
    with pytest.raises(ZeroDivisionError):
        call_with_stack(lambda: 1 // 0)


def test_statements_of_ten_thousand_levels_are_rewritten() -> None:
    """Python 3.12 and 3.13 limit calls through C, whatever the recursion limit is."""
    zero, one = tir.IntImm(0, INDEX), tir.IntImm(1, INDEX)
    body: tir.Stmt = tir.Seq(())
    for _ in range(10_000):
        body = tir.Let(tir.Var("i", INDEX), zero, body)

    def ones(node: tir.Expr | tir.Stmt) -> tir.Expr | tir.Stmt:
        return one if node is zero else map_children(node, ones)

    rewritten, levels = call_with_stack(lambda: ones(body)), 0
    while isinstance(rewritten, tir.Let):
        assert rewritten.value is one
        rewritten, levels = rewritten.body, levels + 1
    assert levels == 10_000
