"""Memory traffic of a program by buffer: bytes and accesses.

A loop with an unknown trip count is counted as eight iterations, and both branches of an If are
counted. Accesses through pointers are counted as four-byte words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from firmwright.ir import tir
from firmwright.ir.module import AnyFunction
from firmwright.ir.tir.traversal import Node, children

_UNKNOWN_TRIPS = 8
_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class MemoryTraffic:
    """Bytes and accesses of one buffer in one run."""

    read_bytes: int = 0
    written_bytes: int = 0
    reads: int = 0
    writes: int = 0

    def __add__(self, other: MemoryTraffic) -> MemoryTraffic:
        return MemoryTraffic(
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
            self.reads + other.reads,
            self.writes + other.writes,
        )

    def scaled(self, trips: int) -> MemoryTraffic:
        return MemoryTraffic(
            self.read_bytes * trips,
            self.written_bytes * trips,
            self.reads * trips,
            self.writes * trips,
        )


NO_TRAFFIC = MemoryTraffic()


def count_traffic(
    func: tir.PrimFunc, functions: Mapping[str, AnyFunction]
) -> dict[str, MemoryTraffic]:
    """Return the traffic by buffer; an access through a view counts for its underlying buffer."""
    return _TrafficCounter(functions).of(func)


@dataclass
class _TrafficCounter:
    functions: Mapping[str, AnyFunction]
    memo: dict[str, dict[str, MemoryTraffic]] = field(default_factory=dict)

    def of(self, func: tir.PrimFunc) -> dict[str, MemoryTraffic]:
        if func.name not in self.memo:
            visitor = _FunctionTraffic(self)
            visitor.visit(func.body, 1)
            self.memo[func.name] = visitor.moved
        return self.memo[func.name]


class _FunctionTraffic:
    def __init__(self, count: _TrafficCounter) -> None:
        self.count = count
        self.moved: dict[str, MemoryTraffic] = {}
        self._parents: dict[str, str] = {}

    def visit(self, node: Node, trips: int) -> None:
        match node:
            case tir.For(extent=tir.IntImm(value=count)):
                inside = trips * count
            case tir.For():
                inside = trips * _UNKNOWN_TRIPS
            case tir.While():
                inside = trips * _UNKNOWN_TRIPS
            case _:
                inside = trips
        match node:
            case tir.PrimFuncCall(phase="wait"):
                return  # its traffic was counted at the start
            case tir.PrimFuncCall():
                self._call(node, trips)
                return
            case tir.DeclBuffer(buffer, source, body):
                self._parents[buffer.name] = self._root(source.buffer.name)
                self.visit(source.offset, trips)
                self.visit(body, trips)
                return
            case tir.BufferLoad(buffer, _) if buffer.scope != "reg":
                self._add(
                    buffer.name, MemoryTraffic(buffer.dtype.size_bytes, 0, 1, 0).scaled(trips)
                )
            case tir.BufferStore(buffer, _, _) if buffer.scope != "reg":
                self._add(
                    buffer.name, MemoryTraffic(0, buffer.dtype.size_bytes, 0, 1).scaled(trips)
                )
            case tir.AccessPtr(buffer, _, extent, access) if buffer.scope != "reg":
                moved = _pointer_traffic(extent * buffer.dtype.size_bytes, access)
                self._add(buffer.name, moved.scaled(trips))
            case _:
                pass
        for child in children(node):
            self.visit(child, inside)

    def _call(self, node: tir.PrimFuncCall, trips: int) -> None:
        callee = self.count.functions.get(node.callee)
        if not isinstance(callee, tir.PrimFunc):
            return
        inside = self.count.of(callee)
        for arg, param in zip(node.args, callee.params, strict=True):
            if isinstance(arg, tir.AccessPtr):
                self._add(arg.buffer.name, inside.get(param.name, NO_TRAFFIC).scaled(trips))
                self.visit(arg.offset, trips)

    def _add(self, name: str, moved: MemoryTraffic) -> None:
        root = self._root(name)
        self.moved[root] = self.moved.get(root, NO_TRAFFIC) + moved

    def _root(self, name: str) -> str:
        return self._parents.get(name, name)


def _pointer_traffic(size_bytes: int, access: str) -> MemoryTraffic:
    words = max(1, size_bytes // _WORD_BYTES)
    read, written = "r" in access, "w" in access
    return MemoryTraffic(size_bytes * read, size_bytes * written, words * read, words * written)
