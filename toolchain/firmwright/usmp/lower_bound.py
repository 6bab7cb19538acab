"""Lower bound of the total pool size of any valid plan: the bytes at the worst time.

The bound holds for all alignments, pools and in-place constraints; it may be
unattainable.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from typing import TypeAlias

from firmwright.base.rounding import round_up
from firmwright.ir.tir.plan import BufferInfo, Constraints, OffsetConstraint
from firmwright.usmp.liveness import live_end, live_sets, live_sets_by_time

_Pair: TypeAlias = tuple[str, str]
"""The names of two buffers in order."""


@dataclass(frozen=True, slots=True)
class _Joint:
    """The least bytes that a pair of buffers covers, and the pair's position."""

    size_bytes: int
    position: int


_JointByPair: TypeAlias = Mapping[_Pair, _Joint]
"""The pairs that may overlap."""


def lower_bound_bytes(buffers: Sequence[BufferInfo], constraints: Constraints) -> int:
    """Return a lower bound on the total pool size, with unavoidable padding.

    It is the larger of the most bytes live at any time, and the sum over pools of the
    most bytes live among the buffers that permit only that pool.
    """
    joint = _joint_by_pair(buffers, constraints)
    pinned: dict[str, list[BufferInfo]] = {}
    for buffer in buffers:
        if len(buffer.pools) == 1:
            pinned.setdefault(buffer.pools[0], []).append(buffer)
    # Pools add up: what can only be in one gains nothing from free bytes in another.
    bound = _peak_bytes(buffers, joint)
    if len(pinned) > 1:
        pinned_bytes = 0
        for mine in pinned.values():
            pinned_bytes += _peak_bytes(mine, joint)
        bound = max(bound, pinned_bytes)
    return bound


def _peak_bytes(buffers: Sequence[BufferInfo], joint: _JointByPair) -> int:
    """Return the most bytes that live buffers need at any time."""
    peak = 0
    for alive in live_sets(buffers):
        peak = max(peak, _min_bytes([buffers[index] for index in alive], joint))
    return peak


def min_bytes_by_time(
    buffers: Sequence[BufferInfo], constraints: Constraints
) -> list[int]:
    """Return the bytes that the live buffers need at least, for each time."""
    joint = _joint_by_pair(buffers, constraints)
    needs: list[int] = []
    for alive, times in groupby(live_sets_by_time(buffers, live_end(buffers))):
        need = _min_bytes([buffers[index] for index in alive], joint)
        needs += [need] * len(list(times))
    return needs


def peak_buffers(buffers: Sequence[BufferInfo]) -> tuple[BufferInfo, ...]:
    """Return the buffers at the first time with most live bytes, largest first."""
    peak_bytes = 0
    worst: list[BufferInfo] = []
    for alive in live_sets(buffers):
        group = [buffers[index] for index in alive]
        group_bytes = sum(buffer.size_bytes for buffer in group)
        if not worst or group_bytes > peak_bytes:
            peak_bytes, worst = group_bytes, group
    return tuple(sorted(worst, key=lambda buffer: (-buffer.size_bytes, buffer.name)))


def _joint_by_pair(
    buffers: Sequence[BufferInfo], constraints: Constraints
) -> _JointByPair:
    """Return the pairs that may overlap, in the order of the constraints.

    A pair with several constraints covers the most bytes that any of these requires; it
    is absent if one of them requires that the buffers are disjoint.
    """
    by_name = {buffer.name: buffer for buffer in buffers}
    joint_bytes: dict[_Pair, int] = {}
    disjoint: set[_Pair] = set()
    for c in constraints:
        a, b = by_name[c.a], by_name[c.b]
        pair = (min(c.a, c.b), max(c.a, c.b))
        # Forbidden are all differences from "b ends where a begins" to "b begins where
        # a ends".
        if c.modulus < 2 and c.lo <= -b.size_bytes and c.hi >= a.size_bytes:
            disjoint.add(pair)
        else:
            joint_bytes[pair] = max(joint_bytes.get(pair, 0), _joint_bytes(a, b, c))
    joint: dict[_Pair, _Joint] = {}
    for pair, size_bytes in joint_bytes.items():
        if pair not in disjoint:
            joint[pair] = _Joint(size_bytes, position=len(joint))
    return joint


def _joint_bytes(
    a: BufferInfo, b: BufferInfo, constraint: OffsetConstraint[str]
) -> int:
    """Return the least bytes that two buffers cover at an allowed difference.

    This is the larger size if one buffer may be inside the other. Otherwise they
    overlap most at an end of the forbidden interval:

        a               |--------------|
        b at below   |--------|                  together size(a) - below bytes
        b at above            |-------------|    together above + size(b) bytes
    """
    both_bytes = a.size_bytes + b.size_bytes
    larger_bytes = max(a.size_bytes, b.size_bytes)
    if constraint.modulus > 1 or constraint.hi - constraint.lo < 2:
        return larger_bytes
    step = math.gcd(a.alignment, b.alignment)
    below, above = constraint.lo // step * step, round_up(constraint.hi, step)
    # Between these differences, the smaller buffer is inside the larger one.
    first, last = sorted((0, a.size_bytes - b.size_bytes))
    if below >= first or above <= last:
        return larger_bytes
    return min(both_bytes, a.size_bytes - below, above + b.size_bytes)


def _min_bytes(alive: Sequence[BufferInfo], joint: _JointByPair) -> int:
    """Return the bytes that simultaneously live buffers need at least.

    Two buffers that overlap with no third one count as one buffer with the bytes of the
    pair. Of all other pairs that may overlap, only the larger buffer counts.
    """
    # A chain of pairs, a-b-c, must not count as two pairs: b would be in both.
    # Therefore only isolated pairs are merged; of a chain, dropping the smaller buffer
    # of each pair keeps a set without pairs, whose bytes are needed in any case.
    remaining = {buffer.name: buffer for buffer in alive}
    pairs = _pairs_among(remaining, joint)
    pair_counts: Counter[str] = Counter()
    for pair in pairs:
        pair_counts.update(pair)
    merged: list[BufferInfo] = []
    for a, b in pairs:
        if pair_counts[a] == pair_counts[b] == 1:
            size_bytes = joint[a, b].size_bytes
            merged.append(_merge_pair(remaining.pop(a), remaining.pop(b), size_bytes))
    for a, b in pairs:
        if a in remaining and b in remaining:
            a_rank, b_rank = (remaining[a].size_bytes, a), (remaining[b].size_bytes, b)
            del remaining[a if a_rank <= b_rank else b]
    return _min_height([*remaining.values(), *merged])


def _pairs_among(names: Collection[str], joint: _JointByPair) -> list[_Pair]:
    """Return the pairs of `names` in the order of `joint`, by the shorter search."""
    if len(names) ** 2 < len(joint):
        pairs = [pair for pair in combinations(sorted(names), 2) if pair in joint]
        return sorted(pairs, key=lambda pair: joint[pair].position)
    return [pair for pair in joint if pair[0] in names and pair[1] in names]


def _merge_pair(a: BufferInfo, b: BufferInfo, size_bytes: int) -> BufferInfo:
    """Return one buffer in place of two: it may be in the pools of either."""
    pools = tuple(dict.fromkeys(a.pools + b.pools))
    alignment = math.gcd(a.alignment, b.alignment)
    return replace(a, size_bytes=size_bytes, alignment=alignment, pools=pools)


def _min_height(alive: Sequence[BufferInfo]) -> int:
    """Return the least total height of disjoint buffers in the pools that they may use.

    Below the topmost buffer of a pool, buffers take whole steps. Each occurring
    alignment is tried as step for the buffers with at least that alignment; those with
    most padding are at the top.
    """
    height = sum(buffer.size_bytes for buffer in alive)
    for step in {buffer.alignment for buffer in alive}:
        group = [buffer for buffer in alive if buffer.alignment % step == 0]
        pools: set[str] = set()
        for buffer in group:
            pools.update(buffer.pools)
        # Each pool has one topmost buffer, after which no padding is needed. The bound
        # assumes that these are the buffers with the most padding:
        #
        #     |aaaaaaa.|bbbbb...|ccc     a and b are padded to the step,
        #                                c is the topmost one
        sizes = [buffer.size_bytes for buffer in group]
        padding = sorted((-size % step for size in sizes), reverse=True)
        unavoidable = padding[max(len(pools), 1) :]
        height = max(height, sum(sizes) + sum(unavoidable))
    return height
