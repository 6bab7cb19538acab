"""Collects the buffers that a planner must place.

Inputs are live from time 0 (with `preserve_input` to the end), outputs to the end, state and
constants in RAM always, and scratch during its call. Candidate pools are those that every target
accessing the buffer may write; the AOT main's attribute `pool_assignments` restricts a buffer to
one.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import cast

from firmwright.base.errors import InternalError, UsageError
from firmwright.base.grouping import group_pairs
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.devices import COPY_OP, VISIBLE_POOLS_ATTR
from firmwright.ir.module import IRModule
from firmwright.ir.tir import plan
from firmwright.ir.tir.plan import BufferInfo, BufferKind, LiveRange, OffsetConstraint
from firmwright.ir.tir.traversal import prim_calls, used_buffers
from firmwright.ir.tir.verify_async_calls import without_phase
from firmwright.usmp import liveness
from firmwright.usmp.interference import InplaceCache, InplacePair
from firmwright.usmp.liveness import CfgLoop, ControlFlowGraph

_KINDS = frozenset({"activation", "input", "output", "scratch", "ring", "state", "const"})


@dataclass(frozen=True, slots=True)
class PlanningInput:
    """The buffers to place and the pairs of buffers that may overlap."""

    buffers: tuple[BufferInfo, ...]
    overlaps: tuple[InplacePair, ...]


def collect_planning_input(
    module: IRModule, main: tir.PrimFunc, plan_names: Mapping[str, str], cache: InplaceCache
) -> PlanningInput:
    """Collect the buffers of `main`; `plan_names` renames some of them in the plan."""
    flow = liveness.build_cfg(main, module.functions)
    kinds = {name: _kind(allocate) for name, allocate in flow.allocates.items()}
    at_entry = [name for name, kind in kinds.items() if kind in liveness.DEFINED_AT_ENTRY]
    held = {"output", "state", "const"} | ({"input"} if module.io.preserve_input else set())
    at_exit = [name for name, kind in kinds.items() if kind in held]
    live = liveness.compute_live_ranges(flow, at_entry, at_exit)
    pins = _pinned_pools(main, flow, module.pools)
    users = _accessing_targets(module, main, flow, pins)
    shared = _buffers_of_other_masters(flow, kinds)
    lines = {pool.name: pool.cache_line for pool in module.pools}
    buffers = []
    for name, allocate in flow.allocates.items():
        ranges = _extend_to_caller_accesses(live[name], kinds[name], name in at_exit, flow.end_time)
        buffer = allocate.buffer
        plan_name, size_bytes = plan_names.get(name, name), buffer.span_bytes
        alignment = max(buffer.alignment, buffer.dtype.size_bytes)
        pools = _visible_pools(module, pins.get(name, module.pools), users[name])
        candidates = _candidates(name, pools, users[name])
        line = max(lines[pool] for pool in candidates) if name in shared else 0
        if line:  # no other buffer in its cache lines
            alignment, size_bytes = max(alignment, line), -(-size_bytes // line) * line
        # A buffer that is never accessed still needs an address.
        ranges = ranges or (LiveRange(0, 1),)
        kind = kinds[name]
        buffers.append(BufferInfo(plan_name, size_bytes, alignment, ranges, kind, candidates))
    pairs: list[InplacePair] = []
    for node, last in zip(flow.nodes, liveness.find_last_reads(flow, at_exit), strict=True):
        kernel = module.functions.get(node.call.callee) if node.call else None
        if node.call and not node.call.device and isinstance(kernel, tir.PrimFunc):
            pairs += _pairs_in_call(flow, node.call, kernel, node.time, last, cache)
    for loop in flow.loops:
        pairs += _pairs_in_loop(flow, loop, live, cache)
    pairs += find_overlays(module, flow, live, at_exit)
    return PlanningInput(tuple(buffers), tuple(pair.with_names(plan_names) for pair in pairs))


def _kind(allocate: tir.Allocate) -> BufferKind:
    if allocate.kind not in _KINDS:
        raise InternalError(f"buffer {allocate.buffer.name} is of unknown kind {allocate.kind!r}.")
    return cast(BufferKind, allocate.kind)


def _buffers_of_other_masters(flow: ControlFlowGraph, kinds: Mapping[str, BufferKind]) -> set[str]:
    """Return the buffers that devices, or the application by DMA, may access."""
    shared = {name for name, kind in kinds.items() if kind in ("input", "output")}
    for node in flow.nodes:
        if node.call is None or node.call.device:  # without a call: reads of constants
            shared |= node.accessed
    return shared


def _extend_to_caller_accesses(
    live: tuple[LiveRange, ...], kind: BufferKind, to_the_end: bool, end_time: int
) -> tuple[LiveRange, ...]:
    end = max(end_time, 1)
    moments = [*live, LiveRange(end - 1, end)] if to_the_end else list(live)
    if kind in ("state", "const", "input"):
        moments.append(LiveRange(0, 1 if kind == "input" else end))
    joined: list[LiveRange] = []
    for moment in sorted(moments, key=lambda r: (r.first, r.end)):
        if joined and moment.first <= joined[-1].end:
            joined[-1] = LiveRange(joined[-1].first, max(joined[-1].end, moment.end))
        else:
            joined.append(moment)
    return tuple(joined)


def _accessing_targets(
    module: IRModule, main: tir.PrimFunc, flow: ControlFlowGraph, pins: Collection[str]
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
    # A buffer that is only copied, and not pinned, belongs to the caller: the main's target.
    free = {name: {own} for name in users.keys() - {*pins}}
    return {name: targets or free.get(name, set()) for name, targets in users.items()}


def _pinned_pools(
    main: tir.PrimFunc, flow: ControlFlowGraph, pools: Sequence[PoolInfo]
) -> dict[str, tuple[PoolInfo, ...]]:
    """Return the pool of each pinned buffer; pinning a view pins its underlying buffer."""
    pinned_pools: dict[str, tuple[PoolInfo, ...]] = {}
    pins = cast("tuple[tuple[str, str], ...]", main.attrs.get("pool_assignments", ()))
    for name, pool_name in pins:
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


def _visible_pools(
    module: IRModule, pools: Sequence[PoolInfo], targets: set[str]
) -> tuple[PoolInfo, ...]:
    rows = cast("tuple[tuple[str, ...], ...]", module.attrs.get(VISIBLE_POOLS_ATTR, ()))
    limits = [row[2:] for row in rows if row[0] in targets]
    return tuple(pool for pool in pools if all(pool.name in limit for limit in limits))


def _candidates(name: str, pools: Sequence[PoolInfo], targets: set[str]) -> tuple[str, ...]:
    allowed = tuple(
        pool.name
        for pool in pools
        if pool.access == "rw" and (not pool.targets or targets <= set(pool.targets))
    )
    if not allowed:
        users = ", ".join(sorted(targets))
        what = f"no pool may hold buffer {name}, which the code of {users} accesses."
        raise UsageError(what, hint="a writable pool for these targets, by --pool.")
    return allowed


def _pairs_in_call(
    flow: ControlFlowGraph,
    call: tir.PrimFuncCall,
    kernel: tir.PrimFunc,
    time: int,
    last: frozenset[str],
    cache: InplaceCache,
) -> list[InplacePair]:
    """Return the pairs of an input and an output of this call that may overlap.

    The input must be in `last` (read for the last time), and both arguments must be whole buffers
    that no other argument accesses. The caller excludes calls on other devices.
    """
    args = call.args
    roots = [flow.roots.get(a.buffer.name) if isinstance(a, tir.AccessPtr) else None for a in args]
    sources: list[tuple[str, str]] = []
    results: list[tuple[str, str]] = []
    for param, arg, root in zip(kernel.params, args, roots, strict=True):
        if root is None or roots.count(root) > 1 or not _is_whole_buffer(flow, arg):
            continue
        if param.role == "in" and root in last:
            sources.append((param.name, root))
        elif param.role == "out":
            results.append((param.name, root))
    pairs = []
    for (source, a), (result, b) in product(sources, results):
        constraints = cache.constraints(kernel, source, result)
        if constraints is not None:
            renamed = tuple(c.between(a, b) for c in constraints)
            pairs.append(InplacePair(LiveRange(time, time + 1), renamed))
    return pairs


def _pairs_in_loop(
    flow: ControlFlowGraph,
    loop: CfgLoop,
    live: Mapping[str, tuple[LiveRange, ...]],
    cache: InplaceCache,
) -> list[InplacePair]:
    """Return the pairs of a read-only and a written buffer of a loop that may overlap.

    Both are live together only in the loop. Buffers accessed through views and loops with calls on
    other devices are excluded.
    """
    if any(call.device for call in prim_calls(loop.stmt)):
        return []
    inside = [s for s in flow.nodes if loop.live.first <= s.time < loop.live.end]
    reads = {name for node in inside for name in node.reads}
    writes = {name for node in inside for name in node.writes}
    viewed = {
        flow.roots[name] for name in used_buffers(loop.stmt) if flow.roots.get(name, name) != name
    }
    sources = [
        name
        for name in sorted(reads - writes - viewed)
        if any(r.end == loop.live.end for r in live[name])
    ]
    results = [
        name
        for name in sorted(writes - reads - viewed)
        if any(r.first == loop.live.first for r in live[name])
    ]
    pairs = []
    for source, result in product(sources, results):
        a = tir.Param(flow.allocates[source].buffer, "in")
        b = tir.Param(flow.allocates[result].buffer, "out")
        constraints = cache.constraints(tir.PrimFunc("loop", (a, b), loop.stmt), source, result)
        if constraints is not None:
            pairs.append(InplacePair(loop.live, constraints))
    return pairs


def _is_whole_buffer(flow: ControlFlowGraph, arg: tir.Expr) -> bool:
    if not isinstance(arg, tir.AccessPtr) or arg.offset != tir.IntImm(0, arg.offset.dtype):
        return False
    return arg.buffer == flow.allocates[flow.roots[arg.buffer.name]].buffer


_ONE_PLACE = 1 << 40
"""A period above every size: within the interval, one difference is allowed."""


def find_overlays(
    module: IRModule,
    flow: ControlFlowGraph,
    live: Mapping[str, tuple[LiveRange, ...]],
    at_exit: Collection[str],
) -> Iterator[InplacePair]:
    times = ((without_phase(node.call), node.time) for node in flow.nodes if node.call is not None)
    for call, own in group_pairs(times).items():
        kernel = module.functions.get(call.callee)
        if isinstance(kernel, tir.PrimFunc) and plan.OVERLAYS_ATTR in kernel.attrs:
            span = LiveRange(min(own), max(own) + 1)
            if len(own) == (1 if not call.device else 2):
                yield from _pairs(flow, call, kernel, span, live, at_exit)


def _pairs(
    flow: ControlFlowGraph,
    call: tir.PrimFuncCall,
    kernel: tir.PrimFunc,
    span: LiveRange,
    live: Mapping[str, tuple[LiveRange, ...]],
    at_exit: Collection[str],
) -> Iterator[InplacePair]:
    """Yield the pairs of workspace and tensor, then those of inputs and outputs."""
    args = {
        param.name: (arg.buffer, flow.roots[arg.buffer.name], param.role)
        for param, arg in zip(kernel.params, call.args, strict=True)
        if isinstance(arg, tir.AccessPtr) and arg.buffer.name in flow.roots
    }
    roots = [root for _, root, _ in args.values()]
    inside = [node for node in flow.nodes if span.first <= node.time < span.end]
    others = [node for node in inside if node.call is None or without_phase(node.call) != call]
    unusable = {name for node in others for name in node.accessed}
    inputs: list[str] = []
    outputs: list[str] = []
    rows = cast("tuple[tuple[str, str, int], ...]", kernel.attrs[plan.OVERLAYS_ATTR])
    for name, workspace, offset in rows:
        buffer, root, role = args[name]
        if roots.count(root) > 1 or root in unusable or flow.allocates[root].buffer != buffer:
            continue
        ranges = [item for item in live[root] if item.overlaps(span)]
        if role == "in" and (root in at_exit or [r.end for r in ranges] != [span.end]):
            continue
        if role == "out" and [r.first for r in ranges] != [span.first]:
            continue
        (inputs if role == "in" else outputs).append(root)
        area = args[workspace][0]
        lo, hi = -buffer.span_bytes, area.span_bytes
        at_offset = OffsetConstraint(area.name, root, lo, hi, _ONE_PLACE, offset)
        yield InplacePair(span, (at_offset,))
    for a, b in product(inputs, outputs):
        yield InplacePair(span, (OffsetConstraint(a, b, 0, 0),))
