"""Verification of the memory plan stored in a module, which may come from text.

`usmp/plan_validator.py` also checks a planner's result against the problem that it
solves. Every call must have access to its arguments; copies by the main core or a copy
device may use all pools.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from firmwright.ir import tir
from firmwright.ir.graph import devices
from firmwright.ir.module import IRModule
from firmwright.ir.pass_results import PoolAccess
from firmwright.ir.tir.plan import BufferInfo, Placement, Plan
from firmwright.ir.tir.traversal import statements, used_buffers


def diagnose_plan(plan: Plan, module: IRModule) -> list[str]:
    diagnostics = chain(
        _diagnose_pools(plan, module),
        _diagnose_placements(plan),
        _diagnose_unrelated_pairs(plan),
        _diagnose_views(plan, module),
    )
    return [f"plan: {problem}" for problem in diagnostics]


def _diagnose_pools(plan: Plan, module: IRModule) -> Iterator[str]:
    size, bound = plan.workspace_bytes, plan.lower_bound_bytes
    if plan.buffers and size < bound:
        yield f"the workspace of {size} bytes is below the lower bound of {bound}"
    limits: Mapping[str, int | None] = {
        pool.name: pool.size_bytes for pool in module.pools
    }
    tops: dict[str, int] = {}
    for buffer in plan.buffers:
        place = plan.placements.get(buffer.name)
        if place is not None:
            end = place.offset + buffer.size_bytes
            tops[place.pool] = max(tops.get(place.pool, 0), end)
    for pool, size in plan.pool_bytes.items():
        limit = limits.get(pool)
        if limits and pool not in limits:
            yield f"pool {pool} is not in the module"
        elif limit is not None and size > limit:
            yield f"pool {pool} takes {size} bytes of {limit}"
        if pool in tops and size > tops[pool]:
            yield f"pool {pool} has {size} bytes, its buffers end at {tops[pool]}"


def _diagnose_placements(plan: Plan) -> Iterator[str]:
    for buffer in plan.buffers:
        place = plan.placements.get(buffer.name)
        if place is None:
            yield f"{buffer.name} has no placement"
            continue
        end = place.offset + buffer.size_bytes
        if place.pool not in buffer.pools:
            yield f"{buffer.name} is in {place.pool}, which is not one of its pools"
        if place.offset < 0 or end > plan.pool_bytes.get(place.pool, 0):
            yield f"{buffer.name} ends at {end}, outside of {place.pool}"
        if buffer.alignment < 1 or place.offset % buffer.alignment:
            yield f"{buffer.name} at {place.offset} violates its alignment"
    for conflict in plan.conflicts:
        a, b = plan.placements.get(conflict.a), plan.placements.get(conflict.b)
        if a is None or b is None:
            pair = f"{conflict.a} and {conflict.b}"
            yield f"a conflict refers to {pair}, which are not both placed"
        elif a.pool == b.pool and not conflict.allows(a.offset, b.offset):
            yield f"{conflict.a} and {conflict.b} overlap"


def _diagnose_unrelated_pairs(plan: Plan) -> Iterator[str]:
    related = {frozenset((conflict.a, conflict.b)) for conflict in plan.conflicts}
    begins = [(live.first, live.end, b) for b in plan.buffers for live in b.live]
    begins.sort(key=lambda item: (item[0], item[1], item[2].name))
    alive: list[tuple[int, BufferInfo]] = []
    found: dict[frozenset[str], None] = {}
    for first, end, buffer in begins:
        alive = [(until, other) for until, other in alive if until > first]
        for _, other in alive:
            names = frozenset((buffer.name, other.name))
            if _overlaps_in_memory(plan, buffer, other) and names not in related:
                found[names] = None
        alive.append((end, buffer))
    for names in found:
        pair = " and ".join(sorted(names))
        yield f"{pair} overlap without a conflict that permits it"


def _overlaps_in_memory(plan: Plan, a: BufferInfo, b: BufferInfo) -> bool:
    x, y = plan.placements.get(a.name), plan.placements.get(b.name)
    if a.name == b.name or x is None or y is None or x.pool != y.pool:
        return False
    return x.offset < y.offset + b.size_bytes and y.offset < x.offset + a.size_bytes


def _diagnose_views(plan: Plan, module: IRModule) -> Iterator[str]:
    """Report views in the AOT main that disagree with the plan.

    Views of scratch buffers have other names there, so they are matched by placement.
    """
    main = module.find_entry()
    if not isinstance(main, tir.PrimFunc) or not plan.buffers:
        return
    scratch = {plan.placements.get(b.name) for b in plan.buffers if b.kind == "scratch"}
    for part in statements(main.body):
        if not isinstance(part, tir.DeclBuffer) or part.source.buffer.scope != "pool":
            continue
        pool, offset = part.source.buffer.name, part.source.offset
        if not isinstance(offset, tir.IntImm):
            continue  # a window of rows that moves within its pool
        planned = plan.placements.get(part.buffer.name)
        expected = scratch if planned is None else {planned}
        if Placement(pool, offset.value) not in expected:
            yield f"{part.buffer.name} is at {pool} + {offset.value} in @{main.name}"


def diagnose_devices(main: tir.PrimFunc, module: IRModule) -> Iterator[str]:
    rows = module.results.pool_access
    pools = {param.name: param.name for param in main.params if param.role == "pool"}
    for node in statements(main.body) if rows else ():
        if isinstance(node, tir.DeclBuffer) and node.source.buffer.name in pools:
            pools[node.buffer.name] = pools[node.source.buffer.name]
        if not isinstance(node, tir.PrimFuncCall):
            continue
        attrs = module.functions[node.callee].attrs
        device = node.device or devices.MAIN_DEVICE
        is_copy = bool(attrs.get("keeps")) or attrs.get("op") == devices.COPY_OP
        if is_copy and (devices.is_core(device) or devices.is_copy_device(device)):
            continue
        visible = _visible_pools(rows, device, attrs.get("target"))
        used: set[str] = set()
        for arg in node.args:
            used.update(used_buffers(arg))
        for name in sorted(used):
            if pools.get(name, "") not in {"", *visible}:
                use = f"{node.callee} on {device} uses {name}"
                known = ", ".join(sorted(visible)) or "no pool"
                access = f"this device can access {known}"
                yield f"{use}, which is in {pools[name]}; {access}"


def _visible_pools(rows: Sequence[PoolAccess], device: str, target: object) -> set[str]:
    """Return the pools that a kernel of `target` can access on `device`."""
    is_core = devices.is_core(device)
    place = devices.MAIN_DEVICE if is_core else device
    visible: set[str] = set()
    for row in rows:
        if row.device == place and (not is_core or row.target in (target, "")):
            visible.update(row.pools)
    return visible
