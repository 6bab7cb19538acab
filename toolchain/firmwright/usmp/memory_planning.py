"""Stage `usmp`: turn a lowered module into a planned module.

In the planned form kernels allocate only registers and constants; their scratch buffers are
parameters. Each Allocate of the AOT main is a view at an offset of a pool. Each used pool is a byte
buffer parameter with role `pool` and the alignment of the pool's base address.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from firmwright.base.dtypes import UINT8
from firmwright.base.errors import DoesNotFitError, UsageError
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.memory_traffic import count_traffic
from firmwright.ir.tir.plan import BufferInfo, Constraints, Plan, Planner
from firmwright.ir.tir.rewrite import rewrite_func
from firmwright.ir.tir.traversal import Node, local_names
from firmwright.usmp.hoist_scratch import hoist_scratch
from firmwright.usmp.interference import InplaceCache, build_interference
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planner_registry import DEFAULT_PLANNER, find_planner
from firmwright.usmp.planning_input import collect_planning_input
from firmwright.usmp.pool_ranking import can_rank_pools, first_choice_only, rank_pools

POOL_ALIGNMENT = 16
DEFAULT_POOL = PoolInfo("sram")
"""The pool of modules without writable pools: unlimited memory."""


def plan_memory(
    module: IRModule, planner: str | Planner = DEFAULT_PLANNER, cache: InplaceCache | None = None
) -> IRModule:
    """Plan the module's memory; return modules that have a plan unchanged.

    `cache` stores the analysis of kernels for later plans. Raises UsageError,
    DoesNotFitError, or, if the planner's result is invalid, InternalError.
    """
    if module.plan is not None:
        return module
    planner_function = find_planner(planner) if isinstance(planner, str) else planner
    if not any(pool.access == "rw" for pool in module.pools):
        module = replace(module, pools=(*module.pools, DEFAULT_POOL))
    cache = InplaceCache() if cache is None else cache
    module, plan_names = hoist_scratch(module, module.aot_main, cache.hoisted)
    main = module.aot_main
    planning_input = collect_planning_input(module, main, plan_names, cache)
    constraints = build_interference(planning_input.buffers, planning_input.overlaps)
    buffers = _rank_pools_by_traffic(module, main, planning_input.buffers, constraints, plan_names)
    plan = place_buffers(planner_function, buffers, constraints, module.pools)
    check_plan(plan, buffers, constraints, module.pools)
    _check_pool_names(plan, main)
    main = _replace_allocates_by_views(module, main, plan, plan_names)
    return replace(module.with_function(main), plan=plan)


def place_buffers(
    planner: Planner,
    buffers: Sequence[BufferInfo],
    constraints: Constraints,
    pools: Sequence[PoolInfo],
) -> Plan:
    """Return a plan with every buffer in its first pool if that fits, else a plan with all pools.

    Raises DoesNotFitError if nothing fits.
    """
    if can_rank_pools(buffers, pools):
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
    if not can_rank_pools(buffers, module.pools):
        return tuple(buffers)
    moved = count_traffic(main, module.functions)
    by_plan_name = {plan_names.get(name, name): traffic for name, traffic in moved.items()}
    return rank_pools(buffers, constraints, module.pools, by_plan_name)


def _check_pool_names(plan: Plan, main: tir.PrimFunc) -> None:
    names = local_names(main)
    for name in plan.pool_bytes:
        if name in names:
            raise UsageError(
                f"pool {name} has the name of one of the model's buffers.",
                hint="another name for the pool, by --pool.",
            )


def _replace_allocates_by_views(
    module: IRModule, main: tir.PrimFunc, plan: Plan, plan_names: Mapping[str, str]
) -> tir.PrimFunc:
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
    alignments: dict[str, int] = {}
    for buffer in plan.buffers:
        pool = plan.placements[buffer.name].pool
        alignments[pool] = max(alignments.get(pool, POOL_ALIGNMENT), buffer.alignment)
    return {
        name: tir.Buffer(
            name, UINT8, (plan.pool_bytes[name],), scope="pool", alignment=alignments[name]
        )
        for name in (pool.name for pool in pools)
        if name in plan.pool_bytes
    }
