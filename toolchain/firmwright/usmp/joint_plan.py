"""Joint memory plan for models that run in sequence and share pools.

The decision is 0015.

An input is live from the start until its model has read it, an output from the run of
its model to the end, and state and constants in RAM always. A variable shared by entry
points of a file is one buffer. Constraints within a model are those of its own plan.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from firmwright.base.errors import (
    DoesNotFitError,
    InternalError,
    RegionOverflow,
    UsageError,
)
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.plan import (
    BufferInfo,
    Constraints,
    LiveRange,
    OffsetConstraint,
    Placement,
    Plan,
    disjoint_constraint,
)
from firmwright.ir.tir.traversal import Node, rewrite_func
from firmwright.usmp.hoist_scratch import is_scratch_name
from firmwright.usmp.liveness import live_end
from firmwright.usmp.memory_planning import make_pool_buffers, place_buffers, pool_views
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planner_registry import DEFAULT_PLANNER, find_planner, planner_call

JointNames: TypeAlias = Mapping[str, str]
"""The names of a model's buffers in the joint plan."""
PERSISTENT_KINDS = ("state", "const")
"""Kinds of buffers that are live before, between, and after runs."""
PERMUTED_MODELS_MAX = 6
"""With up to this many models, every run order is tried; with more, the given one."""


@dataclass(frozen=True, slots=True)
class JointPlan:
    """The replanned modules, their run order (positions in `modules`), a joint plan."""

    modules: tuple[IRModule, ...]
    order: tuple[int, ...]
    plan: Plan


def plan_jointly(
    modules: Sequence[IRModule], planner: str = DEFAULT_PLANNER
) -> JointPlan:
    """Plan models with distinct names that run one at a time.

    Raises UsageError if they were planned for different pools, DoesNotFitError if
    memory is short.
    """
    pools = common_pools(modules)
    names: dict[str, JointNames] = {}
    for index, module in enumerate(modules):
        names[module.name] = _joint_names(module, modules[:index])
    _check_shared_variables(modules, names)
    order = best_run_order([module.memory_plan for module in modules])
    buffers, constraints = _join_timelines([modules[index] for index in order], names)
    with planner_call(planner):
        plan = place_buffers(find_planner(planner), buffers, constraints, pools)
        check_plan(plan, buffers, constraints, pools)
    moved = tuple(_relocate(module, names[module.name], plan) for module in modules)
    return JointPlan(moved, order, plan)


def check_concurrent_fit(modules: Sequence[IRModule]) -> None:
    """Raise DoesNotFitError unless the pools have room for all models at once."""
    needed_bytes = 0
    overflows: list[RegionOverflow] = []
    for pool in common_pools(modules):
        pool_bytes = 0
        for module in modules:
            pool_bytes += module.memory_plan.pool_bytes.get(pool.name, 0)
        needed_bytes += pool_bytes
        if pool.size_bytes is not None and pool_bytes > pool.size_bytes:
            overflows.append(RegionOverflow(pool.name, pool_bytes, pool.size_bytes))
    if not overflows:
        return
    needs: list[str] = []
    for overflow in overflows:
        need, have = overflow.need_bytes, overflow.have_bytes
        needs.append(f"pool {overflow.name} needs {need:,} bytes and has {have:,}")
    workspaces: list[tuple[str, int]] = []
    for module in modules:
        workspaces.append((module.name, module.memory_plan.workspace_bytes))
    raise DoesNotFitError(
        f"the models do not fit at the same time: {', '.join(needs)}.",
        regions=overflows,
        lowest_bytes=needed_bytes,
        peak=sorted(workspaces, key=lambda row: -row[1]),
        hint="sequential models share memory, without --concurrent.",
    )


def _check_shared_variables(
    modules: Sequence[IRModule], names: Mapping[str, JointNames]
) -> None:
    """Raise UsageError if two models initialize a shared variable differently."""
    first_users: dict[str, IRModule] = {}
    first_values: dict[str, bytes] = {}
    for module in modules:
        for state in module.io.state:
            variable = names[module.name][state.buffer]
            value = module.constants[state.initial].data
            first_user = first_users.setdefault(variable, module)
            if first_values.setdefault(variable, value) != value:
                hint = "a file in which all signatures initialize a variable equally."
                raise UsageError(
                    f"{first_user.name} and {module.name} initialize the shared "
                    f"variable {state.name} differently.",
                    hint=hint,
                )


def common_pools(modules: Sequence[IRModule]) -> tuple[PoolInfo, ...]:
    """Return the pools that all modules were planned for; UsageError if they differ."""
    pools = modules[0].pools
    for module in modules[1:]:
        if module.pools != pools:
            what = f"{module.name} was planned for other pools than {modules[0].name}."
            raise UsageError(what, hint="the same --pool for all models of a firmware.")
    return pools


def best_run_order(plans: Sequence[Plan]) -> tuple[int, ...]:
    """Return the run order with the lowest peak.

    A model's peak includes live inputs of later models and live outputs of earlier
    ones.
    """
    default_order = tuple(range(len(plans)))
    if len(plans) > PERMUTED_MODELS_MAX:
        return default_order
    before = [_bytes_before_run(plan) for plan in plans]
    after = [_bytes_after_run(plan) for plan in plans]

    def peak(order: tuple[int, ...]) -> int:
        worst = 0
        for turn, index in enumerate(order):
            # While a model runs, inputs of later ones wait already, and outputs of
            # earlier ones are still to be read.
            later = sum(before[other] for other in order[turn + 1 :])
            earlier = sum(after[other] for other in order[:turn])
            worst = max(worst, plans[index].workspace_bytes + later + earlier)
        return worst

    return min(itertools.permutations(default_order), key=peak)


def _bytes_before_run(plan: Plan) -> int:
    """Return the bytes that are live before the model runs."""
    total_bytes = 0
    for buffer in plan.buffers:
        if _is_live_before_run(buffer):
            total_bytes += buffer.size_bytes
    return total_bytes


def _bytes_after_run(plan: Plan) -> int:
    """Return the bytes that are live after the model has run."""
    end = live_end(plan.buffers)
    total_bytes = 0
    for buffer in plan.buffers:
        if _is_live_after_run(buffer, end):
            total_bytes += buffer.size_bytes
    return total_bytes


def _is_live_before_run(buffer: BufferInfo) -> bool:
    return buffer.kind == "input" or buffer.kind in PERSISTENT_KINDS


def _is_live_after_run(buffer: BufferInfo, end: int) -> bool:
    """Return whether the caller reads a buffer after the run, which ends at `end`."""
    if buffer.kind not in ("input", "output", *PERSISTENT_KINDS):
        return False
    return any(live.end == end for live in buffer.live)


def _join_timelines(
    modules: Sequence[IRModule], names_by_model: Mapping[str, JointNames]
) -> tuple[tuple[BufferInfo, ...], Constraints]:
    """Return the buffers and constraints of models that run in the order given.

    The times of each model follow those of the previous one. Buffers of different
    models that are live together are disjoint.
    """
    total = 0
    for module in modules:
        total += live_end(module.memory_plan.buffers)
    groups: list[list[BufferInfo]] = []
    constraints: list[OffsetConstraint[str]] = []
    begin = 0
    for module in modules:
        plan, names = module.memory_plan, names_by_model[module.name]
        end = live_end(plan.buffers)
        group = []
        for buffer in plan.buffers:
            shifted = _shift_live_ranges(buffer, begin, end, total)
            group.append(replace(shifted, name=names[buffer.name]))
        groups.append(group)
        constraints += [c.between(names[c.a], names[c.b]) for c in plan.conflicts]
        begin += end
    for first, second in itertools.combinations(groups, 2):
        for a, b in itertools.product(first, second):
            if a.name != b.name and a.overlaps_in_time(b):
                constraints.append(disjoint_constraint(a, b))
    # A variable that models share occurs in each model's plan, as do its constraints.
    buffers: dict[str, BufferInfo] = {}
    for group in groups:
        buffers.update((buffer.name, buffer) for buffer in group)
    unique = {(c.a, c.b, c.lo, c.hi, c.modulus): c for c in constraints}
    return tuple(buffers.values()), tuple(unique.values())


def _joint_names(module: IRModule, earlier: Sequence[IRModule]) -> JointNames:
    """Return names in the joint plan: MODEL/BUFFER, for variables FILE/VARIABLE.

    Entry points of a file share its variables. An entry point that is one of the
    `earlier` models, too, begins another instance of the file, with its own variables.
    """
    names: dict[str, str] = {}
    for buffer in module.memory_plan.buffers:
        names[buffer.name] = f"{module.name}/{buffer.name}"
    source = module.origin.sha256[:16]
    if source:
        instance = [other.origin for other in earlier].count(module.origin)
        for state in module.io.state:
            names[state.buffer] = f"{source}/{instance}/{state.name}"
    return names


def _shift_live_ranges(
    buffer: BufferInfo, begin: int, end: int, total: int
) -> BufferInfo:
    """Return `buffer` with live ranges in joint time, which ends at time `total`.

    Its model's run begins at time `begin` and takes `end` times.
    """
    # own time      0 ---- end
    # joint time    0 ... begin ---- begin + end ... total
    #
    # An input exists from 0 on, an output remains until the total.
    live = [LiveRange(begin + part.first, begin + part.end) for part in buffer.live]
    if _is_live_before_run(buffer):
        live[0] = LiveRange(0, live[0].end)
    if _is_live_after_run(buffer, end):
        live[-1] = LiveRange(live[-1].first, total)
    return replace(buffer, live=tuple(live))


def _relocate(module: IRModule, joint_names: JointNames, joint_plan: Plan) -> IRModule:
    """Return the module with the joint plan's placements in its plan and AOT main."""
    old, main = module.memory_plan, module.aot_main
    places: dict[str, Placement] = {}
    tops_of_buffers: dict[str, int] = {}
    for buffer in old.buffers:
        place = joint_plan.placements[joint_names[buffer.name]]
        places[buffer.name] = place
        end = place.offset + buffer.size_bytes
        tops_of_buffers[place.pool] = max(tops_of_buffers.get(place.pool, 0), end)
    tops: dict[str, int] = {}
    for pool in module.pools:
        if pool.name in tops_of_buffers:
            tops[pool.name] = tops_of_buffers[pool.name]
    plan = replace(old, planner=joint_plan.planner, placements=places, pool_bytes=tops)
    check_plan(plan, plan.buffers, plan.conflicts, module.pools)
    pools = make_pool_buffers(plan, module.pools)
    names = _plan_names(main, old)

    def rule(part: Node) -> Node | None:
        if not isinstance(part, tir.DeclBuffer) or part.buffer.name not in names:
            return None
        place = places[names[part.buffer.name]]
        offset = tir.IntImm(place.offset, INDEX)
        source = replace(part.source, buffer=pools[place.pool], offset=offset)
        return replace(part, source=source)

    params = tuple(param for param in main.params if param.role != "pool")
    params += tuple(tir.Param(pool, "pool") for pool in pools.values())
    main = replace(rewrite_func(main, rule), params=params)
    return replace(module.with_function(main), plan=plan)


def _plan_names(main: tir.PrimFunc, plan: Plan) -> dict[str, str]:
    """Return the plan name of each view; views of scratch are in plan order."""
    plain: set[str] = set()
    hoisted: list[BufferInfo] = []
    for info in plan.buffers:
        if is_scratch_name(info.name):
            hoisted.append(info)
        else:
            plain.add(info.name)
    names: dict[str, str] = {}
    scratch: list[tir.Buffer] = []
    for view in pool_views(main):
        if view.buffer.name in plain:
            names[view.buffer.name] = view.buffer.name
        else:
            scratch.append(view.buffer)
    sizes = [view.size_bytes for view in scratch]
    if sizes != [info.size_bytes for info in hoisted]:
        raise InternalError(f"the views of {main.name} do not match its plan.")
    for buffer, info in zip(scratch, hoisted, strict=True):
        names[buffer.name] = info.name
    return names
