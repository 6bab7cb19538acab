"""Independent validator of memory plans, run in every build."""

from collections.abc import Mapping, Sequence

from firmwright.base.errors import InternalError
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, OffsetConstraint, Plan


def check_plan(
    plan: Plan, buffers: Sequence[BufferInfo], constraints: Sequence[OffsetConstraint[str]],
    pools: Sequence[PoolInfo],
) -> None:  # fmt: skip
    """Raise InternalError, naming the buffer or pair at fault, unless `plan` is valid.

    Every buffer is in a permitted, writable pool, aligned and within the limit; all constraints
    hold; live buffers are disjoint unless a constraint relates them; totals match.
    """
    placed = sorted(plan.placements)
    expected = sorted(buffer.name for buffer in buffers)
    if placed != expected:
        raise _invalid_plan(plan, f"it places {placed}, the buffers are {expected}")
    by_pool = {pool.name: pool for pool in pools}
    for buffer in buffers:
        _check_placement(plan, buffer, by_pool)
    _check_totals(plan, buffers)
    shared = _check_conflicts(plan, constraints)
    _check_live_overlaps(plan, buffers, shared)


def _check_placement(plan: Plan, buffer: BufferInfo, pools: Mapping[str, PoolInfo]) -> None:
    place = plan.placements[buffer.name]
    end = place.offset + buffer.size_bytes
    if place.pool not in buffer.pools or place.pool not in pools:
        raise _invalid_plan(plan, f"{buffer.name} may not be in pool {place.pool!r}")
    limit = pools[place.pool].size_bytes
    if pools[place.pool].access != "rw":
        raise _invalid_plan(plan, f"{buffer.name} is in pool {place.pool}, which cannot be written")
    if place.offset < 0 or place.offset % buffer.alignment != 0:
        raise _invalid_plan(
            plan, f"{buffer.name} at offset {place.offset} is not aligned to {buffer.alignment}"
        )
    if limit is not None and end > limit:
        raise _invalid_plan(
            plan, f"{buffer.name} ends at {end} in pool {place.pool} of {limit} bytes"
        )


def _check_totals(plan: Plan, buffers: Sequence[BufferInfo]) -> None:
    highest: dict[str, int] = {}
    for buffer in buffers:
        place = plan.placements[buffer.name]
        end = place.offset + buffer.size_bytes
        if end > highest.get(place.pool, 0):
            highest[place.pool] = end
    if dict(plan.pool_bytes) != highest:
        raise _invalid_plan(
            plan, f"it has {dict(plan.pool_bytes)} bytes, its placements take {highest}"
        )
    total = sum(highest.values())
    if plan.lower_bound_bytes > total:
        raise _invalid_plan(
            plan, f"its {total} bytes are below its bound of {plan.lower_bound_bytes}"
        )


def _check_conflicts(
    plan: Plan, constraints: Sequence[OffsetConstraint[str]]
) -> set[tuple[str, str]]:
    """Check the constraints in each pool; return the constrained pairs in both orders."""
    pairs: set[tuple[str, str]] = set()
    for conflict in constraints:
        a, b = plan.placements[conflict.a], plan.placements[conflict.b]
        pairs.add((conflict.a, conflict.b))
        pairs.add((conflict.b, conflict.a))
        if a.pool != b.pool:
            continue
        difference = b.offset - a.offset
        inside = conflict.lo < difference and difference < conflict.hi
        periodic = conflict.modulus > 1 and (difference - conflict.residue) % conflict.modulus == 0
        if inside and not periodic:
            raise _invalid_plan(
                plan,
                f"{conflict.a} at {a.offset} and {conflict.b} at {b.offset} of pool {a.pool} "
                f"conflict: {difference} is in ({conflict.lo}, {conflict.hi})",
            )
    return pairs


def _check_live_overlaps(
    plan: Plan, buffers: Sequence[BufferInfo], related: set[tuple[str, str]]
) -> None:
    """Sweep over time: each buffer is compared with those that are alive when it begins."""
    begins = sorted((live.first, live.end, i) for i, b in enumerate(buffers) for live in b.live)
    alive: list[tuple[int, int]] = []
    for first, end, number in begins:
        alive = [(until, other) for until, other in alive if until > first]
        for _, other in alive:
            if other != number and (buffers[number].name, buffers[other].name) not in related:
                _check_disjoint(plan, buffers[number], buffers[other])
        alive.append((end, number))


def _check_disjoint(plan: Plan, a: BufferInfo, b: BufferInfo) -> None:
    a_place, b_place = plan.placements[a.name], plan.placements[b.name]
    a_end, b_end = a_place.offset + a.size_bytes, b_place.offset + b.size_bytes
    overlap = a_end > b_place.offset and b_end > a_place.offset
    if a_place.pool == b_place.pool and overlap:
        raise _invalid_plan(
            plan,
            f"{a.name} at {a_place.offset} and {b.name} at {b_place.offset} of pool "
            f"{a_place.pool} overlap and are alive at once",
        )


def _invalid_plan(plan: Plan, defect: str) -> InternalError:
    return InternalError(f"planner {plan.planner} made an invalid plan: {defect}.")
