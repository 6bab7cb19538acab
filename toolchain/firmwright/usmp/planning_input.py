"""Collection of the buffers that a planner must place.

Inputs are live from time 0 (with `preserve_input` to the end), outputs to the end, state and
constants in RAM always, and scratch during its call. Candidate pools are the writable pools
available to every target that accesses the buffer; the attribute `pins` of the AOT main restricts a
buffer to one pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import cast

from firmwright.base.errors import InternalError, UsageError
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.devices import COPY_OP
from firmwright.ir.module import IRModule
from firmwright.ir.tir.plan import BufferInfo, BufferKind, LiveRange
from firmwright.ir.tir.traversal import prim_calls, walk
from firmwright.usmp.inplace_analysis import InplaceAnalysis, InplacePair
from firmwright.usmp.liveness import (
    DEFINED_AT_ENTRY,
    CfgLoop,
    CfgNode,
    ControlFlowGraph,
    build_cfg,
    compute_live_ranges,
    find_last_reads,
)

_KINDS = frozenset({"activation", "input", "output", "scratch", "ring", "state", "const"})


@dataclass(frozen=True, slots=True)
class PlanningInput:
    """The buffers to place and the pairs of buffers that may overlap."""

    buffers: tuple[BufferInfo, ...]
    overlaps: tuple[InplacePair, ...]


def collect_planning_input(
    module: IRModule,
    main: tir.PrimFunc,
    pools: Sequence[PoolInfo],
    plan_names: Mapping[str, str],
    analysis: InplaceAnalysis,
) -> PlanningInput:
    """Collect the buffers of `main`; `plan_names` renames some of them in the plan."""
    flow = build_cfg(main, module.functions)
    kinds = {name: _kind(allocate) for name, allocate in flow.allocates.items()}
    at_entry = [name for name, kind in kinds.items() if kind in DEFINED_AT_ENTRY]
    held = {"output", "state", "const"} | ({"input"} if module.io.preserve_input else set())
    at_exit = [name for name, kind in kinds.items() if kind in held]
    live = compute_live_ranges(flow, at_entry, at_exit)
    users = _accessing_targets(module, main, flow)
    pins = _pinned_pools(main, flow, pools)
    buffers = []
    for name, allocate in flow.allocates.items():
        ranges = _extend_to_caller_accesses(live[name], kinds[name], name in at_exit, flow.end_time)
        buffer = allocate.buffer
        candidates = _candidates(name, pins.get(name, pools), users[name])
        if not ranges:
            ranges = (LiveRange(0, 1),)  # a buffer that is never accessed still needs an address
        buffers.append(
            BufferInfo(
                plan_names.get(name, name),
                footprint_bytes(buffer),
                max(buffer.alignment, buffer.dtype.size_bytes),
                ranges,
                kinds[name],
                candidates,
            )
        )
    ending = zip(flow.nodes, find_last_reads(flow, at_exit), strict=True)
    pairs = [pair for step, last in ending for pair in _pairs_in_call(flow, step, last, analysis)]
    pairs += [pair for loop in flow.loops for pair in _pairs_in_loop(flow, loop, live, analysis)]
    named = tuple(pair.with_names(plan_names) for pair in pairs)
    return PlanningInput(tuple(buffers), named)


def footprint_bytes(buffer: tir.Buffer) -> int:
    steps = zip(buffer.shape, buffer.element_strides, strict=True)
    last = sum((extent - 1) * stride for extent, stride in steps)
    return (last + 1) * buffer.dtype.size_bytes


def _kind(allocate: tir.Allocate) -> BufferKind:
    if allocate.kind not in _KINDS:
        raise InternalError(f"buffer {allocate.buffer.name} is of unknown kind {allocate.kind!r}.")
    return cast(BufferKind, allocate.kind)


def _extend_to_caller_accesses(
    live: tuple[LiveRange, ...], kind: BufferKind, to_the_end: bool, end_time: int
) -> tuple[LiveRange, ...]:
    end = max(end_time, 1)
    moments = list(live)
    if kind in ("state", "const"):
        moments.append(LiveRange(0, end))
    if kind == "input":
        moments.append(LiveRange(0, 1))
    if to_the_end:
        moments.append(LiveRange(end - 1, end))
    joined: list[LiveRange] = []
    for moment in sorted(moments, key=lambda r: (r.first, r.end)):
        if joined and moment.first <= joined[-1].end:
            joined[-1] = LiveRange(joined[-1].first, max(joined[-1].end, moment.end))
        else:
            joined.append(moment)
    return tuple(joined)


def _accessing_targets(
    module: IRModule, main: tir.PrimFunc, flow: ControlFlowGraph
) -> dict[str, set[str]]:
    default = next(iter(module.targets), "")
    own = str(main.attrs.get("target", default))
    users: dict[str, set[str]] = {name: set() for name in flow.allocates}
    for step in flow.nodes:
        callee = module.functions.get(step.call.callee) if step.call else None
        if callee is not None and (callee.attrs.get("op") == COPY_OP or callee.attrs.get("keeps")):
            continue  # copies have access to every pool
        target = str(callee.attrs.get("target", default)) if callee else own
        for name in step.accessed:
            users[name].add(target)
    # A buffer that is only copied belongs to the caller, which runs on the main's target.
    return {name: targets or {own} for name, targets in users.items()}


def _pinned_pools(
    main: tir.PrimFunc, flow: ControlFlowGraph, pools: Sequence[PoolInfo]
) -> dict[str, tuple[PoolInfo, ...]]:
    """Return the pool of each pinned buffer; pinning a view pins its underlying buffer."""
    pinned_pools: dict[str, tuple[PoolInfo, ...]] = {}
    for item in cast("tuple[tuple[str, str], ...]", main.attrs.get("pool_assignments", ())):
        name, pool_name = item
        root = flow.roots.get(name)
        if root is None:
            raise UsageError(
                f"buffer {name} cannot be pinned to pool {pool_name}: it has no memory of its own.",
                hint="another tensor for --assign-pool.",
            )
        pinned = tuple(pool for pool in pools if pool.name == pool_name and pool.access == "rw")
        if not pinned or pinned_pools.get(root, pinned) != pinned:
            raise UsageError(f"buffer {name} cannot be pinned to pool {pool_name}.")
        pinned_pools[root] = pinned
    return pinned_pools


def _candidates(name: str, pools: Sequence[PoolInfo], targets: set[str]) -> tuple[str, ...]:
    allowed = tuple(
        pool.name
        for pool in pools
        if pool.access == "rw" and (not pool.targets or targets <= set(pool.targets))
    )
    if not allowed:
        users = ", ".join(sorted(targets))
        raise UsageError(
            f"no pool may hold buffer {name}, which the code of {users} accesses.",
            hint="a writable pool for these targets, by --pool.",
        )
    return allowed


def _pairs_in_call(
    flow: ControlFlowGraph, step: CfgNode, last: frozenset[str], analysis: InplaceAnalysis
) -> list[InplacePair]:
    """Return the pairs of an input and an output of this call that may overlap.

    The input must be in `last` (read for the last time), and both arguments must be whole buffers
    that no other argument accesses. A call on another device has no pairs because it may run until
    its wait.
    """
    if step.call is None or step.call.device:
        return []
    args = step.call.args
    roots = [flow.roots.get(a.buffer.name) if isinstance(a, tir.AccessPtr) else None for a in args]
    pairs = []
    for source, result in analysis.pairs(step.call.callee):
        a, b = roots[source], roots[result]
        if a not in last or b is None:
            continue
        alone = roots.count(a) == 1 and roots.count(b) == 1
        if alone and _is_whole_buffer(flow, args[source]) and _is_whole_buffer(flow, args[result]):
            names = str(a), str(b)
            pair = analysis.pair_in_call(step.call, source, result, names, step.time)
            if pair is not None:
                pairs.append(pair)
    return pairs


def _pairs_in_loop(
    flow: ControlFlowGraph,
    loop: CfgLoop,
    live: Mapping[str, tuple[LiveRange, ...]],
    analysis: InplaceAnalysis,
) -> list[InplacePair]:
    """Return the pairs of a read-only and a written buffer of a loop that may overlap.

    Only pairs that are live together in the loop and nowhere else are considered. Buffers accessed
    through views are excluded, as are loops with calls on other devices.
    """
    if any(call.device for call in prim_calls(loop.stmt)):
        return []
    inside = [s for s in flow.nodes if loop.live.first <= s.time < loop.live.end]
    reads = {name for step in inside for name in step.reads}
    writes = {name for step in inside for name in step.writes}
    windows = {
        flow.roots[part.buffer.name]
        for part in walk(loop.stmt)
        if isinstance(part, tir.AccessPtr | tir.BufferLoad | tir.BufferStore)
        and flow.roots.get(part.buffer.name, part.buffer.name) != part.buffer.name
    }
    pairs = []
    sources, results = sorted(reads - writes - windows), sorted(writes - reads - windows)
    for source, result in product(sources, results):
        if not any(r.end == loop.live.end for r in live[source]):
            continue
        if not any(r.first == loop.live.first for r in live[result]):
            continue
        x, y = flow.allocates[source].buffer, flow.allocates[result].buffer
        pair = analysis.pair_in_loop(loop.stmt, x, y, loop.live)
        if pair is not None:
            pairs.append(pair)
    return pairs


def _is_whole_buffer(flow: ControlFlowGraph, arg: tir.Expr) -> bool:
    if not isinstance(arg, tir.AccessPtr) or arg.offset != tir.IntImm(0, arg.offset.dtype):
        return False
    return arg.buffer == flow.allocates[flow.roots[arg.buffer.name]].buffer
