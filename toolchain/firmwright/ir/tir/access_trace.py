"""Tracing of a kernel's accesses to one input and one output parameter.

All iterations of a statement (its lanes) are computed at once; times follow program order.
Data-dependent accesses are assumed to happen; a data-dependent address or trip count makes the
result unknown. Writes to the input count as reads and writes; reads of the output are ignored. A
loop that only reads or only writes linear addresses is reduced to its first and last iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firmwright.base.dtypes import BOOL
from firmwright.ir import tir
from firmwright.ir.tir.affine import Bounds, linearize
from firmwright.ir.tir.binary_functions import ARRAY_FUNCTIONS
from firmwright.ir.tir.traversal import children, free_vars, statements, walk

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
_Value: TypeAlias = "int | Ints | None"

EVENTS_MAX = 1 << 22
"""Limit of enumerated accesses."""
_TIME_MAX = 1 << 62


class UnknownAccessError(Exception):
    """An access cannot be located, or there are too many; assume that all bytes are accessed."""


@dataclass(frozen=True, slots=True)
class AccessLog:
    """Accesses as arrays of times, first bytes, end bytes (exclusive) and output flags."""

    time: Ints
    start: Ints
    end: Ints
    write: Bools

    def select(self, index: Ints) -> AccessLog:
        return AccessLog(self.time[index], self.start[index], self.end[index], self.write[index])


@dataclass(frozen=True, slots=True)
class _ProgramPoint:
    """The time and the values of the variables in each lane.

    `places` holds the byte offset of each view of the two parameters.
    """

    lanes: int
    time: Ints
    values: Mapping[str, _Value]
    places: Mapping[str, _Value]

    def select(self, index: Ints, names: frozenset[str]) -> _ProgramPoint:
        def pick(values: Mapping[str, _Value]) -> dict[str, _Value]:
            return {
                name: value[index] if isinstance(value, np.ndarray) else value
                for name, value in values.items()
                if name in names
            }

        return _ProgramPoint(len(index), self.time[index], pick(self.values), pick(self.places))

    def after(self, slots: int) -> _ProgramPoint:
        return replace(self, time=self.time + slots)


@dataclass
class AccessTracer:
    """One traversal of a kernel body. With `reduce_loops` off, every iteration is enumerated."""

    source: str
    result: str
    body: tir.Stmt
    reduce_loops: bool = True
    _is_output: dict[str, bool] = field(default_factory=dict)
    _slots: dict[int, int] = field(default_factory=dict)
    _kinds: dict[int, frozenset[str]] = field(default_factory=dict)
    _names: dict[int, frozenset[str]] = field(default_factory=dict)
    _events: list[tuple[Ints, _Value, int, bool]] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        self._is_output = {self.source: False, self.result: True}
        for part in statements(self.body):
            if isinstance(part, tir.DeclBuffer) and part.source.buffer.name in self._is_output:
                self._is_output[part.buffer.name] = self._is_output[part.source.buffer.name]

    def run(self) -> AccessLog:
        """Return all accesses; raise UnknownAccessError if they cannot be determined."""
        self._duration(self.body, Bounds())
        start = _ProgramPoint(1, np.zeros(1, np.int64), {}, {self.source: 0, self.result: 0})
        self._stmt(self.body, start)
        empty = np.zeros(0, np.int64)
        times, starts, ends, writes = [empty], [empty], [empty], [empty != 0]
        for when, point, size, write in self._events:
            place = np.broadcast_to(np.asarray(point, np.int64), when.shape)
            times.append(when)
            starts.append(place)
            ends.append(place + size)
            writes.append(np.full(when.shape, write))
        time, first, end = (np.concatenate(part) for part in (times, starts, ends))
        return AccessLog(time, first, end, np.concatenate(writes))

    def max_events(self) -> int:
        """Return an upper bound of the accesses that `run` enumerates if no loop is shortened."""
        return self._max_events(self.body, Bounds())

    # ---- what is known before the walk -------------------------------------------------------

    def _kinds_below(self, node: tir.Stmt | tir.Expr) -> frozenset[str]:
        """Return which of the two parameters `node` accesses: read, write, both or none."""
        kinds = self._kinds.get(id(node))
        if kinds is None:
            parts = (self._kinds_below(part) for part in children(node))
            kinds = frozenset(self._own_kinds(node)).union(*parts)
            self._kinds[id(node)] = kinds
        return kinds

    def _own_kinds(self, part: tir.Stmt | tir.Expr) -> str:
        match part:
            case tir.BufferLoad(buffer) if self._is_output.get(buffer.name) is False:
                return "r"
            case tir.BufferStore(buffer) if buffer.name in self._is_output:
                return "w"
            case tir.IntrinsicCall(_, args):
                return "".join(
                    "w" if self._is_output[arg.buffer.name] else "r"
                    for arg in args
                    if isinstance(arg, tir.AccessPtr) and arg.buffer.name in self._is_output
                )
            case tir.Evaluate(call):
                registers = (arg for arg in call.args if isinstance(arg, tir.BufferLoad))
                return "w" if any(self._is_output.get(r.buffer.name) for r in registers) else ""
            case tir.PrimFuncCall(args=args):
                return "".join(
                    "w" if self._is_output[arg.buffer.name] else "r"
                    for arg in args
                    if isinstance(arg, tir.AccessPtr) and arg.buffer.name in self._is_output
                )
            case _:
                return ""

    def _names_below(self, node: tir.Stmt | tir.Expr) -> frozenset[str]:
        below = self._names.get(id(node))
        if below is None:
            names = {part for child in children(node) for part in self._names_below(child)}
            if isinstance(node, tir.Var):
                names.add(node.name)
            elif isinstance(node, tir.BufferLoad | tir.BufferStore | tir.AccessPtr):
                names.add(node.buffer.name)
            below = self._names[id(node)] = frozenset(names)
        return below

    def _max_events(self, node: tir.Stmt | tir.Expr, bounds: Bounds) -> int:
        match node:
            case tir.For(var, start, extent, body):
                trips = bounds.tight_interval_of(extent)
                inner = bounds.with_loop(var, start, extent)
                return EVENTS_MAX + 1 if trips is None else trips[1] * self._max_events(body, inner)
            case tir.Let(var, value, body):
                return self._max_events(value, bounds) + self._max_events(
                    body, bounds.with_let(var, value)
                )
            case _:
                parts = sum(self._max_events(part, bounds) for part in children(node))
                return len(self._own_kinds(node)) + parts

    def _duration(self, node: tir.Stmt, bounds: Bounds) -> int:
        match node:
            case _ if not self._kinds_below(node):
                total = 2
            case tir.For(var, start, extent, body):
                trips = bounds.tight_interval_of(extent)
                if trips is None:
                    raise UnknownAccessError
                inner = bounds.with_loop(var, start, extent)
                total = 2 + self._duration(body, inner) * max(trips[1], 0)
            case tir.Let(var, value, body):
                total = 2 + self._duration(body, bounds.with_let(var, value))
            case tir.Seq(stmts):
                total = sum(self._duration(stmt, bounds) for stmt in stmts)
            case tir.If(_, then, orelse):
                total = 2 + self._duration(then, bounds)
                total += self._duration(orelse, bounds) if orelse is not None else 0
            case tir.Allocate(body=body) | tir.AllocateConst(body=body) | tir.DeclBuffer(body=body):
                total = 2 + self._duration(body, bounds)
            case tir.While():
                raise UnknownAccessError
            case _:
                total = 2
        if total > _TIME_MAX or self._slots.setdefault(id(node), total) != total:
            raise UnknownAccessError
        return total

    # ---- statements --------------------------------------------------------------------------

    def _stmt(self, node: tir.Stmt, point: _ProgramPoint) -> None:
        """Record the accesses of `node`, which takes two time slots before its children."""
        if not point.lanes or not self._kinds_below(node):
            return
        match node:
            case tir.Seq(stmts):
                for stmt in stmts:
                    self._stmt(stmt, point)
                    point = point.after(self._slots[id(stmt)])
            case tir.For(_, start, extent, _):
                self._reads(point, start, extent)
                self._loop(node, point.after(2))
            case tir.Let(var, value, body):
                self._reads(point, value)
                values = {**point.values, var.name: evaluate_lanes(value, point.values)}
                self._stmt(body, replace(point.after(2), values=values))
            case tir.If():
                self._branches(node, point)
            case tir.Allocate(body=body) | tir.AllocateConst(body=body):
                self._stmt(body, point.after(2))
            case tir.DeclBuffer(buffer, source, body):
                self._reads(point, source.offset)
                self._stmt(body, self._with_view(buffer, source, point.after(2)))
            case tir.BufferStore(buffer, indices, value):
                self._reads(point, *indices, value)
                if buffer.name in self._is_output:
                    self._element(buffer, indices, point.after(1), write=True)
            case tir.Evaluate(call=tir.IntrinsicCall(args=args) as call) | (
                tir.PrimFuncCall(args=args) as call
            ):
                # The callee's writes may precede its reads.
                self._reads(point.after(1), *args)
                self._written_through(call, point)

    def _branches(self, node: tir.If, point: _ProgramPoint) -> None:
        self._reads(point, node.cond)
        holds = evaluate_lanes(node.cond, point.values)
        later = point.after(2)
        for body, taken_if in ((node.then, True), (node.orelse, False)):
            if body is None:
                continue
            if isinstance(holds, np.ndarray):
                index = np.flatnonzero((holds != 0) == taken_if)
                self._stmt(body, later.select(index, self._names_below(body)))
            elif holds is None or bool(holds) == taken_if:
                self._stmt(body, later)
            later = later.after(self._slots[id(body)])

    def _loop(self, node: tir.For, point: _ProgramPoint) -> None:
        first, trips = (
            evaluate_lanes(node.start, point.values),
            evaluate_lanes(node.extent, point.values),
        )
        if first is None or trips is None:
            raise UnknownAccessError
        counts = np.maximum(np.broadcast_to(np.asarray(trips, np.int64), (point.lanes,)), 0)
        ends_only = self.reduce_loops and self._is_linear(node)
        steps_taken = np.minimum(counts, 2) if ends_only else counts
        total = int(steps_taken.sum())
        if total > EVENTS_MAX:
            raise UnknownAccessError
        index = np.repeat(np.arange(point.lanes), steps_taken)
        step = np.arange(total) - (np.cumsum(steps_taken) - steps_taken)[index]
        if ends_only:
            step = step * np.maximum(counts - 1, 0)[index]
        names = self._names_below(node.body)
        inner = point.select(index, names)
        start = first[index] if isinstance(first, np.ndarray) else first
        values = {**inner.values, node.var.name: start + step}
        time = inner.time + step * self._slots[id(node.body)]
        self._stmt(node.body, replace(inner, time=time, values=values))

    def _with_view(
        self, buffer: tir.Buffer, source: tir.AccessPtr, point: _ProgramPoint
    ) -> _ProgramPoint:
        if buffer.name not in self._is_output:
            return point
        offset = evaluate_lanes(source.offset, point.values)
        place = _add_scaled(
            point.places[source.buffer.name], offset, source.buffer.dtype.size_bytes
        )
        return replace(point, places={**point.places, buffer.name: place})

    # ---- accesses ----------------------------------------------------------------------------

    def _reads(self, point: _ProgramPoint, *nodes: tir.Expr) -> None:
        for part in (part for node in nodes for part in walk(node)):
            match part:
                case tir.BufferLoad(buffer, indices) if self._is_output.get(buffer.name) is False:
                    self._element(buffer, indices, point, write=False)
                case tir.AccessPtr(buffer) if self._is_output.get(buffer.name) is False:
                    self._pointer(part, point, write=False)

    def _written_through(
        self, call: tir.IntrinsicCall | tir.PrimFuncCall, point: _ProgramPoint
    ) -> None:
        for part in walk(call):
            match part:
                case tir.AccessPtr(buffer) if self._is_output.get(buffer.name):
                    self._pointer(part, point, write=True)
                case tir.BufferLoad(buffer, indices) if self._is_output.get(buffer.name):
                    self._element(buffer, indices, point, write=True)

    def _pointer(self, part: tir.AccessPtr, point: _ProgramPoint, *, write: bool) -> None:
        size = part.buffer.dtype.size_bytes
        offset = evaluate_lanes(part.offset, point.values)
        self._record(
            point,
            _add_scaled(point.places[part.buffer.name], offset, size),
            part.extent * size,
            write,
        )

    def _element(
        self,
        buffer: tir.Buffer,
        indices: tuple[tir.Expr, ...],
        point: _ProgramPoint,
        *,
        write: bool,
    ) -> None:
        place, size = point.places[buffer.name], buffer.dtype.size_bytes
        for index, stride in zip(indices, buffer.element_strides, strict=True):
            place = _add_scaled(place, evaluate_lanes(index, point.values), stride * size)
        self._record(point, place, size, write)

    def _record(self, point: _ProgramPoint, place: _Value, size: int, write: bool) -> None:
        self._count += point.lanes
        if place is None or self._count > EVENTS_MAX:
            raise UnknownAccessError
        self._events.append((point.time, place, size, write))

    # ---- which loops may be reduced --------------------------------------------------------

    def _is_linear(self, loop: tir.For) -> bool:
        """Return whether the first and last iteration enclose the accesses of all others."""
        if len(self._kinds_below(loop.body)) > 1:
            return False
        return self._is_linear_in(loop.body, {loop.var.name})

    def _is_linear_in(self, node: tir.Stmt, varying: set[str]) -> bool:
        if not self._kinds_below(node):
            return True
        match node:
            case tir.Let(var, value, body):
                if free_vars(value).isdisjoint(varying):
                    return self._is_linear_in(body, varying)
                return _is_linear_expr(value, varying) and self._is_linear_in(
                    body, varying | {var.name}
                )
            case tir.For(_, start, extent, body):
                outside = free_vars(start) | free_vars(extent)
                return outside.isdisjoint(varying) and self._is_linear_in(body, varying)
            case tir.If(cond, then, orelse):
                parts = [then] if orelse is None else [then, orelse]
                return free_vars(cond).isdisjoint(varying) and all(
                    self._is_linear_in(part, varying) for part in parts
                )
            case tir.Seq(stmts):
                return all(self._is_linear_in(stmt, varying) for stmt in stmts)
            case tir.Allocate(body=body) | tir.AllocateConst(body=body):
                return self._is_linear_in(body, varying)
            case tir.DeclBuffer(_, source, body):
                return _is_linear_expr(source.offset, varying) and self._is_linear_in(body, varying)
            case _:
                return all(self._addresses_linear(part, varying) for part in walk(node))

    def _addresses_linear(self, part: tir.Stmt | tir.Expr, varying: set[str]) -> bool:
        match part:
            case tir.BufferLoad(buffer, indices) | tir.BufferStore(buffer, indices):
                if buffer.name not in self._is_output:
                    return True
                return all(_is_linear_expr(index, varying) for index in indices)
            case tir.AccessPtr(buffer, offset):
                return buffer.name not in self._is_output or _is_linear_expr(offset, varying)
            case _:
                return True


def _is_linear_expr(node: tir.Expr, varying: set[str]) -> bool:
    return all(
        isinstance(atom, tir.Var) or free_vars(atom).isdisjoint(varying)
        for atom in linearize(node).terms
    )


def _add_scaled(place: _Value, offset: _Value, scale: int) -> _Value:
    return None if place is None or offset is None else place + offset * scale


def evaluate_lanes(node: tir.Expr, values: Mapping[str, _Value]) -> _Value:
    """Evaluate `node` in every lane, bools as 0 and 1; return None if it depends on memory.

    Unsigned arithmetic wraps by definition; where it would wrap, the result is unknown.
    """
    match node:
        case tir.IntImm(value):
            return value if -(1 << 63) <= value < 1 << 63 else None
        case tir.Var(name):
            return values.get(name)
        case tir.Binary(op, a, b):
            x, y = evaluate_lanes(a, values), evaluate_lanes(b, values)
            if x is None or y is None:
                return None
            result = _apply(op, x, y)
            dtype = node.dtype
            if dtype.is_int and not dtype.signed:
                return None if dtype.bits == 64 else _convert(result, dtype.min, dtype.max)
            return result
        case tir.Not(a):
            x = evaluate_lanes(a, values)
            return None if x is None else 1 - x
        case tir.Cast(dtype, value) if dtype.is_int and (value.dtype.is_int or value.dtype == BOOL):
            return _convert(evaluate_lanes(value, values), dtype.min, dtype.max)
        case tir.Select(cond, a, b):
            holds, x, y = (evaluate_lanes(part, values) for part in (cond, a, b))
            if holds is None or x is None or y is None:
                return None
            return _bools_to_ints(np.where(np.asarray(holds) != 0, x, y))
        case _:
            return None


def _convert(value: _Value, least: int, most: int) -> _Value:
    if value is None or not np.all((np.asarray(value) >= least) & (np.asarray(value) <= most)):
        return None
    return value


def _bools_to_ints(value: Any) -> int | Ints:
    array = np.asarray(value, np.int64)
    return array if array.ndim else int(array)


def _apply(op: str, x: int | Ints, y: int | Ints) -> _Value:
    a, b = np.asarray(x, np.int64), np.asarray(y, np.int64)
    if op in ARRAY_FUNCTIONS:
        return _bools_to_ints(ARRAY_FUNCTIONS[op](a, b))
    if op not in ("div", "mod") or not np.all(b):
        return None
    quotient = np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)
    return _bools_to_ints(quotient if op == "div" else a - quotient * b)
