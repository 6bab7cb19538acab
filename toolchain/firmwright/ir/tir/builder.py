"""Builds PrimFuncs: expressions by functions and operators, statements by context managers.

    b = Builder("relu_0")
    x, y = b.buffer_param("x", INT8, (64,), "in"), b.buffer_param("y", INT8, (64,), "out")
    with b.for_("i", 64) as i:
        b.store(y, [i], b.max(b.load(x, [i]), 0))
    func = b.build(op="relu")

Names are made unique by suffix, so a rule may say "i" twice. Ints become immediates of the other
operand's dtype. Index variables are 64-bit here and narrowed by a pass. Constants the builder is
given are collected in `constants` under names prefixed with the function's, for the driver to put
in the module's table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from firmwright.base.dtypes import BOOL, FLOAT32, HANDLE, INT32, INT64, DType
from firmwright.base.errors import InternalError
from firmwright.ir.core import Attr, Constant, Span
from firmwright.ir.tir.nodes import (
    Access,
    AccessPtr,
    Allocate,
    AllocateConst,
    Binary,
    BinaryOp,
    Buffer,
    BufferLoad,
    BufferStore,
    Call,
    Cast,
    DeclBuffer,
    Evaluate,
    Expr,
    FloatImm,
    For,
    ForKind,
    If,
    IntImm,
    Let,
    Not,
    Param,
    PrimFunc,
    Role,
    Select,
    Seq,
    Stmt,
    Var,
    While,
)

INDEX = INT64
"""Dtype of loop variables and indices as built; `narrow-index` makes them 32-bit."""

Operand: TypeAlias = "Expr | E | int | float"


class E:
    """An expression with operators; unwrapped when it enters a node."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __add__(self, other: Operand) -> E:
        return binary("add", self, other)

    def __radd__(self, other: Operand) -> E:
        return binary("add", other, self)

    def __sub__(self, other: Operand) -> E:
        return binary("sub", self, other)

    def __rsub__(self, other: Operand) -> E:
        return binary("sub", other, self)

    def __mul__(self, other: Operand) -> E:
        return binary("mul", self, other)

    def __rmul__(self, other: Operand) -> E:
        return binary("mul", other, self)

    def __truediv__(self, other: Operand) -> E:
        return binary("div", self, other)

    def __floordiv__(self, other: Operand) -> E:
        return binary("div", self, other)

    def __mod__(self, other: Operand) -> E:
        return binary("mod", self, other)

    def __lshift__(self, other: Operand) -> E:
        return binary("shl", self, other)

    def __rshift__(self, other: Operand) -> E:
        return binary("shr", self, other)

    def __and__(self, other: Operand) -> E:
        return binary("and", self, other)

    def __lt__(self, other: Operand) -> E:
        return binary("lt", self, other)

    def __le__(self, other: Operand) -> E:
        return binary("le", self, other)

    def __gt__(self, other: Operand) -> E:
        return binary("gt", self, other)

    def __ge__(self, other: Operand) -> E:
        return binary("ge", self, other)

    def equal(self, other: Operand) -> E:
        return binary("eq", self, other)

    def cast(self, dtype: DType) -> E:
        return self if self.expr.dtype == dtype else E(Cast(dtype, self.expr))


def immediate(value: float, dtype: DType) -> Expr:
    """The literal of `dtype`."""
    if dtype.is_float:
        return FloatImm(float(value), dtype)
    return IntImm(int(value), dtype)


def expr(value: Operand, like: DType = INDEX) -> Expr:
    """The node behind `value`; a Python number becomes an immediate of dtype `like`."""
    if isinstance(value, E):
        return value.expr
    if isinstance(value, int | float):
        return immediate(value, like)
    return value


def _dtype_of(a: Operand, b: Operand) -> DType:
    for side in (a, b):
        if isinstance(side, E):
            return side.expr.dtype
        if not isinstance(side, int | float):
            return side.dtype
    return FLOAT32 if isinstance(a, float) or isinstance(b, float) else INDEX


def binary(op: BinaryOp, a: Operand, b: Operand) -> E:
    """`a op b`, folding what is plain at once: two immediates, x+0, x*1, x*0."""
    dtype = _dtype_of(a, b)
    left, right = expr(a, dtype), expr(b, dtype)
    if left.dtype != right.dtype:
        raise InternalError(f"{op} of {left.dtype.name} and {right.dtype.name}")
    return E(_folded(op, left, right))


def _folded(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    if isinstance(a, IntImm) and isinstance(b, IntImm) and op in ("add", "sub", "mul"):
        value = {"add": a.value + b.value, "sub": a.value - b.value, "mul": a.value * b.value}[op]
        return IntImm(value, a.dtype)
    if isinstance(b, IntImm):
        if b.value == 0 and op in ("add", "sub", "shl", "shr"):
            return a
        if (b.value == 1 and op in ("mul", "div")) or (b.value == 0 and op == "mul"):
            return a if b.value == 1 else b
    if isinstance(a, IntImm):
        if a.value == 0 and op == "add":
            return b
        if (a.value == 1 and op == "mul") or (a.value == 0 and op == "mul"):
            return b if a.value == 1 else a
    return Binary(op, a, b)


def minimum(a: Operand, b: Operand) -> E:
    return binary("min", a, b)


def maximum(a: Operand, b: Operand) -> E:
    return binary("max", a, b)


def logical_and(*terms: Operand) -> E:
    """All of the boolean `terms`."""
    result = expr(terms[0], BOOL)
    for term in terms[1:]:
        result = Binary("and", result, expr(term, BOOL))
    return E(result)


def logical_not(term: Operand) -> E:
    return E(Not(expr(term, BOOL)))


def select(cond: Operand, a: Operand, b: Operand) -> E:
    dtype = _dtype_of(a, b)
    return E(Select(expr(cond, BOOL), expr(a, dtype), expr(b, dtype)))


def call(name: str, args: Sequence[Operand], dtype: DType, like: DType = INT32) -> E:
    """An intrinsic as a value; numbers among `args` become immediates of dtype `like`."""
    return E(Call(name, tuple(expr(arg, like) for arg in args), dtype))


class Builder:
    """Collects statements innermost-last; see the module docstring for an example."""

    def __init__(self, name: str, span: Span = Span("")) -> None:
        self.name = name
        self.span = span
        self.params: list[Param] = []
        self.constants: dict[str, Constant] = {}
        self._wrappers: list[tuple[Buffer, str]] = []
        self._block: list[Stmt] = []
        self._names: dict[str, int] = {}

    # ---- names, parameters, memory -----------------------------------------------------------

    def unique(self, name: str) -> str:
        """`name`, or `name_1`, `name_2`... if it is taken."""
        count = self._names.get(name)
        self._names[name] = 0 if count is None else count + 1
        return name if count is None else self.unique(f"{name}_{count + 1}")

    def buffer_param(
        self, name: str, dtype: DType, shape: Sequence[int], role: Role, alignment: int = 1
    ) -> Buffer:
        buffer = Buffer(self.unique(name), dtype, tuple(shape), alignment=alignment)
        self.params.append(Param(buffer, role))
        return buffer

    def constant(
        self, name: str, values: npt.NDArray[Any], dtype: DType, alignment: int | None = None
    ) -> Buffer:
        """A linked constant (`allocate_const` around the whole body)."""
        array = np.asarray(values)
        buffer = Buffer(
            self.unique(name), dtype, tuple(int(n) for n in array.shape), scope="const",
            alignment=alignment or dtype.size_bytes,
        )  # fmt: skip
        key = f"{self.name}.{buffer.name}"
        self.constants[key] = Constant.from_array(key, array, dtype)
        self._wrappers.append((buffer, key))
        return buffer

    def reg(self, name: str, dtype: DType, count: int = 1) -> Buffer:
        """`count` registers for the rest of the enclosing block; indexed by constants only."""
        buffer = Buffer(self.unique(name), dtype, (count,), scope="reg", alignment=1)
        self._block.append(Allocate(buffer, Seq(()), "reg"))
        return buffer

    @contextmanager
    def allocate(
        self, name: str, dtype: DType, shape: Sequence[int], alignment: int = 4
    ) -> Iterator[Buffer]:
        """Scratch memory from the plan during the block; contents start undefined."""
        buffer = Buffer(self.unique(name), dtype, tuple(shape), alignment=alignment)
        outer = self._enter()
        yield buffer
        self._leave(outer, lambda body: Allocate(buffer, body, "scratch"))

    @contextmanager
    def window(
        self,
        name: str,
        source: Buffer,
        offset: Operand,
        shape: Sequence[int],
        *,
        dtype: DType | None = None,
        strides: Sequence[int] | None = None,
        access: Access = "r",
        alignment: int = 1,
    ) -> Iterator[Buffer]:
        """A typed window of `source` from its flat element `offset`: hoists an address."""
        kind = dtype or source.dtype
        steps = tuple(strides) if strides is not None else None
        scope = "const" if source.scope == "const" else "global"
        buffer = Buffer(self.unique(name), kind, tuple(shape), steps, scope, alignment)
        last = sum((n - 1) * s for n, s in zip(shape, buffer.element_strides, strict=True))
        size_bytes = (last + 1) * kind.size_bytes
        extent = -(-size_bytes // source.dtype.size_bytes)
        pointer = AccessPtr(source, expr(offset), extent, access)
        outer = self._enter()
        yield buffer
        self._leave(outer, lambda body: DeclBuffer(buffer, pointer, body))

    # ---- statements --------------------------------------------------------------------------

    @contextmanager
    def for_(
        self, name: str, extent: Operand, start: Operand = 0, kind: ForKind = "serial"
    ) -> Iterator[E]:
        var = Var(self.unique(name), INDEX)
        outer = self._enter()
        yield E(var)
        self._leave(outer, lambda body: For(var, expr(start), expr(extent), body, kind))

    @contextmanager
    def if_(self, cond: Operand) -> Iterator[None]:
        outer = self._enter()
        yield
        self._leave(outer, lambda body: If(expr(cond, BOOL), body))

    @contextmanager
    def else_(self) -> Iterator[None]:
        """The other branch of the `if_` just closed."""
        before = self._block[-1]
        if not isinstance(before, If):
            raise InternalError("else_ must follow if_")
        outer = self._enter()
        yield
        body = self._seq()
        self._block = outer
        self._block[-1] = If(before.cond, before.then, body)

    @contextmanager
    def while_(self, cond: Operand) -> Iterator[None]:
        outer = self._enter()
        yield
        self._leave(outer, lambda body: While(expr(cond, BOOL), body))

    @contextmanager
    def let(self, name: str, value: Operand, dtype: DType = INDEX) -> Iterator[E]:
        bound = expr(value, dtype)
        var = Var(self.unique(name), bound.dtype)
        outer = self._enter()
        yield E(var)
        self._leave(outer, lambda body: Let(var, bound, body))

    def store(self, buffer: Buffer, indices: Sequence[Operand], value: Operand) -> None:
        """Write `value`, which must already have the buffer's dtype or be a Python number."""
        node = expr(value, buffer.dtype)
        if node.dtype != buffer.dtype:
            raise InternalError(f"store of {node.dtype.name} to {buffer.name}:{buffer.dtype.name}")
        self._block.append(BufferStore(buffer, tuple(expr(i) for i in indices), node))

    def load(self, buffer: Buffer, indices: Sequence[Operand]) -> E:
        return E(BufferLoad(buffer, tuple(expr(i) for i in indices)))

    def load_i32(self, buffer: Buffer, indices: Sequence[Operand]) -> E:
        """The element widened to int32."""
        return self.load(buffer, indices).cast(INT32)

    def pointer(
        self, buffer: Buffer, offset: Operand, extent: int, access: Access = "r"
    ) -> AccessPtr:
        return AccessPtr(buffer, expr(offset), extent, access)

    def evaluate(self, name: str, args: Sequence[Operand]) -> None:
        """An intrinsic statement."""
        nodes = tuple(expr(arg, INT32) for arg in args)
        self._block.append(Evaluate(Call(name, nodes, HANDLE)))

    def append(self, stmt: Stmt) -> None:
        self._block.append(stmt)

    # ---- the result --------------------------------------------------------------------------

    def build(self, **attrs: Attr) -> PrimFunc:
        body = self._seq()
        for buffer, constant in reversed(self._wrappers):
            body = AllocateConst(buffer, constant, body)
        return PrimFunc(self.name, tuple(self.params), body, dict(attrs), self.span)

    def _enter(self) -> list[Stmt]:
        outer, self._block = self._block, []
        return outer

    def _leave(self, outer: list[Stmt], wrap: Any) -> None:
        body = self._seq()
        self._block = outer
        self._block.append(cast(Stmt, wrap(body)))

    def _seq(self) -> Stmt:
        """The block so far; what follows a `reg` becomes the body of its Allocate."""
        stmts: list[Stmt] = []
        for stmt in reversed(self._block):
            if isinstance(stmt, Allocate) and stmt.kind == "reg":
                stmts = [Allocate(stmt.buffer, _as_stmt(stmts), "reg")]
            else:
                stmts.insert(0, stmt)
        self._block = []
        return _as_stmt(stmts)


def _as_stmt(stmts: Sequence[Stmt]) -> Stmt:
    return stmts[0] if len(stmts) == 1 else Seq(tuple(stmts))
