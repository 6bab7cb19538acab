"""Copies constants to RAM for speed, starting with the largest gain per byte.

For each chosen constant, the AOT main gets an Allocate of kind `const` and an initial call of a
kernel that copies the constant and has the attribute `keeps`. NAME_init executes these calls once.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import cast

from firmwright.base.c_identifiers import UniqueNamer
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
from firmwright.ir.tir.traversal import Node, declared_buffers, prim_calls, rewrite_func, substitute
from firmwright.passes.tir.externalize_constants import (
    externalize,
    linked_constants,
    without_linked_constants,
)
from firmwright.usmp.memory_planning import POOL_ALIGNMENT, plan_memory

SPARE_PERCENT_MAX = 50
"""Limit of the copies in a pool if the user sets no RAM budget, in percent of its free bytes."""
PROGRAM_MEMORY = "program"
"""Name of the memory into which constants are linked, for comparisons of speed."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    constant: str
    size_bytes: int
    pool: str
    gain: float


def copy_constants_to_ram(module: IRModule, planner: str | Planner) -> IRModule:
    module = _with_requested(module)
    program = describe_program_memory(module)
    main = module.entry
    fast = [pool for pool in module.pools if pool.access == "rw" and has_known_speed(pool)]
    if program is None or not fast or module.plan is not None or not isinstance(main, tir.PrimFunc):
        return module
    candidates = _candidates(module, _constant_traffic(module, main), fast, program)
    memory_plan = plan_memory(module, planner).plan if candidates else None
    if memory_plan is None:
        return module
    spare = _spare_bytes(module, memory_plan)
    if "ram_bytes" not in module.attrs:  # else the pools are as large as the user's budget
        spare = {name: size * SPARE_PERCENT_MAX // 100 for name, size in spare.items()}
    chosen: dict[str, str] = {}
    for one in candidates:
        size_bytes = _align_up(one.size_bytes)
        if one.constant not in chosen and size_bytes <= spare[one.pool]:
            chosen[one.constant] = one.pool
            spare[one.pool] -= size_bytes
    return _copy_to_ram(module, main, chosen)[0] if chosen else module


def _with_requested(module: IRModule) -> IRModule:
    main = module.entry
    if module.plan is not None or not isinstance(main, tir.PrimFunc):
        return module
    kernels: dict[str, str] = {}
    users: dict[str, set[str]] = {}
    for call in prim_calls(main.body):
        kernel = module.functions.get(call.callee)
        if isinstance(kernel, tir.PrimFunc):
            pool = str(kernel.attrs.get(CONSTANTS_POOL_ATTR, ""))
            kernels[kernel.name] = pool
            for node in linked_constants(kernel):
                users.setdefault(node.constant, set()).add(pool)
    chosen: dict[str, str] = {}
    read: dict[str, list[str]] = {}
    constants = dict(module.constants)
    for name, pool in kernels.items():
        for node in linked_constants(cast("tir.PrimFunc", module.functions[name])) if pool else ():
            own = node.constant if len(users[node.constant]) == 1 else f"{node.constant}.{pool}"
            constants[own] = replace(constants[node.constant], name=own)
            chosen[own] = pool
            read.setdefault(name, []).append(own)
            module = _with_constant(module, name, node, own)
    copies: Mapping[str, str] = {}
    if chosen:
        module, copies = _copy_to_ram(replace(module, constants=constants), main, chosen)
    elif not module.requests:
        return module
    by_kernel = {kernel: [copies[name] for name in names] for kernel, names in read.items()}
    return bind_copies(module, by_kernel)


def _with_constant(
    module: IRModule, kernel: str, node: tir.AllocateConst, constant: str
) -> IRModule:
    if constant == node.constant:
        return module

    def rule(other: Node) -> Node | None:
        if isinstance(other, tir.AllocateConst) and other.buffer == node.buffer:
            return replace(other, constant=constant)
        return None

    function = cast("tir.PrimFunc", module.functions[kernel])
    return module.with_function(rewrite_func(function, rule))


def describe_program_memory(module: IRModule) -> PoolInfo | None:
    """Describe the program memory as a pool; return None if its speed is unknown."""
    bandwidth, latency = module.attrs.get("program_bandwidth"), module.attrs.get("program_latency")
    if not isinstance(bandwidth, float):
        return None
    return PoolInfo(
        PROGRAM_MEMORY,
        access="ro",
        read_bandwidth=bandwidth,
        write_bandwidth=bandwidth,
        read_latency=latency if isinstance(latency, int) else None,
    )


def _align_up(size_bytes: int) -> int:
    return -(-size_bytes // POOL_ALIGNMENT) * POOL_ALIGNMENT


def _spare_bytes(module: IRModule, memory_plan: Plan) -> dict[str, int]:
    spare: dict[str, int] = {}
    for pool in module.pools:
        limit = sys.maxsize if pool.size_bytes is None else pool.size_bytes
        used_bytes = _align_up(memory_plan.pool_bytes.get(pool.name, 0))
        spare[pool.name] = limit // POOL_ALIGNMENT * POOL_ALIGNMENT - used_bytes
    return spare


def _candidates(
    module: IRModule,
    traffic: Mapping[str, MemoryTraffic],
    pools: Sequence[PoolInfo],
    program: PoolInfo,
) -> list[_Candidate]:
    candidates = [
        _Candidate(
            name,
            module.constants[name].size_bytes,
            pool.name,
            transfer_cycles(moved, program) - transfer_cycles(moved, pool),
        )
        for name, moved in traffic.items()
        for pool in pools
        if is_linked(module, name)
    ]
    paying = [one for one in candidates if one.gain > 0]
    return sorted(paying, key=lambda one: -one.gain / one.size_bytes)


def _constant_traffic(module: IRModule, main: tir.PrimFunc) -> dict[str, MemoryTraffic]:
    traffic: dict[str, MemoryTraffic] = {}
    module = externalize(module)
    entry = module.kernel(main.name)
    moved = count_traffic(entry, module.functions)
    for node in linked_constants(entry):
        own = moved.get(node.buffer.name, NO_TRAFFIC)
        traffic[node.constant] = traffic.get(node.constant, NO_TRAFFIC) + own
    return traffic


def _copy_to_ram(
    module: IRModule, main: tir.PrimFunc, chosen: Mapping[str, str]
) -> tuple[IRModule, Mapping[str, str]]:
    """Return the module with copies of the constants `chosen`, and their buffers by constant."""
    module = externalize(module, lambda constant: constant in chosen)
    hoisted = module.kernel(main.name)
    nodes = [node for node in linked_constants(hoisted) if node.constant in chosen]
    body = without_linked_constants(hoisted.body, {node.buffer.name for node in nodes})
    params = [param.name for param in hoisted.params if isinstance(param.value, tir.Buffer)]
    names = UniqueNamer([*params, *declared_buffers(hoisted.body)])
    functions = UniqueNamer(module.functions)
    copies: list[tuple[tir.AllocateConst, tir.Buffer, tir.PrimFunc]] = []
    for node in nodes:
        target = replace(node.buffer, name=names.unique(f"{node.buffer.name}_ram"), scope="global")
        kernel = _copy_kernel(functions.unique(f"keep_{node.buffer.name}"), node.buffer)
        copies.append((node, target, kernel))
    body = substitute(body, {}, {node.buffer.name: target for node, target, _ in copies})
    body = tir.Seq((*(_copy(kernel, node.buffer, target) for node, target, kernel in copies), body))
    for node, target, _ in reversed(copies):
        body = tir.AllocateConst(node.buffer, node.constant, tir.Allocate(target, body, "const"))
    pins = tuple((target.name, chosen[node.constant]) for node, target, _ in copies)
    assigned = cast("tuple[Attr, ...]", hoisted.attrs.get("pool_assignments", ()))
    attrs: dict[str, Attr] = {**hoisted.attrs, "pool_assignments": (*assigned, *pins)}
    module = module.with_function(replace(hoisted, body=body, attrs=attrs))
    for _, _, kernel in copies:
        module = module.with_function(kernel)
    return module, {node.constant: target.name for node, target, _ in copies}


def _copy_kernel(name: str, like: tir.Buffer) -> tir.PrimFunc:
    b = Builder(name)
    source = b.buffer_param("source", like.dtype, like.shape, "const")
    target = b.buffer_param("target", like.dtype, like.shape, "out")
    with ExitStack() as loops:
        index = [loops.enter_context(b.for_(f"i{d}", n)) for d, n in enumerate(like.shape)]
        b.store(target, index, b.load(source, index))
    return b.build(keeps=True)


def _copy(kernel: tir.PrimFunc, source: tir.Buffer, target: tir.Buffer) -> tir.Stmt:
    return tir.PrimFuncCall(kernel.name, (whole_buffer(source, "r"), whole_buffer(target, "w")))
