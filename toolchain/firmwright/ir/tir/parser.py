"""Parser of TIR functions; `tir/printer.py` describes the language and its dtypes.

`parse(print(f)) == f`. Any text yields a function or a ModelError with the position.
Nesting is limited.
"""

from dataclasses import replace
from typing import cast, get_args

from firmwright.base.dtypes import BOOL, HANDLE, INT64, DType
from firmwright.base.tokenizer import Tokenizer, TokenKind
from firmwright.ir import tir
from firmwright.ir.tir.parser_exprs import EXPR_DEPTH_MAX, ExprParser, resolve_literals
from firmwright.ir.tir.plan import BufferKind
from firmwright.ir.tir.printer import KEYWORDS, ScopedStmt
from firmwright.ir.tir.traversal import EMPTY_STMT

SCOPE_DEPTH_MAX = 2_000
"""Limit of nested statements, including `allocate` and similar scopes."""

_ROLES = ("in", "out", "inout", "scratch", "const", "pool", "scalar")
_ALLOCATED = (*get_args(BufferKind), "reg")
_PHASES: tuple[tir.CallPhase, ...] = ("start", "wait")
_MARKED_LOOPS: tuple[tir.ForKind, ...] = ("unrolled", "vectorized")


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
            self._index = self.in_parentheses(self.dtype)
        attrs = self.function_attrs()
        span = self.span()
        return tir.PrimFunc(name, params, self._block(), attrs, span)

    def _param(self) -> tir.Param:
        role = "inout"
        token = self.tokens.peek
        name = self._new_name()
        if not self.tokens.at(":"):
            if name not in _ROLES:
                what = f"found {token.text!r}, expected one of {', '.join(_ROLES)}."
                raise self.tokens.error(what, token)
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
        accept, int_ = self.tokens.accept, self.tokens.int_
        dtype, shape = self.dtype(), self.shape()
        strides = tuple(self.items("(", ")", int_)) if accept("strides") else None
        scope = self.in_parentheses(self.word) if accept("scope") else "global"
        alignment = self.in_parentheses(int_) if accept("align") else 1
        return tir.Buffer(name, dtype, shape, strides, scope, alignment)

    def _block(self) -> tir.Stmt:
        return _as_stmt(self._statements())

    def _statements(self) -> list[tir.Stmt]:
        self.tokens.expect("{")
        self.deeper()
        outer = dict(self._buffers), dict(self._vars), self._depth
        open_scopes: list[tuple[ScopedStmt, list[tir.Stmt]]] = []
        stmts: list[tir.Stmt] = []
        while not self.tokens.accept("}"):
            scope = self._scope()
            if scope is None:
                stmts.append(self._stmt())
            elif self.tokens.at("{"):
                saved = dict(self._buffers), dict(self._vars)
                self._declare(scope)
                stmts.append(replace(scope, body=self._block()))
                self._buffers, self._vars = saved
            else:
                self._depth += 1
                if self._depth > SCOPE_DEPTH_MAX:
                    what = f"more than {SCOPE_DEPTH_MAX} nested scopes."
                    raise self.tokens.error(what)
                self._declare(scope)
                open_scopes.append((scope, stmts))
                stmts = []
        for scope, before in reversed(open_scopes):
            stmts = [*before, replace(scope, body=_as_stmt(stmts))]
        self._buffers, self._vars, self._depth = outer
        self.shallower()
        return stmts

    def _scope(self) -> ScopedStmt | None:
        """Parse the head of a scoped statement, if any, as one with an empty body."""
        tokens = self.tokens
        if tokens.accept("let"):
            name = self._new_name()
            dtype = self.dtype() if tokens.accept(":") else None
            tokens.expect("=")
            read = self._binary(0)
            kind = dtype or read.dtype or self._index
            value = resolve_literals(read, kind)
            return tir.Let(tir.Var(name, kind), value, EMPTY_STMT)
        keyword = next(filter(tokens.accept, ("allocate", "alloc_const", "decl")), None)
        if keyword is None:
            return None
        name = self._new_name()
        tokens.expect(":")
        buffer = self._buffer(name)
        if keyword == "allocate":
            kind_word = self.one_of(_ALLOCATED) if tokens.accept("as") else "scratch"
            return tir.Allocate(buffer, EMPTY_STMT, kind_word)
        tokens.expect("=")
        if keyword == "alloc_const":
            return tir.AllocateConst(buffer, tokens.global_(), EMPTY_STMT)
        tokens.expect("ptr")
        return tir.DeclBuffer(buffer, self._pointer(), EMPTY_STMT)

    def _declare(self, scope: ScopedStmt) -> None:
        if isinstance(scope, tir.Let):
            self._vars[scope.var.name] = scope.var
        else:
            self._buffers[scope.buffer.name] = scope.buffer

    def _stmt(self) -> tir.Stmt:
        tokens = self.tokens
        for kind in _MARKED_LOOPS:
            if tokens.accept(kind):
                tokens.expect("for")
                return self._for(kind)
        if tokens.accept("for"):
            return self._for("serial")
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
        what = "a range from here needs a count: write `first..+count`."
        raise self.tokens.error(what, token)

    def _if(self) -> tir.If:
        arms = [(self._expr(BOOL), self._block())]
        orelse: tir.Stmt | None = None
        while self.tokens.accept("else"):
            if not self.tokens.accept("if"):
                orelse = self._block()
                break
            if len(arms) == EXPR_DEPTH_MAX:
                what = f"more than {EXPR_DEPTH_MAX} else-if branches follow one if."
                raise self.tokens.error(what)
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
        indices = tuple(self.items("[", "]", lambda: self._expr(self._index)))
        self.tokens.expect("=")
        return tir.BufferStore(buffer, indices, self._expr(buffer.dtype))


def _as_stmt(stmts: list[tir.Stmt]) -> tir.Stmt:
    return stmts[0] if len(stmts) == 1 else tir.Seq(tuple(stmts))
