"""Memory effects of AOT main statements: the bytes that each reads and writes.

A view (DeclBuffer) at a constant offset covers exactly its bytes, any other view all
bytes of its source. The role of a kernel parameter determines whether an argument is
read or written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from firmwright.ir import tir
from firmwright.ir.module import AnyFunction
from firmwright.ir.tir.traversal import Node, children, statements, walk

_READ_ROLES = frozenset({"in", "inout", "const", "pool"})
_WRITTEN_ROLES = frozenset({"out", "inout", "scratch"})


@dataclass(frozen=True, slots=True)
class MemoryEffect:
    """An access to bytes `[first, end)` of `root`: a write if `written`, or a read."""

    root: str
    first: int
    end: int
    written: bool

    def conflicts_with(self, other: MemoryEffect) -> bool:
        apart = (
            self.root != other.root
            or self.end <= other.first
            or other.end <= self.first
        )
        return not apart and (self.written or other.written)


MemoryEffects = tuple[MemoryEffect, ...]


def find_conflict(a: MemoryEffects, b: MemoryEffects) -> MemoryEffect | None:
    """Return an effect of `b` that must not happen during `a`, or None."""
    for effect in b:
        if any(effect.conflicts_with(other) for other in a):
            return effect
    return None


class MemoryEffectAnalysis:
    """Memory effects of the statements of one function."""

    def __init__(
        self, main: tir.PrimFunc, functions: Mapping[str, AnyFunction]
    ) -> None:
        self._functions = functions
        self._places: dict[str, tuple[str, int, int]] = {}
        for param in main.params:
            if isinstance(param.value, tir.Buffer):
                self._declare(param.value)
        for node in statements(main.body):
            if isinstance(node, tir.Allocate):
                self._declare(node.buffer)
            elif isinstance(node, tir.DeclBuffer):
                region = self._region(node.source, written=False)
                self._places[node.buffer.name] = (region.root, region.first, region.end)

    def effects_of(self, stmt: tir.Stmt) -> MemoryEffects:
        effects: dict[MemoryEffect, None] = {}
        for node in statements(stmt):
            effects |= dict.fromkeys(self._own_accesses(node))
        return tuple(effects)

    def own_effects_of(self, stmt: tir.Stmt) -> MemoryEffects:
        return tuple(dict.fromkeys(self._own_accesses(stmt)))

    def _declare(self, buffer: tir.Buffer) -> None:
        size_bytes = buffer.span_elements * buffer.dtype.size_bytes
        self._places[buffer.name] = (buffer.name, 0, size_bytes)

    def _call(self, call: tir.PrimFuncCall) -> Iterator[MemoryEffect]:
        callee = self._functions.get(call.callee)
        if not isinstance(callee, tir.PrimFunc) or len(callee.params) != len(call.args):
            for arg in call.args:
                yield from self._accesses(arg)
            return
        for param, arg in zip(callee.params, call.args, strict=True):
            if not isinstance(arg, tir.AccessPtr):
                yield from self._accesses(arg)
                continue
            if param.role in _READ_ROLES:
                yield self._region(arg, written=False)
            if param.role in _WRITTEN_ROLES:
                yield self._region(arg, written=True)

    def _own_accesses(self, stmt: tir.Stmt) -> Iterator[MemoryEffect]:
        if isinstance(stmt, tir.PrimFuncCall):
            yield from self._call(stmt)
            return
        if isinstance(stmt, tir.BufferStore):
            yield MemoryEffect(*self._place(stmt.buffer), True)
        for part in children(stmt):
            if isinstance(part, tir.Expr):
                yield from self._accesses(part)

    def _accesses(self, node: Node) -> Iterator[MemoryEffect]:
        for part in walk(node):
            if isinstance(part, tir.BufferLoad):
                yield MemoryEffect(*self._place(part.buffer), False)
            elif isinstance(part, tir.AccessPtr):
                yield self._region(part, written="w" in part.access)

    def _place(self, buffer: tir.Buffer) -> tuple[str, int, int]:
        return self._places.get(buffer.name, (buffer.name, 0, buffer.size_bytes))

    def _region(self, pointer: tir.AccessPtr, *, written: bool) -> MemoryEffect:
        root, first, end = self._place(pointer.buffer)
        if isinstance(pointer.offset, tir.IntImm):
            step = pointer.buffer.dtype.size_bytes
            begin = first + pointer.offset.value * step
            return MemoryEffect(root, begin, begin + pointer.extent * step, written)
        return MemoryEffect(root, first, end, written)


def scratch_bytes(func: tir.PrimFunc) -> int:
    """Return the bytes that a kernel allocates in the workspace."""
    size_bytes = 0
    for node in statements(func.body):
        if isinstance(node, tir.Allocate) and node.buffer.scope == "global":
            size_bytes += node.buffer.size_bytes
    return size_bytes
