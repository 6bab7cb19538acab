"""Lower bound of the total size of all pools for any valid plan: the bytes live at the worst time.

The bound holds for all alignments, pools and in-place constraints; it may be unattainable.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby
from typing import TypeAlias

from firmwright.base.grouping import group_pairs
from firmwright.ir.tir.plan import BufferInfo, Constraints, OffsetConstraint
from firmwright.usmp.liveness import live_sets, live_sets_by_time

_JointBytes: TypeAlias = Mapping[tuple[str, str], tuple[int, int]]
"""The bytes that a pair of buffers covers, and the position of the pair."""


def lower_bound_bytes(buffers: Sequence[BufferInfo], constraints: Constraints) -> int:
    """Return a lower bound on the total size of all pools, with unavoidable alignment padding.

    It is the larger of the most bytes live at any time, and the sum over pools of the most bytes
    live among the buffers that permit only that pool.
    """
    joint = _joint_bytes(buffers, constraints)
    pinned = group_pairs((b.pools[0], b) for b in buffers if len(b.pools) == 1)
    by_pool = sum(_peak_bytes(mine, joint) for mine in pinned.values()) if len(pinned) > 1 else 0
    return max(_peak_bytes(buffers, joint), by_pool)


def _peak_bytes(buffers: Sequence[BufferInfo], joint: _JointBytes) -> int:
    groups = ([buffers[index] for index in alive] for alive in live_sets(buffers))
    return max((_min_bytes(alive, joint) for alive in groups), default=0)


def min_bytes_by_time(buffers: Sequence[BufferInfo], constraints: Constraints) -> list[int]:
    joint = _joint_bytes(buffers, constraints)
    end = max((live.end for buffer in buffers for live in buffer.live), default=0)
    needs: list[int] = []
    for alive, times in groupby(live_sets_by_time(buffers, end)):
        needs += [_min_bytes([buffers[index] for index in alive], joint)] * len(list(times))
    return needs


def peak_buffers(buffers: Sequence[BufferInfo]) -> tuple[BufferInfo, ...]:
    groups = [[buffers[index] for index in alive] for alive in live_sets(buffers)]
    worst = max(groups, key=lambda alive: sum(b.size_bytes for b in alive), default=[])
    return tuple(sorted(worst, key=lambda b: (-b.size_bytes, b.name)))


def _joint_bytes(buffers: Sequence[BufferInfo], constraints: Constraints) -> _JointBytes:
    by_name = {buffer.name: buffer for buffer in buffers}
    joint: dict[tuple[str, str], int] = {}
    apart: set[tuple[str, str]] = set()
    for c in constraints:
        a, b = by_name[c.a], by_name[c.b]
        pair = (min(c.a, c.b), max(c.a, c.b))
        if c.modulus < 2 and c.lo <= -b.size_bytes and c.hi >= a.size_bytes:
            apart.add(pair)
            continue
        joint[pair] = max(joint.get(pair, 0), _joint(a, b, c))
    together = (pair for pair in joint if pair not in apart)
    return {pair: (joint[pair], place) for place, pair in enumerate(together)}


def _joint(a: BufferInfo, b: BufferInfo, conflict: OffsetConstraint[str]) -> int:
    """Return the least number of bytes that two buffers cover at an allowed difference of offsets.

    This is the larger size if one buffer may be inside the other.
    """
    most, least = a.size_bytes + b.size_bytes, max(a.size_bytes, b.size_bytes)
    step = math.gcd(a.alignment, b.alignment)
    below, above = conflict.lo // step * step, -(-conflict.hi // step) * step
    inside = sorted((0, a.size_bytes - b.size_bytes))
    if conflict.modulus > 1 or conflict.hi - conflict.lo < 2:
        return least
    if below >= inside[0] or above <= inside[1]:
        return least
    return min(most, a.size_bytes - below, above + b.size_bytes)


def _min_bytes(alive: Sequence[BufferInfo], joint: _JointBytes) -> int:
    remaining = {buffer.name: buffer for buffer in alive}
    pairs = _pairs_among(remaining, joint)
    partners = Counter(name for pair in pairs for name in pair)
    pairs_merged: list[BufferInfo] = []
    for a, b in pairs:
        if partners[a] == partners[b] == 1:
            pairs_merged.append(_merge_pair(remaining.pop(a), remaining.pop(b), joint[a, b][0]))
    for a, b in pairs:
        if a in remaining and b in remaining:
            del remaining[min((a, b), key=lambda name: (remaining[name].size_bytes, name))]
    return _min_height([*remaining.values(), *pairs_merged])


def _pairs_among(names: Collection[str], joint: _JointBytes) -> list[tuple[str, str]]:
    """Return the pairs of `names` in the order of `joint`, by the shorter of two searches."""
    if len(names) ** 2 < len(joint):
        pairs = [pair for pair in combinations(sorted(names), 2) if pair in joint]
        return sorted(pairs, key=lambda pair: joint[pair][1])
    return [pair for pair in joint if pair[0] in names and pair[1] in names]


def _merge_pair(a: BufferInfo, b: BufferInfo, size_bytes: int) -> BufferInfo:
    pools = tuple(dict.fromkeys(a.pools + b.pools))
    alignment = math.gcd(a.alignment, b.alignment)
    return replace(a, size_bytes=size_bytes, alignment=alignment, pools=pools)


def _min_height(alive: Sequence[BufferInfo]) -> int:
    """Return the least total height of disjoint buffers in the pools that they may use.

    Below the topmost buffer of a pool, buffers take whole steps. Each occurring alignment is tried
    as step for the buffers with at least that alignment.
    """
    height = 0
    for step in {buffer.alignment for buffer in alive}:
        group = [buffer for buffer in alive if buffer.alignment % step == 0]
        pool_count = len({pool for buffer in group for pool in buffer.pools})
        padding = sorted((-buffer.size_bytes % step for buffer in group), reverse=True)
        total = sum(buffer.size_bytes for buffer in group) + sum(padding[max(pool_count, 1) :])
        height = max(height, total)
    return max(height, sum(buffer.size_bytes for buffer in alive))
