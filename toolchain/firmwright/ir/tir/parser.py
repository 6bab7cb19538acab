"""Reads the text of TIR functions; `tir/printer.py` describes the language and its dtype rules.

In: tokens after the word `func`. Out: a PrimFunc. Invariant: `parse(print(f)) == f`. Whatever the
text, reading ends with a function or a ModelError that names the place: brackets nest at most
NESTING_MAX deep, expressions and scopes have limits of their own, since every consumer recurses.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from firmwright.base.dtypes import BOOL, FLOAT32, HANDLE, INT32, INT64, DType
from firmwright.base.text import Token, Tokenizer, TokenKind
from firmwright.ir.syntax import Reader
from firmwright.ir.tir.nodes import (
    COMPARISONS,
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
    CallPrim,
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
from firmwright.ir.tir.printer import KEYWORDS, LOGICAL, OPERATORS

EXPR_DEPTH_MAX = 200
SCOPE_DEPTH_MAX = 2_000
"""Statements inside one another, `allocate` and its like included."""

_INFIX: dict[str, tuple[BinaryOp, int]] = {
    symbol: (cast(BinaryOp, op), level)
    for table in (OPERATORS, LOGICAL)
    for op, (symbol, level) in table.items()
}
_COMPARING = 3  # the level whose operators do not chain
_OPEN = DType("literal", "?", 0, "", "")  # dtype of a literal whose place is not known yet
_ROLES = ("in", "out", "inout", "scratch", "const", "pool", "scalar")


class _Read(NamedTuple):
    """An expression, its dtype as far as the text says it, and its depth."""

    expr: Expr
    dtype: DType | None
    depth: int = 1


class PrimReader(Reader):
    """Reads functions, one after the other."""

    __slots__ = ("_buffers", "_depth", "_index", "_vars")

    def __init__(self, tokens: Tokenizer) -> None:
        super().__init__(tokens)
        self._index = INT64
        self._depth = 0
        self._buffers: dict[str, Buffer] = {}
        self._vars: dict[str, Var] = {}

    def prim(self) -> PrimFunc:
        """`@name(params) [index(T)] [attrs {...}] [span(...)] { statements }`"""
        self._index, self._depth = INT64, 0
        self._buffers, self._vars = {}, {}
        name = self.tokens.global_()
        params = tuple(self.items("(", ")", self._param))
        if self.tokens.accept("index"):
            self.tokens.expect("(")
            self._index = self.dtype()
            self.tokens.expect(")")
        attrs = self.maybe_attrs()
        span = self.span()
        return PrimFunc(name, params, self._block(), attrs, span)

    # ---- declarations ------------------------------------------------------------------------

    def _param(self) -> Param:
        role = "inout"
        token = self.tokens.peek
        name = self._new_name()
        if not self.tokens.at(":"):
            if name not in _ROLES:
                raise self.tokens.error(
                    f"found {token.text!r}, expected one of {', '.join(_ROLES)}.", token
                )
            role, name = name, self._new_name()
        self.tokens.expect(":")
        if role == "scalar":
            var = Var(name, self.dtype())
            self._vars[name] = var
            return Param(var, "scalar")
        buffer = self._buffer(name)
        self._buffers[name] = buffer
        return Param(buffer, cast(Role, role))

    def _new_name(self) -> str:
        """A name as it is declared: bare or with a %."""
        if self.tokens.peek.kind is TokenKind.LOCAL:
            return self.tokens.local()
        return self.tokens.ident()

    def _buffer(self, name: str) -> Buffer:
        """What follows the colon of a buffer's declaration."""
        dtype = self.dtype()
        shape = self.shape()
        strides, scope, alignment = None, "global", 1
        if self.tokens.accept("strides"):
            strides = tuple(self.items("(", ")", self.tokens.int_))
        if self.tokens.accept("scope"):
            self.tokens.expect("(")
            scope = self.word()
            self.tokens.expect(")")
        if self.tokens.accept("align"):
            self.tokens.expect("(")
            alignment = self.tokens.int_()
            self.tokens.expect(")")
        return Buffer(name, dtype, shape, strides, scope, alignment)

    # ---- statements --------------------------------------------------------------------------

    def _block(self) -> Stmt:
        """`{ statements }`; a block of one statement is that statement."""
        stmts = self._statements()
        return stmts[0] if len(stmts) == 1 else Seq(tuple(stmts))

    def _statements(self) -> list[Stmt]:
        self.tokens.expect("{")
        self.deeper()
        outer = dict(self._buffers), dict(self._vars), self._depth
        open_scopes: list[tuple[Stmt, list[Stmt]]] = []
        stmts: list[Stmt] = []
        while not self.tokens.accept("}"):
            scope = self._scope()
            if scope is None:
                stmts.append(self._stmt())
            elif self.tokens.at("{"):
                saved = dict(self._buffers), dict(self._vars)
                self._declare(scope)
                stmts.append(_with_body(scope, self._block()))
                self._buffers, self._vars = saved
            else:
                self._enter()
                self._declare(scope)
                open_scopes.append((scope, stmts))
                stmts = []
        for scope, before in reversed(open_scopes):
            stmts = [*before, _with_body(scope, _as_stmt(stmts))]
        self._buffers, self._vars, self._depth = outer
        self.shallower()
        return stmts

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > SCOPE_DEPTH_MAX:
            raise self.tokens.error(f"more than {SCOPE_DEPTH_MAX} scopes lie inside one another.")

    def _scope(self) -> Stmt | None:
        """The head of an allocate, alloc_const, decl or let, its body still empty."""
        tokens = self.tokens
        if tokens.accept("allocate"):
            name = self._new_name()
            tokens.expect(":")
            buffer = self._buffer(name)
            return Allocate(buffer, Seq(()), self.word() if tokens.accept("as") else "scratch")
        if tokens.accept("alloc_const"):
            name = self._new_name()
            tokens.expect(":")
            buffer = self._buffer(name)
            tokens.expect("=")
            return AllocateConst(buffer, tokens.global_(), Seq(()))
        if tokens.accept("decl"):
            name = self._new_name()
            tokens.expect(":")
            buffer = self._buffer(name)
            tokens.expect("=")
            tokens.expect("ptr")
            return DeclBuffer(buffer, self._pointer(), Seq(()))
        return self._let() if tokens.accept("let") else None

    def _let(self) -> Let:
        name = self._new_name()
        dtype = self.dtype() if self.tokens.accept(":") else None
        self.tokens.expect("=")
        read = self._binary(0)
        kind = dtype or read.dtype or self._index
        return Let(Var(name, kind), _settled(read, kind), Seq(()))

    def _declare(self, scope: Stmt) -> None:
        match scope:
            case Let(var):
                self._vars[var.name] = var
            case Allocate(buffer) | AllocateConst(buffer) | DeclBuffer(buffer):
                self._buffers[buffer.name] = buffer

    def _stmt(self) -> Stmt:
        tokens = self.tokens
        if tokens.accept("for"):
            return self._for("serial")
        kinds: tuple[ForKind, ...] = ("unrolled", "vectorized")
        for kind in kinds:
            if tokens.accept(kind):
                tokens.expect("for")
                return self._for(kind)
        if tokens.accept("if"):
            return self._if()
        if tokens.accept("while"):
            return While(self._expr(BOOL), self._block())
        if tokens.accept("seq"):
            return Seq(tuple(self._statements()))
        if tokens.accept("call"):
            return self._call_prim()
        return self._store_or_evaluate()

    def _for(self, kind: ForKind) -> For:
        name = self._new_name()
        dtype = self.dtype() if self.tokens.accept(":") else self._index
        self.tokens.expect("in")
        start, extent = self._range(dtype)
        var = Var(name, dtype)
        before = self._vars.get(name)
        self._vars[name] = var
        body = self._block()
        del self._vars[name]
        if before is not None:
            self._vars[name] = before
        return For(var, start, extent, body, kind)

    def _range(self, dtype: DType) -> tuple[Expr, Expr]:
        """Start and extent: `first..end`, `first..+count` or just a count."""
        token = self.tokens.peek
        first = self._expr(dtype)
        if not self.tokens.accept(".."):
            return IntImm(0, dtype), first
        if self.tokens.accept("+"):
            return first, self._expr(dtype)
        end = self._expr(dtype)
        if isinstance(first, IntImm):
            if first.value == 0:
                return first, end
            if isinstance(end, IntImm):
                return first, IntImm(end.value - first.value, end.dtype)
        raise self.tokens.error(
            "a range from here needs a count: write `first..+count`.", token
        )  # fmt: skip

    def _if(self) -> If:
        """The chain of `else if` is read in a loop and folded from its end."""
        arms = [(self._expr(BOOL), self._block())]
        orelse: Stmt | None = None
        while self.tokens.accept("else"):
            if not self.tokens.accept("if"):
                orelse = self._block()
                break
            if len(arms) == EXPR_DEPTH_MAX:
                raise self.tokens.error(f"more than {EXPR_DEPTH_MAX} arms follow one if.")
            arms.append((self._expr(BOOL), self._block()))
        for cond, then in reversed(arms):
            orelse = If(cond, then, orelse)
        assert isinstance(orelse, If)
        return orelse

    def _call_prim(self) -> CallPrim:
        callee = self.tokens.global_()
        args = tuple(self.items("(", ")", self._arg))
        op = self.tokens.int_() if self.tokens.accept("op") else -1
        return CallPrim(callee, args, self.span(), op)

    def _store_or_evaluate(self) -> Stmt:
        token = self.tokens.peek
        if token.kind not in (TokenKind.IDENT, TokenKind.LOCAL, TokenKind.GLOBAL):
            raise self.expected("a statement")
        if token.kind is not TokenKind.LOCAL and token.text in KEYWORDS:
            raise self.expected("a statement")
        self.tokens.next()
        if token.kind is TokenKind.GLOBAL or self.tokens.at("("):
            args = tuple(self.items("(", ")", self._arg))
            dtype = self.dtype() if self.tokens.accept(":") else HANDLE
            return Evaluate(Call(str(token.value), args, dtype))
        buffer = self._known_buffer(token)
        indices = tuple(self.items("[", "]", self._index_expr))
        self.tokens.expect("=")
        return BufferStore(buffer, indices, self._expr(buffer.dtype))

    # ---- expressions -------------------------------------------------------------------------

    def _expr(self, want: DType | None) -> Expr:
        return _settled(self._binary(0), want)

    def _index_expr(self) -> Expr:
        return self._expr(self._index)

    def _arg(self) -> Expr:
        return self._expr(None)

    def _binary(self, least: int) -> _Read:
        """Operators that bind at least as close as `least`, left to right."""
        self.deeper()
        left = self._unary()
        while True:
            token = self.tokens.peek
            found = _INFIX.get(token.text) if token.kind is TokenKind.PUNCT else None
            if found is None or found[1] < least:
                self.shallower()
                return left
            op, level = found
            self.tokens.next()
            right = self._binary(level + 1)
            left = self._joined(op, left, right, token)
            if level == _COMPARING:
                following = _INFIX.get(self.tokens.peek.text)
                if following is not None and following[1] == _COMPARING:
                    raise self.tokens.error("comparisons do not chain: use parentheses.")

    def _joined(self, op: BinaryOp, left: _Read, right: _Read, token: Token) -> _Read:
        depth = self._checked_depth(token, left, right)
        dtype = left.dtype or right.dtype
        compares = op in COMPARISONS
        a, b = left.expr, right.expr
        if dtype is not None or compares:
            a, b = _settled(left, dtype), _settled(right, dtype)
        return _Read(Binary(op, a, b), BOOL if compares else dtype, depth)

    def _checked_depth(self, token: Token, *parts: _Read) -> int:
        depth = 1 + max((part.depth for part in parts), default=0)
        if depth > EXPR_DEPTH_MAX:
            raise self.tokens.error(
                f"an expression is deeper than {EXPR_DEPTH_MAX} operators.", token
            )
        return depth

    def _unary(self) -> _Read:
        token = self.tokens.peek
        if not self.tokens.accept("!"):
            return self._primary()
        self.deeper()
        inner = self._unary()
        self.shallower()
        depth = self._checked_depth(token, inner)
        return _Read(Not(_settled(inner, BOOL)), BOOL, depth)

    def _primary(self) -> _Read:
        token = self.tokens.peek
        match token.kind:
            case TokenKind.INT | TokenKind.FLOAT:
                return self._literal()
            case TokenKind.PUNCT if token.text == "(":
                self.deeper()
                self.tokens.next()
                inner = self._binary(0)
                self.tokens.expect(")")
                self.shallower()
                return inner
            case TokenKind.IDENT | TokenKind.LOCAL | TokenKind.GLOBAL:
                self.tokens.next()
                return self._named(token)
            case _:
                raise self.expected("an expression")

    def _literal(self) -> _Read:
        token = self.tokens.next()
        dtype = self.dtype() if self.tokens.accept(":") else _OPEN
        if token.kind is TokenKind.INT:
            return _Read(IntImm(int(token.value), dtype), None)
        return _Read(FloatImm(float(token.value), dtype), None)

    def _named(self, token: Token) -> _Read:
        if token.kind is TokenKind.IDENT and token.text in KEYWORDS:
            return self._builtin(token)
        if token.kind is TokenKind.GLOBAL or (
            token.kind is TokenKind.IDENT and self.tokens.at("(")
        ):
            return self._value_call(token)
        if self.tokens.at("["):
            reads: list[_Read] = []
            buffer = self._known_buffer(token)
            self.items("[", "]", lambda: reads.append(self._binary(0)))
            indices = tuple(_settled(read, self._index) for read in reads)
            return _Read(
                BufferLoad(buffer, indices), buffer.dtype, self._checked_depth(token, *reads)
            )
        var = self._vars.get(str(token.value))
        if var is None:
            raise self.tokens.error(f"no variable {str(token.value)!r} is declared here.", token)
        return _Read(var, var.dtype)

    def _builtin(self, token: Token) -> _Read:
        match token.text:
            case "true" | "false":
                return _Read(IntImm(int(token.text == "true"), BOOL), BOOL)
            case "min" | "max":
                a, b = self._operands(2, token)
                return self._joined(cast(BinaryOp, token.text), a, b, token)
            case "cast":
                return self._cast(token)
            case "select":
                return self._select(token)
            case "ptr":
                return _Read(self._pointer(), HANDLE)
            case _:
                raise self.tokens.error(f"found {token.text!r}, expected an expression.", token)

    def _operands(self, count: int, token: Token) -> list[_Read]:
        reads = self.items("(", ")", lambda: self._binary(0))
        if len(reads) != count:
            raise self.tokens.error(
                f"{token.text} has {len(reads)} operands, expected {count}.", token
            )
        return reads

    def _cast(self, token: Token) -> _Read:
        self.tokens.expect("(")
        self.deeper()
        dtype = self.dtype()
        self.tokens.expect(",")
        inner = self._binary(0)
        self.tokens.expect(")")
        self.shallower()
        depth = self._checked_depth(token, inner)
        return _Read(Cast(dtype, _settled(inner, None)), dtype, depth)

    def _select(self, token: Token) -> _Read:
        cond, a, b = self._operands(3, token)
        depth = self._checked_depth(token, cond, a, b)
        dtype = a.dtype or b.dtype
        left, right = a.expr, b.expr
        if dtype is not None:
            left, right = _settled(a, dtype), _settled(b, dtype)
        return _Read(Select(_settled(cond, BOOL), left, right), dtype, depth)

    def _value_call(self, token: Token) -> _Read:
        reads = self.items("(", ")", lambda: self._binary(0))
        args = tuple(_settled(read, None) for read in reads)
        if not self.tokens.accept(":"):
            raise self.expected(f"the dtype of what {token.text} gives, as in `f(x):i32`")
        dtype = self.dtype()
        return _Read(Call(str(token.value), args, dtype), dtype, self._checked_depth(token, *reads))

    def _pointer(self) -> AccessPtr:
        """`(buffer, offset, extent, access)`"""
        tokens = self.tokens
        tokens.expect("(")
        self.deeper()
        token = tokens.peek
        self._new_name()
        buffer = self._known_buffer(token)
        tokens.expect(",")
        offset = self._expr(self._index)
        tokens.expect(",")
        extent = tokens.int_()
        tokens.expect(",")
        access = self.one_of(("rw", "r", "w"))
        tokens.expect(")")
        self.shallower()
        return AccessPtr(buffer, offset, extent, cast(Access, access))

    def _known_buffer(self, token: Token) -> Buffer:
        buffer = self._buffers.get(str(token.value))
        if buffer is None:
            raise self.tokens.error(f"no buffer {str(token.value)!r} is declared here.", token)
        return buffer


def _as_stmt(stmts: list[Stmt]) -> Stmt:
    return stmts[0] if len(stmts) == 1 else Seq(tuple(stmts))


def _with_body(scope: Stmt, body: Stmt) -> Stmt:
    match scope:
        case Allocate(buffer, _, kind):
            return Allocate(buffer, body, kind)
        case AllocateConst(buffer, constant):
            return AllocateConst(buffer, constant, body)
        case DeclBuffer(buffer, source):
            return DeclBuffer(buffer, source, body)
        case Let(var, value):
            return Let(var, value, body)
        case _:
            raise AssertionError(scope)


def _settled(read: _Read, want: DType | None) -> Expr:
    """The expression with its open literals of dtype `want` (None: i32, f32)."""
    return read.expr if read.dtype is not None else _settle(read.expr, want)


def _settle(expr: Expr, want: DType | None) -> Expr:
    match expr:
        case IntImm(value, dtype) if dtype is _OPEN:
            return IntImm(value, want or INT32)
        case FloatImm(value, dtype) if dtype is _OPEN:
            return FloatImm(value, want or FLOAT32)
        case Binary(op, a, b):
            return Binary(op, _settle(a, want), _settle(b, want))
        case Select(cond, a, b):
            return Select(cond, _settle(a, want), _settle(b, want))
        case _:
            return expr
