"""Collects the buffers that a planner must place.

Inputs are live from time 0 (with `preserve_input` to the end), outputs to the end,
state and constants in RAM always, and scratch during its call. Candidate pools are
those that every target accessing the buffer may write; the AOT main's attribute
`pool_assignments` restricts a buffer to one.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import cast

from firmwright.base.errors import InternalError, UsageError
from firmwright.base.rounding import round_up
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.devices import COPY_OP
from firmwright.ir.module import IRModule
from firmwright.ir.tir import plan
from firmwright.ir.tir.plan import BufferInfo, BufferKind, LiveRange, OffsetConstraint
from firmwright.ir.tir.traversal import prim_calls, used_buffers
from firmwright.ir.tir.verify_async_calls import without_phase
from firmwright.usmp import liveness
from firmwright.usmp.interference import InplaceCache, InplacePair
from firmwright.usmp.liveness import CfgLoop, ControlFlowGraph

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
    kinds = {name: _kind(allocate) for name, allocate in flow.allocates.items()}
    at_entry = [
        name for name, kind in kinds.items() if kind in liveness.DEFINED_AT_ENTRY
    ]
    read_by_caller = {"output", "state", "const"}
    if module.io.preserve_input:
        read_by_caller.add("input")
    at_exit = [name for name, kind in kinds.items() if kind in read_by_caller]
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
        #     |  line 0  |  line 1  |        a line with two buffers: one is written by the DMA,
        #     |aaaaaaaaaa|aaa. bbbb |        the other by the core
        if name in shared:
            cache_line = max(cache_lines[pool] for pool in candidates)
            if cache_line:  # no other buffer may be in its cache lines
                alignment = max(alignment, cache_line)
                size_bytes = round_up(size_bytes, cache_line)
        ranges = _extend_to_caller_accesses(
            live[name], kinds[name], name in at_exit, flow.end_time
        )
        buffers.append(
            BufferInfo(
                name=plan_names.get(name, name),
                size_bytes=size_bytes,
                alignment=alignment,
                # A buffer that is never accessed still needs an address.
                live=ranges or (LiveRange(0, 1),),
                kind=kinds[name],
                pools=candidates,
            )
        )
    pairs = _inplace_pairs(module, flow, live, at_exit, cache)
    return PlanningInput(
        tuple(buffers), tuple(pair.with_names(plan_names) for pair in pairs)
    )


def _inplace_pairs(
    module: IRModule,
    flow: ControlFlowGraph,
    live: Mapping[str, tuple[LiveRange, ...]],
    at_exit: Collection[str],
    cache: InplaceCache,
) -> list[InplacePair]:
    """Return the pairs of buffers that may overlap: in calls, in loops and in
    workspaces.
    """
    pairs: list[InplacePair] = []
    for node, last in zip(
        flow.nodes, liveness.find_last_reads(flow, at_exit), strict=True
    ):
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
        raise InternalError(
            f"buffer {allocate.buffer.name} is of unknown kind {allocate.kind!r}."
        )
    return cast(BufferKind, allocate.kind)


def _buffers_of_other_masters(
    flow: ControlFlowGraph, kinds: Mapping[str, BufferKind]
) -> set[str]:
    """Return the buffers that devices, or the application by DMA, may access."""
    shared = {name for name, kind in kinds.items() if kind in ("input", "output")}
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
        # A buffer that is only copied, and not pinned, belongs to the caller: the
        # main's target.
        if not targets and name not in pins:
            targets.add(target_of_main)
    return users


def _pinned_pools(
    main: tir.PrimFunc, flow: ControlFlowGraph, pools: Sequence[PoolInfo]
) -> dict[str, tuple[PoolInfo, ...]]:
    """Return the pool of each pinned buffer; pinning a view pins its underlying
    buffer.
    """
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
        pinned = tuple(
            pool for pool in pools if pool.name == pool_name and pool.access == "rw"
        )
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
    """Return the names of the pools that buffer `name` may be in; raise UsageError if
    none.
    """
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
        #     source  ------------|          both are live together only between the start and
        #     result         |------------   the end of the loop
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
        constraints = cache.constraints(
            tir.PrimFunc("loop", (a, b), loop.stmt), source, result
        )
        if constraints is not None:
            pairs.append(InplacePair(loop.live, constraints))
    return pairs


def _is_whole_buffer(flow: ControlFlowGraph, arg: tir.Expr) -> bool:
    """Return whether an argument is the start of a planned buffer with its own
    shape.
    """
    if not isinstance(arg, tir.AccessPtr) or arg.offset != tir.IntImm(
        0, arg.offset.dtype
    ):
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
    """Yield the pairs of buffers that overlap in the workspace of an accelerator's
    kernel.

    The kernel's attribute names the tensors that it needs at an offset of its
    workspace. A tensor that the planner puts there is not copied:

        workspace   |---------------------------------|
        input           |--------|  last read by this call
        output                        |-----------|  first written by this call
    """
    times_by_call: dict[tir.PrimFuncCall, list[int]] = {}
    for node in flow.nodes:
        if node.call is not None:
            times_by_call.setdefault(without_phase(node.call), []).append(node.time)
    for call, times in times_by_call.items():
        kernel = module.functions.get(call.callee)
        times_of_one_run = (
            2 if call.device else 1
        )  # a device call has a start and a wait
        if (
            isinstance(kernel, tir.PrimFunc)
            and plan.OVERLAYS_ATTR in kernel.attrs
            and len(times) == times_of_one_run
        ):
            span = LiveRange(min(times), max(times) + 1)
            overlays = _Overlays(flow, call, span, live, at_exit)
            yield from overlays.pairs(kernel)


@dataclass(frozen=True, slots=True)
class _Argument:
    """The buffer of a pointer argument, its planned buffer, and the role of the
    parameter.
    """

    buffer: tir.Buffer
    root: str
    role: str


@dataclass(frozen=True, slots=True)
class _Overlays:
    """The pairs of one call, which takes the time `span`."""

    flow: ControlFlowGraph
    call: tir.PrimFuncCall
    span: LiveRange
    live: Mapping[str, tuple[LiveRange, ...]]
    at_exit: Collection[str]

    def pairs(self, kernel: tir.PrimFunc) -> Iterator[InplacePair]:
        """Yield the pairs of workspace and tensor, then those of inputs and outputs."""
        args: dict[str, _Argument] = {}
        for param, arg in zip(kernel.params, self.call.args, strict=True):
            if isinstance(arg, tir.AccessPtr) and arg.buffer.name in self.flow.roots:
                root = self.flow.roots[arg.buffer.name]
                args[param.name] = _Argument(arg.buffer, root, param.role)
        uses = Counter(arg.root for arg in args.values())
        unusable = self._accessed_by_others()
        inputs: list[str] = []
        outputs: list[str] = []
        rows = cast(
            "tuple[tuple[str, str, int], ...]", kernel.attrs[plan.OVERLAYS_ATTR]
        )
        for name, workspace, offset in rows:
            argument = args[name]
            if (
                uses[argument.root] > 1
                or argument.root in unusable
                or not self._may_be_inside(argument)
            ):
                continue
            if argument.role == "in":
                inputs.append(argument.root)
            else:
                outputs.append(argument.root)
            area = args[workspace].buffer
            # Overlapping the workspace is forbidden except at one difference: the
            # kernel's offset.
            lo, hi = -argument.buffer.span_bytes, area.span_bytes
            at_offset = OffsetConstraint(
                area.name, argument.root, lo, hi, _ONE_PLACE, offset
            )
            yield InplacePair(self.span, (at_offset,))
        # Their places in the workspace are the kernel's own: it knows if they overlap.
        for a, b in product(inputs, outputs):
            yield InplacePair(self.span, (OffsetConstraint(a, b, 0, 0),))

    def _accessed_by_others(self) -> set[str]:
        """Return the buffers that other nodes access while the call runs."""
        accessed: set[str] = set()
        for node in self.flow.nodes:
            if not self.span.first <= node.time < self.span.end:
                continue
            if node.call is None or without_phase(node.call) != self.call:
                accessed |= node.accessed
        return accessed

    def _may_be_inside(self, arg: _Argument) -> bool:
        """Return whether a whole buffer is live, besides this call, only before or only
        after it.

        An input must end with the call and an output begin with it; another role has no
        condition.
        """
        if self.flow.allocates[arg.root].buffer != arg.buffer:
            return False
        ranges = [own for own in self.live[arg.root] if own.overlaps(self.span)]
        if arg.role == "in":
            is_read_later = arg.root in self.at_exit
            return not is_read_later and [own.end for own in ranges] == [self.span.end]
        if arg.role == "out":
            return [own.first for own in ranges] == [self.span.first]
        return True
