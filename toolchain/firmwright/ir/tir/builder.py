"""Builder of PrimFuncs: expressions by operators, statements by context managers.

    b = Builder("relu_0")
    x = b.buffer_param("x", INT8, (64,), "in")
    y = b.buffer_param("y", INT8, (64,), "out")
    with b.for_("i", 64) as i:
        value = b.let("value", b.load(x, [i]))
        b.store(y, [i], maximum(value, 0))
    func = b.build(op="relu")

Variables, views and memory exist until the end of their block. Names are made unique by
a suffix. Python numbers become immediates of the other operand's dtype. Index variables
are 64-bit and narrowed by a later pass. `constants` collects the constants for the
module's table, named with the function's name as prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from firmwright.base.dtypes import (
    BOOL,
    FLOAT32,
    HANDLE,
    INT16,
    INT32,
    INT64,
    Array,
    DType,
)
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.core import Attr, Constant, Span
from firmwright.ir.tir.expr_evaluation import SCALAR_FUNCTIONS

INDEX = INT64
"""Dtype of loop variables and indices before `narrow-index`."""

ExprLike: TypeAlias = "tir.Expr | ArithExpr | int | float"
T = TypeVar("T")
_OpenScope: TypeAlias = Callable[[tir.Stmt], tir.Stmt]
"""A declaration without its scope."""
_NUMBERS = (int, float)
"""The Python numbers; a tuple, as `int | float` would be built in each call."""


def _operator(
    op: tir.BinaryOp, *, reflected: bool = False
) -> Callable[[ArithExpr, ExprLike], ArithExpr]:
    if reflected:
        return lambda self, other: binary_expr(op, other, self)
    return lambda self, other: binary_expr(op, self, other)


class ArithExpr:
    """An expression with overloaded operators; nodes hold the plain expression."""

    __slots__ = ("expr",)

    def __init__(self, expr: tir.Expr) -> None:
        self.expr = expr

    __add__ = _operator("add")
    __radd__ = _operator("add", reflected=True)
    __sub__ = _operator("sub")
    __rsub__ = _operator("sub", reflected=True)
    __mul__ = _operator("mul")
    __rmul__ = _operator("mul", reflected=True)
    __truediv__ = _operator("div")
    __floordiv__ = _operator("div")
    __mod__ = _operator("mod")
    __lshift__ = _operator("shl")
    __rshift__ = _operator("shr")
    __and__ = _operator("and")
    __lt__ = _operator("lt")
    __le__ = _operator("le")
    __gt__ = _operator("gt")
    __ge__ = _operator("ge")
    equal = _operator("eq")

    def cast(self, dtype: DType) -> ArithExpr:
        if self.expr.dtype == dtype:
            return self
        return ArithExpr(tir.Cast(dtype, self.expr))


def immediate(value: float, dtype: DType) -> tir.Expr:
    if dtype.is_float:
        return tir.FloatImm(float(value), dtype)
    return tir.IntImm(int(value), dtype)


def as_expr(value: ExprLike, like: DType = INDEX) -> tir.Expr:
    """Convert `value` to a node; a number becomes an immediate of dtype `like`."""
    if isinstance(value, ArithExpr):
        return value.expr
    if isinstance(value, _NUMBERS):
        return immediate(value, like)
    return value


def _dtype_of(a: ExprLike, b: ExprLike) -> DType:
    for side in (a, b):
        if isinstance(side, ArithExpr):
            return side.expr.dtype
        if not isinstance(side, _NUMBERS):
            return side.dtype
    return FLOAT32 if isinstance(a, float) or isinstance(b, float) else INDEX


def binary_expr(op: tir.BinaryOp, a: ExprLike, b: ExprLike) -> ArithExpr:
    """Build `a op b`, folding operations on two immediates, x+0, x*1 and x*0."""
    dtype = _dtype_of(a, b)
    left, right = as_expr(a, dtype), as_expr(b, dtype)
    if left.dtype != right.dtype:
        raise InternalError(f"{op} of {left.dtype.name} and {right.dtype.name}")
    return ArithExpr(_fold(op, left, right))


def _fold(op: tir.BinaryOp, a: tir.Expr, b: tir.Expr) -> tir.Expr:
    if not (isinstance(a, tir.IntImm) or isinstance(b, tir.IntImm)):
        return tir.Binary(op, a, b)
    match op, a, b:
        case "add" | "sub" | "mul", tir.IntImm(x), tir.IntImm(y):
            return tir.IntImm(SCALAR_FUNCTIONS[op](x, y), a.dtype)
        case "add" | "sub" | "shl" | "shr", _, tir.IntImm(0):
            return a
        case "mul" | "div", _, tir.IntImm(1):
            return a
        case ("add", tir.IntImm(0), _) | ("mul", tir.IntImm(1), _):
            return b
        case "mul", _, tir.IntImm(0):
            return b
        case "mul", tir.IntImm(0), _:
            return a
        case _:
            return tir.Binary(op, a, b)


def minimum(a: ExprLike, b: ExprLike) -> ArithExpr:
    """Return the smaller operand; `b` if one is NaN."""
    return binary_expr("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> ArithExpr:
    """Return the greater operand; `b` if one is NaN."""
    return binary_expr("max", a, b)


def logical_and(*terms: ExprLike) -> ArithExpr:
    result = as_expr(terms[0], BOOL)
    for term in terms[1:]:
        result = tir.Binary("and", result, as_expr(term, BOOL))
    return ArithExpr(result)


def logical_not(term: ExprLike) -> ArithExpr:
    return ArithExpr(tir.Not(as_expr(term, BOOL)))


def select(cond: ExprLike, a: ExprLike, b: ExprLike) -> ArithExpr:
    dtype = _dtype_of(a, b)
    test = as_expr(cond, BOOL)
    return ArithExpr(tir.Select(test, as_expr(a, dtype), as_expr(b, dtype)))


def call_intrinsic(
    name: str, args: Sequence[ExprLike], dtype: DType, like: DType = INT32
) -> ArithExpr:
    """Build an intrinsic value; numbers in `args` become immediates of dtype `like`."""
    nodes = tuple([as_expr(arg, like) for arg in args])
    return ArithExpr(tir.IntrinsicCall(name, nodes, dtype))


@dataclass(frozen=True, slots=True)
class Register:
    """A register that statements of the function under construction read and set."""

    builder: Builder
    buffer: tir.Buffer

    @property
    def value(self) -> ArithExpr:
        return self.builder.load(self.buffer, [0])

    def set(self, value: ExprLike) -> None:
        self.builder.store(self.buffer, [0], value)

    def add(self, value: ExprLike) -> None:
        self.set(self.value + value)


class Builder:
    """Builder of one function; the module docstring has an example.

    With `keeps_loops`, `unrolled` loops have the same form for all extents.
    """

    def __init__(self, name: str, span: Span = Span("")) -> None:
        self.name = name
        self.span = span
        self.params: list[tir.Param] = []
        self.constants: dict[str, Constant] = {}
        self._wrappers: list[tuple[tir.Buffer, str]] = []
        self._block: list[tir.Stmt | _OpenScope] = []
        self.notes: dict[str, None] = {}
        self.transform: Callable[[tir.PrimFunc], tir.PrimFunc] | None = None
        self._names: dict[str, int] = {}
        self.keeps_loops = False

    def unique(self, name: str) -> str:
        """Return `name`, or `name_1`, `name_2`, ... if it is already used."""
        count = self._names.get(name)
        self._names[name] = 0 if count is None else count + 1
        return name if count is None else self.unique(f"{name}_{count + 1}")

    @contextmanager
    def _nested(self, value: T, wrap: _OpenScope) -> Iterator[T]:
        """Append `wrap` of the statements that the `with` block adds."""
        outer, self._block = self._block, []
        yield value
        self._block = [*outer, wrap(self._seq())]

    def buffer_param(
        self,
        name: str,
        dtype: DType,
        shape: Sequence[int],
        role: tir.ParamRole,
        alignment: int = 1,
    ) -> tir.Buffer:
        buffer = tir.Buffer(self.unique(name), dtype, tuple(shape), alignment=alignment)
        self.params.append(tir.Param(buffer, role))
        return buffer

    def constant(
        self, name: str, values: Array, dtype: DType, alignment: int | None = None
    ) -> tir.Buffer:
        """Add a linked constant (an `allocate_const` around the whole body)."""
        array = np.asarray(values)
        shape = tuple(int(n) for n in array.shape)
        aligned = alignment or dtype.size_bytes
        buffer = tir.Buffer(
            self.unique(name), dtype, shape, scope="const", alignment=aligned
        )
        key = f"{self.name}.{buffer.name}"
        self.constants[key] = Constant.from_array(key, array, dtype)
        self._wrappers.append((buffer, key))
        return buffer

    def reg(self, name: str, dtype: DType, count: int = 1) -> tir.Buffer:
        """Declare `count` registers for the rest of the block, indexed by constants."""
        buffer = tir.Buffer(
            self.unique(name), dtype, (count,), scope="reg", alignment=1
        )
        self._block.append(lambda body: tir.Allocate(buffer, body, "reg"))
        return buffer

    def register(
        self, name: str, dtype: DType, start: ExprLike | None = None
    ) -> Register:
        """Declare a register for the rest of the block, set to `start` if given."""
        register = Register(self, self.reg(name, dtype))
        if start is not None:
            register.set(start)
        return register

    def variable(self, name: str, value: int, dtype: DType = INT16) -> ArithExpr:
        """Return `value` from a register, which simplification does not use.

        Code that several kernels share takes any value of it.
        """
        return self.register(name, dtype, value).value.cast(INDEX)

    def extent(self, name: str, count: int, is_variable: bool) -> ArithExpr | int:
        return minimum(self.variable(name, count), count) if is_variable else count

    def allocate(
        self, name: str, dtype: DType, shape: Sequence[int], alignment: int = 4
    ) -> tir.Buffer:
        """Allocate planned, undefined scratch memory for the rest of the block."""
        buffer = tir.Buffer(self.unique(name), dtype, tuple(shape), alignment=alignment)
        self._block.append(lambda body: tir.Allocate(buffer, body, "scratch"))
        return buffer

    def view(
        self,
        name: str,
        source: tir.Buffer,
        offset: ExprLike,
        shape: Sequence[int],
        *,
        dtype: DType | None = None,
        strides: Sequence[int] | None = None,
        access: tir.AccessMode = "r",
        alignment: int = 1,
    ) -> tir.Buffer:
        """Declare a typed view of `source` that starts at flat element `offset`."""
        kind = dtype or source.dtype
        steps = tuple(strides) if strides is not None else None
        scope = "const" if source.scope == "const" else "global"
        buffer = tir.Buffer(
            self.unique(name), kind, tuple(shape), steps, scope, alignment
        )
        extent = -(-buffer.span_elements * kind.size_bytes // source.dtype.size_bytes)
        pointer = tir.AccessPtr(source, as_expr(offset), extent, access)
        self._block.append(lambda body: tir.DeclBuffer(buffer, pointer, body))
        return buffer

    def for_(
        self,
        name: str,
        extent: ExprLike,
        start: ExprLike = 0,
        kind: tir.ForKind = "serial",
    ) -> AbstractContextManager[ArithExpr]:
        var = tir.Var(self.unique(name), INDEX)
        first, count = as_expr(start), as_expr(extent)

        def wrap(body: tir.Stmt) -> tir.Stmt:
            return tir.For(var, first, count, body, kind)

        return self._nested(ArithExpr(var), wrap)

    @contextmanager
    def loops(self, names: str, extents: Sequence[int]) -> Iterator[list[ArithExpr]]:
        """Open nested loops with the variables `names`; one name is numbered from 0."""
        numbered = [f"{names}{k}" for k in range(len(extents))]
        each = names.split() if " " in names else numbered
        with ExitStack() as stack:
            variables = []
            for name, extent in zip(each, extents, strict=True):
                variables.append(stack.enter_context(self.for_(name, extent)))
            yield variables

    @contextmanager
    def unrolled(self, name: str, extent: int, *factors: int) -> Iterator[ArithExpr]:
        """Open a loop, unrolled by the first of `factors` that divides `extent`.

        It is not unrolled if none does, or if the builder keeps loops.
        """
        divisors = (factor for factor in factors if extent % factor == 0)
        step = 1 if self.keeps_loops else next(divisors, 1)
        with (
            self.for_(name, extent // step) as i,
            self.for_("u", step, kind="unrolled") as u,
        ):
            yield i * step + u

    def if_(self, cond: ExprLike) -> AbstractContextManager[None]:
        return self._nested(None, lambda body: tir.If(as_expr(cond, BOOL), body))

    def else_(self) -> AbstractContextManager[None]:
        """Open the else branch of the `if_` that was closed last."""
        before = self._block.pop()
        if not isinstance(before, tir.If):
            raise InternalError("else_ must follow if_")
        return self._nested(None, lambda body: tir.If(before.cond, before.then, body))

    def while_(self, cond: ExprLike) -> AbstractContextManager[None]:
        return self._nested(None, lambda body: tir.While(as_expr(cond, BOOL), body))

    def let(self, name: str, value: ExprLike, dtype: DType = INDEX) -> ArithExpr:
        """Declare a variable for the rest of the block."""
        bound = as_expr(value, dtype)
        var = tir.Var(self.unique(name), bound.dtype)
        self._block.append(lambda body: tir.Let(var, bound, body))
        return ArithExpr(var)

    def store(
        self, buffer: tir.Buffer, indices: Sequence[ExprLike], value: ExprLike
    ) -> None:
        """Store `value`, which must have the buffer's dtype or be a Python number."""
        node = as_expr(value, buffer.dtype)
        if node.dtype != buffer.dtype:
            raise InternalError(
                f"store of {node.dtype.name} to {buffer.name}:{buffer.dtype.name}"
            )
        places = tuple([as_expr(index) for index in indices])
        self._block.append(tir.BufferStore(buffer, places, node))

    def load(self, buffer: tir.Buffer, indices: Sequence[ExprLike]) -> ArithExpr:
        places = tuple([as_expr(index) for index in indices])
        return ArithExpr(tir.BufferLoad(buffer, places))

    def load_i32(self, buffer: tir.Buffer, indices: Sequence[ExprLike]) -> ArithExpr:
        return self.load(buffer, indices).cast(INT32)

    def pointer(
        self,
        buffer: tir.Buffer,
        offset: ExprLike,
        extent: int,
        access: tir.AccessMode = "r",
        stride: int = 1,
    ) -> tir.AccessPtr:
        return tir.AccessPtr(buffer, as_expr(offset), extent, access, stride)

    def evaluate(self, name: str, args: Sequence[ExprLike]) -> None:
        nodes = tuple([as_expr(arg, INT32) for arg in args])
        self._block.append(tir.Evaluate(tir.IntrinsicCall(name, nodes, HANDLE)))

    def append(self, stmt: tir.Stmt) -> None:
        self._block.append(stmt)

    def note(self, text: str) -> None:
        """Add a line to the comment of the C function, once."""
        self.notes[text] = None

    def build(self, **attrs: Attr) -> tir.PrimFunc:
        body = self._seq()
        for buffer, constant in reversed(self._wrappers):
            body = tir.AllocateConst(buffer, constant, body)
        func = tir.PrimFunc(self.name, tuple(self.params), body, dict(attrs), self.span)
        return func if self.transform is None else self.transform(func)

    def _seq(self) -> tir.Stmt:
        """Return the current block; what follows a declaration is its scope."""
        scope: list[tir.Stmt] = []  # in reverse
        for item in reversed(self._block):
            if callable(item):
                scope = [item(_as_stmt(scope[::-1]))]
            else:
                scope.append(item)
        self._block = []
        return _as_stmt(scope[::-1])


def _as_stmt(stmts: Sequence[tir.Stmt]) -> tir.Stmt:
    return stmts[0] if len(stmts) == 1 else tir.Seq(tuple(stmts))


def whole_buffer(buffer: tir.Buffer, access: tir.AccessMode) -> tir.AccessPtr:
    return tir.AccessPtr(buffer, tir.IntImm(0, INDEX), buffer.elements, access)
