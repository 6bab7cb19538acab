"""Which pool each buffer is better off in: what is touched most in the fastest memory.

In: buffers with the pools that they may lie in, their traffic, and pools whose speeds are known.
Out: the same buffers with their pools in a better order, and the same with the first of them alone.
The fastest pool takes the buffers that gain most by it for each of their bytes, as long as a first
fit finds room for all that it took; the next one goes on with the rest. Where a speed is not known,
nothing changes: pools stay in the order of the memory map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from firmwright.base.errors import DoesNotFitError
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, OffsetConstraint
from firmwright.usmp.default_planner import best_first_fit_planner
from firmwright.usmp.lower_bound import lower_bound_bytes
from firmwright.usmp.memory_traffic import NO_TRAFFIC, MemoryTraffic

_UNIT = MemoryTraffic(4, 4, 1, 1)
"""A word read and a word written: what says which of two pools is the faster."""


def rank_pools(
    buffers: Sequence[BufferInfo],
    conflicts: Sequence[OffsetConstraint],
    pools: Sequence[PoolInfo],
    traffic: Mapping[str, MemoryTraffic],
) -> tuple[BufferInfo, ...]:
    """The buffers, each with the pool first that suits it; `traffic` is by the buffers' names."""
    if not can_rank_pools(buffers, pools):
        return tuple(buffers)
    ranked = sorted(_candidates(buffers, pools), key=lambda pool: transfer_cycles(_UNIT, pool))
    chosen: dict[str, str] = {}
    rest = list(buffers)
    for pool, slower in zip(ranked, [*ranked[1:], None], strict=True):
        inside = _taken(rest, conflicts, pool, slower, traffic)
        chosen |= {buffer.name: pool.name for buffer in inside}
        rest = [buffer for buffer in rest if buffer.name not in chosen]
    order = [pool.name for pool in ranked]
    return tuple(replace(b, pools=_first(chosen.get(b.name), b.pools, order)) for b in buffers)


def can_rank_pools(buffers: Sequence[BufferInfo], pools: Sequence[PoolInfo]) -> bool:
    """Whether there is a choice of pools, and their speeds are known."""
    used = _candidates(buffers, pools)
    return len(used) > 1 and all(has_known_speed(pool) for pool in used)


def _candidates(buffers: Sequence[BufferInfo], pools: Sequence[PoolInfo]) -> list[PoolInfo]:
    names = {name for buffer in buffers for name in buffer.pools}
    return [pool for pool in pools if pool.name in names]


def first_choice_only(buffers: Sequence[BufferInfo]) -> tuple[BufferInfo, ...]:
    """The buffers with the first of their pools alone."""
    return tuple(replace(buffer, pools=buffer.pools[:1]) for buffer in buffers)


def has_known_speed(pool: PoolInfo) -> bool:
    """Whether the pool's bandwidths are known; a latency that is not counts as none."""
    return bool(pool.read_bandwidth) and bool(pool.write_bandwidth)


def transfer_cycles(moved: MemoryTraffic, pool: PoolInfo) -> float:
    """What that traffic takes from and to a pool whose speed is known."""
    assert pool.read_bandwidth is not None
    assert pool.write_bandwidth is not None
    return (
        moved.read_bytes / pool.read_bandwidth
        + moved.written_bytes / pool.write_bandwidth
        + moved.reads * (pool.read_latency or 0)
        + moved.writes * (pool.write_latency or 0)
    )


def _first(chosen: str | None, allowed: Sequence[str], ranked: Sequence[str]) -> tuple[str, ...]:
    by_speed = [name for name in ranked if name in allowed]
    return tuple(by_speed) if chosen is None else (chosen, *(n for n in by_speed if n != chosen))


def _taken(
    buffers: Sequence[BufferInfo],
    conflicts: Sequence[OffsetConstraint],
    pool: PoolInfo,
    slower: PoolInfo | None,
    traffic: Mapping[str, MemoryTraffic],
) -> list[BufferInfo]:
    """The buffers that `pool` takes: all, or those that lose most by going to `slower`."""
    able = [buffer for buffer in buffers if pool.name in buffer.pools]
    if slower is None or _fit(able, conflicts, pool):
        return able

    def gain(buffer: BufferInfo) -> float:
        moved = traffic.get(buffer.name, NO_TRAFFIC)
        return (transfer_cycles(moved, slower) - transfer_cycles(moved, pool)) / max(
            buffer.size_bytes, 1
        )

    taken = [buffer for buffer in able if buffer.pools == (pool.name,)]
    for buffer in sorted(able, key=gain, reverse=True):
        if buffer not in taken and _fit([*taken, buffer], conflicts, pool):
            taken.append(buffer)
    return taken


def _fit(
    buffers: Sequence[BufferInfo], conflicts: Sequence[OffsetConstraint], pool: PoolInfo
) -> bool:
    """Whether one of several first fits finds room for all of them."""
    if pool.size_bytes is None or not buffers:
        return True
    names = {buffer.name for buffer in buffers}
    between = [c for c in conflicts if c.a in names and c.b in names]
    here = [replace(buffer, pools=(pool.name,)) for buffer in buffers]
    if lower_bound_bytes(here, between) > pool.size_bytes:
        return False
    try:
        best_first_fit_planner(here, between, (pool,))
    except DoesNotFitError:
        return False
    return True
