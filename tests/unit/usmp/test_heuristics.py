from __future__ import annotations

from collections.abc import Callable

from firmwright.ir.core import PoolInfo
from firmwright.usmp.heuristics import (
    conflict_order,
    greedy_by_size,
    hill_climb,
    size_order,
)
from firmwright.usmp.interference import build_interference
from firmwright.usmp.planning_problem import build_problem


def _names(make_buffer: Callable, order: Callable) -> list[str]:
    rows = [
        ("a", 8, (0, 2)),
        ("b", 8, (5, 6)),
        ("c", 8, (5, 6)),
        ("d", 9, (8, 9)),
        ("e", 1, (0, 2)),
        ("f", 2, (1, 2)),
    ]
    buffers = tuple(make_buffer(name, size, live) for name, size, live in rows)
    problem = build_problem(buffers, build_interference(buffers), (PoolInfo("sram"),))
    return [buffers[index].name for index in order(problem)]


def test_size_order_breaks_ties_by_conflicts_then_by_later_name(
    make_buffer: Callable,
) -> None:
    assert _names(make_buffer, size_order) == ["d", "a", "c", "b", "f", "e"]


def test_conflict_order_breaks_ties_by_size_then_by_later_name(
    make_buffer: Callable,
) -> None:
    assert _names(make_buffer, conflict_order) == ["a", "f", "e", "c", "b", "d"]


def test_hill_climb_reaches_the_bound_that_greedy_misses(chain: Callable) -> None:
    problem = chain([27648, 18432, 18432, 36864, 9216, 18432, 18432, 18432, 4608])
    assert greedy_by_size(*problem).workspace_bytes > 55296
    assert hill_climb(*problem).workspace_bytes == 55296
