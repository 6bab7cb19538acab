"""Branch and bound compared with enumeration, and its proofs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import permutations

import pytest

from firmwright.base.errors import DoesNotFitError
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, OffsetConstraint
from firmwright.usmp.branch_and_bound import (
    branch_and_bound,
    exact_planner,
    search_planner,
)
from firmwright.usmp.difference_bounds import DifferenceBounds
from firmwright.usmp.heuristics import place_first_fit, size_order
from firmwright.usmp.interference import build_interference
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planning_problem import build_problem
from tests.planner_benchmarks.synthetic_graphs import intervals, small_graph

POOLS = (PoolInfo("sram"),)
CASES = 60
CASES_DEEP = 3000

SmallProblem = tuple[tuple[BufferInfo, ...], tuple[OffsetConstraint[str], ...]]


def by_trying_all(
    buffers: Sequence[BufferInfo], conflicts: Sequence[OffsetConstraint[str]]
) -> int:
    """Return the least height of any layout by enumeration."""
    number = {buffer.name: index for index, buffer in enumerate(buffers)}
    between: list[list[tuple[OffsetConstraint[str], int]]] = [[] for _ in buffers]
    for conflict in conflicts:
        a, b = number[conflict.a], number[conflict.b]
        between[max(a, b)].append((conflict, min(a, b)))
    best = sum(b.size_bytes + b.alignment for b in buffers) + max(
        (c.hi for c in conflicts), default=0
    )
    offsets: list[int] = []

    def allowed(offset: int) -> bool:
        for conflict, other in between[len(offsets)]:
            mine_is_b = number[conflict.b] == len(offsets)
            a, b = (offsets[other], offset) if mine_is_b else (offset, offsets[other])
            if not conflict.allows(a, b):
                return False
        return True

    def descend(height: int) -> None:
        nonlocal best
        if len(offsets) == len(buffers):
            best = min(best, height)
            return
        buffer = buffers[len(offsets)]
        offset = 0
        while offset + buffer.size_bytes < best:
            if allowed(offset):
                offsets.append(offset)
                descend(max(height, offset + buffer.size_bytes))
                offsets.pop()
            offset += buffer.alignment

    descend(0)
    return best


def a_small_problem(make_buffer: Callable, seed: int) -> SmallProblem:
    """Return up to 5 small buffers; half the pairs may overlap, some periodically."""
    rng = random.Random(seed)
    buffers = []
    for index in range(rng.randrange(2, 6)):
        first = rng.randrange(3)
        live = (first, first + rng.randrange(1, 4))
        alignment = rng.choice([1, 2, 2, 4])
        buffers.append(
            make_buffer(f"b{index}", rng.randrange(1, 8), live, alignment=alignment)
        )
    conflicts = []
    for conflict in build_interference(buffers):
        lo, hi = conflict.lo, conflict.hi
        match rng.randrange(10):
            case 0 | 1:
                conflicts.append(
                    OffsetConstraint(conflict.a, conflict.b, rng.randrange(lo, hi), hi)
                )
            case 2 | 3:
                conflicts.append(
                    OffsetConstraint(
                        conflict.a, conflict.b, lo, rng.randrange(lo, hi) + 1
                    )
                )
            case 4:
                m = rng.randrange(2, 6)
                periodic = OffsetConstraint(
                    conflict.a, conflict.b, lo, hi, m, rng.randrange(m)
                )
                inner = OffsetConstraint(conflict.a, conflict.b, lo // 2, hi // 2)
                conflicts += [periodic, inner] if rng.random() < 0.5 else [periodic]
            case _:
                conflicts.append(conflict)
    return tuple(buffers), tuple(conflicts)


def test_optimum_of_small_problems_equals_enumeration(
    make_buffer: Callable, deep: bool
) -> None:
    for seed in range(CASES_DEEP if deep else CASES):
        buffers, conflicts = a_small_problem(make_buffer, seed)
        optimum = by_trying_all(buffers, conflicts)
        for planner in (exact_planner, search_planner):
            plan = planner(buffers, conflicts, POOLS)
            check_plan(plan, buffers, conflicts, POOLS)
            assert (plan.workspace_bytes, plan.lower_bound_bytes) == (
                optimum,
                optimum,
            ), seed


def test_branch_and_bound_beats_every_first_fit_on_relaxed_pairs(
    make_buffer: Callable,
) -> None:
    # b must be at least 4 above c or 2 below it, and c at 6: no lowest offset is right.
    buffers = (
        make_buffer("a", 6, (0, 2)),
        make_buffer("b", 3, (1, 3), alignment=4),
        make_buffer("c", 4, (1, 3)),
    )
    conflicts = (
        OffsetConstraint("a", "c", -4, 6),
        OffsetConstraint("b", "c", -3, 2),
        OffsetConstraint("a", "b", -3, 4),
    )
    problem = build_problem(buffers, conflicts, POOLS)
    firsts = {
        place_first_fit(problem, order).cost[1] for order in permutations(range(3))
    }
    plan = exact_planner(buffers, conflicts, POOLS)
    check_plan(plan, buffers, conflicts, POOLS)
    optimum = by_trying_all(buffers, conflicts)
    assert plan.workspace_bytes == plan.lower_bound_bytes == optimum <= min(firsts)


def test_exact_planner_beats_local_search() -> None:
    problem = small_graph("inception", 28)
    start = build_problem(*problem)
    layout = place_first_fit(start, size_order(start))
    assert layout.cost[1] > start.lower_bound_bytes
    assert branch_and_bound(start, layout, 100_000).cost[1] == start.lower_bound_bytes


def test_plan_above_the_lower_bound_is_proven_optimal(make_buffer: Callable) -> None:
    # Three in a ring of times, two at each: two fit into 8 bytes, all three take 12.
    buffers = (
        make_buffer("a", 4, (0, 1), (2, 3)),
        make_buffer("b", 4, (0, 2)),
        make_buffer("c", 4, (1, 3)),
    )
    conflicts = build_interference(buffers)
    plan = search_planner(buffers, conflicts, POOLS)
    assert build_problem(buffers, conflicts, POOLS).lower_bound_bytes == 8
    assert (
        plan.workspace_bytes,
        plan.lower_bound_bytes,
        plan.optimality_gap_bytes,
    ) == (12, 12, 0)


def test_interrupted_search_keeps_its_start_and_a_sound_bound() -> None:
    problem = build_problem(*intervals(random.Random(79), 89))
    start = place_first_fit(problem, size_order(problem))
    layout = branch_and_bound(problem, start, 300)
    assert layout.cost <= start.cost
    assert problem.lower_bound_bytes <= layout.proven_bytes <= layout.cost[1]


def test_pool_of_exactly_the_optimal_size_is_sufficient(
    buffers_with_gaps: Sequence[BufferInfo],
) -> None:
    buffers = buffers_with_gaps
    conflicts = build_interference(buffers)
    needed = build_problem(buffers, conflicts, POOLS).lower_bound_bytes
    pools = (PoolInfo("sram", needed),)
    problem = build_problem(buffers, conflicts, pools)
    start = place_first_fit(problem, size_order(problem))
    assert start.unplaced_bytes
    layout = branch_and_bound(problem, start, 10_000)
    assert layout.cost == (0, needed)
    with pytest.raises(DoesNotFitError):
        exact_planner(buffers, conflicts, (PoolInfo("sram", needed - 1),))


def test_several_pools_keep_the_layout_of_local_search(make_buffer: Callable) -> None:
    buffers = tuple(make_buffer(n, 60, (0, 1), pools=("fast", "slow")) for n in "abc")
    pools = (PoolInfo("fast", 64), PoolInfo("slow"))
    plan = exact_planner(buffers, build_interference(buffers), pools)
    check_plan(plan, buffers, build_interference(buffers), pools)
    assert dict(plan.pool_bytes) == {"fast": 60, "slow": 120}


def test_next_allowed_difference_equals_enumeration() -> None:
    rng = random.Random(3)
    for _ in range(2000):
        modulus = rng.choice([0, 0, 2, 3, 7])
        residue = rng.randrange(modulus) if modulus else 0
        constraint = OffsetConstraint(
            0, 1, rng.randrange(-20, 1), rng.randrange(1, 20), modulus, residue
        )
        start = rng.randrange(-25, 25)
        assert constraint.least_allowed(start) == next(
            d for d in range(start, 60) if constraint.allows(0, d)
        )
        assert constraint.greatest_allowed(start) == next(
            d for d in range(start, -60, -1) if constraint.allows(0, d)
        )


def test_undoing_a_decision_restores_every_bound() -> None:
    domains = DifferenceBounds(build_problem(*small_graph("nasnet", 3)), 400_000)
    assert domains.start()
    before = [
        values.tolist()
        for values in (domains.low, domains.high, *domains.differences())
    ]
    mark = domains.mark()
    assert domains.decide(0, 0, None)
    decided = [
        values.tolist()
        for values in (domains.low, domains.high, *domains.differences())
    ]
    domains.undo(mark)
    undone = [
        values.tolist()
        for values in (domains.low, domains.high, *domains.differences())
    ]
    assert decided != before == undone
