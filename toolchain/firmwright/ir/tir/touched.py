"""What a step of the AOT main touches: bytes of the memories that its buffers lie in.

In: the AOT main, planned or not. Out: for a call, or any other statement, the regions it reads and
writes. Invariants: a window (DeclBuffer) at a constant offset stands for those bytes of what it
lies in, another one for all that its source may be; what a kernel's parameter is for says whether
an argument is read or written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from firmwright.ir.module import AnyFunction
from firmwright.ir.tir.nodes import (
    AccessPtr,
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    CallPrim,
    DeclBuffer,
    Expr,
    IntImm,
    PrimFunc,
    Stmt,
)
from firmwright.ir.tir.walk import Node, children, statements, walk

_READING = frozenset({"in", "inout", "const", "pool"})
_WRITING = frozenset({"out", "inout", "scratch"})


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes `[first, end)` of the memory `root`, and whether they are written or only read."""

    root: str
    first: int
    end: int
    written: bool

    def clashes(self, other: Region) -> bool:
        """Whether the order of the two accesses matters."""
        apart = self.root != other.root or self.end <= other.first or other.end <= self.first
        return not apart and (self.written or other.written)


Regions = tuple[Region, ...]


def clash(a: Regions, b: Regions) -> Region | None:
    """A region of `b` that may not be touched while `a` is under way."""
    return next((y for y in b if any(x.clashes(y) for x in a)), None)


class Touched:
    """Asked for the regions of the statements of one function."""

    def __init__(self, main: PrimFunc, functions: Mapping[str, AnyFunction]) -> None:
        self._functions = functions
        self._places: dict[str, tuple[str, int, int]] = {}
        for param in main.params:
            if isinstance(param.value, Buffer):
                self._declare(param.value)
        for node in statements(main.body):
            if isinstance(node, Allocate):
                self._declare(node.buffer)
            elif isinstance(node, DeclBuffer):
                region = self._region(node.source, written=False)
                self._places[node.buffer.name] = (region.root, region.first, region.end)

    def of(self, stmt: Stmt) -> Regions:
        """What `stmt` and all that is in it touches."""
        found: list[Region] = []
        for node in statements(stmt):
            found += self._own_accesses(node)
        return tuple(dict.fromkeys(found))

    def own(self, stmt: Stmt) -> Regions:
        """What `stmt` touches itself; what is in it counts for itself."""
        return tuple(dict.fromkeys(self._own_accesses(stmt)))

    def _declare(self, buffer: Buffer) -> None:
        steps = zip(buffer.shape, buffer.element_strides, strict=True)
        last = sum((extent - 1) * stride for extent, stride in steps)
        self._places[buffer.name] = (buffer.name, 0, (last + 1) * buffer.dtype.size_bytes)

    def _call(self, call: CallPrim) -> Iterator[Region]:
        callee = self._functions.get(call.callee)
        if not isinstance(callee, PrimFunc) or len(callee.params) != len(call.args):
            for arg in call.args:
                yield from self._accesses(arg)
            return
        for param, arg in zip(callee.params, call.args, strict=True):
            if not isinstance(arg, AccessPtr):
                yield from self._accesses(arg)
                continue
            if param.role in _READING:
                yield self._region(arg, written=False)
            if param.role in _WRITING:
                yield self._region(arg, written=True)

    def _own_accesses(self, stmt: Stmt) -> Iterator[Region]:
        if isinstance(stmt, CallPrim):
            yield from self._call(stmt)
            return
        if isinstance(stmt, BufferStore):
            yield Region(*self._place(stmt.buffer), True)
        for part in children(stmt):
            if isinstance(part, Expr):
                yield from self._accesses(part)

    def _accesses(self, node: Node) -> Iterator[Region]:
        for part in walk(node):
            if isinstance(part, BufferLoad):
                yield Region(*self._place(part.buffer), False)
            elif isinstance(part, AccessPtr):
                yield self._region(part, written="w" in part.access)

    def _place(self, buffer: Buffer) -> tuple[str, int, int]:
        return self._places.get(buffer.name, (buffer.name, 0, buffer.size_bytes))

    def _region(self, pointer: AccessPtr, *, written: bool) -> Region:
        root, first, end = self._place(pointer.buffer)
        if isinstance(pointer.offset, IntImm):
            step = pointer.buffer.dtype.size_bytes
            begin = first + pointer.offset.value * step
            return Region(root, begin, begin + pointer.extent * step, written)
        return Region(root, first, end, written)
