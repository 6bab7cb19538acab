"""Every access of a kernel to an input and an output: when, to which bytes.

In: a kernel's body and the names of two parameters. Out: `Marks`, one for each access to them, in
no order; times follow the order of the text. Everything is computed at once over the iterations
that lead to a statement (its lanes). Whatever depends on data counts as happening; where an address
or a trip count does, the accesses are unknown. Writes to the input count as reads and writes of
neither matter; reads of the output matter to nobody and are left out.

A loop that only reads, or only writes, is shortened to its first and last iteration where addresses
are linear in its variable and nothing else depends on it: all else lies between those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firmwright.base.dtypes import BOOL
from firmwright.ir.tir.affine import Bounds, linearize
from firmwright.ir.tir.nodes import (
    AccessPtr,
    Allocate,
    AllocateConst,
    Binary,
    Buffer,
    BufferLoad,
    BufferStore,
    Call,
    CallPrim,
    Cast,
    DeclBuffer,
    Evaluate,
    Expr,
    For,
    If,
    IntImm,
    Let,
    Not,
    Select,
    Seq,
    Stmt,
    Var,
    While,
)
from firmwright.ir.tir.walk import children, statements, walk

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
_Value: TypeAlias = "int | Ints | None"

EVENTS_MAX = 1 << 22
"""More accesses than this are not enumerated."""
_TIME_MAX = 1 << 62


class UnknownAccessError(Exception):
    """An access cannot be located, or there are too many; callers take memory to be touched."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Accesses: when, from which byte to which (exclusive), whether it writes the output."""

    time: Ints
    start: Ints
    end: Ints
    write: Bools

    def picked(self, index: Ints) -> Marks:
        return Marks(self.time[index], self.start[index], self.end[index], self.write[index])


@dataclass(frozen=True, slots=True)
class _Point:
    """A place in the program: for each lane when it is reached and what variables hold there.

    `places` has the byte offset of each window of the two parameters.
    """

    lanes: int
    time: Ints
    values: Mapping[str, _Value]
    places: Mapping[str, _Value]

    def picked(self, index: Ints, used: frozenset[str]) -> _Point:
        """Those lanes; variables and windows that are not `used` are dropped."""

        def pick(values: Mapping[str, _Value]) -> dict[str, _Value]:
            return {
                name: value[index] if isinstance(value, np.ndarray) else value
                for name, value in values.items()
                if name in used
            }

        return _Point(len(index), self.time[index], pick(self.values), pick(self.places))

    def after(self, slots: int) -> _Point:
        return replace(self, time=self.time + slots)


@dataclass
class Trace:
    """One walk through a kernel's body. Without `shortened` every iteration is enumerated."""

    source: str
    result: str
    body: Stmt
    shortened: bool = True
    _is_output: dict[str, bool] = field(default_factory=dict)
    _slots: dict[int, int] = field(default_factory=dict)
    _kinds: dict[int, frozenset[str]] = field(default_factory=dict)
    _names: dict[int, frozenset[str]] = field(default_factory=dict)
    _found: list[tuple[Ints, _Value, int, bool]] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        self._is_output = {self.source: False, self.result: True}
        for part in statements(self.body):
            if isinstance(part, DeclBuffer) and part.source.buffer.name in self._is_output:
                self._is_output[part.buffer.name] = self._is_output[part.source.buffer.name]

    def run(self) -> Marks:
        """All accesses. UnknownAccessError if they cannot be told."""
        self._duration(self.body, Bounds())
        start = _Point(1, np.zeros(1, np.int64), {}, {self.source: 0, self.result: 0})
        self._stmt(self.body, start)
        empty = np.zeros(0, np.int64)
        times, starts, ends, writes = [empty], [empty], [empty], [empty != 0]
        for when, at, size, write in self._found:
            place = np.broadcast_to(np.asarray(at, np.int64), when.shape)
            times.append(when)
            starts.append(place)
            ends.append(place + size)
            writes.append(np.full(when.shape, write))
        time, first, end = (np.concatenate(part) for part in (times, starts, ends))
        return Marks(time, first, end, np.concatenate(writes))

    def most_events(self) -> int:
        """What `run` enumerates at most, if it shortens no loop."""
        return self._most(self.body, Bounds())

    # ---- what is known before the walk -------------------------------------------------------

    def _kinds_below(self, node: Stmt | Expr) -> frozenset[str]:
        """What happens to the two parameters: r, w, both, nothing."""
        known = self._kinds.get(id(node))
        if known is None:
            parts = (self._kinds_below(part) for part in children(node))
            known = frozenset(self._own_kinds(node)).union(*parts)
            self._kinds[id(node)] = known
        return known

    def _own_kinds(self, part: Stmt | Expr) -> str:
        match part:
            case BufferLoad(buffer) if self._is_output.get(buffer.name) is False:
                return "r"
            case BufferStore(buffer) if buffer.name in self._is_output:
                return "w"
            case Call(_, args):
                return "".join(
                    "w" if self._is_output[arg.buffer.name] else "r"
                    for arg in args
                    if isinstance(arg, AccessPtr) and arg.buffer.name in self._is_output
                )
            case Evaluate(call):
                registers = (arg for arg in call.args if isinstance(arg, BufferLoad))
                return "w" if any(self._is_output.get(r.buffer.name) for r in registers) else ""
            case CallPrim(args=args):
                return "".join(
                    "w" if self._is_output[arg.buffer.name] else "r"
                    for arg in args
                    if isinstance(arg, AccessPtr) and arg.buffer.name in self._is_output
                )
            case _:
                return ""

    def _names_below(self, node: Stmt | Expr) -> frozenset[str]:
        """Variables and buffers that occur."""
        known = self._names.get(id(node))
        if known is None:
            names = {part for child in children(node) for part in self._names_below(child)}
            if isinstance(node, Var):
                names.add(node.name)
            elif isinstance(node, BufferLoad | BufferStore | AccessPtr):
                names.add(node.buffer.name)
            known = self._names[id(node)] = frozenset(names)
        return known

    def _most(self, node: Stmt | Expr, bounds: Bounds) -> int:
        match node:
            case For(var, start, extent, body):
                trips = bounds.tight(extent)
                inner = bounds.with_loop(var, start, extent)
                return EVENTS_MAX + 1 if trips is None else trips[1] * self._most(body, inner)
            case Let(var, value, body):
                return self._most(value, bounds) + self._most(body, bounds.with_let(var, value))
            case _:
                parts = sum(self._most(part, bounds) for part in children(node))
                return len(self._own_kinds(node)) + parts

    def _duration(self, node: Stmt, bounds: Bounds) -> int:
        """The slots of time that `node` takes at most; remembered for every statement."""
        match node:
            case _ if not self._kinds_below(node):
                total = 2
            case For(var, start, extent, body):
                trips = bounds.tight(extent)
                if trips is None:
                    raise UnknownAccessError
                inner = bounds.with_loop(var, start, extent)
                total = 2 + self._duration(body, inner) * max(trips[1], 0)
            case Let(var, value, body):
                total = 2 + self._duration(body, bounds.with_let(var, value))
            case Seq(stmts):
                total = sum(self._duration(stmt, bounds) for stmt in stmts)
            case If(_, then, orelse):
                total = 2 + self._duration(then, bounds)
                total += self._duration(orelse, bounds) if orelse is not None else 0
            case Allocate(body=body) | AllocateConst(body=body) | DeclBuffer(body=body):
                total = 2 + self._duration(body, bounds)
            case While():
                raise UnknownAccessError
            case _:
                total = 2
        if total > _TIME_MAX or self._slots.setdefault(id(node), total) != total:
            raise UnknownAccessError
        return total

    # ---- statements --------------------------------------------------------------------------

    def _stmt(self, node: Stmt, at: _Point) -> None:
        """Takes down what `node` accesses; it has two slots of its own, before its parts."""
        if not at.lanes or not self._kinds_below(node):
            return
        match node:
            case Seq(stmts):
                for stmt in stmts:
                    self._stmt(stmt, at)
                    at = at.after(self._slots[id(stmt)])
            case For(_, start, extent, _):
                self._reads(at, start, extent)
                self._loop(node, at.after(2))
            case Let(var, value, body):
                self._reads(at, value)
                values = {**at.values, var.name: evaluate(value, at.values)}
                self._stmt(body, replace(at.after(2), values=values))
            case If():
                self._branches(node, at)
            case Allocate(body=body) | AllocateConst(body=body):
                self._stmt(body, at.after(2))
            case DeclBuffer(buffer, source, body):
                self._reads(at, source.offset)
                self._stmt(body, self._with_window(buffer, source, at.after(2)))
            case BufferStore(buffer, indices, value):
                self._reads(at, *indices, value)
                if buffer.name in self._is_output:
                    self._element(buffer, indices, at.after(1), write=True)
            case Evaluate(call=Call(args=args) as call) | (CallPrim(args=args) as call):
                # What it writes may come before what it reads.
                self._reads(at.after(1), *args)
                self._written_through(call, at)

    def _branches(self, node: If, at: _Point) -> None:
        self._reads(at, node.cond)
        holds = evaluate(node.cond, at.values)
        later = at.after(2)
        for body, wanted in ((node.then, True), (node.orelse, False)):
            if body is None:
                continue
            if isinstance(holds, np.ndarray):
                index = np.flatnonzero((holds != 0) == wanted)
                self._stmt(body, later.picked(index, self._names_below(body)))
            elif holds is None or bool(holds) == wanted:
                self._stmt(body, later)
            later = later.after(self._slots[id(body)])

    def _loop(self, node: For, at: _Point) -> None:
        first, trips = evaluate(node.start, at.values), evaluate(node.extent, at.values)
        if first is None or trips is None:
            raise UnknownAccessError
        counts = np.maximum(np.broadcast_to(np.asarray(trips, np.int64), (at.lanes,)), 0)
        ends_only = self.shortened and self._is_linear(node)
        if ends_only:
            steps_taken = np.minimum(counts, 2)
        else:
            steps_taken = counts
        total = int(steps_taken.sum())
        if total > EVENTS_MAX:
            raise UnknownAccessError
        index = np.repeat(np.arange(at.lanes), steps_taken)
        step = np.arange(total) - (np.cumsum(steps_taken) - steps_taken)[index]
        if ends_only:
            step = step * np.maximum(counts - 1, 0)[index]
        used = self._names_below(node.body)
        inner = at.picked(index, used)
        start = first[index] if isinstance(first, np.ndarray) else first
        values = {**inner.values, node.var.name: start + step}
        time = inner.time + step * self._slots[id(node.body)]
        self._stmt(node.body, replace(inner, time=time, values=values))

    def _with_window(self, buffer: Buffer, source: AccessPtr, at: _Point) -> _Point:
        if buffer.name not in self._is_output:
            return at
        offset = evaluate(source.offset, at.values)
        place = _sum(at.places[source.buffer.name], offset, source.buffer.dtype.size_bytes)
        return replace(at, places={**at.places, buffer.name: place})

    # ---- accesses ----------------------------------------------------------------------------

    def _reads(self, at: _Point, *nodes: Expr) -> None:
        for part in (part for node in nodes for part in walk(node)):
            match part:
                case BufferLoad(buffer, indices) if self._is_output.get(buffer.name) is False:
                    self._element(buffer, indices, at, write=False)
                case AccessPtr(buffer) if self._is_output.get(buffer.name) is False:
                    self._pointer(part, at, write=False)

    def _written_through(self, call: Call | CallPrim, at: _Point) -> None:
        for part in walk(call):
            match part:
                case AccessPtr(buffer) if self._is_output.get(buffer.name):
                    self._pointer(part, at, write=True)
                case BufferLoad(buffer, indices) if self._is_output.get(buffer.name):
                    self._element(buffer, indices, at, write=True)

    def _pointer(self, part: AccessPtr, at: _Point, *, write: bool) -> None:
        size = part.buffer.dtype.size_bytes
        offset = evaluate(part.offset, at.values)
        self._mark(at, _sum(at.places[part.buffer.name], offset, size), part.extent * size, write)

    def _element(
        self, buffer: Buffer, indices: tuple[Expr, ...], at: _Point, *, write: bool
    ) -> None:
        place, size = at.places[buffer.name], buffer.dtype.size_bytes
        for index, stride in zip(indices, buffer.element_strides, strict=True):
            place = _sum(place, evaluate(index, at.values), stride * size)
        self._mark(at, place, size, write)

    def _mark(self, at: _Point, place: _Value, size: int, write: bool) -> None:
        self._count += at.lanes
        if place is None or self._count > EVENTS_MAX:
            raise UnknownAccessError
        self._found.append((at.time, place, size, write))

    # ---- which loops may be shortened --------------------------------------------------------

    def _is_linear(self, loop: For) -> bool:
        """Whether the accesses of the first and last iteration enclose those between."""
        if len(self._kinds_below(loop.body)) > 1:
            return False
        return self._is_linear_in(loop.body, {loop.var.name})

    def _is_linear_in(self, node: Stmt, varying: set[str]) -> bool:
        """`varying` are the variables that change with the loop's, linearly."""
        if not self._kinds_below(node):
            return True
        match node:
            case Let(var, value, body):
                if _free(value).isdisjoint(varying):
                    return self._is_linear_in(body, varying)
                return _linear(value, varying) and self._is_linear_in(body, varying | {var.name})
            case For(_, start, extent, body):
                outside = _free(start) | _free(extent)
                return outside.isdisjoint(varying) and self._is_linear_in(body, varying)
            case If(cond, then, orelse):
                parts = [then] if orelse is None else [then, orelse]
                return _free(cond).isdisjoint(varying) and all(
                    self._is_linear_in(part, varying) for part in parts
                )
            case Seq(stmts):
                return all(self._is_linear_in(stmt, varying) for stmt in stmts)
            case Allocate(body=body) | AllocateConst(body=body):
                return self._is_linear_in(body, varying)
            case DeclBuffer(_, source, body):
                return _linear(source.offset, varying) and self._is_linear_in(body, varying)
            case _:
                return all(self._addresses_linear(part, varying) for part in walk(node))

    def _addresses_linear(self, part: Stmt | Expr, varying: set[str]) -> bool:
        match part:
            case BufferLoad(buffer, indices) | BufferStore(buffer, indices):
                if buffer.name not in self._is_output:
                    return True
                return all(_linear(index, varying) for index in indices)
            case AccessPtr(buffer, offset):
                return buffer.name not in self._is_output or _linear(offset, varying)
            case _:
                return True


def _free(node: Expr) -> set[str]:
    return {part.name for part in walk(node) if isinstance(part, Var)}


def _linear(node: Expr, varying: set[str]) -> bool:
    """Whether `node` is an affine form of the `varying` variables, plus what does not vary."""
    form = linearize(node, opaque=True)
    return form is not None and all(
        isinstance(atom, Var) or _free(atom).isdisjoint(varying) for atom in form.terms
    )


def _sum(place: _Value, offset: _Value, scale: int) -> _Value:
    return None if place is None or offset is None else place + offset * scale


def evaluate(node: Expr, values: Mapping[str, _Value]) -> _Value:
    """`node` in every lane, bools as 0 and 1; None where it depends on memory.

    Unsigned arithmetic wraps, by its definition; where it would, nothing is known.
    """
    match node:
        case IntImm(value):
            return value if -(1 << 63) <= value < 1 << 63 else None
        case Var(name):
            return values.get(name)
        case Binary(op, a, b):
            x, y = evaluate(a, values), evaluate(b, values)
            if x is None or y is None:
                return None
            found = _applied(op, x, y)
            dtype = node.dtype
            if dtype.is_int and not dtype.signed:
                return None if dtype.bits == 64 else _converted(found, dtype.min, dtype.max)
            return found
        case Not(a):
            x = evaluate(a, values)
            return None if x is None else 1 - x
        case Cast(dtype, value) if dtype.is_int and (value.dtype.is_int or value.dtype == BOOL):
            return _converted(evaluate(value, values), dtype.min, dtype.max)
        case Select(cond, a, b):
            holds, x, y = (evaluate(part, values) for part in (cond, a, b))
            if holds is None or x is None or y is None:
                return None
            return _plain(np.where(np.asarray(holds) != 0, x, y))
        case _:
            return None


def _converted(value: _Value, least: int, most: int) -> _Value:
    """Unknown where the conversion would cut."""
    if value is None or not np.all((np.asarray(value) >= least) & (np.asarray(value) <= most)):
        return None
    return value


def _plain(value: Any) -> int | Ints:
    found = np.asarray(value, np.int64)
    return found if found.ndim else int(found)


def _applied(op: str, x: int | Ints, y: int | Ints) -> _Value:  # noqa: C901 - one case for each
    a, b = np.asarray(x, np.int64), np.asarray(y, np.int64)
    match op:
        case "add":
            return _plain(a + b)
        case "sub":
            return _plain(a - b)
        case "mul":
            return _plain(a * b)
        case "min":
            return _plain(np.minimum(a, b))
        case "max":
            return _plain(np.maximum(a, b))
        case "div" | "mod":
            if not np.all(b):
                return None
            quotient = np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)
            return _plain(quotient if op == "div" else a - quotient * b)
        case "shl":
            return _plain(a << b)
        case "shr":
            return _plain(a >> b)
        case "and":
            return _plain(a & b)
        case "or":
            return _plain(a | b)
        case "xor":
            return _plain(a ^ b)
        case "lt":
            return _plain(a < b)
        case "le":
            return _plain(a <= b)
        case "gt":
            return _plain(a > b)
        case "ge":
            return _plain(a >= b)
        case "eq":
            return _plain(a == b)
        case "ne":
            return _plain(a != b)
        case _:
            return None
