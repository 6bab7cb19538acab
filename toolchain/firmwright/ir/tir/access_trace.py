"""Tracing of a kernel's accesses to one input and one output parameter.

All iterations of a statement are computed at once; times follow program order.
Data-dependent accesses are assumed to happen, anywhere in the range of an address; if
that or a trip count is unknown, so is the result. Stores to the input count as writes;
reads of the output are ignored. Loops with linear addresses are reduced to their first
and last iterations (decision 0017).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from firmwright.ir import tir
from firmwright.ir.tir.affine import Bounds, has_load, linearize
from firmwright.ir.tir.expr_evaluation import Ints, LaneValue, evaluate_lanes
from firmwright.ir.tir.intervals import Interval
from firmwright.ir.tir.traversal import (
    Node,
    child_statements,
    children,
    free_vars,
    statements,
    walk,
)

Bools: TypeAlias = NDArray[np.bool_]
_MemoryNode = tir.BufferLoad | tir.BufferStore | tir.AccessPtr

EVENTS_MAX = 1 << 22
"""Limit of enumerated accesses."""
_TIME_MAX = 1 << 62


class UnknownAccessError(Exception):
    """An access cannot be located, or too many exist: all bytes count as accessed."""


@dataclass(frozen=True, slots=True)
class AccessLog:
    """Accesses as arrays of times, first bytes, end bytes (exclusive), write flags."""

    time: Ints
    start: Ints
    end: Ints
    write: Bools

    def select(self, index: Ints) -> AccessLog:
        return AccessLog(
            self.time[index], self.start[index], self.end[index], self.write[index]
        )


@dataclass(frozen=True, slots=True)
class _ProgramPoint:
    """Time, variables of each lane, and byte offsets of the parameters' views."""

    lanes: int
    time: Ints
    values: Mapping[str, LaneValue]
    places: Mapping[str, LaneValue]

    def select(self, index: Ints, names: frozenset[str]) -> _ProgramPoint:
        def pick(values: Mapping[str, LaneValue]) -> dict[str, LaneValue]:
            return {
                name: value[index] if isinstance(value, np.ndarray) else value
                for name, value in values.items()
                if name in names
            }

        return _ProgramPoint(
            len(index), self.time[index], pick(self.values), pick(self.places)
        )

    def after(self, slots: int) -> _ProgramPoint:
        return _ProgramPoint(self.lanes, self.time + slots, self.values, self.places)


@dataclass
class AccessTracer:
    """Traversals of a kernel body."""

    source: str
    result: str
    body: tir.Stmt
    _is_output: dict[str, bool] = field(default_factory=dict)
    _slots: dict[int, int] = field(default_factory=dict)
    _kinds: dict[int, frozenset[str]] = field(default_factory=dict)
    _names: dict[int, frozenset[str]] = field(default_factory=dict)
    _events: list[tuple[Ints, LaneValue, int, bool]] = field(default_factory=list)
    _count: int = 0
    _modulus: int = 1
    _ranges: dict[tir.Expr, Interval | None] = field(default_factory=dict)
    _spreads: dict[str, int] = field(default_factory=dict)
    is_exact: bool = True
    """Whether all places are known; those that depend on a table are ranges."""

    def __post_init__(self) -> None:
        self._is_output = {self.source: False, self.result: True}
        for part in statements(self.body):
            if isinstance(part, tir.DeclBuffer):
                source = part.source.buffer.name
                if source in self._is_output:
                    self._is_output[part.buffer.name] = self._is_output[source]

    def _fixed_registers(self) -> dict[str, LaneValue]:
        """Return the numbers in registers that are stored once and used by no block.

        A block may change the registers that are its operands.
        """
        uses: Counter[str] = Counter()
        stored: dict[str, tir.Expr] = {}
        for part in statements(self.body):
            match part:
                case tir.BufferStore(buffer, _, value) if buffer.scope == "reg":
                    uses[buffer.name] += 1
                    stored[buffer.name] = value
                case tir.Evaluate(call):
                    for arg in call.args:
                        if isinstance(arg, _MemoryNode):
                            uses[arg.buffer.name] += 1
        fixed: dict[str, LaneValue] = {}
        for name, value in stored.items():
            if uses[name] == 1 and isinstance(value, tir.IntImm):
                fixed[name] = value.value
        return fixed

    def run(self, modulus: int = 1) -> AccessLog:
        """Return all accesses; raise UnknownAccessError if they cannot be determined.

        Only loops that advance every address by a multiple of `modulus` bytes are
        reduced; none if it is 0.
        """
        self._events, self._count, self._modulus = [], 0, modulus
        if not self._slots:
            self._duration(self.body, Bounds())
        registers, places = self._fixed_registers(), {self.source: 0, self.result: 0}
        start = _ProgramPoint(1, np.zeros(1, np.int64), registers, places)
        self._stmt(self.body, start)
        empty = np.zeros(0, np.int64)
        parts = [(empty, empty, empty, empty != 0)]
        for time, place, size, write in self._events:
            first = np.broadcast_to(np.asarray(place, np.int64), time.shape)
            parts.append((time, first, first + size, np.full(time.shape, write)))
        return AccessLog(*map(np.concatenate, zip(*parts, strict=True)))

    def max_events(self) -> int:
        """Return a bound on the accesses that `run` lists if it shortens no loop."""
        return self._max_events(self.body, Bounds())

    def _kinds_below(self, node: tir.Stmt) -> frozenset[str]:
        """Return the kinds of accesses: "r" reads the input, "w" writes a parameter."""
        kinds = self._kinds.get(id(node))
        if kinds is None:
            nested = map(self._kinds_below, child_statements(node))
            own = map(self._own_kinds, (node, *_own_expressions(node)))
            kinds = self._kinds[id(node)] = frozenset().union(*own, *nested)
        return kinds

    def _own_kinds(self, part: Node) -> str:
        match part:
            case tir.BufferLoad(buffer) if self._is_output.get(buffer.name) is False:
                return "r"
            case tir.BufferStore(buffer) if buffer.name in self._is_output:
                return "w"
            case tir.IntrinsicCall(args=args) | tir.PrimFuncCall(args=args):
                return "".join(map(self._pointer_kind, args))
            case tir.Evaluate(call):
                return "w" if any(map(self._loads_output, call.args)) else ""
            case _:
                return ""

    def _pointer_kind(self, arg: tir.Expr) -> str:
        if not isinstance(arg, tir.AccessPtr) or arg.buffer.name not in self._is_output:
            return ""
        return "w" if self._is_output[arg.buffer.name] else "r"

    def _loads_output(self, arg: tir.Expr) -> bool:
        return isinstance(arg, tir.BufferLoad) and bool(
            self._is_output.get(arg.buffer.name)
        )

    def _names_below(self, node: tir.Stmt) -> frozenset[str]:
        below = self._names.get(id(node))
        if below is None:
            nested = map(self._names_below, child_statements(node))
            own: set[str] = set()
            for part in (node, *_own_expressions(node)):
                if isinstance(part, tir.Var):
                    own.add(part.name)
                elif isinstance(part, _MemoryNode):
                    own.add(part.buffer.name)
            below = self._names[id(node)] = frozenset(own).union(*nested)
        return below

    def _max_events(self, node: tir.Stmt, bounds: Bounds) -> int:
        match node:
            case tir.For(var, start, extent, body):
                trips = bounds.tight_interval_of(extent)
                if trips is None:
                    return EVENTS_MAX + 1
                inner = bounds.with_loop(var, start, extent)
                return trips[1] * self._max_events(body, inner)
            case tir.Let(var, value):
                bounds = bounds.with_let(var, value)
        events = 0
        if self._kinds_below(node):
            for part in (node, *_own_expressions(node)):
                events += len(self._own_kinds(part))
        for stmt in child_statements(node):
            events += self._max_events(stmt, bounds)
        return events

    def _duration(self, node: tir.Stmt, bounds: Bounds) -> int:
        parts = child_statements(node) if self._kinds_below(node) else ()
        total, times = 2, 1
        match node:
            case _ if not parts:
                pass
            case tir.For(var, start, extent):
                trips = bounds.tight_interval_of(extent)
                if trips is None:
                    raise UnknownAccessError
                bounds, times = bounds.with_loop(var, start, extent), max(trips[1], 0)
            case tir.Let(var, value) if not has_load(value):
                bounds = bounds.with_let(var, value)
            case tir.Seq():
                total = 0
            case tir.While():
                raise UnknownAccessError
        total += times * sum(self._duration(part, bounds) for part in parts)
        if total > _TIME_MAX or self._slots.setdefault(id(node), total) != total:
            raise UnknownAccessError
        return total

    def _stmt(self, node: tir.Stmt, point: _ProgramPoint) -> None:
        """Record the accesses of `node`, which takes two slots before its children."""
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
                lanes = evaluate_lanes(value, point.values)
                if lanes is None:
                    self._ranges[var] = Bounds().interval_of(value)
                values = {**point.values, var.name: lanes}
                self._stmt(body, replace(point.after(2), values=values))
            case tir.If():
                self._branches(node, point)
            case tir.Allocate(body=body) | tir.AllocateConst(body=body):
                self._stmt(body, point.after(2))
            case tir.DeclBuffer(buffer, source, body):
                self._reads(point, source.offset)
                later = point.after(2)
                if buffer.name in self._is_output:
                    place, self._spreads[buffer.name] = self._place(source, point)
                    later = replace(later, places={**point.places, buffer.name: place})
                self._stmt(body, later)
            case tir.BufferStore(buffer, indices, value):
                self._reads(point, *indices, value)
                if buffer.name in self._is_output:
                    self._record(node, point.after(1), write=True)
            case (
                tir.Evaluate(call=tir.IntrinsicCall(args=args))
                | tir.PrimFuncCall(args=args)
            ):
                # The callee's writes may precede its reads.
                self._reads(point.after(1), *args)
                self._accesses(point, args, write=True)

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
        first = evaluate_lanes(node.start, point.values)
        trips = evaluate_lanes(node.extent, point.values)
        if first is None or trips is None:
            raise UnknownAccessError
        trips_of_lanes = np.broadcast_to(np.asarray(trips, np.int64), (point.lanes,))
        counts = np.maximum(trips_of_lanes, 0)
        ends = self._needed_ends(node) if self._modulus else 0
        steps_taken = np.minimum(counts, 2 * ends) if ends else counts
        total = int(steps_taken.sum())
        if total > EVENTS_MAX:
            raise UnknownAccessError
        # Each lane becomes one lane per step: for two lanes with 2 and 3 steps, `index`
        # is 0 0 1 1 1 and `step` is 0 1 0 1 2.
        index = np.repeat(np.arange(point.lanes), steps_taken)
        step = np.arange(total) - (np.cumsum(steps_taken) - steps_taken)[index]
        if ends:
            # The steps after the first `ends` are the last ones of the loop.
            step = np.where(step < ends, step, step + (counts - steps_taken)[index])
        inner = point.select(index, self._names_below(node.body))
        start = first[index] if isinstance(first, np.ndarray) else first
        values = {**inner.values, node.var.name: start + step}
        time = inner.time + step * self._slots[id(node.body)]
        self._stmt(node.body, replace(inner, time=time, values=values))

    def _reads(self, point: _ProgramPoint, *nodes: tir.Expr) -> None:
        self._accesses(point, nodes, write=False)

    def _accesses(
        self, point: _ProgramPoint, nodes: Iterable[tir.Expr], *, write: bool
    ) -> None:
        for node in nodes:
            for part in walk(node):
                if not isinstance(part, tir.BufferLoad | tir.AccessPtr):
                    continue
                if self._is_output.get(part.buffer.name) is write:
                    self._record(part, point, write=write)

    def _record(self, node: _MemoryNode, point: _ProgramPoint, *, write: bool) -> None:
        size, time = node.buffer.dtype.size_bytes, point.time
        place, spread = self._place(node, point)
        self.is_exact &= not spread
        if isinstance(node, tir.AccessPtr):
            if node.stride > 1 and self._modulus > 1:
                # Only these elements count, of which each has its residue.
                offsets = np.arange(0, node.extent, node.stride) * size
                time = np.repeat(time, len(offsets))
                if place is not None:
                    firsts = np.broadcast_to(place, (point.lanes,))
                    place = (firsts[:, np.newaxis] + offsets).reshape(-1)
            else:
                size *= node.extent
        self._count += len(time)
        if place is None or self._count > EVENTS_MAX:
            raise UnknownAccessError
        self._events.append((time, place, size + spread, write))

    def _place(self, node: _MemoryNode, point: _ProgramPoint) -> tuple[LaneValue, int]:
        """Return the first byte, and by how many it may be less than the actual one."""
        name = node.buffer.name
        place, spread = point.places[name], self._spreads.get(name, 0)
        for index, stride in _strided_indices(node):
            offset, more = self._offset(index, point.values)
            if place is None or offset is None:
                return None, 0
            scale = stride * node.buffer.dtype.size_bytes
            place, spread = place + offset * scale, spread + more * scale
        return place, spread

    def _offset(
        self, index: tir.Expr, values: Mapping[str, LaneValue]
    ) -> tuple[LaneValue, int]:
        """Return the least value of an index, and by how much it may be greater."""
        exact = evaluate_lanes(index, values)
        if exact is not None:
            return exact, 0
        linear, more = linearize(index), 0
        total: int | Ints = linear.constant
        for atom, coefficient in linear.terms.items():
            value = evaluate_lanes(atom, values)
            if value is None:
                if (ends := self._ranges.get(atom)) is None:
                    return None, 0
                value, most = ends[:: 1 if coefficient > 0 else -1]
                more += (most - value) * coefficient
            total = total + value * coefficient
        return total, more

    def _needed_ends(self, loop: tir.For) -> int:
        """Return how many iterations at each end determine the hull; 0 if all do."""
        # The distance from a write to a later read is linear in the iterations of the
        # two. Its extremes are at equal, adjacent or extreme iterations, the first and
        # last of each.
        if not self._is_linear_in(loop.body, {loop.var.name}):
            return 0
        return len(self._kinds_below(loop.body)) or 1

    def _is_linear_in(self, node: tir.Stmt, varying: set[str]) -> bool:
        if not self._kinds_below(node):
            return True
        is_linear = True
        match node:
            case tir.Let(var, value) if not free_vars(value).isdisjoint(varying):
                is_linear = _is_linear_expr(value, varying)
                varying = varying | {var.name}
            case tir.For(_, start, extent):
                is_linear = (free_vars(start) | free_vars(extent)).isdisjoint(varying)
            case tir.If(cond):
                is_linear = free_vars(cond).isdisjoint(varying)
            case tir.DeclBuffer(_, source):
                is_linear = self._is_linear_access(source, varying)
            case tir.BufferStore() | tir.Evaluate() | tir.PrimFuncCall():
                is_linear = all(
                    self._is_linear_access(part, varying) for part in walk(node)
                )
        return is_linear and all(
            self._is_linear_in(part, varying) for part in child_statements(node)
        )

    def _is_linear_access(self, part: Node, varying: set[str]) -> bool:
        if not isinstance(part, _MemoryNode) or part.buffer.name not in self._is_output:
            return True
        size = part.buffer.dtype.size_bytes
        return all(
            _is_linear_expr(index, varying, stride * size, self._modulus)
            for index, stride in _strided_indices(part)
        )


def _own_expressions(node: tir.Stmt) -> Iterator[Node]:
    """Yield all expressions of `node` that are in none of its child statements."""
    parts = children(node)
    for part in parts[: len(parts) - len(child_statements(node))]:
        yield from walk(part)


def _is_linear_expr(
    node: tir.Expr, varying: set[str], scale: int = 1, modulus: int = 1
) -> bool:
    """Return whether `node` * `scale` changes linearly, by multiples of `modulus`."""
    for atom, coefficient in linearize(node).terms.items():
        if isinstance(atom, tir.Var) and coefficient * scale % modulus == 0:
            continue
        if not free_vars(atom).isdisjoint(varying):
            return False
    return True


def _strided_indices(node: _MemoryNode) -> Iterable[tuple[tir.Expr, int]]:
    """Return the first accessed element's indices, with their strides in elements."""
    if isinstance(node, tir.AccessPtr):
        return [(node.offset, 1)]
    return zip(node.indices, node.buffer.element_strides, strict=True)
