"""Stage `usmp`: a lowered module in, the planned module out.

The planned form: kernels allocate nothing but registers and constants, their scratch are
parameters; each Allocate of the AOT main is a window (DeclBuffer) at an offset of a pool; each
pool in use is a byte buffer parameter of role `pool` of the AOT main, after its other parameters
and in the order of `IRModule.pools`; `IRModule.plan` is the plan, checked. What a pool's base
address is aligned to is that buffer's alignment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from firmwright.base.dtypes import UINT8
from firmwright.base.errors import DoesNotFitError, InternalError, UsageError
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.plan import BufferInfo, OffsetConstraint, Plan, Planner
from firmwright.ir.tir.rewrite import rewrite_func
from firmwright.ir.tir.traversal import Node, local_names
from firmwright.usmp.hoist_scratch import hoist_scratch
from firmwright.usmp.inplace_analysis import InplaceAnalysis, InplaceCache
from firmwright.usmp.interference import build_interference
from firmwright.usmp.liveness import collect_planning_input, footprint_bytes
from firmwright.usmp.memory_traffic import count_traffic
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planner_registry import DEFAULT_PLANNER, find_planner
from firmwright.usmp.pool_assignment import can_rank_pools, first_choice_only, rank_pools

POOL_ALIGNMENT = 16
DEFAULT_POOL = PoolInfo("sram")
"""Where a module without writable pools is planned: as much memory as it takes."""


def plan_memory(
    module: IRModule, planner: str | Planner = DEFAULT_PLANNER, known: InplaceCache | None = None
) -> IRModule:
    """Plan the module's memory; one that has a plan is returned as it is.

    `known` is what earlier plans found out about kernels, and is added to.
    Errors: UsageError (no such planner, no pool for a buffer, a pool named like a buffer),
    DoesNotFitError, InternalError if a planner's result is wrong.
    """
    if module.plan is not None:
        return module
    find = find_planner(planner) if isinstance(planner, str) else planner
    module = _with_pools(module)
    distances = InplaceAnalysis(module.functions, InplaceCache() if known is None else known)
    module, plan_names = hoist_scratch(module, _aot_main(module))
    main = _aot_main(module)
    extraction = collect_planning_input(module, main, module.pools, plan_names, distances)
    conflicts = build_interference(extraction.buffers, extraction.overlaps)
    buffers = _in_better_pools(module, main, extraction.buffers, conflicts, plan_names)
    made = place_buffers(find, buffers, conflicts, module.pools)
    check_plan(made, buffers, conflicts, module.pools)
    _check_pool_names(made, main)
    planned = _with_windows(module, main, made, plan_names)
    return replace(module.with_function(planned), plan=made)


def place_buffers(
    find: Planner,
    buffers: Sequence[BufferInfo],
    conflicts: Sequence[OffsetConstraint],
    pools: Sequence[PoolInfo],
) -> Plan:
    """The planner's plan with each buffer in the first of its pools; in any, if that fits nowhere.

    DoesNotFitError if nothing does.
    """
    if can_rank_pools(buffers, pools):
        try:
            made = find(first_choice_only(buffers), conflicts, pools)
        except DoesNotFitError:
            return find(buffers, conflicts, pools)
        return replace(made, buffers=tuple(buffers))
    return find(buffers, conflicts, pools)


def _in_better_pools(
    module: IRModule,
    main: tir.PrimFunc,
    buffers: Sequence[BufferInfo],
    conflicts: Sequence[OffsetConstraint],
    plan_names: Mapping[str, str],
) -> tuple[BufferInfo, ...]:
    """`buffers` with the pools of known speeds in an order that suits each."""
    if not can_rank_pools(buffers, module.pools):
        return tuple(buffers)
    moved = count_traffic(main, module.functions)
    by_plan_name = {plan_names.get(name, name): traffic for name, traffic in moved.items()}
    return rank_pools(buffers, conflicts, module.pools, by_plan_name)


def _aot_main(module: IRModule) -> tir.PrimFunc:
    main = module.entry
    if not isinstance(main, tir.PrimFunc) or not main.attrs.get("aot_main"):
        raise InternalError(f"module {module.name} has no AOT main to plan: lower it first.")
    return main


def _with_pools(module: IRModule) -> IRModule:
    if any(pool.access == "rw" for pool in module.pools):
        return module
    return replace(module, pools=(*module.pools, DEFAULT_POOL))


def _check_pool_names(made: Plan, main: tir.PrimFunc) -> None:
    taken = local_names(main)
    for name in made.pool_bytes:
        if name in taken:
            raise UsageError(
                f"pool {name} has the name of one of the model's buffers.",
                hint="another name for the pool, by --pool.",
            )


def _with_windows(
    module: IRModule, main: tir.PrimFunc, made: Plan, plan_names: Mapping[str, str]
) -> tir.PrimFunc:
    pools = make_pool_buffers(made, module.pools)

    def rule(part: Node) -> Node | None:
        if not isinstance(part, tir.Allocate) or part.buffer.scope != "global":
            return None
        name = part.buffer.name
        place = made.placements[plan_names.get(name, name)]
        offset = tir.IntImm(place.offset, INDEX)
        source = tir.AccessPtr(pools[place.pool], offset, footprint_bytes(part.buffer), "rw")
        return tir.DeclBuffer(part.buffer, source, part.body)

    added = tuple(tir.Param(pool, "pool") for pool in pools.values())
    return replace(rewrite_func(main, rule), params=main.params + added)


def make_pool_buffers(made: Plan, pools: Sequence[PoolInfo]) -> dict[str, tir.Buffer]:
    """The byte buffers that stand for the pools in use, in the order of `pools`."""
    return {
        pool.name: tir.Buffer(
            pool.name,
            UINT8,
            (made.pool_bytes[pool.name],),
            scope="pool",
            alignment=_base_alignment(made, pool.name),
        )
        for pool in pools
        if pool.name in made.pool_bytes
    }


def _base_alignment(made: Plan, pool: str) -> int:
    mine = (b.alignment for b in made.buffers if made.placements[b.name].pool == pool)
    return max(POOL_ALIGNMENT, *mine)
