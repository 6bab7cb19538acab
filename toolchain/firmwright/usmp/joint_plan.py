"""Joint memory plan for planned models that run in sequence and share pools (decision 0015).

An input is live from the start until its model has read it, an output from the run of its model to
the end, and state and constants in RAM always. A variable shared by entry points of a file is one
buffer. Constraints within a model are those of its own plan.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from firmwright.base.errors import DoesNotFitError, InternalError, RegionOverflow, UsageError
from firmwright.base.grouping import group_pairs
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.plan import (
    BufferInfo,
    Constraints,
    LiveRange,
    OffsetConstraint,
    Plan,
    disjoint_constraint,
)
from firmwright.ir.tir.traversal import Node, rewrite_func, statements
from firmwright.usmp.hoist_scratch import is_scratch_name
from firmwright.usmp.memory_planning import make_pool_buffers, place_buffers
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planner_registry import DEFAULT_PLANNER, find_planner, planner_call

PERSISTENT_KINDS = ("state", "const")
"""Kinds of buffers that are live before, between, and after runs."""
PERMUTED_MODELS_MAX = 6
"""Up to this number of models, every run order is tried; more models run in the given order."""


@dataclass(frozen=True, slots=True)
class JointPlan:
    """The replanned modules, their run order (positions in `modules`), and the joint plan."""

    modules: tuple[IRModule, ...]
    order: tuple[int, ...]
    plan: Plan


def plan_jointly(modules: Sequence[IRModule], planner: str = DEFAULT_PLANNER) -> JointPlan:
    """Plan models with distinct names that run one at a time.

    Raises UsageError if they were planned for different pools, DoesNotFitError if memory is short.
    """
    pools = common_pools(modules)
    _check_shared_variables(modules)
    order = best_run_order([module.memory_plan for module in modules])
    buffers, constraints = _join_timelines([modules[index] for index in order])
    with planner_call(planner):
        plan = place_buffers(find_planner(planner), buffers, constraints, pools)
        check_plan(plan, buffers, constraints, pools)
    moved = tuple(_relocate(module, plan) for module in modules)
    return JointPlan(moved, order, plan)


def check_concurrent_fit(modules: Sequence[IRModule]) -> None:
    """Raise DoesNotFitError unless the pools have room for all models at the same time."""
    pools = common_pools(modules)
    needs = {
        pool.name: sum(module.memory_plan.pool_bytes.get(pool.name, 0) for module in modules)
        for pool in pools
    }
    overflows = [
        RegionOverflow(pool.name, needs[pool.name], pool.size_bytes)
        for pool in pools
        if pool.size_bytes is not None and needs[pool.name] > pool.size_bytes
    ]
    if overflows:
        words = ", ".join(
            f"pool {o.name} needs {o.need_bytes:,} bytes and has {o.have_bytes:,}"
            for o in overflows
        )
        each = [(module.name, module.memory_plan.workspace_bytes) for module in modules]
        raise DoesNotFitError(
            f"the models do not fit at the same time: {words}.",
            regions=overflows,
            lowest_bytes=sum(needs.values()),
            peak=sorted(each, key=lambda row: -row[1]),
            hint="sequential models share memory, without --concurrent.",
        )


def _check_shared_variables(modules: Sequence[IRModule]) -> None:
    first: dict[str, tuple[str, bytes]] = {}
    for module in modules:
        joint = _joint_names(module)
        for state in module.io.state:
            initial_value = module.name, module.constants[state.initial].data
            first_value = first.setdefault(joint[state.buffer], initial_value)
            if first_value[1] != initial_value[1]:
                raise UsageError(
                    f"{first_value[0]} and {initial_value[0]} initialize the shared variable "
                    f"{state.name} differently.",
                    hint="a file in which all signatures initialize a variable equally.",
                )


def common_pools(modules: Sequence[IRModule]) -> tuple[PoolInfo, ...]:
    """Return the pools for which all modules were planned; raise UsageError if they differ."""
    pools = modules[0].pools
    for module in modules[1:]:
        if module.pools != pools:
            what = f"{module.name} was planned for other pools than {modules[0].name}."
            raise UsageError(what, hint="the same --pool for all models of a firmware.")
    return pools


def best_run_order(plans: Sequence[Plan]) -> tuple[int, ...]:
    """Return the run order with the lowest peak.

    A model's peak includes live inputs of later models and live outputs of earlier ones.
    """
    default_order = tuple(range(len(plans)))
    if len(plans) > PERMUTED_MODELS_MAX:
        return default_order
    held = [_held_bytes(plan) for plan in plans]

    def peak(order: tuple[int, ...]) -> int:
        worst = 0
        for turn, index in enumerate(order):
            later = sum(held[other][0] for other in order[turn + 1 :])
            earlier = sum(held[other][1] for other in order[:turn])
            worst = max(worst, plans[index].workspace_bytes + later + earlier)
        return worst

    return min(itertools.permutations(default_order), key=peak)


def _held_bytes(plan: Plan) -> tuple[int, int]:
    """Return the bytes that are live before a run and those that are live after it."""
    end = _end(plan)
    before = sum(b.size_bytes for b in plan.buffers if b.kind in ("input", *PERSISTENT_KINDS))
    return before, sum(b.size_bytes for b in plan.buffers if _is_live_after_run(b, end))


def _is_live_after_run(buffer: BufferInfo, end: int) -> bool:
    return buffer.kind in ("input", "output", *PERSISTENT_KINDS) and any(
        live.end == end for live in buffer.live
    )


def _end(plan: Plan) -> int:
    return max((live.end for buffer in plan.buffers for live in buffer.live), default=0)


def _join_timelines(modules: Sequence[IRModule]) -> tuple[tuple[BufferInfo, ...], Constraints]:
    total = sum(_end(module.memory_plan) for module in modules)
    groups: list[tuple[BufferInfo, ...]] = []
    constraints: list[OffsetConstraint[str]] = []
    begin = 0
    for module in modules:
        plan, names = module.memory_plan, _joint_names(module)
        end = _end(plan)
        groups.append(tuple(_shift_live_ranges(names, b, begin, end, total) for b in plan.buffers))
        constraints += [c.between(names[c.a], names[c.b]) for c in plan.conflicts]
        begin += end
    for first, second in itertools.combinations(groups, 2):
        for a, b in itertools.product(first, second):
            if a.name != b.name and a.overlaps_in_time(b):
                constraints.append(disjoint_constraint(a, b))
    buffers = {buffer.name: buffer for group in groups for buffer in group}
    unique = {(c.a, c.b, c.lo, c.hi, c.modulus): c for c in constraints}
    return tuple(buffers.values()), tuple(unique.values())


def _joint_names(module: IRModule) -> dict[str, str]:
    """Return names of buffers in the joint plan: MODEL/BUFFER, for variables FILE/VARIABLE."""
    names = {b.name: f"{module.name}/{b.name}" for b in module.memory_plan.buffers}
    source = str(module.attrs.get("source_sha256", ""))[:16]
    if source:
        names |= {state.buffer: f"{source}/{state.name}" for state in module.io.state}
    return names


def _shift_live_ranges(
    names: Mapping[str, str], buffer: BufferInfo, begin: int, end: int, total: int
) -> BufferInfo:
    """Return `buffer` with live ranges in joint time; its model's run ends at time `end`."""
    live = [LiveRange(begin + part.first, begin + part.end) for part in buffer.live]
    if buffer.kind in ("input", *PERSISTENT_KINDS):
        live[0] = LiveRange(0, live[0].end)
    if _is_live_after_run(buffer, end):
        live[-1] = LiveRange(live[-1].first, total)
    return replace(buffer, name=names[buffer.name], live=tuple(live))


def _relocate(module: IRModule, joint_plan: Plan) -> IRModule:
    old, main = module.memory_plan, module.aot_main
    joint = _joint_names(module)
    places = {b.name: joint_plan.placements[joint[b.name]] for b in old.buffers}
    placed = ((places[buffer.name], buffer.size_bytes) for buffer in old.buffers)
    ends = group_pairs((place.pool, place.offset + size_bytes) for place, size_bytes in placed)
    tops = {pool.name: max(ends[pool.name]) for pool in module.pools if pool.name in ends}
    plan = replace(old, planner=joint_plan.planner, placements=places, pool_bytes=tops)
    check_plan(plan, plan.buffers, plan.conflicts, module.pools)
    pools = make_pool_buffers(plan, module.pools)
    names = _plan_names(main, old)

    def rule(part: Node) -> Node | None:
        if not isinstance(part, tir.DeclBuffer) or part.buffer.name not in names:
            return None
        place = places[names[part.buffer.name]]
        offset = tir.IntImm(place.offset, INDEX)
        return replace(part, source=replace(part.source, buffer=pools[place.pool], offset=offset))

    params = tuple(param for param in main.params if param.role != "pool")
    params += tuple(tir.Param(pool, "pool") for pool in pools.values())
    main = replace(rewrite_func(main, rule), params=params)
    return replace(module.with_function(main), plan=plan)


def _plan_names(main: tir.PrimFunc, plan: Plan) -> dict[str, str]:
    views = [
        part.buffer
        for part in statements(main.body)
        if isinstance(part, tir.DeclBuffer) and part.source.buffer.scope == "pool"
    ]
    plain = {buffer.name for buffer in plan.buffers if not is_scratch_name(buffer.name)}
    hoisted = [buffer for buffer in plan.buffers if buffer.name not in plain]
    scratch = [view for view in views if view.name not in plain]
    if [view.size_bytes for view in scratch] != [info.size_bytes for info in hoisted]:
        raise InternalError(f"the views of {main.name} do not match its plan.")
    names = {view.name: view.name for view in views if view.name in plain}
    return names | {view.name: info.name for view, info in zip(scratch, hoisted, strict=True)}
