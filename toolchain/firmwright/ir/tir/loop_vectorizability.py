"""Finds loops with independent iterations, which may run as numpy lanes.

For every memory that the body writes and that is not private to an iteration, all
accesses of iteration v must be in `step*v + invariant + [low, high)`, possibly modulo
M, with disjoint ranges for different v. Registers that outlive an iteration make a loop
serial.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from firmwright.ir import tir
from firmwright.ir.tir import traversal
from firmwright.ir.tir.affine import Affine, Bounds, has_load, linearize
from firmwright.ir.tir.intervals import Interval
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.traversal import Node


@dataclass(frozen=True, slots=True)
class LoopScope:
    """The memories, registers and variables known at a program point.

    `places` maps each buffer in memory to its root and byte offset; `registers` names
    the `reg` buffers.
    """

    places: Mapping[str, tuple[str, Affine]]
    registers: frozenset[str] = frozenset()
    bounds: Bounds = field(default_factory=Bounds)

    def inside(self, node: tir.Stmt) -> LoopScope:
        """Return the scope of the statements in `node`."""
        match node:
            case tir.For(var, start, extent):
                return replace(self, bounds=self.bounds.with_loop(var, start, extent))
            case tir.Let(var, value):
                return replace(self, bounds=self.bounds.with_let(var, value))
            case tir.Allocate(buffer) if buffer.scope == "reg":
                return replace(self, registers=self.registers | {buffer.name})
            case tir.Allocate(buffer) | tir.AllocateConst(buffer):
                return self._with_place(buffer, (buffer.name, Affine({}, 0)))
            case tir.DeclBuffer(buffer, source):
                return self._with_place(buffer, self.address_of(source))
            case _:
                return self

    def _with_place(self, buffer: tir.Buffer, place: tuple[str, Affine]) -> LoopScope:
        return replace(self, places={**self.places, buffer.name: place})

    def linear(self, node: tir.Expr) -> Affine:
        return self.bounds.expand(linearize(node))

    def address_of(self, pointer: tir.AccessPtr) -> tuple[str, Affine]:
        """Return the root and the byte offset of a pointer."""
        root, base = self.places[pointer.buffer.name]
        size = pointer.buffer.dtype.size_bytes
        return root, base.plus(self.linear(pointer.offset), size)


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """An access to bytes [offset, offset + width) of a root, with its bounds."""

    root: str
    offset: Affine
    width: int
    write: bool
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class _OffsetRange:
    constant: int
    inner: tuple[tuple[int, Interval], ...]
    width: int


class _SerialError(Exception):
    """Internal signal: a loop must be serial, whatever it writes."""


def is_parallel(
    loop: tir.For,
    scope: LoopScope,
    intrinsics: IntrinsicTable,
    private: frozenset[str] = frozenset(),
) -> bool:
    """Return whether iterations are independent, with memories `private` in each."""
    try:
        collector = _AccessCollector(scope, intrinsics)
        accesses = list(collector.statement(loop.body, scope.inside(loop)))
    except _SerialError:
        return False
    written = {access.root for access in accesses if access.write}
    shared = {root for root, _ in scope.places.values()} & written
    for root in sorted(shared - private):
        of_root = [access for access in accesses if access.root == root]
        if not _are_disjoint(of_root, loop, scope):
            return False
    return True


def private_bytes(node: tir.Stmt) -> int:
    """Return an upper bound on the memory that one iteration of `node` allocates."""
    total = 0
    for part in traversal.statements(node):
        if isinstance(part, tir.Allocate):
            total += part.buffer.size_bytes
    return total


@dataclass(frozen=True, slots=True)
class _AccessCollector:
    outer: LoopScope
    intrinsics: IntrinsicTable

    def statement(self, node: tir.Stmt, scope: LoopScope) -> Iterator[MemoryAccess]:
        match node:
            case tir.Evaluate(call):
                yield from self._effects(call, scope)
                return
            case tir.PrimFuncCall():  # its effects are unknown here
                raise _SerialError
            case tir.DeclBuffer(source=source):  # a view accesses nothing
                yield from self.reads(scope, source.offset)
            case _:
                parts, inner = (
                    traversal.children(node),
                    traversal.child_statements(node),
                )
                yield from self.reads(scope, *parts[: len(parts) - len(inner)])
        if isinstance(node, tir.BufferStore):
            yield from self.element(node.buffer, node.indices, True, scope)
        for part in traversal.child_statements(node):
            yield from self.statement(part, scope.inside(node))

    def _effects(
        self, call: tir.IntrinsicCall, scope: LoopScope
    ) -> Iterator[MemoryAccess]:
        yield from self.reads(scope, *call.args)
        intrinsic = self.intrinsics.get(call.name)
        if intrinsic is None:
            raise _SerialError
        for operand, arg in zip(intrinsic.operands, call.args, strict=False):
            if operand.kind in ("out", "inout") and isinstance(arg, tir.BufferLoad):
                yield from self.element(arg.buffer, arg.indices, True, scope)

    def reads(self, scope: LoopScope, *nodes: Node) -> Iterator[MemoryAccess]:
        for part in chain.from_iterable(map(traversal.walk, nodes)):
            if isinstance(part, tir.BufferLoad):
                yield from self.element(part.buffer, part.indices, False, scope)
            elif isinstance(part, tir.AccessPtr):
                width = part.extent * part.buffer.dtype.size_bytes
                writes = "w" in part.access
                yield MemoryAccess(*scope.address_of(part), width, writes, scope.bounds)

    def element(
        self,
        buffer: tir.Buffer,
        indices: tuple[tir.Expr, ...],
        write: bool,
        scope: LoopScope,
    ) -> Iterator[MemoryAccess]:
        if buffer.scope == "reg":
            # Registers are numbered, so their number must be the same in all lanes.
            outlives = write and buffer.name in self.outer.registers
            if outlives or not all(isinstance(index, tir.IntImm) for index in indices):
                raise _SerialError
            return
        root, offset = scope.places[buffer.name]
        size = buffer.dtype.size_bytes
        for index, stride in zip(indices, buffer.element_strides, strict=True):
            offset = offset.plus(scope.linear(index), stride * size)
        yield MemoryAccess(root, offset, size, write, scope.bounds)


def _are_disjoint(
    accesses: list[MemoryAccess], loop: tir.For, outer: LoopScope
) -> bool:
    own_names = traversal.bound_vars(loop)
    splits = [_split_offset(access, loop, own_names) for access in accesses]
    windows = [window for _, _, window in splits if window is not None]
    step, invariant, _ = splits[0]
    if step == 0 or len(windows) < len(splits):
        return False
    if any((own, fixed) != (step, invariant) for own, fixed, _ in splits):
        return False
    iterations = outer.bounds.interval_of(loop.extent)
    reach = abs(step) * iterations[1] if iterations else 0
    moduli = _moduli(windows, reach)
    return any(_fits(windows, abs(step), reach, modulus) for modulus in moduli)


def _split_offset(
    access: MemoryAccess, loop: tir.For, own_names: set[str]
) -> tuple[int, frozenset[tuple[tir.Expr, int]], _OffsetRange | None]:
    step = 0
    invariant: set[tuple[tir.Expr, int]] = set()
    inner: list[tuple[int, Interval]] = []
    for term, factor in access.offset.terms.items():
        if term == loop.var:
            step = factor
        elif not has_load(term) and traversal.free_vars(term).isdisjoint(own_names):
            invariant.add((term, factor))
        else:
            limits = access.bounds.interval_of(term)
            if limits is None:
                return 0, frozenset(), None
            inner.append((factor, limits))
    window = _OffsetRange(access.offset.constant, tuple(inner), access.width)
    return step, frozenset(invariant), window


def _moduli(windows: list[_OffsetRange], reach: int) -> list[int]:
    """Return the moduli to try: 0 (none), and strides as long as the loop or longer."""
    strides: set[int] = set()
    for window in windows:
        strides.add(abs(window.constant - windows[0].constant))
        strides.update(abs(factor) for factor, _ in window.inner)
    rows = sorted(stride for stride in strides if stride >= reach > 0)
    return [0, *dict.fromkeys([*rows, math.gcd(*rows)] if rows else [])]


def _fits(windows: list[_OffsetRange], step: int, reach: int, modulus: int) -> bool:
    """Return whether all ranges, reduced by `modulus`, fit in one step together."""
    low, high = 0, 0
    for window in windows:
        start = window.constant - windows[0].constant
        if modulus:
            # Of the equal offsets modulo `modulus`, the nearest to 0.
            start = (start + modulus // 2) % modulus - modulus // 2
        least = greatest = start
        for factor, limits in window.inner:
            if modulus and factor % modulus == 0:
                continue
            ends = (factor * limits[0], factor * limits[1])
            least, greatest = least + min(ends), greatest + max(ends)
        low, high = min(low, least), max(high, greatest + window.width)
    if high - low > step:
        return False
    # The ranges of the last iteration must not meet those of the first, a period later.
    return not modulus or reach - step + (high - low) <= modulus
