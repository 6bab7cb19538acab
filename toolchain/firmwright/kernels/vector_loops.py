"""Loops with independent iterations in C with vector intrinsics.

The iterations of a vectorized loop are lanes of 32 bits. Loads widen narrow elements,
stores narrow them, and a 64-bit intermediate value is a pair of lanes:

    for i in n {                          for all vectors of i:
        p = i64(x[i]) * i64(w[i])             low = x * w, high = high half of x * w
        y[i] = i16(p >> 12)                   y = low >> 12 | high << 20
    }

All loads of a vector come before its stores. A loop that needs anything else, such as
floats or a branch, remains a loop of single elements.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from firmwright.base.dtypes import BOOL, INT32, INT64, UINT32, DType
from firmwright.ir import tir
from firmwright.ir.tir.affine import linearize
from firmwright.ir.tir.flat_index import flat_index
from firmwright.ir.tir.traversal import bound_vars, free_vars, substitute, walk
from firmwright.kernels.vector_writer import (
    Lanes,
    NotVectorizableError,
    Value,
    VectorWriter,
    WideLanes,
    lane_type,
    literal,
)


@dataclass(frozen=True, slots=True)
class ScalarText:
    """C that all lanes share: numbers, and addresses of elements.

    `number` takes an expression and its type, `pointer` a buffer and a flat index.
    """

    number: Callable[[tir.Expr, DType], str]
    pointer: Callable[[tir.Buffer, tir.Expr, bool], str]


_COMMUTATIVE = frozenset({"add", "mul", "min", "max", "and", "or", "xor"})
_OF_LOW_BITS = frozenset({"add", "sub", "mul", "shl", "and", "or", "xor"})
"""Operations, the low bits of which depend on those of the operands only."""
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_ZERO = literal(0, UINT32)


@dataclass(slots=True)
class LoopVectorizer:
    """Translates the body of a loop for one vector, from the loop's variable on."""

    loop: tir.For
    out: VectorWriter
    scalar: ScalarText
    values: dict[tir.Expr, Value] = field(default_factory=dict)
    varying: set[str] = field(default_factory=set)
    stores: list[tuple[tir.BufferStore, Lanes]] = field(default_factory=list)

    def write(self) -> None:
        """Write the loads and the arithmetic of a vector, then its stores."""
        self.varying = {self.loop.var.name, *bound_vars(self.loop.body)}
        self._statement(self.loop.body)
        for node, lanes in self.stores:
            index = flat_index(node.buffer, node.indices)
            address = self.scalar.pointer(node.buffer, index, False)
            self.out.store(node.buffer.dtype, address, lanes)

    def _statement(self, node: tir.Stmt) -> None:
        match node:
            case tir.Seq(stmts):
                for stmt in stmts:
                    self._statement(stmt)
            case tir.Let(var, value, body):
                if not self._is_shared(value):
                    self.values[var] = self._any_value(value)
                    self._statement(body)
                else:
                    self._statement(substitute(body, {var.name: value}))
            case tir.BufferStore(buffer, indices, value) if buffer.scope == "global":
                is_wide = buffer.dtype.bits > 32
                if is_wide or self._stride(flat_index(buffer, indices)) != 1:
                    raise NotVectorizableError
                self.stores.append((node, self._stored(buffer.dtype, value)))
            case _:
                raise NotVectorizableError

    def _stored(self, dtype: DType, value: tir.Expr) -> Lanes:
        """Return lanes whose low bits are stored as elements of `dtype`."""
        is_narrowed = isinstance(value, tir.Cast) and value.value.dtype.bits == 32
        if is_narrowed and dtype == value.dtype and dtype != BOOL:
            assert isinstance(value, tir.Cast)
            value = value.value
        lanes = self._vector(value)
        if lanes.dtype == BOOL:
            lanes = self._as_integers(lanes)
        return self._typed(lanes, INT32 if dtype.signed else UINT32)

    # ---- shared by lanes -------------------------------------------------------------

    def _is_shared(self, expr: tir.Expr) -> bool:
        return free_vars(expr).isdisjoint(self.varying)

    def _stride(self, index: tir.Expr) -> int | None:
        """Return the distance of the elements of successive lanes if it is constant."""
        form = linearize(index)
        rest = [term for term in form.terms if term != self.loop.var]
        if not all(map(self._is_shared, rest)):
            return None
        return form.coefficient(self.loop.var)

    # ---- values ----------------------------------------------------------------------

    def _value(self, expr: tir.Expr) -> Lanes:
        value = self._any_value(expr)
        if isinstance(value, WideLanes):
            raise NotVectorizableError
        return value

    def _vector(self, expr: tir.Expr) -> Lanes:
        return self._in_all_lanes(self._value(expr))

    def _in_all_lanes(self, value: Lanes) -> Lanes:
        return self.out.spread(value) if value.is_number else value

    def _any_value(self, expr: tir.Expr) -> Value:
        known = self.values.get(expr)
        if known is None:
            known = self.values[expr] = self._computed(expr)
        return known

    def _computed(self, expr: tir.Expr) -> Value:
        if expr.dtype.is_float or expr.dtype.computed_as:
            raise NotVectorizableError
        if self._is_shared(expr):
            return self._shared(expr)
        match expr:
            case tir.Var() if expr == self.loop.var:
                return self.out.index(self.scalar.number(expr, INT32))
            case tir.Cast(dtype, value):
                return self._cast(dtype, self._any_value(value), value.dtype)
            case tir.BufferLoad(buffer, indices):
                return self._load(buffer, flat_index(buffer, indices))
            case tir.Binary("mod", a, tir.IntImm(value)) if self._is_mask(a, value):
                return self._index(expr)
            case tir.Binary(op, a, b) if self._is_index(a) and self._is_index(b):
                return self._binary(op, self._index(a), self._index(b), INT32)
            case tir.Binary(op, a, b):
                return self._binary(op, self._any_value(a), self._any_value(b), a.dtype)
            case tir.Not(a):
                return self.out.invert(self._value(a))
            case tir.Select(cond, a, b):
                return self._select(expr.dtype, self._value(cond), a, b)
            case tir.IntrinsicCall("bit_length", (a,)):
                return self.out.bit_length(self._typed(self._vector(a), UINT32))
        raise NotVectorizableError

    def _is_mask(self, expr: tir.Expr, divisor: int) -> bool:
        """Return whether a remainder is that of the loop's variable by a power of 2."""
        return expr == self.loop.var and divisor > 0 and divisor & (divisor - 1) == 0

    def _shared(self, expr: tir.Expr) -> Value:
        dtype = expr.dtype
        if dtype.bits > 32:
            return self._shared_wide(expr)
        if dtype == BOOL:
            raise NotVectorizableError
        if isinstance(expr, tir.IntImm):
            return literal(expr.value, lane_type(dtype))
        lane = lane_type(dtype)
        return Lanes(self.scalar.number(expr, lane), lane, is_number=True)

    def _shared_wide(self, expr: tir.Expr) -> WideLanes:
        """Return a number of 64 bits that is the extension of one of 32."""
        match expr:
            case tir.Cast(dtype, value) if value.dtype.bits <= 32:
                number = self._value(value)
                if number.dtype != BOOL:
                    return self._widened(dtype, number)
            case tir.IntImm(value, dtype):
                lane = INT32 if dtype.signed else UINT32
                if 0 <= value <= lane.max:
                    number = literal(value, lane)
                    return WideLanes(literal(value, UINT32), _ZERO, dtype, number)
        raise NotVectorizableError

    def _is_index(self, expr: tir.Expr) -> bool:
        """Return whether an expression is an index that is not narrowed yet.

        Before the pass `narrow_index`, loop variables and indices are of 64 bits, which
        fit in 32. After it, numbers of 64 bits are those of the arithmetic.
        """
        if expr.dtype != INT64 or self.loop.var.dtype != INT64:
            return False
        match expr:
            case tir.IntImm(value):
                return INT32.min <= value <= INT32.max
            case tir.Var():
                return not isinstance(self.values.get(expr), WideLanes)
            case tir.Binary(_, a, b):
                return self._is_index(a) and self._is_index(b)
        return False

    def _index(self, expr: tir.Expr) -> Lanes:
        """Return an index, which fits in 32 bits whatever its type."""
        match expr:
            case tir.IntImm(value) if INT32.min <= value <= INT32.max:
                return literal(value, INT32)
            case _ if self._is_shared(expr):
                return Lanes(self.scalar.number(expr, INT32), INT32, is_number=True)
            case tir.Var() if expr == self.loop.var:
                return self.out.index(self.scalar.number(expr, INT32))
            case tir.Binary("mod", a, tir.IntImm(value)) if self._is_mask(a, value):
                mask = literal(value - 1, INT32)
                return self._arithmetic("and", self._index(a), mask)
            case tir.Binary(op, a, b) if op in _OF_LOW_BITS:
                lanes = self._binary(op, self._index(a), self._index(b), INT32)
                assert isinstance(lanes, Lanes)
                return lanes
        known = self._any_value(expr)
        return self._typed(known.low if isinstance(known, WideLanes) else known, INT32)

    def _load(self, buffer: tir.Buffer, index: tir.Expr) -> Lanes:
        if buffer.scope == "reg" or buffer.dtype.bits > 32 or buffer.dtype.is_float:
            raise NotVectorizableError
        stride = self._stride(index)
        if stride is not None and stride > 0:
            address = self.scalar.pointer(buffer, index, True)
            lanes = self.out.load(buffer.dtype, address, stride)
        else:
            start = self.scalar.pointer(buffer, tir.IntImm(0, index.dtype), True)
            places = self._typed(self._in_all_lanes(self._index(index)), UINT32)
            lanes = self.out.gather(buffer.dtype, start, places)
        if buffer.dtype == BOOL:
            return self.out.compare("ne", lanes, literal(0, lanes.dtype))
        return lanes

    def _typed(self, lanes: Lanes, dtype: DType) -> Lanes:
        """Return the lanes with the bits of a type of 32 bits."""
        if lanes.dtype == dtype:
            return lanes
        if lanes.dtype == BOOL:
            raise NotVectorizableError
        if lanes.value is not None:
            bits = lanes.value % (1 << 32)
            wrapped = bits - (1 << 32) if dtype.signed and bits > INT32.max else bits
            return literal(wrapped, dtype)
        if lanes.is_number:
            return Lanes(f"({dtype.c_type})({lanes.text})", dtype, is_number=True)
        return self.out.reinterpret(lanes, dtype)

    def _as_integers(self, predicate: Lanes) -> Lanes:
        one, zero = (self.out.spread(literal(value, UINT32)) for value in (1, 0))
        return self.out.select(predicate, one, zero)

    def _cast(self, dtype: DType, value: Value, source: DType) -> Value:
        if isinstance(value, WideLanes):
            if dtype.bits == 64:
                return WideLanes(value.low, value.high, dtype, value.source)
            if dtype == BOOL:
                raise NotVectorizableError
            return self._narrowed(value.low, dtype)
        if source == BOOL:
            value = self._as_integers(value)
        if dtype == BOOL:
            return self.out.compare("ne", value, literal(0, value.dtype))
        if dtype.bits == 64:
            return self._widened(dtype, value)
        is_kept = source.min >= dtype.min and source.max <= dtype.max
        if source == BOOL or is_kept:
            return self._typed(value, lane_type(dtype))
        return self._narrowed(value, dtype)

    def _narrowed(self, lanes: Lanes, dtype: DType) -> Lanes:
        """Return the low bits of lanes as numbers of a type of at most 32 bits."""
        typed = self._typed(lanes, lane_type(dtype))
        if dtype.bits == 32:
            return typed
        if not dtype.signed:
            return self._arithmetic("and", typed, literal(dtype.max, UINT32))
        amount = literal(32 - dtype.bits, INT32)
        return self._shift("shr", self._shift("shl", typed, amount), amount)

    def _widened(self, dtype: DType, lanes: Lanes) -> WideLanes:
        low = self._typed(lanes, UINT32)
        if lanes.dtype == UINT32 or (lanes.value is not None and lanes.value >= 0):
            return WideLanes(low, _ZERO, dtype, self._typed(lanes, UINT32))
        signs = self._shift("shr", self._in_all_lanes(lanes), literal(31, INT32))
        return WideLanes(low, self._typed(signs, UINT32), dtype, lanes)

    # ---- arithmetic ------------------------------------------------------------------

    def _select(self, dtype: DType, cond: Lanes, a: tir.Expr, b: tir.Expr) -> Lanes:
        if dtype == BOOL or dtype.bits > 32:
            raise NotVectorizableError
        lane = lane_type(dtype)
        sides = [self._typed(self._vector(part), lane) for part in (a, b)]
        return self.out.select(cond, *sides)

    def _binary(self, op: str, a: Value, b: Value, dtype: DType) -> Value:
        if isinstance(a, WideLanes) or isinstance(b, WideLanes):
            if isinstance(a, WideLanes) and isinstance(b, WideLanes):
                return self._wide(op, a, b)
            raise NotVectorizableError
        if a.dtype == BOOL:
            if op not in ("and", "or", "xor"):
                raise NotVectorizableError
            return self.out.combine(op, a, b)
        if op in tir.COMPARISONS:
            if a.is_number:
                op, a, b = _MIRRORED[op], b, a
            return self.out.compare(op, a, self._typed(b, a.dtype))
        may_wrap = op not in ("and", "or", "xor", "min", "max", "shr")
        if may_wrap and dtype.bits < 32 and not dtype.signed:
            raise NotVectorizableError
        if op in ("shl", "shr"):
            return self._shift(op, self._in_all_lanes(a), b)
        return self._arithmetic(op, a, b)

    def _shift(self, op: str, a: Lanes, amount: Lanes) -> Lanes:
        return a if amount.value == 0 else self.out.shift(op, a, amount)

    def _arithmetic(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        b = self._typed(b, a.dtype)
        if a.is_number and op in _COMMUTATIVE:
            a, b = b, a
        if op == "add" and b.value == 0:
            return a
        return self.out.binary(op, self._in_all_lanes(a), b)

    def _wide(self, op: str, a: WideLanes, b: WideLanes) -> WideLanes:
        match op:
            case "mul":
                return self._wide_product(a, b)
            case "add":
                low = self._arithmetic("add", a.low, b.low)
                carry = self.out.compare("lt", low, self._in_all_lanes(b.low))
                high = self._in_all_lanes(self._arithmetic("add", a.high, b.high))
                more = self._arithmetic("add", high, literal(1, UINT32))
                return WideLanes(low, self.out.select(carry, more, high), a.dtype)
            case "shr" if b.low.value == 32 and not a.dtype.signed:
                return WideLanes(a.high, _ZERO, a.dtype, a.high)
            case "shr" if b.low.value is not None and 0 < b.low.value < 32:
                lane = INT32 if a.dtype.signed else UINT32
                amount = literal(b.low.value, INT32)
                high = self._in_all_lanes(self._typed(a.high, lane))
                left = self._shift(
                    "shl", self._typed(high, UINT32), literal(32 - b.low.value, INT32)
                )
                right = self._shift("shr", self._in_all_lanes(a.low), amount)
                rest = self._typed(self._shift("shr", high, amount), UINT32)
                return WideLanes(self._arithmetic("or", right, left), rest, a.dtype)
        raise NotVectorizableError

    def _wide_product(self, a: WideLanes, b: WideLanes) -> WideLanes:
        if a.source is None or b.source is None:
            raise NotVectorizableError
        x, y = a.source, b.source
        if x.dtype != y.dtype:
            # A number from 0 to INT32.max has either type.
            x, y = (self._typed(v, INT32) if v.is_natural else v for v in (x, y))
        if x.dtype != y.dtype or (x.is_number and y.is_number):
            raise NotVectorizableError
        if x.is_number:
            x, y = y, x
        low = self._typed(self.out.binary("mul", x, y), UINT32)
        high = self._typed(self.out.binary("mulh", x, y), UINT32)
        return WideLanes(low, high, a.dtype)


def is_candidate(loop: tir.For) -> bool:
    """Return whether a loop is an innermost one without registers of its own."""
    for node in walk(loop.body):
        if isinstance(node, tir.For | tir.While | tir.If | tir.Allocate | tir.Evaluate):
            return False
    return True


_DEFINITION = re.compile(r"const \w+ (v\d+) = ")
_VARIABLE = re.compile(r"\bv\d+\b")
MakeWriter: TypeAlias = Callable[[str], VectorWriter]
"""Makes a writer, given the predicate of the lanes of a last vector, or ""."""


@dataclass(frozen=True, slots=True)
class VectorTarget:
    """An instruction set with vectors: the feature that it is, and how loops step.

    `loop` returns the lines of the loop for a C variable, its end and its extent if
    known, from a function that returns those of one vector.
    """

    feature: str
    writer: MakeWriter
    loop: Callable[[str, str, int | None, Callable[[str], list[str]]], list[str]]


def vector_lines(
    loop: tir.For, target: VectorTarget, scalar: ScalarText, inside: str = ""
) -> list[str]:
    """Return the C of one vector, the first lane of which is that of the variable."""
    out = target.writer(inside)
    LoopVectorizer(loop, out, scalar).write()
    return _without_unused(out.lines)


def _without_unused(lines: list[str]) -> list[str]:
    """Return the lines without definitions of variables that no later line uses."""
    kept: list[str] = []
    used: set[str] = set()
    for line in reversed(lines):
        definition = _DEFINITION.match(line)
        if definition is None or definition[1] in used:
            kept.append(line)
            used.update(_VARIABLE.findall(line.partition(" = ")[2] or line))
    return kept[::-1]


_NO_TEXT = ScalarText(lambda *_: "0", lambda *_: "p")


def has_vectors(loop: tir.For, target: VectorTarget) -> bool:
    """Return whether a loop of independent iterations can be one over vectors."""
    try:
        return is_candidate(loop) and bool(vector_lines(loop, target, _NO_TEXT))
    except NotVectorizableError:
        return False
