"""Constants in RAM for speed: those that gain most by it, as far as RAM is left.

In: a lowered module whose attributes say how fast the program's memory is, and whose pools say how
fast they are. Out: the same, unless nothing is gained: for each constant chosen the AOT main has an
Allocate of kind `const`, which lives always, and begins with a call that copies the constant there
(a kernel with the attribute `keeps`); the kernels get pointers. Generated C makes the copies once,
in NAME_init. RAM that the buffers need is never taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import cast

from firmwright.base.names import NameSupply
from firmwright.ir.constant_pools import is_linked
from firmwright.ir.core import Attr, PoolInfo
from firmwright.ir.graph.devices import RESIDENT
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX, Builder
from firmwright.ir.tir.nodes import (
    AccessPtr,
    Allocate,
    AllocateConst,
    Buffer,
    CallPrim,
    IntImm,
    PrimFunc,
    Seq,
    Stmt,
)
from firmwright.ir.tir.plan import Plan, Planner
from firmwright.ir.tir.rewrite import rewrite_stmt, substitute
from firmwright.ir.tir.walk import Node, prim_calls, statements
from firmwright.passes.tir.hoist_params import MainConstants, linked, redirect, with_const_params
from firmwright.usmp.plan_module import POOL_ALIGNMENT, plan
from firmwright.usmp.pool_choice import cycles, has_speed
from firmwright.usmp.traffic import NONE, Traffic, traffic_of

SHARE_PERCENT = 60
"""Without a budget from the user: so much of what the buffers take, and no more."""
PROGRAM = "program"
"""The name, for comparisons, of the memory that constants are linked into."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A constant, and the cycles of one run that it saves in `pool`."""

    constant: str
    size_bytes: int
    pool: str
    gain: float


def keep_constants(module: IRModule, planner: str | Planner) -> IRModule:
    """The module with the constants in RAM that somebody placed there, and that pay for it."""
    module = _with_placed(module)
    program = program_memory(module)
    main = module.entry
    fast = [pool for pool in module.pools if pool.access == "rw" and has_speed(pool)]
    if program is None or not fast or module.plan is not None or not isinstance(main, PrimFunc):
        return module
    candidates = _candidates(module, _by_constant(module, main), fast, program)
    made = plan(module, planner).plan if candidates else None
    if made is None:
        return module
    left = _budget_bytes(module, made)
    spare = _spare_bytes(module, made)
    chosen: dict[str, str] = {}
    for one in candidates:
        taken = _aligned(one.size_bytes)
        if one.constant not in chosen and taken <= min(left, spare[one.pool]):
            chosen[one.constant] = one.pool
            left -= taken
            spare[one.pool] -= taken
    return _resident(module, main, chosen) if chosen else module


def _with_placed(module: IRModule) -> IRModule:
    """The constants of calls that are done where the program's memory is not seen, or by wish."""
    main = module.entry
    if module.plan is not None or not isinstance(main, PrimFunc):
        return module
    wished = main.attrs.get("resident", ())
    pools = dict(cast("tuple[tuple[int, str], ...]", wished))
    chosen: dict[str, str] = {}
    for call in prim_calls(main.body):
        kernel = module.functions.get(call.callee)
        if isinstance(kernel, PrimFunc):
            pool = pools.get(call.op) or str(kernel.attrs.get(RESIDENT, ""))
            chosen |= {node.constant: pool for node in linked(kernel) if pool}
    return _resident(module, main, chosen) if chosen else module


def program_memory(module: IRModule) -> PoolInfo | None:
    """The memory of the program with its speed, where the module says it."""
    bandwidth, latency = module.attrs.get("program_bandwidth"), module.attrs.get("program_latency")
    if not isinstance(bandwidth, float):
        return None
    return PoolInfo(
        PROGRAM,
        access="ro",
        read_bandwidth=bandwidth,
        write_bandwidth=bandwidth,
        read_latency=latency if isinstance(latency, int) else None,
    )


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // POOL_ALIGNMENT) * POOL_ALIGNMENT


def _budget_bytes(module: IRModule, made: Plan) -> float:
    """What constants may take in all: what the user's budget leaves, else a share of the plan."""
    if "ram_bytes" in module.attrs:
        return math.inf  # the pools are as large as the budget
    return made.workspace_bytes * SHARE_PERCENT // 100


def _spare_bytes(module: IRModule, made: Plan) -> dict[str, float]:
    """What the buffers leave of each pool."""
    return {
        pool.name: math.inf
        if pool.size_bytes is None
        else pool.size_bytes // POOL_ALIGNMENT * POOL_ALIGNMENT
        - _aligned(made.pool_bytes.get(pool.name, 0))
        for pool in module.pools
    }


def _candidates(
    module: IRModule,
    traffic: Mapping[str, Traffic],
    pools: Sequence[PoolInfo],
    program: PoolInfo,
) -> list[_Candidate]:
    """What would gain anything, the most for each byte first."""
    found = [
        _Candidate(
            name,
            module.constants[name].size_bytes,
            pool.name,
            cycles(moved, program) - cycles(moved, pool),
        )
        for name, moved in traffic.items()
        for pool in pools
        if is_linked(module, name)
    ]
    paying = [one for one in found if one.gain > 0]
    return sorted(paying, key=lambda one: -one.gain / one.size_bytes)


def _by_constant(module: IRModule, main: PrimFunc) -> dict[str, Traffic]:
    """The traffic of the constants that kernels link, over all calls of a run."""
    found: dict[str, Traffic] = {}
    hoisted = _hoisted(module, main, None)
    entry = hoisted.functions[main.name]
    assert isinstance(entry, PrimFunc)
    moved = traffic_of(entry, hoisted.functions)
    for node in linked(entry):
        found[node.constant] = found.get(node.constant, NONE) + moved.get(node.buffer.name, NONE)
    return found


def _hoisted(module: IRModule, main: PrimFunc, wanted: Mapping[str, str] | None) -> IRModule:
    """The module with those constants, or with all of them, in the AOT main."""
    functions = dict(module.functions)
    calls: dict[str, tuple[str, tuple[tuple[str, Buffer] | IntImm, ...]]] = {}
    for name, func in module.functions.items():
        if not isinstance(func, PrimFunc) or func is main:
            continue
        found = [n for n in linked(func) if wanted is None or n.constant in wanted]
        if found:
            functions[name] = with_const_params(func, [node.buffer.name for node in found])
            calls[name] = (name, tuple((node.constant, node.buffer) for node in found))
    functions[main.name] = redirect(main, MainConstants(main), calls)
    return replace(module, functions=functions)


# ---- in RAM -----------------------------------------------------------------------------------


def _resident(module: IRModule, main: PrimFunc, chosen: Mapping[str, str]) -> IRModule:
    """The module with the chosen constants copied to Allocates of its AOT main."""
    module = _hoisted(module, main, chosen)
    hoisted = module.functions[main.name]
    assert isinstance(hoisted, PrimFunc)
    nodes = [node for node in linked(hoisted) if node.constant in chosen]
    body = rewrite_stmt(hoisted.body, lambda node: _without(node, chosen))
    names = NameSupply([b.name for b in _declared(hoisted)])
    functions = NameSupply(module.functions)
    copies: list[tuple[AllocateConst, Buffer, PrimFunc]] = []
    for node in nodes:
        target = replace(node.buffer, name=names.take(f"{node.buffer.name}_ram"), scope="global")
        keep = _keep(functions.take(f"keep_{node.buffer.name}"), node.buffer)
        copies.append((node, target, keep))
    body = substitute(body, {}, {node.buffer.name: target for node, target, _ in copies})
    body = Seq((*(_copy(keep, node.buffer, target) for node, target, keep in copies), body))
    for node, target, _ in reversed(copies):
        body = AllocateConst(node.buffer, node.constant, Allocate(target, body, "const"))
    pins = tuple((target.name, chosen[node.constant]) for node, target, _ in copies)
    attrs: dict[str, Attr] = {**hoisted.attrs, "pins": (*_pins(hoisted), *pins)}
    module = module.with_function(replace(hoisted, body=body, attrs=attrs))
    for _, _, keep in copies:
        module = module.with_function(keep)
    return module


def _without(node: Node, chosen: Mapping[str, str]) -> Node | None:
    return node.body if isinstance(node, AllocateConst) and node.constant in chosen else None


def _declared(func: PrimFunc) -> list[Buffer]:
    params = [param.value for param in func.params if isinstance(param.value, Buffer)]
    nodes = [n for n in statements(func.body) if isinstance(n, Allocate | AllocateConst)]
    return params + [node.buffer for node in nodes]


def _pins(main: PrimFunc) -> tuple[Attr, ...]:
    found = main.attrs.get("pins", ())
    return found if isinstance(found, tuple) else ()


def _keep(name: str, like: Buffer) -> PrimFunc:
    """A kernel that copies a constant as large as `like`."""
    b = Builder(name)
    source = b.buffer_param("source", like.dtype, like.shape, "const")
    target = b.buffer_param("target", like.dtype, like.shape, "out")
    with ExitStack() as loops:
        index = [loops.enter_context(b.for_(f"i{d}", n)) for d, n in enumerate(like.shape)]
        b.store(target, index, b.load(source, index))
    return b.build(keeps=True)


def _copy(keep: PrimFunc, source: Buffer, target: Buffer) -> Stmt:
    zero = IntImm(0, INDEX)
    return CallPrim(
        keep.name,
        (
            AccessPtr(source, zero, source.elements, "r"),
            AccessPtr(target, zero, target.elements, "w"),
        ),
    )
