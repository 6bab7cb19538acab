"""Isolated layout: a planned module with redzones around every buffer, for access tracing.

The address of an access identifies the buffer, so an instrumented build can compare each access
with the original plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.plan import Placement, Plan
from firmwright.ir.tir.rewrite import rewrite_func
from firmwright.ir.tir.traversal import Node, statements
from firmwright.usmp.planning_input import footprint_bytes

REDZONE_BYTES = 64
"""Least distance between two buffers; no access may touch it."""


@dataclass(frozen=True, slots=True)
class RelocatedBuffer:
    """A buffer at `offset` in the isolated layout and at `planned` in the original plan."""

    name: str
    pool: str
    offset: int
    planned: int
    size_bytes: int


def insert_redzones(module: IRModule) -> tuple[IRModule, tuple[RelocatedBuffer, ...]]:
    """Return the module in the isolated layout, and both offsets of each buffer."""
    main = module.entry
    if module.plan is None or not isinstance(main, tir.PrimFunc):
        raise InternalError(f"module {module.name} has no memory plan.")
    buffers: dict[str, RelocatedBuffer] = {}
    ends: dict[str, int] = {}
    for window in _pool_views(main):
        relocated = _relocate(window, ends.get(window.source.buffer.name, 0))
        buffers[relocated.name] = relocated
        ends[relocated.pool] = relocated.offset + relocated.size_bytes
    sizes = {pool: end + REDZONE_BYTES for pool, end in ends.items()}
    placements = {name: Placement(place.pool, place.offset) for name, place in buffers.items()}
    plan = Plan("apart", placements, sizes, 0)
    main = _with_offsets(main, buffers, sizes)
    return replace(module.with_function(main), plan=plan), tuple(buffers.values())


def _pool_views(main: tir.PrimFunc) -> Iterator[tir.DeclBuffer]:
    for part in statements(main.body):
        if isinstance(part, tir.DeclBuffer) and part.source.buffer.scope == "pool":
            yield part


def _relocate(window: tir.DeclBuffer, end: int) -> RelocatedBuffer:
    source, buffer = window.source, window.buffer
    if not isinstance(source.offset, tir.IntImm):
        raise InternalError(f"{buffer.name} has no fixed place in pool {source.buffer.name}.")
    alignment = max(buffer.alignment, buffer.dtype.size_bytes, 1)
    offset = -(-(end + REDZONE_BYTES) // alignment) * alignment
    return RelocatedBuffer(
        buffer.name, source.buffer.name, offset, source.offset.value, footprint_bytes(buffer)
    )


def _with_offsets(
    main: tir.PrimFunc, places: dict[str, RelocatedBuffer], sizes: dict[str, int]
) -> tir.PrimFunc:
    def grown(pool: tir.Buffer) -> tir.Buffer:
        return replace(pool, shape=(sizes.get(pool.name, pool.elements),))

    def rule(part: Node) -> Node | None:
        if not isinstance(part, tir.DeclBuffer) or part.source.buffer.scope != "pool":
            return None
        place = places[part.buffer.name]
        offset = tir.IntImm(place.offset, INDEX)
        source = tir.AccessPtr(grown(part.source.buffer), offset, place.size_bytes, "rw")
        return tir.DeclBuffer(part.buffer, source, part.body)

    def param(each: tir.Param) -> tir.Param:
        is_pool = each.role == "pool" and isinstance(each.value, tir.Buffer)
        return tir.Param(grown(each.value), "pool") if is_pool else each  # type: ignore[arg-type]

    moved = rewrite_func(main, rule)
    return replace(moved, params=tuple(param(each) for each in moved.params))
