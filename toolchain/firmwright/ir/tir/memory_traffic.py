"""Memory traffic of a program by buffer, and the cycles that it takes.

A loop with an unknown trip count is counted as eight iterations, and both branches of
an If are counted. Accesses through pointers are counted as four-byte words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
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
            trips * self.read_bytes,
            trips * self.written_bytes,
            trips * self.reads,
            trips * self.writes,
        )


NO_TRAFFIC = MemoryTraffic()


def count_traffic(
    func: tir.PrimFunc, functions: Mapping[str, AnyFunction]
) -> dict[str, MemoryTraffic]:
    """Return the traffic by buffer; views count for their underlying buffer."""
    return _traffic_of(func, functions, {})


def _traffic_of(
    func: tir.PrimFunc,
    functions: Mapping[str, AnyFunction],
    memo: dict[str, dict[str, MemoryTraffic]],
) -> dict[str, MemoryTraffic]:
    if func.name not in memo:
        counter = _TrafficCounter(functions, memo)
        counter.visit(func.body, 1)
        memo[func.name] = counter.moved
    return memo[func.name]


class _TrafficCounter:
    """Counts the traffic of one function; `memo` has that of its callees by name."""

    def __init__(
        self,
        functions: Mapping[str, AnyFunction],
        memo: dict[str, dict[str, MemoryTraffic]],
    ) -> None:
        self.functions, self.memo = functions, memo
        self.moved: dict[str, MemoryTraffic] = {}
        self._roots: dict[str, str] = {}

    def visit(self, node: Node, trips: int) -> None:
        inside = trips
        match node:
            case tir.PrimFuncCall():
                if node.phase != "wait":  # its traffic was counted at the start
                    self._call(node, trips)
                return
            case tir.DeclBuffer(buffer, source):
                parent = source.buffer.name
                self._roots[buffer.name] = self._roots.get(parent, parent)
                self.visit(source.offset, trips)
                self.visit(node.body, trips)
                return
            case tir.For(extent=tir.IntImm(value=count)):
                inside *= count
            case tir.For() | tir.While():
                inside *= _UNKNOWN_TRIPS
            case tir.BufferLoad(buffer) if buffer.scope != "reg":
                read = MemoryTraffic(read_bytes=buffer.dtype.size_bytes, reads=1)
                self._add(buffer, read, trips)
            case tir.BufferStore(buffer) if buffer.scope != "reg":
                written = MemoryTraffic(written_bytes=buffer.dtype.size_bytes, writes=1)
                self._add(buffer, written, trips)
            case tir.AccessPtr(buffer, _, extent, access) if buffer.scope != "reg":
                size_bytes = extent * buffer.dtype.size_bytes
                self._add(buffer, _pointer_traffic(size_bytes, access), trips)
        for child in children(node):
            self.visit(child, inside)

    def _call(self, node: tir.PrimFuncCall, trips: int) -> None:
        callee = self.functions.get(node.callee)
        if not isinstance(callee, tir.PrimFunc):
            return
        moved = _traffic_of(callee, self.functions, self.memo)
        for arg, param in zip(node.args, callee.params, strict=True):
            if isinstance(arg, tir.AccessPtr):
                self._add(arg.buffer, moved.get(param.name, NO_TRAFFIC), trips)
                self.visit(arg.offset, trips)

    def _add(self, buffer: tir.Buffer, moved: MemoryTraffic, trips: int) -> None:
        root = self._roots.get(buffer.name, buffer.name)
        self.moved[root] = self.moved.get(root, NO_TRAFFIC) + moved.scaled(trips)


def _pointer_traffic(size_bytes: int, access: str) -> MemoryTraffic:
    words = max(1, size_bytes // _WORD_BYTES)
    read, written = "r" in access, "w" in access
    return MemoryTraffic(
        read_bytes=size_bytes * read,
        written_bytes=size_bytes * written,
        reads=words * read,
        writes=words * written,
    )


def has_known_speed(pool: PoolInfo) -> bool:
    return bool(pool.read_bandwidth) and bool(pool.write_bandwidth)


def transfer_cycles(moved: MemoryTraffic, pool: PoolInfo) -> float:
    assert pool.read_bandwidth is not None
    assert pool.write_bandwidth is not None
    return (
        moved.read_bytes / pool.read_bandwidth
        + moved.written_bytes / pool.write_bandwidth
        + moved.reads * (pool.read_latency or 0)
        + moved.writes * (pool.write_latency or 0)
    )
