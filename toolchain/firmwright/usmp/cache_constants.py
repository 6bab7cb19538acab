"""Copies constants to RAM for speed, starting with the largest gain per byte.

For each chosen constant, the AOT main gets an Allocate of kind `const` and an initial
call of a kernel that copies the constant and has the attribute `keeps`. NAME_init
executes these calls once.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import cast

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.rounding import round_up
from firmwright.ir import tir
from firmwright.ir.bind_requests import bind_copies
from firmwright.ir.constant_pools import is_linked
from firmwright.ir.core import Attr, PoolInfo
from firmwright.ir.graph.devices import CONSTANTS_POOL_ATTR
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import Builder, whole_buffer
from firmwright.ir.tir.memory_traffic import (
    NO_TRAFFIC,
    MemoryTraffic,
    count_traffic,
    has_known_speed,
    transfer_cycles,
)
from firmwright.ir.tir.plan import Plan, Planner
from firmwright.ir.tir.traversal import (
    Node,
    declared_buffers,
    prim_calls,
    rewrite_func,
    substitute,
)
from firmwright.passes.tir.externalize_constants import (
    externalize,
    linked_constants,
    without_linked_constants,
)
from firmwright.usmp.memory_planning import POOL_ALIGNMENT, plan_memory

SPARE_PERCENT_MAX = 50
"""Limit of the copies in a pool without a RAM budget, in percent of its free bytes."""
PROGRAM_MEMORY = "program"
"""Name of the memory into which constants are linked, for comparisons of speed."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A copy of a constant in a pool, and the cycles per run that it saves."""

    constant: str
    size_bytes: int
    pool: str
    gain_cycles: float


def copy_constants_to_ram(module: IRModule, planner: str | Planner) -> IRModule:
    """Copy the constants that the user assigned to pools, then those that save most.

    The second step needs the speeds of the program memory and of a writable pool. It
    first plans the memory with `planner` to find the bytes that remain free.
    """
    module = _copy_requested(module)
    program = describe_program_memory(module)
    main = module.entry
    fast: list[PoolInfo] = []
    for pool in module.pools:
        if pool.access == "rw" and has_known_speed(pool):
            fast.append(pool)
    if program is None or not fast:
        return module
    if module.plan is not None or not isinstance(main, tir.PrimFunc):
        return module
    candidates = _candidates(module, _constant_traffic(module, main), fast, program)
    if not candidates:
        return module
    memory_plan = plan_memory(module, planner).memory_plan
    chosen = _choose(candidates, _spare_bytes(module, memory_plan))
    if not chosen:
        return module
    return _copy_to_ram(module, main, chosen).module


def _choose(
    candidates: Sequence[_Candidate], spare_bytes: dict[str, int]
) -> dict[str, str]:
    """Return the pool of each constant to copy: the first candidate that has room."""
    chosen: dict[str, str] = {}
    for candidate in candidates:
        size_bytes = round_up(candidate.size_bytes, POOL_ALIGNMENT)
        has_room = size_bytes <= spare_bytes[candidate.pool]
        if candidate.constant not in chosen and has_room:
            chosen[candidate.constant] = candidate.pool
            spare_bytes[candidate.pool] -= size_bytes
    return chosen


def _copy_requested(module: IRModule) -> IRModule:
    """Copy the constants of the kernels for which the user named a pool.

    A constant that kernels with different pools read is copied once for each pool, from
    a constant of its own named `CONSTANT.POOL`.
    """
    main = module.entry
    if module.plan is not None or not isinstance(main, tir.PrimFunc):
        return module
    pool_of_kernel, pools_of_constant = _requested_pools(module, main)
    chosen: dict[str, str] = {}
    read: dict[str, list[str]] = {}
    constants = dict(module.constants)
    for name, pool in pool_of_kernel.items():
        if not pool:
            continue
        for node in linked_constants(module.kernel(name)):
            own = node.constant
            if len(pools_of_constant[node.constant]) > 1:
                own = f"{node.constant}.{pool}"
            constants[own] = replace(constants[node.constant], name=own)
            chosen[own] = pool
            read.setdefault(name, []).append(own)
            module = _with_constant(module, name, node, own)
    if not chosen:
        return bind_copies(module, {}) if module.requests else module
    copied = _copy_to_ram(replace(module, constants=constants), main, chosen)
    copies_by_kernel: dict[str, list[str]] = {}
    for kernel, names in read.items():
        copies_by_kernel[kernel] = [copied.buffers[name] for name in names]
    return bind_copies(copied.module, copies_by_kernel)


def _requested_pools(
    module: IRModule, main: tir.PrimFunc
) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the requested pool of each kernel ("" if none), and all of a constant."""
    pool_of_kernel: dict[str, str] = {}
    pools_of_constant: dict[str, set[str]] = {}
    for call in prim_calls(main.body):
        kernel = module.functions.get(call.callee)
        if isinstance(kernel, tir.PrimFunc):
            pool = str(kernel.attrs.get(CONSTANTS_POOL_ATTR, ""))
            pool_of_kernel[kernel.name] = pool
            for node in linked_constants(kernel):
                pools_of_constant.setdefault(node.constant, set()).add(pool)
    return pool_of_kernel, pools_of_constant


def _with_constant(
    module: IRModule, kernel: str, node: tir.AllocateConst, constant: str
) -> IRModule:
    """Return the module in which `node` of a kernel links another constant."""
    if constant == node.constant:
        return module

    def rule(other: Node) -> Node | None:
        if isinstance(other, tir.AllocateConst) and other.buffer == node.buffer:
            return replace(other, constant=constant)
        return None

    return module.with_function(rewrite_func(module.kernel(kernel), rule))


def describe_program_memory(module: IRModule) -> PoolInfo | None:
    """Describe the program memory as a pool; return None if its speed is unknown."""
    speed = module.settings.flash.program_memory
    if speed is None:
        return None
    return PoolInfo(
        PROGRAM_MEMORY,
        access="ro",
        read_bandwidth=speed.bandwidth,
        write_bandwidth=speed.bandwidth,
        read_latency=speed.latency,
    )


def _spare_bytes(module: IRModule, memory_plan: Plan) -> dict[str, int]:
    """Return the bytes of each pool that copies may take."""
    # With a budget, the pools are as large as that.
    has_budget = not module.settings.objective.has_free_ram
    spare_bytes: dict[str, int] = {}
    for pool in module.pools:
        limit = sys.maxsize if pool.size_bytes is None else pool.size_bytes
        whole_bytes = limit // POOL_ALIGNMENT * POOL_ALIGNMENT
        used_bytes = round_up(memory_plan.pool_bytes.get(pool.name, 0), POOL_ALIGNMENT)
        free_bytes = whole_bytes - used_bytes
        if not has_budget:
            free_bytes = free_bytes * SPARE_PERCENT_MAX // 100
        spare_bytes[pool.name] = free_bytes
    return spare_bytes


def _candidates(
    module: IRModule,
    traffic: Mapping[str, MemoryTraffic],
    pools: Sequence[PoolInfo],
    program: PoolInfo,
) -> list[_Candidate]:
    """Return the copies that save cycles, the largest gain per byte first."""
    candidates: list[_Candidate] = []
    for name, moved in traffic.items():
        if not is_linked(module, name):
            continue
        size_bytes = module.constants[name].size_bytes
        program_cycles = transfer_cycles(moved, program)
        for pool in pools:
            gain_cycles = program_cycles - transfer_cycles(moved, pool)
            if gain_cycles > 0:
                candidates.append(_Candidate(name, size_bytes, pool.name, gain_cycles))
    # The usual order for a knapsack that is filled greedily.
    return sorted(candidates, key=lambda copy: -copy.gain_cycles / copy.size_bytes)


def _constant_traffic(module: IRModule, main: tir.PrimFunc) -> dict[str, MemoryTraffic]:
    """Return the bytes that one run reads from each linked constant, in all kernels."""
    traffic: dict[str, MemoryTraffic] = {}
    module = externalize(module)
    entry = module.kernel(main.name)
    moved = count_traffic(entry, module.functions)
    for node in linked_constants(entry):
        own = moved.get(node.buffer.name, NO_TRAFFIC)
        traffic[node.constant] = traffic.get(node.constant, NO_TRAFFIC) + own
    return traffic


@dataclass(frozen=True, slots=True)
class _Copied:
    """A module with copies, and the name of the buffer in RAM by constant."""

    module: IRModule
    buffers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Copy:
    """A constant of the AOT main, the buffer in RAM, and the kernel that fills it."""

    node: tir.AllocateConst
    target: tir.Buffer
    kernel: tir.PrimFunc

    @property
    def call(self) -> tir.PrimFuncCall:
        pointers = whole_buffer(self.node.buffer, "r"), whole_buffer(self.target, "w")
        return tir.PrimFuncCall(self.kernel.name, pointers)


def _copy_to_ram(
    module: IRModule, main: tir.PrimFunc, chosen: Mapping[str, str]
) -> _Copied:
    """Copy each constant of `chosen` to its pool.

    For each constant, the body of the AOT main becomes:

        allocate_const weights = constant         the original, in program memory
            allocate const weights_ram            the copy, in the assigned pool
                call keep_weights(weights, weights_ram)
                the previous body, which reads weights_ram
    """
    module = externalize(module, lambda constant: constant in chosen)
    hoisted = module.kernel(main.name)
    nodes = [node for node in linked_constants(hoisted) if node.constant in chosen]
    taken = list(declared_buffers(hoisted.body))
    for param in hoisted.params:
        if isinstance(param.value, tir.Buffer):
            taken.append(param.name)
    names = UniqueNamer(taken)
    functions = UniqueNamer(module.functions)
    copies: list[_Copy] = []
    targets: dict[str, tir.Buffer] = {}
    copied: dict[str, str] = {}
    pins: list[tuple[str, str]] = []
    for node in nodes:
        own = node.buffer
        target = replace(own, name=names.unique(f"{own.name}_ram"), scope="global")
        kernel = _copy_kernel(functions.unique(f"keep_{own.name}"), own)
        copies.append(_Copy(node, target, kernel))
        targets[own.name] = target
        copied[node.constant] = target.name
        pins.append((target.name, chosen[node.constant]))
    body = without_linked_constants(hoisted.body, targets)
    calls = [copy.call for copy in copies]
    body = tir.Seq((*calls, substitute(body, {}, targets)))
    # From the inside out: the first copy becomes the outermost pair of allocations.
    for copy in reversed(copies):
        allocate = tir.Allocate(copy.target, body, "const")
        body = tir.AllocateConst(copy.node.buffer, copy.node.constant, allocate)
    assigned = cast("tuple[Attr, ...]", hoisted.attrs.get("pool_assignments", ()))
    attrs: dict[str, Attr] = {**hoisted.attrs, "pool_assignments": (*assigned, *pins)}
    module = module.with_function(replace(hoisted, body=body, attrs=attrs))
    for copy in copies:
        module = module.with_function(copy.kernel)
    return _Copied(module, copied)


def _copy_kernel(name: str, like: tir.Buffer) -> tir.PrimFunc:
    """Return the kernel that copies a buffer shaped like `like` by elements."""
    b = Builder(name)
    source = b.buffer_param("source", like.dtype, like.shape, "const")
    target = b.buffer_param("target", like.dtype, like.shape, "out")
    with ExitStack() as loops:
        index = []
        for axis, extent in enumerate(like.shape):
            index.append(loops.enter_context(b.for_(f"i{axis}", extent)))
        b.store(target, index, b.load(source, index))
    return b.build(keeps=True)
