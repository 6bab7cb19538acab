"""Independent validator of memory plans, run in every build."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from firmwright.base.errors import InternalError
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, OffsetConstraint, Plan


def check_plan(
    plan: Plan,
    buffers: Sequence[BufferInfo],
    constraints: Sequence[OffsetConstraint[str]],
    pools: Sequence[PoolInfo],
) -> None:
    """Raise InternalError, naming the buffer or pair at fault, unless `plan` is valid.

    Every buffer is in a permitted, writable pool, aligned and within the limit; all
    constraints hold; live buffers are disjoint unless a constraint relates them; totals
    match.
    """
    pools_by_name = {pool.name: pool for pool in pools}
    defect = next(_defects(plan, buffers, constraints, pools_by_name), None)
    if defect is not None:
        raise InternalError(f"planner {plan.planner} made an invalid plan: {defect}.")


def _defects(
    plan: Plan,
    buffers: Sequence[BufferInfo],
    constraints: Sequence[OffsetConstraint[str]],
    pools: Mapping[str, PoolInfo],
) -> Iterator[str]:
    """Yield the defects; only the first is certain, as later checks rely on it."""
    placed = sorted(plan.placements)
    expected = sorted(buffer.name for buffer in buffers)
    if placed != expected:
        yield f"it places {placed}, the buffers are {expected}"
    for buffer in buffers:
        yield from _misplacements(plan, buffer, pools)
    yield from _wrong_totals(plan, buffers)
    yield from _conflicts(plan, constraints)
    related = {frozenset((c.a, c.b)) for c in constraints}
    yield from _live_overlaps(plan, buffers, related)


def _misplacements(
    plan: Plan, buffer: BufferInfo, pools: Mapping[str, PoolInfo]
) -> Iterator[str]:
    place = plan.placements[buffer.name]
    end = place.offset + buffer.size_bytes
    if place.pool not in buffer.pools or place.pool not in pools:
        yield f"{buffer.name} may not be in pool {place.pool!r}"
    limit = pools[place.pool].size_bytes
    if pools[place.pool].access != "rw":
        yield f"{buffer.name} is in pool {place.pool}, which cannot be written"
    if place.offset < 0 or place.offset % buffer.alignment != 0:
        yield (
            f"{buffer.name} at offset {place.offset} is not aligned to "
            f"{buffer.alignment}"
        )
    if limit is not None and end > limit:
        yield f"{buffer.name} ends at {end} in pool {place.pool} of {limit} bytes"


def _wrong_totals(plan: Plan, buffers: Sequence[BufferInfo]) -> Iterator[str]:
    highest: dict[str, int] = {}
    for buffer in buffers:
        place = plan.placements[buffer.name]
        end = place.offset + buffer.size_bytes
        if end > highest.get(place.pool, 0):
            highest[place.pool] = end
    if dict(plan.pool_bytes) != highest:
        yield f"it has {dict(plan.pool_bytes)} bytes, its placements take {highest}"
    total = sum(highest.values())
    if plan.lower_bound_bytes > total:
        yield f"its {total} bytes are below its bound of {plan.lower_bound_bytes}"


def _conflicts(
    plan: Plan, constraints: Sequence[OffsetConstraint[str]]
) -> Iterator[str]:
    for conflict in constraints:
        a, b = plan.placements[conflict.a], plan.placements[conflict.b]
        difference = b.offset - a.offset
        is_inside = a.pool == b.pool and conflict.lo < difference < conflict.hi
        is_on_period = False
        if conflict.modulus > 1:
            is_on_period = (difference - conflict.residue) % conflict.modulus == 0
        if is_inside and not is_on_period:
            yield (
                f"{conflict.a} at {a.offset} and {conflict.b} at {b.offset} of pool "
                f"{a.pool} conflict: {difference} is in ({conflict.lo}, {conflict.hi})"
            )


def _live_overlaps(
    plan: Plan, buffers: Sequence[BufferInfo], related: Collection[frozenset[str]]
) -> Iterator[str]:
    """Sweep over time: compare each buffer with those alive when it begins."""
    lives: list[tuple[int, int, int]] = []
    for number, buffer in enumerate(buffers):
        for live in buffer.live:
            lives.append((live.first, live.end, number))
    lives.sort()
    alive: list[tuple[int, int]] = []
    for first, end, number in lives:
        alive = [(until, other) for until, other in alive if until > first]
        for _, other in alive:
            a, b = buffers[number], buffers[other]
            if other != number and frozenset((a.name, b.name)) not in related:
                yield from _overlaps(plan, a, b)
        alive.append((end, number))


def _overlaps(plan: Plan, a: BufferInfo, b: BufferInfo) -> Iterator[str]:
    """Yield a defect if two buffers share bytes of a pool."""
    a_place, b_place = plan.placements[a.name], plan.placements[b.name]
    a_end = a_place.offset + a.size_bytes
    b_end = b_place.offset + b.size_bytes
    share_offsets = a_end > b_place.offset and b_end > a_place.offset
    if a_place.pool == b_place.pool and share_offsets:
        yield (
            f"{a.name} at {a_place.offset} and {b.name} at {b_place.offset} of pool "
            f"{a_place.pool} overlap and are alive at once"
        )
