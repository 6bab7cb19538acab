"""Several planned models in one set of pools: one plan over all of their runs.

In: planned modules that run one after another, all inputs written before the first and all outputs
read after the last. Out: the order in which they take least, the modules with their buffers moved,
and the plan of all, in which a buffer is called MODEL/BUFFER. An input is alive from the beginning
until its model has read it, an output from its model to the end, state and
constants in RAM always; everything else
shares with the other models. A variable of one file that
several of its entry points use is one buffer. Invariants: what buffers of one model may share is as
it was planned for that model alone; the checker judges the plan of all and each model's part of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from firmwright.base.errors import DoesNotFitError, InternalError, RegionOverflow, UsageError
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.plan import BufferInfo, LiveRange, OffsetConstraint, Placement, Plan
from firmwright.ir.tir.rewrite import rewrite_func
from firmwright.ir.tir.traversal import Node, statements
from firmwright.usmp.hoist_scratch import is_scratch_name
from firmwright.usmp.memory_planning import make_pool_buffers, place_buffers
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planner_registry import DEFAULT_PLANNER, find_planner

PERSISTENT_KINDS = ("state", "const")
"""Kinds of buffers that are alive before, between and after runs."""
PERMUTED_MODELS_MAX = 6
"""So many models are tried in every order; more run in the order given."""


@dataclass(frozen=True, slots=True)
class JointPlan:
    """`order` are positions in `modules`, which are in the order given."""

    modules: tuple[IRModule, ...]
    order: tuple[int, ...]
    plan: Plan


def plan_jointly(modules: Sequence[IRModule], planner: str = DEFAULT_PLANNER) -> JointPlan:
    """Plan models of distinct names that run one at a time.

    UsageError if they were planned for different pools, DoesNotFitError as for one model.
    """
    pools = common_pools(modules)
    _check_first_values(modules)
    order = best_run_order([_plan_of(module) for module in modules])
    buffers, conflicts = _joined([modules[index] for index in order])
    made = place_buffers(find_planner(planner), buffers, conflicts, pools)
    check_plan(made, buffers, conflicts, pools)
    moved = tuple(_moved(module, made) for module in modules)
    return JointPlan(moved, order, made)


def check_concurrent_fit(modules: Sequence[IRModule]) -> None:
    """DoesNotFitError unless the pools have room for all models at once, beside each other."""
    pools = common_pools(modules)
    needs = {pool.name: _summed(modules, pool.name) for pool in pools}
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
        each = [(module.name, _plan_of(module).workspace_bytes) for module in modules]
        raise DoesNotFitError(
            f"the models do not fit beside each other: {words}.",
            regions=overflows,
            lowest_bytes=sum(needs.values()),
            peak=sorted(each, key=lambda row: -row[1]),
            hint="models that run one after another share, without --concurrent.",
        )


def _check_first_values(modules: Sequence[IRModule]) -> None:
    """UsageError if entry points of one file begin a variable that they share with other values."""
    first: dict[str, tuple[str, bytes]] = {}
    for module in modules:
        joint = _joint_names(module)
        for state in module.io.state:
            mine = module.name, module.constants[state.initial].data
            other = first.setdefault(joint[state.buffer], mine)
            if other[1] != mine[1]:
                raise UsageError(
                    f"{other[0]} and {mine[0]} begin the variable {state.name} with other values.",
                    hint="a file in which each signature sets its variables once, to the same.",
                )


def _summed(modules: Sequence[IRModule], pool: str) -> int:
    return sum(_plan_of(module).pool_bytes.get(pool, 0) for module in modules)


def common_pools(modules: Sequence[IRModule]) -> tuple[PoolInfo, ...]:
    """The pools that all modules were planned for."""
    pools = modules[0].pools
    for module in modules[1:]:
        if module.pools != pools:
            raise UsageError(
                f"{module.name} was planned for other pools than {modules[0].name}.",
                hint="the same --pool for all models of a firmware.",
            )
    return pools


def best_run_order(plans: Sequence[Plan]) -> tuple[int, ...]:
    """The order in which what is kept for later and from before adds least to a model's peak."""
    given = tuple(range(len(plans)))
    if len(plans) > PERMUTED_MODELS_MAX:
        return given
    held = [_held_bytes(plan) for plan in plans]

    def most(order: tuple[int, ...]) -> int:
        worst = 0
        for turn, index in enumerate(order):
            later = sum(held[other][0] for other in order[turn + 1 :])
            earlier = sum(held[other][1] for other in order[:turn])
            worst = max(worst, plans[index].workspace_bytes + later + earlier)
        return worst

    return min(itertools.permutations(given), key=most)


def _held_bytes(plan: Plan) -> tuple[int, int]:
    """What a model keeps before its run, and after it."""
    end = _end(plan)
    before = sum(b.size_bytes for b in plan.buffers if b.kind in ("input", *PERSISTENT_KINDS))
    after = sum(b.size_bytes for b in plan.buffers if _stays(b, end))
    return before, after


def _stays(buffer: BufferInfo, end: int) -> bool:
    """Whether somebody looks at the buffer after its model's run: outputs, state, kept inputs."""
    return buffer.kind in ("input", "output", *PERSISTENT_KINDS) and any(
        live.end == end for live in buffer.live
    )


def _end(plan: Plan) -> int:
    return max((live.end for buffer in plan.buffers for live in buffer.live), default=0)


def _plan_of(module: IRModule) -> Plan:
    if module.plan is None:
        raise InternalError(f"module {module.name} has no plan to share pools by.")
    return module.plan


# ---- the problem of all -----------------------------------------------------------------------


def _joined(
    modules: Sequence[IRModule],
) -> tuple[tuple[BufferInfo, ...], tuple[OffsetConstraint, ...]]:
    """Buffers of all models on one line of time, and who may share with whom."""
    ends = [_end(_plan_of(module)) for module in modules]
    total = sum(ends)
    groups: list[tuple[BufferInfo, ...]] = []
    conflicts: list[OffsetConstraint] = []
    begin = 0
    for module, end in zip(modules, ends, strict=True):
        plan = _plan_of(module)
        names = _joint_names(module)
        groups.append(tuple(_shifted(names, b, begin, end, total) for b in plan.buffers))
        conflicts += [replace(c, a=names[c.a], b=names[c.b]) for c in plan.conflicts]
        begin += end
    conflicts += _between(groups)
    buffers = {buffer.name: buffer for group in groups for buffer in group}
    apart = {(c.a, c.b, c.lo, c.hi, c.modulus): c for c in conflicts}
    return tuple(buffers.values()), tuple(apart.values())


def _joint_names(module: IRModule) -> dict[str, str]:
    """What the plan of all calls each buffer of `module`: MODEL/BUFFER, but FILE/VARIABLE.

    Entry points of one file have its variables in common.
    """
    names = {b.name: f"{module.name}/{b.name}" for b in _plan_of(module).buffers}
    source = str(module.attrs.get("source_sha256", ""))[:16]
    if source:
        names |= {state.buffer: f"{source}/{state.name}" for state in module.io.state}
    return names


def _shifted(
    names: Mapping[str, str], buffer: BufferInfo, begin: int, end: int, total: int
) -> BufferInfo:
    """`buffer` of the model that runs from `begin`, of `total` moments, `end` of them its own."""
    live = [LiveRange(begin + part.first, begin + part.end) for part in buffer.live]
    if buffer.kind in ("input", *PERSISTENT_KINDS):
        live[0] = LiveRange(0, live[0].end)
    if _stays(buffer, end):
        live[-1] = LiveRange(live[-1].first, total)
    return replace(buffer, name=names[buffer.name], live=tuple(live))


def _between(groups: Sequence[Sequence[BufferInfo]]) -> Iterator[OffsetConstraint]:
    """Buffers of different models that are alive at once must be disjoint."""
    for first, second in itertools.combinations(groups, 2):
        for a, b in itertools.product(first, second):
            if a.name != b.name and a.overlaps_in_time(b):
                yield OffsetConstraint(a.name, b.name, -b.size_bytes, a.size_bytes)


# ---- back into the modules --------------------------------------------------------------------


def _moved(module: IRModule, made: Plan) -> IRModule:
    """`module` with its windows where the plan of all has them."""
    old, main = _plan_of(module), module.entry
    assert isinstance(main, tir.PrimFunc)
    joint = _joint_names(module)
    places = {b.name: made.placements[joint[b.name]] for b in old.buffers}
    tops = _tops(old, places, module.pools)
    plan = replace(old, planner=made.planner, placements=places, pool_bytes=tops)
    check_plan(plan, plan.buffers, plan.conflicts, module.pools)
    pools = make_pool_buffers(plan, module.pools)
    names = _plan_names(main, old)

    def rule(part: Node) -> Node | None:
        if not isinstance(part, tir.DeclBuffer) or part.buffer.name not in names:
            return None
        place = places[names[part.buffer.name]]
        offset = tir.IntImm(place.offset, INDEX)
        return replace(part, source=replace(part.source, buffer=pools[place.pool], offset=offset))

    others = tuple(param for param in main.params if param.role != "pool")
    params = others + tuple(tir.Param(pool, "pool") for pool in pools.values())
    return replace(
        module.with_function(replace(rewrite_func(main, rule), params=params)), plan=plan
    )


def _tops(plan: Plan, places: Mapping[str, Placement], pools: Sequence[PoolInfo]) -> dict[str, int]:
    """How far the model's own buffers reach in each pool."""
    tops: dict[str, int] = {}
    for buffer in plan.buffers:
        place = places[buffer.name]
        tops[place.pool] = max(tops.get(place.pool, 0), place.offset + buffer.size_bytes)
    return {pool.name: tops[pool.name] for pool in pools if pool.name in tops}


def _plan_names(main: tir.PrimFunc, plan: Plan) -> dict[str, str]:
    """What the plan calls the windows of pools: scratch has names of its own there, in order."""
    windows = [
        part.buffer
        for part in statements(main.body)
        if isinstance(part, tir.DeclBuffer) and part.source.buffer.scope == "pool"
    ]
    plain = {buffer.name for buffer in plan.buffers if not is_scratch_name(buffer.name)}
    lifted = [buffer for buffer in plan.buffers if buffer.name not in plain]
    found = {window.name: window.name for window in windows if window.name in plain}
    scratch = [window for window in windows if window.name not in plain]
    if [window.size_bytes for window in scratch] != [info.size_bytes for info in lifted]:
        raise InternalError(f"the windows of {main.name} are not those of its plan.")
    pairs = zip(scratch, lifted, strict=True)
    return found | {window.name: info.name for window, info in pairs}
