"""Collects the buffers that a planner must place.

Inputs are live from time 0 (with `preserve_input` to the end), outputs to the end,
state and constants in RAM always, and scratch during its call. Candidate pools are
those that every target accessing the buffer may write; the AOT main's attribute
`pool_assignments` restricts a buffer to one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import cast

from firmwright.base.errors import InternalError, UsageError
from firmwright.base.rounding import round_up
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.devices import COPY_OP
from firmwright.ir.module import IRModule
from firmwright.ir.tir.plan import BufferInfo, BufferKind, LiveRange
from firmwright.ir.tir.traversal import prim_calls, used_buffers
from firmwright.usmp import liveness
from firmwright.usmp.interference import InplaceCache, InplacePair
from firmwright.usmp.liveness import CfgLoop, ControlFlowGraph
from firmwright.usmp.workspace_overlays import find_overlays

_KINDS = frozenset(
    {"activation", "input", "output", "scratch", "ring", "state", "const"}
)


@dataclass(frozen=True, slots=True)
class PlanningInput:
    """The buffers to place and the pairs of buffers that may overlap."""

    buffers: tuple[BufferInfo, ...]
    overlaps: tuple[InplacePair, ...]


def collect_planning_input(
    module: IRModule,
    main: tir.PrimFunc,
    plan_names: Mapping[str, str],
    cache: InplaceCache,
) -> PlanningInput:
    """Collect the buffers of `main`; `plan_names` renames some of them in the plan."""
    flow = liveness.build_cfg(main, module.functions)
    read_by_caller = {"output", "state", "const"}
    if module.io.preserve_input:
        read_by_caller.add("input")
    kinds: dict[str, BufferKind] = {}
    at_entry: list[str] = []
    at_exit: list[str] = []
    for name, allocate in flow.allocates.items():
        kind = kinds[name] = _kind(allocate)
        if kind in liveness.DEFINED_AT_ENTRY:
            at_entry.append(name)
        if kind in read_by_caller:
            at_exit.append(name)
    live = liveness.compute_live_ranges(flow, at_entry, at_exit)
    pins = _pinned_pools(main, flow, module.pools)
    users = _accessing_targets(module, main, flow, pins)
    shared = _buffers_of_other_masters(flow, kinds)
    cache_lines = {pool.name: pool.cache_line for pool in module.pools}
    buffers: list[BufferInfo] = []
    for name, allocate in flow.allocates.items():
        pools = _visible_pools(module, pins.get(name, module.pools), users[name])
        candidates = _candidates(name, pools, users[name])
        size_bytes = allocate.buffer.span_bytes
        alignment = max(allocate.buffer.alignment, allocate.buffer.dtype.size_bytes)
        # Another master does not see the cache: its writes are lost if the core writes
        # back a line that they share, so a buffer that it accesses has its cache lines
        # for itself.
        #
        #     |  line 0  |  line 1  |        a line with two buffers: one is written
        #     |aaaaaaaaaa|aaa. bbbb |        by the DMA, the other by the core
        if name in shared:
            cache_line = max(cache_lines[pool] for pool in candidates)
            if cache_line:  # no other buffer may be in its cache lines
                alignment = max(alignment, cache_line)
                size_bytes = round_up(size_bytes, cache_line)
        kind, to_the_end = kinds[name], name in at_exit
        ranges = _extend_to_caller_accesses(live[name], kind, to_the_end, flow.end_time)
        info = BufferInfo(
            name=plan_names.get(name, name),
            size_bytes=size_bytes,
            alignment=alignment,
            # A buffer that is never accessed still needs an address.
            live=ranges or (LiveRange(0, 1),),
            kind=kind,
            pools=candidates,
        )
        buffers.append(info)
    pairs = _inplace_pairs(module, flow, live, at_exit, cache)
    renamed = tuple(pair.with_names(plan_names) for pair in pairs)
    return PlanningInput(tuple(buffers), renamed)


def _inplace_pairs(
    module: IRModule,
    flow: ControlFlowGraph,
    live: Mapping[str, tuple[LiveRange, ...]],
    at_exit: Collection[str],
    cache: InplaceCache,
) -> list[InplacePair]:
    """Return the pairs that may overlap: in calls, in loops and in workspaces."""
    pairs: list[InplacePair] = []
    last_reads = liveness.find_last_reads(flow, at_exit)
    for node, last in zip(flow.nodes, last_reads, strict=True):
        if node.call is None or node.call.device:
            continue
        kernel = module.functions.get(node.call.callee)
        if isinstance(kernel, tir.PrimFunc):
            pairs += _pairs_in_call(flow, node.call, kernel, node.time, last, cache)
    for loop in flow.loops:
        pairs += _pairs_in_loop(flow, loop, live, cache)
    pairs += find_overlays(module, flow, live, at_exit)
    return pairs


def _kind(allocate: tir.Allocate) -> BufferKind:
    if allocate.kind not in _KINDS:
        name = allocate.buffer.name
        raise InternalError(f"buffer {name} is of unknown kind {allocate.kind!r}.")
    return cast(BufferKind, allocate.kind)


def _buffers_of_other_masters(
    flow: ControlFlowGraph, kinds: Mapping[str, BufferKind]
) -> set[str]:
    """Return the buffers that devices, or the application by DMA, may access."""
    shared: set[str] = set()
    for name, kind in kinds.items():
        if kind in ("input", "output"):
            shared.add(name)
    for node in flow.nodes:
        if node.call is None or node.call.device:  # without a call: reads of constants
            shared |= node.accessed
    return shared


def _extend_to_caller_accesses(
    live: tuple[LiveRange, ...], kind: BufferKind, to_the_end: bool, end_time: int
) -> tuple[LiveRange, ...]:
    """Return the ranges with the times at which the caller accesses a buffer, joined.

    The caller writes inputs at time 0 and reads the last values at the last time
    (`to_the_end`); state and constants keep their values between runs, so they are
    always live.
    """
    end = max(end_time, 1)
    moments = list(live)
    if to_the_end:
        moments.append(LiveRange(end - 1, end))
    if kind == "input":
        moments.append(LiveRange(0, 1))
    elif kind in ("state", "const"):
        moments.append(LiveRange(0, end))
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
    """Return the names of the targets whose code accesses each buffer.

    Copies between pools have access to every pool, so they do not count.
    """
    default = next(iter(module.targets), "")
    target_of_main = str(main.attrs.get("target", default))
    users: dict[str, set[str]] = {name: set() for name in flow.allocates}
    for node in flow.nodes:
        target = target_of_main
        callee = module.functions.get(node.call.callee) if node.call else None
        if callee is not None:
            if callee.attrs.get("op") == COPY_OP or callee.attrs.get("keeps"):
                continue
            target = str(callee.attrs.get("target", default))
        for name in node.accessed:
            users[name].add(target)
    for name, targets in users.items():
        # A buffer that is only copied, and not pinned, belongs to the caller.
        if not targets and name not in pins:
            targets.add(target_of_main)
    return users


def _pinned_pools(
    main: tir.PrimFunc, flow: ControlFlowGraph, pools: Sequence[PoolInfo]
) -> dict[str, tuple[PoolInfo, ...]]:
    """Return the pool of each pinned buffer; a pinned view pins its root."""
    pinned_pools: dict[str, tuple[PoolInfo, ...]] = {}
    pins = cast("tuple[tuple[str, str], ...]", main.attrs.get("pool_assignments", ()))
    for name, pool_name in pins:
        root = flow.roots.get(name)
        if root is None:
            raise UsageError(
                f"buffer {name} cannot be pinned to pool {pool_name}: it has no memory "
                "of its own.",
                hint="another tensor for --assign-pool.",
            )
        writable = [pool for pool in pools if pool.access == "rw"]
        pinned = tuple(pool for pool in writable if pool.name == pool_name)
        if not pinned or pinned_pools.get(root, pinned) != pinned:
            raise UsageError(f"buffer {name} cannot be pinned to pool {pool_name}.")
        pinned_pools[root] = pinned
    return pinned_pools


def _visible_pools(
    module: IRModule, pools: Sequence[PoolInfo], targets: set[str]
) -> tuple[PoolInfo, ...]:
    """Return the pools that the devices of all targets can access."""
    visible = list(pools)
    for row in module.results.pool_access:
        if row.target in targets:
            visible = [pool for pool in visible if pool.name in row.pools]
    return tuple(visible)


def _candidates(
    name: str, pools: Sequence[PoolInfo], targets: set[str]
) -> tuple[str, ...]:
    """Return the names of the pools that may hold buffer `name`; else UsageError."""
    allowed: list[str] = []
    for pool in pools:
        is_for_targets = not pool.targets or targets <= set(pool.targets)
        if pool.access == "rw" and is_for_targets:
            allowed.append(pool.name)
    if not allowed:
        users = ", ".join(sorted(targets))
        what = f"no pool may hold buffer {name}, which the code of {users} accesses."
        raise UsageError(what, hint="a writable pool for these targets, by --pool.")
    return tuple(allowed)


def _pairs_in_call(
    flow: ControlFlowGraph,
    call: tir.PrimFuncCall,
    kernel: tir.PrimFunc,
    time: int,
    last: frozenset[str],
    cache: InplaceCache,
) -> list[InplacePair]:
    """Return the pairs of an input and an output of this call that may overlap.

    The input must be in `last` (read for the last time), and both arguments must be
    whole buffers that no other argument accesses. The caller excludes calls on other
    devices.
    """
    roots: list[str | None] = []
    for arg in call.args:
        if isinstance(arg, tir.AccessPtr):
            roots.append(flow.roots.get(arg.buffer.name))
        else:
            roots.append(None)
    source_roots: dict[str, str] = {}
    result_roots: dict[str, str] = {}
    for param, arg, root in zip(kernel.params, call.args, roots, strict=True):
        if root is None or roots.count(root) > 1 or not _is_whole_buffer(flow, arg):
            continue
        # Only a value that is dead after the call may be overwritten during it.
        if param.role == "in" and root in last:
            source_roots[param.name] = root
        elif param.role == "out":
            result_roots[param.name] = root
    pairs = []
    for source, result in product(source_roots, result_roots):
        constraints = cache.constraints(kernel, source, result)
        if constraints is not None:
            a, b = source_roots[source], result_roots[result]
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

    Both are live together only in the loop. Buffers accessed through views and loops
    with calls on other devices are excluded.
    """
    if any(call.device for call in prim_calls(loop.stmt)):
        return []
    reads: set[str] = set()
    writes: set[str] = set()
    for node in flow.nodes:
        if loop.live.first <= node.time < loop.live.end:
            reads |= node.reads
            writes |= node.writes
    viewed: set[str] = set()
    for name in used_buffers(loop.stmt):
        root = flow.roots.get(name, name)
        if root != name:
            viewed.add(root)
    sources: list[str] = []
    for name in sorted(reads - writes - viewed):
        # The source is read for the last time in the loop, the result written for the
        # first time:
        #
        #     source  ------------|          both are live together only between
        #     result         |------------   the start and the end of the loop
        #              loop  |----|
        if any(live_range.end == loop.live.end for live_range in live[name]):
            sources.append(name)
    results: list[str] = []
    for name in sorted(writes - reads - viewed):
        if any(live_range.first == loop.live.first for live_range in live[name]):
            results.append(name)
    pairs = []
    for source, result in product(sources, results):
        a = tir.Param(flow.allocates[source].buffer, "in")
        b = tir.Param(flow.allocates[result].buffer, "out")
        kernel = tir.PrimFunc("loop", (a, b), loop.stmt)
        constraints = cache.constraints(kernel, source, result)
        if constraints is not None:
            pairs.append(InplacePair(loop.live, constraints))
    return pairs


def _is_whole_buffer(flow: ControlFlowGraph, arg: tir.Expr) -> bool:
    """Return whether an argument is the start of a whole planned buffer.

    It may be a view of all of its bytes, as that of a reshape, which has no offset.
    """
    if not isinstance(arg, tir.AccessPtr):
        return False
    if arg.offset != tir.IntImm(0, arg.offset.dtype):
        return False
    whole = flow.allocates[flow.roots[arg.buffer.name]].buffer
    return arg.buffer.span_bytes == whole.span_bytes
