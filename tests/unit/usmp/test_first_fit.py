from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import OffsetConstraint
from firmwright.usmp.heuristics import lowest_offset, place_first_fit
from firmwright.usmp.interference import build_interference
from firmwright.usmp.planning_problem import build_problem


def lowest_by_enumeration(
    constraints: Sequence[OffsetConstraint[int]], offsets: Sequence[int], alignment: int
) -> int:
    """Return the lowest allowed offset by trying all."""

    def allowed(offset: int) -> bool:
        for c in constraints:
            difference = offset - offsets[c.a]
            if not c.allows(0, difference):
                return False
        return True

    offset = 0
    while not allowed(offset):
        offset += alignment
    return offset


def test_lowest_offset_equals_enumeration() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        count = rng.randrange(1, 6)
        offsets = [rng.randrange(60) for _ in range(count)]
        constraints = []
        for other in range(count):
            modulus = rng.choice([0, 0, 2, 3, 8, 12, 25])
            residue = rng.randrange(modulus) if modulus else 0
            lo, hi = -rng.randrange(30), rng.randrange(40)
            constraints.append(OffsetConstraint(other, count, lo, hi, modulus, residue))
        alignment = rng.choice([1, 2, 4, 8, 16])
        expected = lowest_by_enumeration(constraints, offsets, alignment)
        assert lowest_offset(constraints, offsets, alignment) == expected


def test_gaps_below_placed_buffers_are_used(make_buffer: Callable) -> None:
    a = make_buffer("a", 10, (0, 2))
    b = make_buffer("b", 10, (0, 3))
    c = make_buffer("c", 10, (1, 4))
    d = make_buffer("d", 8, (3, 4))
    buffers = (a, b, c, d)
    problem = build_problem(buffers, build_interference(buffers), (PoolInfo("sram"),))
    assert place_first_fit(problem, [0, 1, 2, 3]).offsets == (0, 10, 20, 0)


def test_offset_has_the_alignment_of_its_buffer(make_buffer: Callable) -> None:
    a = make_buffer("a", 5, (0, 1), alignment=16)
    b = make_buffer("b", 4, (0, 1), alignment=4)
    problem = build_problem((a, b), build_interference((a, b)), (PoolInfo("sram"),))
    assert place_first_fit(problem, [0, 1]).offsets == (0, 8)


def test_buffer_goes_to_the_next_pool_if_the_first_is_full(
    make_buffer: Callable,
) -> None:
    names = ("fast", "slow")
    buffers = tuple(
        make_buffer(n, s, (0, 1), pools=names) for n, s in (("a", 60), ("b", 50))
    )
    pools = (PoolInfo("fast", 100), PoolInfo("slow", 40))
    problem = build_problem(buffers, build_interference(buffers), pools)
    layout = place_first_fit(problem, [0, 1])
    assert (layout.pools, layout.unplaced_bytes) == (("fast", ""), 50)


def test_conflict_in_another_pool_does_not_lower_an_offset(
    make_buffer: Callable,
) -> None:
    # 100 bytes: A 64 at 0, B 32 at 64, then C 16 in conflict with both has no room.
    sizes = (("a", 64), ("b", 32), ("c", 16))
    buffers = tuple(make_buffer(name, size, (0, 1)) for name, size in sizes)
    for conflicts in (build_interference(buffers), build_interference(buffers)[::-1]):
        problem = build_problem(buffers, conflicts, (PoolInfo("sram", 100),))
        assert place_first_fit(problem, [0, 1, 2]).unplaced_bytes == 16
