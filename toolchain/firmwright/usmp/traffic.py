"""How often a program touches its buffers: bytes and accesses, by buffer.

In: a PrimFunc and the functions that it calls. Out: `Traffic` of its parameters and of the buffers
that it allocates or links. Trip counts are taken as written; a loop whose count is not known is
taken to run eight times, and both branches of an If are counted. An access through a pointer moves
words of four bytes. Registers are no memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from firmwright.ir.module import AnyFunction
from firmwright.ir.tir.nodes import (
    AccessPtr,
    BufferLoad,
    BufferStore,
    CallPrim,
    DeclBuffer,
    For,
    IntImm,
    PrimFunc,
    While,
)
from firmwright.ir.tir.walk import Node, children

_UNKNOWN_TRIPS = 8
_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one run moves from and to a buffer."""

    read_bytes: int = 0
    written_bytes: int = 0
    reads: int = 0
    writes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
            self.reads + other.reads,
            self.writes + other.writes,
        )

    def times(self, trips: int) -> Traffic:
        return Traffic(
            self.read_bytes * trips,
            self.written_bytes * trips,
            self.reads * trips,
            self.writes * trips,
        )


NONE = Traffic()


def traffic_of(func: PrimFunc, functions: Mapping[str, AnyFunction]) -> dict[str, Traffic]:
    """By buffer name; windows count for what they lie in."""
    return _Count(functions).of(func)


@dataclass
class _Count:
    """`known` remembers functions, which may be called often."""

    functions: Mapping[str, AnyFunction]
    known: dict[str, dict[str, Traffic]] = field(default_factory=dict)

    def of(self, func: PrimFunc) -> dict[str, Traffic]:
        if func.name not in self.known:
            found = _Function(self)
            found.visit(func.body, 1)
            self.known[func.name] = found.moved
        return self.known[func.name]


class _Function:
    """One function's walk."""

    def __init__(self, count: _Count) -> None:
        self.count = count
        self.moved: dict[str, Traffic] = {}
        self._parents: dict[str, str] = {}

    def visit(self, node: Node, trips: int) -> None:
        match node:
            case For(extent=IntImm(value=count)):
                inside = trips * count
            case For():
                inside = trips * _UNKNOWN_TRIPS
            case While():
                inside = trips * _UNKNOWN_TRIPS
            case _:
                inside = trips
        match node:
            case CallPrim(phase="wait"):
                return  # its start has been counted
            case CallPrim():
                self._call(node, trips)
                return
            case DeclBuffer(buffer, source, body):
                self._parents[buffer.name] = self._root(source.buffer.name)
                self.visit(source.offset, trips)
                self.visit(body, trips)
                return
            case BufferLoad(buffer, _) if buffer.scope != "reg":
                self._add(buffer.name, Traffic(buffer.dtype.size_bytes, 0, 1, 0).times(trips))
            case BufferStore(buffer, _, _) if buffer.scope != "reg":
                self._add(buffer.name, Traffic(0, buffer.dtype.size_bytes, 0, 1).times(trips))
            case AccessPtr(buffer, _, extent, access) if buffer.scope != "reg":
                moved = _pointed(extent * buffer.dtype.size_bytes, access)
                self._add(buffer.name, moved.times(trips))
            case _:
                pass
        for child in children(node):
            self.visit(child, inside)

    def _call(self, node: CallPrim, trips: int) -> None:
        callee = self.count.functions.get(node.callee)
        if not isinstance(callee, PrimFunc):
            return
        inside = self.count.of(callee)
        for arg, param in zip(node.args, callee.params, strict=True):
            if isinstance(arg, AccessPtr):
                self._add(arg.buffer.name, inside.get(param.name, NONE).times(trips))
                self.visit(arg.offset, trips)

    def _add(self, name: str, moved: Traffic) -> None:
        root = self._root(name)
        self.moved[root] = self.moved.get(root, NONE) + moved

    def _root(self, name: str) -> str:
        return self._parents.get(name, name)


def _pointed(size_bytes: int, access: str) -> Traffic:
    words = max(1, size_bytes // _WORD_BYTES)
    read, written = "r" in access, "w" in access
    return Traffic(size_bytes * read, size_bytes * written, words * read, words * written)
