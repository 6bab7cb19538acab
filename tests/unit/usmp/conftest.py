"""Planning problems for tests: seeded random ones and chains with known results."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, LiveRange, OffsetConstraint
from firmwright.usmp.interference import build_interference

GAPS = (
    (16, (5, 6)),
    (232, (4, 5)),
    (136, (0, 2)),
    (72, (3, 7)),
    (144, (5, 8)),
    (152, (1, 5)),
    (104, (7, 10)),
    (232, (6, 8)),
    (48, (6, 7)),
)
"""(bytes, life) of buffers: every fixed order leaves a gap, another plan does not."""
UNLIMITED = (PoolInfo("sram"),)
Problem = tuple[
    tuple[BufferInfo, ...], tuple[OffsetConstraint[str], ...], tuple[PoolInfo, ...]
]


def a_buffer(
    name: str,
    size_bytes: int,
    *live: tuple[int, int],
    alignment: int = 1,
    pools: tuple[str, ...] = ("sram",),
) -> BufferInfo:
    ranges = tuple(LiveRange(first, end) for first, end in live)
    return BufferInfo(name, size_bytes, alignment, ranges, "activation", pools)


def a_chain(sizes: Sequence[int], alignment: int = 16) -> Problem:
    """Return a chain in which operator t reads tensor t and writes tensor t + 1."""
    last = len(sizes) - 2
    buffers = tuple(
        a_buffer(f"t{i}", size, (max(i - 1, 0), min(i, last) + 1), alignment=alignment)
        for i, size in enumerate(sizes)
    )
    return buffers, build_interference(buffers), UNLIMITED


def a_residual_chain(sizes: Sequence[int], every: int) -> Problem:
    """Return a chain in which each `every`-th tensor lives two operators longer."""
    last = len(sizes) - 2
    buffers = tuple(
        a_buffer(
            f"t{i}",
            size,
            (max(i - 1, 0), min(i + 2 * (i % every == 0), last) + 1),
            alignment=16,
        )
        for i, size in enumerate(sizes)
    )
    return buffers, build_interference(buffers), UNLIMITED


def a_random_problem(seed: int, most: int = 24) -> Problem:
    """Return up to `most` buffers of mixed lives, alignments, pools and constraints."""
    rng = random.Random(seed)
    pools = rng.choice([UNLIMITED, _two_pools(rng), _two_pools(rng)])
    names = tuple(pool.name for pool in pools)
    buffers = tuple(
        _random_buffer(rng, index, names) for index in range(rng.randrange(most + 1))
    )
    conflicts = tuple(
        _relaxed(rng, conflict) for conflict in build_interference(buffers)
    )
    return buffers, conflicts, pools


def _two_pools(rng: random.Random) -> tuple[PoolInfo, ...]:
    fast = PoolInfo("dtcm", rng.choice([64, 500, 2000]))
    slow = PoolInfo("sram", rng.choice([None, 1500, 6000]))
    return (fast, slow)


def _random_buffer(
    rng: random.Random, index: int, pools: tuple[str, ...]
) -> BufferInfo:
    first = rng.randrange(20)
    live = [(first, first + rng.randrange(1, 8))]
    if rng.random() < 0.2:
        again = live[0][1] + rng.randrange(1, 4)
        live.append((again, again + rng.randrange(1, 4)))
    candidates = pools if rng.random() < 0.8 else pools[-1:]
    alignment = rng.choice([1, 1, 4, 8, 16])
    size_bytes = rng.choice([rng.randrange(1, 900), 256, 64])
    return a_buffer(
        f"b{index}", size_bytes, *live, alignment=alignment, pools=candidates
    )


def _relaxed(
    rng: random.Random, conflict: OffsetConstraint[str]
) -> OffsetConstraint[str]:
    """Relax a fifth of the constraints: from one side, or to multiples of a period."""
    match rng.randrange(20):
        case 0 | 1:
            return OffsetConstraint(
                conflict.a, conflict.b, conflict.lo // 3, conflict.hi
            )
        case 2:
            return OffsetConstraint(conflict.a, conflict.b, 0, conflict.hi)
        case 3:
            m = rng.randrange(2, 40)
            residue = rng.randrange(m)
            return OffsetConstraint(
                conflict.a, conflict.b, conflict.lo, conflict.hi, m, residue
            )
        case _:
            return conflict


@pytest.fixture(name="make_buffer")
def _make_buffer() -> Callable[..., BufferInfo]:
    return a_buffer


@pytest.fixture(name="chain")
def _chain() -> Callable[..., Problem]:
    return a_chain


@pytest.fixture(name="residual_chain")
def _residual_chain() -> Callable[..., Problem]:
    return a_residual_chain


@pytest.fixture(name="random_problem")
def _random_problem() -> Callable[..., Problem]:
    return a_random_problem


@pytest.fixture
def buffers_with_gaps() -> tuple[BufferInfo, ...]:
    """Return the buffers of GAPS."""
    return tuple(a_buffer(f"b{i}", size, live) for i, (size, live) in enumerate(GAPS))
