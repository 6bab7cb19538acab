"""Candidate pools of buffers, ranked by speed.

Each pool, fastest first, gets the buffers that save the most cycles per byte, as far as a first fit
finds room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from firmwright.base.errors import DoesNotFitError
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.memory_traffic import (
    NO_TRAFFIC,
    MemoryTraffic,
    has_known_speed,
    transfer_cycles,
)
from firmwright.ir.tir.plan import BufferInfo, Constraints
from firmwright.usmp.heuristics import best_first_fit_planner
from firmwright.usmp.lower_bound import lower_bound_bytes

_UNIT = MemoryTraffic(4, 4, 1, 1)
"""One word read and one word written: pools are compared by this traffic."""


def rank_pools(
    buffers: Sequence[BufferInfo],
    constraints: Constraints,
    pools: Sequence[PoolInfo],
    traffic: Mapping[str, MemoryTraffic],
) -> tuple[BufferInfo, ...]:
    if not can_rank_pools(buffers, pools):
        return tuple(buffers)
    ranked = sorted(_candidates(buffers, pools), key=lambda pool: transfer_cycles(_UNIT, pool))
    pool_of: dict[str, str] = {}
    rest = list(buffers)
    for pool, slower in zip(ranked, [*ranked[1:], None], strict=True):
        inside = _assign_to_pool(rest, constraints, pool, slower, traffic)
        pool_of |= {buffer.name: pool.name for buffer in inside}
        rest = [buffer for buffer in rest if buffer.name not in pool_of]
    order = {pool.name: number for number, pool in enumerate(ranked)}
    return tuple(
        replace(b, pools=tuple(sorted(b.pools, key=lambda p: (p != pool_of.get(b.name), order[p]))))
        for b in buffers
    )


def can_rank_pools(buffers: Sequence[BufferInfo], pools: Sequence[PoolInfo]) -> bool:
    candidates = _candidates(buffers, pools)
    return len(candidates) > 1 and all(has_known_speed(pool) for pool in candidates)


def _candidates(buffers: Sequence[BufferInfo], pools: Sequence[PoolInfo]) -> list[PoolInfo]:
    names = {name for buffer in buffers for name in buffer.pools}
    return [pool for pool in pools if pool.name in names]


def first_choice_only(buffers: Sequence[BufferInfo]) -> tuple[BufferInfo, ...]:
    return tuple(replace(buffer, pools=buffer.pools[:1]) for buffer in buffers)


def _assign_to_pool(
    buffers: Sequence[BufferInfo],
    constraints: Constraints,
    pool: PoolInfo,
    slower: PoolInfo | None,
    traffic: Mapping[str, MemoryTraffic],
) -> list[BufferInfo]:
    """Return all buffers if they fit in `pool`, else those that save the most cycles per byte."""
    able = [buffer for buffer in buffers if pool.name in buffer.pools]
    if slower is None or _has_room(able, constraints, pool):
        return able

    def gain(buffer: BufferInfo) -> float:
        moved = traffic.get(buffer.name, NO_TRAFFIC)
        saved = transfer_cycles(moved, slower) - transfer_cycles(moved, pool)
        return saved / max(buffer.size_bytes, 1)

    placed = [buffer for buffer in able if buffer.pools == (pool.name,)]
    for buffer in sorted(able, key=gain, reverse=True):
        if buffer not in placed and _has_room([*placed, buffer], constraints, pool):
            placed.append(buffer)
    return placed


def _has_room(buffers: Sequence[BufferInfo], constraints: Constraints, pool: PoolInfo) -> bool:
    if pool.size_bytes is None or not buffers:
        return True
    names = {buffer.name for buffer in buffers}
    inner_constraints = [c for c in constraints if c.a in names and c.b in names]
    restricted = [replace(buffer, pools=(pool.name,)) for buffer in buffers]
    if lower_bound_bytes(restricted, inner_constraints) > pool.size_bytes:
        return False
    try:
        best_first_fit_planner(restricted, inner_constraints, (pool,))
    except DoesNotFitError:
        return False
    return True
