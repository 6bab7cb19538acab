"""What no plan can go below: the bytes alive at the worst moment.

In: buffers with live ranges, and the conflicts between them. Out: a number of bytes that the sum
over all pools of every valid plan reaches, and the buffers alive at the worst moment. Invariant:
the bound is sound for any alignment, any number of pools and relaxed conflicts; it is not always
attainable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from firmwright.ir.tir.plan import BufferInfo, Conflict


def lower_bound_bytes(buffers: Sequence[BufferInfo], conflicts: Sequence[Conflict]) -> int:
    """The most bytes that must be held at once, alignment gaps that cannot be avoided included."""
    shared = _sharing_pairs(buffers, conflicts)
    moments = _moments(buffers)
    return max((_height(_disjoint(alive, shared)) for alive in moments), default=0)


def peak(buffers: Sequence[BufferInfo]) -> tuple[BufferInfo, ...]:
    """The buffers alive at the moment when they need most, largest first."""
    worst: tuple[BufferInfo, ...] = ()
    for alive in _moments(buffers):
        if sum(b.size_bytes for b in alive) > sum(b.size_bytes for b in worst):
            worst = alive
    return tuple(sorted(worst, key=lambda b: (-b.size_bytes, b.name)))


def _moments(buffers: Sequence[BufferInfo]) -> Iterator[tuple[BufferInfo, ...]]:
    """Who is alive, at each moment when somebody becomes so: the maximum is at one of them."""
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for index, buffer in enumerate(buffers):
        for live in buffer.live:
            begins.setdefault(live.first, []).append(index)
            ends.setdefault(live.end, []).append(index)
    alive: set[int] = set()
    for time in sorted(begins.keys() | ends.keys()):
        alive.difference_update(ends.get(time, ()))
        if time in begins:
            alive.update(begins[time])
            yield tuple(buffers[index] for index in sorted(alive))


def _sharing_pairs(
    buffers: Sequence[BufferInfo], conflicts: Sequence[Conflict]
) -> tuple[tuple[str, str], ...]:
    """Pairs whose conflict is weaker than 'disjoint': they may lie on each other."""
    size = {buffer.name: buffer.size_bytes for buffer in buffers}
    return tuple(
        (c.a, c.b)
        for c in conflicts
        if c.modulus > 1 or c.lo > -size[c.b] or c.hi < size[c.a]
    )  # fmt: skip


def _disjoint(
    alive: Sequence[BufferInfo], shared: Collection[tuple[str, str]]
) -> tuple[BufferInfo, ...]:
    """`alive` less one buffer, the smaller, of each pair that may share bytes."""
    kept = {buffer.name: buffer for buffer in alive}
    for a, b in shared:
        if a in kept and b in kept:
            del kept[min((a, b), key=lambda name: (kept[name].size_bytes, name))]
    return tuple(kept.values())


def _height(alive: Sequence[BufferInfo]) -> int:
    """Least total height of pairwise disjoint buffers in as many pools as they may use.

    Offsets are multiples of `step`, so each buffer that is not the topmost of its pool takes whole
    steps. Every alignment that occurs is tried as `step`, on the buffers that have at least it.
    """
    height = 0
    for step in {buffer.alignment for buffer in alive}:
        group = [buffer for buffer in alive if buffer.alignment % step == 0]
        pool_count = len({pool for buffer in group for pool in buffer.pools})
        padding = sorted((-buffer.size_bytes % step for buffer in group), reverse=True)
        total = sum(buffer.size_bytes for buffer in group) + sum(padding[max(pool_count, 1) :])
        height = max(height, total)
    return max(height, sum(buffer.size_bytes for buffer in alive))
