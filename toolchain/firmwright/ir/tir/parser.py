"""Parser of TIR function text; `tir/printer.py` describes the language and its dtype rules.

`parse(print(f)) == f`. Any text yields a function or a ModelError with the position. Nesting is
limited because consumers are recursive.
"""

from __future__ import annotations

from typing import cast

from firmwright.base.dtypes import BOOL, HANDLE, INT64, DType
from firmwright.base.text import Tokenizer, TokenKind
from firmwright.ir import tir
from firmwright.ir.tir.parser_exprs import EXPR_DEPTH_MAX, ExprParser, resolve_literals
from firmwright.ir.tir.printer import KEYWORDS

SCOPE_DEPTH_MAX = 2_000
"""Limit of nested statements, including `allocate` and similar scopes."""

_ROLES = ("in", "out", "inout", "scratch", "const", "pool", "scalar")
_PHASES: tuple[tir.CallPhase, ...] = ("start", "wait")


class PrimFuncParser(ExprParser):
    """Parser of TIR functions."""

    __slots__ = ("_depth",)

    def __init__(self, tokens: Tokenizer) -> None:
        super().__init__(tokens)
        self._depth = 0

    def prim(self) -> tir.PrimFunc:
        """Parse `@name(params) [index(T)] [attrs {...}] [span(...)] { statements }`."""
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
        return tir.PrimFunc(name, params, self._block(), attrs, span)

    # ---- declarations ------------------------------------------------------------------------

    def _param(self) -> tir.Param:
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
            var = tir.Var(name, self.dtype())
            self._vars[name] = var
            return tir.Param(var, "scalar")
        buffer = self._buffer(name)
        self._buffers[name] = buffer
        return tir.Param(buffer, cast(tir.ParamRole, role))

    def _buffer(self, name: str) -> tir.Buffer:
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
        return tir.Buffer(name, dtype, shape, strides, scope, alignment)

    # ---- statements --------------------------------------------------------------------------

    def _block(self) -> tir.Stmt:
        """Parse `{ statements }`; a single statement is returned as itself."""
        stmts = self._statements()
        return stmts[0] if len(stmts) == 1 else tir.Seq(tuple(stmts))

    def _statements(self) -> list[tir.Stmt]:
        self.tokens.expect("{")
        self.deeper()
        outer = dict(self._buffers), dict(self._vars), self._depth
        open_scopes: list[tuple[tir.Stmt, list[tir.Stmt]]] = []
        stmts: list[tir.Stmt] = []
        while not self.tokens.accept("}"):
            scope = self._scope()
            if scope is None:
                stmts.append(self._stmt())
            elif self.tokens.at("{"):
                saved = dict(self._buffers), dict(self._vars)
                self._declare(scope)
                stmts.append(_nest_body(scope, self._block()))
                self._buffers, self._vars = saved
            else:
                self._enter()
                self._declare(scope)
                open_scopes.append((scope, stmts))
                stmts = []
        for scope, before in reversed(open_scopes):
            stmts = [*before, _nest_body(scope, _as_stmt(stmts))]
        self._buffers, self._vars, self._depth = outer
        self.shallower()
        return stmts

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > SCOPE_DEPTH_MAX:
            raise self.tokens.error(f"more than {SCOPE_DEPTH_MAX} nested scopes.")

    def _scope(self) -> tir.Stmt | None:
        tokens = self.tokens
        if tokens.accept("allocate"):
            name = self._new_name()
            tokens.expect(":")
            buffer = self._buffer(name)
            return tir.Allocate(
                buffer, tir.Seq(()), self.word() if tokens.accept("as") else "scratch"
            )
        if tokens.accept("alloc_const"):
            name = self._new_name()
            tokens.expect(":")
            buffer = self._buffer(name)
            tokens.expect("=")
            return tir.AllocateConst(buffer, tokens.global_(), tir.Seq(()))
        if tokens.accept("decl"):
            name = self._new_name()
            tokens.expect(":")
            buffer = self._buffer(name)
            tokens.expect("=")
            tokens.expect("ptr")
            return tir.DeclBuffer(buffer, self._pointer(), tir.Seq(()))
        return self._let() if tokens.accept("let") else None

    def _let(self) -> tir.Let:
        name = self._new_name()
        dtype = self.dtype() if self.tokens.accept(":") else None
        self.tokens.expect("=")
        read = self._binary(0)
        kind = dtype or read.dtype or self._index
        return tir.Let(tir.Var(name, kind), resolve_literals(read, kind), tir.Seq(()))

    def _declare(self, scope: tir.Stmt) -> None:
        match scope:
            case tir.Let(var):
                self._vars[var.name] = var
            case tir.Allocate(buffer) | tir.AllocateConst(buffer) | tir.DeclBuffer(buffer):
                self._buffers[buffer.name] = buffer

    def _stmt(self) -> tir.Stmt:
        tokens = self.tokens
        if tokens.accept("for"):
            return self._for("serial")
        kinds: tuple[tir.ForKind, ...] = ("unrolled", "vectorized")
        for kind in kinds:
            if tokens.accept(kind):
                tokens.expect("for")
                return self._for(kind)
        if tokens.accept("if"):
            return self._if()
        if tokens.accept("while"):
            return tir.While(self._expr(BOOL), self._block())
        if tokens.accept("seq"):
            return tir.Seq(tuple(self._statements()))
        if tokens.accept("call"):
            return self._call_prim()
        return self._store_or_evaluate()

    def _for(self, kind: tir.ForKind) -> tir.For:
        name = self._new_name()
        dtype = self.dtype() if self.tokens.accept(":") else self._index
        self.tokens.expect("in")
        start, extent = self._range(dtype)
        var = tir.Var(name, dtype)
        before = self._vars.get(name)
        self._vars[name] = var
        body = self._block()
        del self._vars[name]
        if before is not None:
            self._vars[name] = before
        return tir.For(var, start, extent, body, kind)

    def _range(self, dtype: DType) -> tuple[tir.Expr, tir.Expr]:
        """Parse start and extent: `first..end`, `first..+count` or a count."""
        token = self.tokens.peek
        first = self._expr(dtype)
        if not self.tokens.accept(".."):
            return tir.IntImm(0, dtype), first
        if self.tokens.accept("+"):
            return first, self._expr(dtype)
        end = self._expr(dtype)
        if isinstance(first, tir.IntImm):
            if first.value == 0:
                return first, end
            if isinstance(end, tir.IntImm):
                return first, tir.IntImm(end.value - first.value, end.dtype)
        raise self.tokens.error(
            "a range from here needs a count: write `first..+count`.", token
        )  # fmt: skip

    def _if(self) -> tir.If:
        arms = [(self._expr(BOOL), self._block())]
        orelse: tir.Stmt | None = None
        while self.tokens.accept("else"):
            if not self.tokens.accept("if"):
                orelse = self._block()
                break
            if len(arms) == EXPR_DEPTH_MAX:
                raise self.tokens.error(
                    f"more than {EXPR_DEPTH_MAX} else-if branches follow one if."
                )
            arms.append((self._expr(BOOL), self._block()))
        for cond, then in reversed(arms):
            orelse = tir.If(cond, then, orelse)
        assert isinstance(orelse, tir.If)
        return orelse

    def _call_prim(self) -> tir.PrimFuncCall:
        """Parse `call [start|wait] [on "DEVICE"] @name(args) [op N] [span(...)]`."""
        phase: tir.CallPhase = "call"
        for word in _PHASES:
            if self.tokens.accept(word):
                phase = word
        device = self.tokens.string() if self.tokens.accept("on") else ""
        callee = self.tokens.global_()
        args = tuple(self.items("(", ")", self._arg))
        op = self.tokens.int_() if self.tokens.accept("op") else -1
        return tir.PrimFuncCall(callee, args, self.span(), op, device, phase)

    def _store_or_evaluate(self) -> tir.Stmt:
        token = self.tokens.peek
        if token.kind not in (TokenKind.IDENT, TokenKind.LOCAL, TokenKind.GLOBAL):
            raise self.expected("a statement")
        if token.kind is not TokenKind.LOCAL and token.text in KEYWORDS:
            raise self.expected("a statement")
        self.tokens.next()
        if token.kind is TokenKind.GLOBAL or self.tokens.at("("):
            args = tuple(self.items("(", ")", self._arg))
            dtype = self.dtype() if self.tokens.accept(":") else HANDLE
            return tir.Evaluate(tir.IntrinsicCall(str(token.value), args, dtype))
        buffer = self._known_buffer(token)
        indices = tuple(self.items("[", "]", self._index_expr))
        self.tokens.expect("=")
        return tir.BufferStore(buffer, indices, self._expr(buffer.dtype))


def _as_stmt(stmts: list[tir.Stmt]) -> tir.Stmt:
    return stmts[0] if len(stmts) == 1 else tir.Seq(tuple(stmts))


def _nest_body(scope: tir.Stmt, body: tir.Stmt) -> tir.Stmt:
    match scope:
        case tir.Allocate(buffer, _, kind):
            return tir.Allocate(buffer, body, kind)
        case tir.AllocateConst(buffer, constant):
            return tir.AllocateConst(buffer, constant, body)
        case tir.DeclBuffer(buffer, source):
            return tir.DeclBuffer(buffer, source, body)
        case tir.Let(var, value):
            return tir.Let(var, value, body)
        case _:
            raise AssertionError(scope)
