"""Stage `usmp`: turn a lowered module into a planned module.

In the planned form kernels allocate only registers and constants; their scratch buffers
are parameters. Each Allocate of the AOT main is a view at an offset of a pool. Each
used pool is a byte buffer parameter with role `pool` and the alignment of the pool's
base address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from firmwright.base.dtypes import UINT8
from firmwright.base.errors import DoesNotFitError, UsageError
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.memory_traffic import (
    NO_TRAFFIC,
    MemoryTraffic,
    count_traffic,
    has_known_speed,
    transfer_cycles,
)
from firmwright.ir.tir.plan import BufferInfo, Constraints, Plan, Planner
from firmwright.ir.tir.traversal import Node, local_names, rewrite_func, statements
from firmwright.usmp.heuristics import best_first_fit_planner
from firmwright.usmp.hoist_scratch import hoist_scratch
from firmwright.usmp.interference import InplaceCache, build_interference
from firmwright.usmp.lower_bound import lower_bound_bytes
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planner_registry import DEFAULT_PLANNER, find_planner, planner_call
from firmwright.usmp.planning_input import PlanningInput, collect_planning_input

POOL_ALIGNMENT = 16
DEFAULT_POOL = PoolInfo("sram")
"""The pool of modules without writable pools: unlimited memory."""


def plan_memory(
    module: IRModule,
    planner: str | Planner = DEFAULT_PLANNER,
    cache: InplaceCache | None = None,
) -> IRModule:
    """Plan the module's memory; return modules that have a plan unchanged.

    `cache` stores the analysis of kernels for later plans.

    Raises:
        UsageError: there is no planner of that name.
        DoesNotFitError: the buffers exceed the pools.
        PluginError: an installed planner raises an exception or its result is invalid.
        InternalError: the result of a built-in planner is invalid.
    """
    if module.plan is not None:
        return module
    workspace = collect_workspace(module, InplaceCache() if cache is None else cache)
    module, main = workspace.module, workspace.module.aot_main
    buffers, constraints = _ranked_content(workspace)
    planner_function = find_planner(planner) if isinstance(planner, str) else planner
    with planner_call(planner):
        plan = place_buffers(planner_function, buffers, constraints, module.pools)
        check_plan(plan, buffers, constraints, module.pools)
    _check_pool_names(plan, main)
    main = _replace_allocates_by_views(module, main, plan, workspace.plan_names)
    return replace(module.with_function(main), plan=plan)


@dataclass(frozen=True, slots=True)
class Workspace:
    """A module with hoisted scratch, the plan names of that, and what to place."""

    module: IRModule
    plan_names: Mapping[str, str]
    content: PlanningInput

    @property
    def is_decided_by_content(self) -> bool:
        """Whether plans depend on `content` alone, and not on the traffic of calls."""
        return not can_rank_pools(self.content.buffers, self.module.pools)


def collect_workspace(module: IRModule, cache: InplaceCache) -> Workspace:
    if not any(pool.access == "rw" for pool in module.pools):
        module = replace(module, pools=(*module.pools, DEFAULT_POOL))
    module, plan_names = hoist_scratch(module, module.aot_main, cache.hoisted)
    content = collect_planning_input(module, module.aot_main, plan_names, cache)
    return Workspace(module, plan_names, content)


def plan_workspace(workspace: Workspace, planner: str | Planner) -> Plan:
    """Return a plan, which is not checked; for errors see `plan_memory`."""
    buffers, constraints = _ranked_content(workspace)
    planner_function = find_planner(planner) if isinstance(planner, str) else planner
    with planner_call(planner):
        pools = workspace.module.pools
        return place_buffers(planner_function, buffers, constraints, pools)


def _ranked_content(
    workspace: Workspace,
) -> tuple[tuple[BufferInfo, ...], Constraints]:
    """Return the buffers, with their pools in order of preference, and constraints."""
    module, content = workspace.module, workspace.content
    constraints = build_interference(content.buffers, content.overlaps)
    buffers = _rank_pools_by_traffic(
        module, module.aot_main, content.buffers, constraints, workspace.plan_names
    )
    return buffers, constraints


def place_buffers(
    planner: Planner,
    buffers: Sequence[BufferInfo],
    constraints: Constraints,
    pools: Sequence[PoolInfo],
) -> Plan:
    """Return a plan with first pools only, else with all; DoesNotFitError if none."""
    if can_rank_pools(buffers, pools):
        # The first pools are the fastest; a planner with a choice minimizes bytes.
        with suppress(DoesNotFitError):
            plan = planner(first_choice_only(buffers), constraints, pools)
            return replace(plan, buffers=tuple(buffers))
    return planner(buffers, constraints, pools)


def _rank_pools_by_traffic(
    module: IRModule,
    main: tir.PrimFunc,
    buffers: Sequence[BufferInfo],
    constraints: Constraints,
    plan_names: Mapping[str, str],
) -> tuple[BufferInfo, ...]:
    """Return the buffers, those that are accessed most preferring the fastest pools."""
    if not can_rank_pools(buffers, module.pools):
        return tuple(buffers)
    by_plan_name: dict[str, MemoryTraffic] = {}
    for name, traffic in count_traffic(main, module.functions).items():
        by_plan_name[plan_names.get(name, name)] = traffic
    return rank_pools(buffers, constraints, module.pools, by_plan_name)


def _check_pool_names(plan: Plan, main: tir.PrimFunc) -> None:
    """Raise UsageError if a used pool has a buffer's name: both are names in the C."""
    names = local_names(main)
    for name in plan.pool_bytes:
        if name in names:
            what = f"pool {name} has the name of one of the model's buffers."
            raise UsageError(what, hint="another name for the pool, by --pool.")


def _replace_allocates_by_views(
    module: IRModule, main: tir.PrimFunc, plan: Plan, plan_names: Mapping[str, str]
) -> tir.PrimFunc:
    """Return the main with its pools as parameters, and views at planned offsets."""
    pools = make_pool_buffers(plan, module.pools)

    def rule(part: Node) -> Node | None:
        if not isinstance(part, tir.Allocate) or part.buffer.scope != "global":
            return None
        name = part.buffer.name
        place = plan.placements[plan_names.get(name, name)]
        offset = tir.IntImm(place.offset, INDEX)
        source = tir.AccessPtr(pools[place.pool], offset, part.buffer.span_bytes, "rw")
        return tir.DeclBuffer(part.buffer, source, part.body)

    added = tuple(tir.Param(pool, "pool") for pool in pools.values())
    return replace(rewrite_func(main, rule), params=main.params + added)


def make_pool_buffers(plan: Plan, pools: Sequence[PoolInfo]) -> dict[str, tir.Buffer]:
    """Return the byte buffer of each used pool by name, in the order of `pools`."""
    alignments: dict[str, int] = {}
    for buffer in plan.buffers:
        name = plan.placements[buffer.name].pool
        alignments[name] = max(alignments.get(name, POOL_ALIGNMENT), buffer.alignment)
    pool_buffers: dict[str, tir.Buffer] = {}
    for pool in pools:
        name = pool.name
        if name in plan.pool_bytes:
            shape = (plan.pool_bytes[name],)
            pool_buffers[name] = tir.Buffer(
                name, UINT8, shape, scope="pool", alignment=alignments[name]
            )
    return pool_buffers


def pool_views(main: tir.PrimFunc) -> list[tir.DeclBuffer]:
    """Return the views by which a planned main accesses its pools, in text order."""
    views: list[tir.DeclBuffer] = []
    for node in statements(main.body):
        if isinstance(node, tir.DeclBuffer) and node.source.buffer.scope == "pool":
            views.append(node)
    return views


_UNIT = MemoryTraffic(4, 4, 1, 1)
"""One word read and one word written: pools are compared by this traffic."""


def rank_pools(
    buffers: Sequence[BufferInfo],
    constraints: Constraints,
    pools: Sequence[PoolInfo],
    traffic: Mapping[str, MemoryTraffic],
) -> tuple[BufferInfo, ...]:
    """Return the buffers with their pools in order of preference.

    The pool that a buffer is assigned to comes first, then the others, the fastest
    first. Pools are filled in order of their speed.
    """
    if not can_rank_pools(buffers, pools):
        return tuple(buffers)

    def cycles(pool: PoolInfo) -> float:
        return transfer_cycles(_UNIT, pool)

    ranked = sorted(_candidates(buffers, pools), key=cycles)
    pool_of: dict[str, str] = {}
    rest = list(buffers)
    for pool, slower in zip(ranked, [*ranked[1:], None], strict=True):
        for buffer in _assign_to_pool(rest, constraints, pool, slower, traffic):
            pool_of[buffer.name] = pool.name
        rest = [buffer for buffer in rest if buffer.name not in pool_of]
    fastest_first = [pool.name for pool in ranked]
    preferring: list[BufferInfo] = []
    for buffer in buffers:
        own = sorted(buffer.pools, key=fastest_first.index)
        assigned = pool_of.get(buffer.name)
        if assigned is not None:
            own.remove(assigned)
            own.insert(0, assigned)
        preferring.append(replace(buffer, pools=tuple(own)))
    return tuple(preferring)


def can_rank_pools(buffers: Sequence[BufferInfo], pools: Sequence[PoolInfo]) -> bool:
    """Return whether the buffers have a choice of pools whose speeds are all known."""
    candidates = _candidates(buffers, pools)
    return len(candidates) > 1 and all(map(has_known_speed, candidates))


def _candidates(
    buffers: Sequence[BufferInfo], pools: Sequence[PoolInfo]
) -> list[PoolInfo]:
    """Return the pools that any of the buffers may use."""
    names: set[str] = set()
    for buffer in buffers:
        names.update(buffer.pools)
    return [pool for pool in pools if pool.name in names]


def first_choice_only(buffers: Sequence[BufferInfo]) -> tuple[BufferInfo, ...]:
    """Return the buffers with the first of their pools as the only one."""
    return tuple(replace(buffer, pools=buffer.pools[:1]) for buffer in buffers)


def _assign_to_pool(
    buffers: Sequence[BufferInfo],
    constraints: Constraints,
    pool: PoolInfo,
    slower: PoolInfo | None,
    traffic: Mapping[str, MemoryTraffic],
) -> list[BufferInfo]:
    """Return all buffers if they fit in `pool`, else those that save most per byte.

    `slower` is the next pool, where the remaining buffers are likely to be; None for
    the last pool. Buffers that may only be in `pool` come first.
    """
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


def _has_room(
    buffers: Sequence[BufferInfo], constraints: Constraints, pool: PoolInfo
) -> bool:
    """Return whether a quick plan finds room for the buffers in `pool` alone."""
    if pool.size_bytes is None or not buffers:
        return True
    names = {buffer.name for buffer in buffers}
    inner_constraints = [c for c in constraints if c.a in names and c.b in names]
    restricted = [replace(buffer, pools=(pool.name,)) for buffer in buffers]
    if lower_bound_bytes(restricted, inner_constraints) > pool.size_bytes:
        return False
    with suppress(DoesNotFitError):
        best_first_fit_planner(restricted, inner_constraints, (pool,))
        return True
    return False
