"""A planned module with redzones around every buffer, for access tracing.

The address of an access identifies the buffer, so an instrumented build can compare
each access with the original plan.
"""

from dataclasses import replace

from firmwright.base.errors import InternalError
from firmwright.base.rounding import round_up
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.plan import Placement, Plan, RelocatedBuffer
from firmwright.ir.tir.traversal import Node, rewrite_func
from firmwright.usmp.memory_planning import pool_views

REDZONE_BYTES = 64
"""Least distance between two buffers; no access may touch these bytes."""


def insert_redzones(module: IRModule) -> tuple[IRModule, tuple[RelocatedBuffer, ...]]:
    """Return the module with larger pools where no buffers touch, and the buffers.

    Buffers follow each other without reuse of memory, those that persist between runs
    first:

        pool  | redzone | state | redzone | x | redzone | y | redzone |
    """
    main, plan = module.aot_main, module.memory_plan
    buffers: dict[str, RelocatedBuffer] = {}
    ends: dict[str, int] = {}
    persistent = {info.name for info in plan.buffers if info.kind in ("const", "state")}

    def persistent_first(view: tir.DeclBuffer) -> bool:
        return view.buffer.name not in persistent

    for view in sorted(pool_views(main), key=persistent_first):
        relocated = _relocate(view, ends.get(view.source.buffer.name, 0))
        buffers[relocated.name] = relocated
        ends[relocated.pool] = relocated.end
    sizes = {pool: end + REDZONE_BYTES for pool, end in ends.items()}
    placements: dict[str, Placement] = {}
    for name, place in buffers.items():
        placements[name] = Placement(place.pool, place.offset)
    module = module.with_function(_with_offsets(main, buffers, sizes))
    infos = tuple(info for info in plan.buffers if info.name in placements)
    plan = Plan("apart", placements, sizes, 0, infos)
    return replace(module, plan=plan), tuple(buffers.values())


def _relocate(view: tir.DeclBuffer, end: int) -> RelocatedBuffer:
    """Place a buffer behind a redzone that begins at `end`."""
    source, buffer = view.source, view.buffer
    if not isinstance(source.offset, tir.IntImm):
        pool = source.buffer.name
        raise InternalError(f"{buffer.name} has no fixed place in pool {pool}.")
    alignment = max(buffer.alignment, buffer.dtype.size_bytes, 1)
    return RelocatedBuffer(
        name=buffer.name,
        pool=source.buffer.name,
        offset=round_up(end + REDZONE_BYTES, alignment),
        planned=source.offset.value,
        size_bytes=buffer.span_bytes,
    )


def _with_offsets(
    main: tir.PrimFunc, places: dict[str, RelocatedBuffer], sizes: dict[str, int]
) -> tir.PrimFunc:
    """Return the main with the new offsets and pool sizes, both in bytes."""

    def grown(pool: tir.Buffer) -> tir.Buffer:
        return replace(pool, shape=(sizes.get(pool.name, pool.elements),))

    def rule(part: Node) -> Node | None:
        if not isinstance(part, tir.DeclBuffer) or part.source.buffer.scope != "pool":
            return None
        place = places[part.buffer.name]
        offset = tir.IntImm(place.offset, INDEX)
        pool = grown(part.source.buffer)
        source = tir.AccessPtr(pool, offset, place.size_bytes, "rw")
        return tir.DeclBuffer(part.buffer, source, part.body)

    params: list[tir.Param] = []
    for param in main.params:
        if param.role == "pool" and isinstance(param.value, tir.Buffer):
            param = tir.Param(grown(param.value), "pool")
        params.append(param)
    return replace(rewrite_func(main, rule), params=tuple(params))
