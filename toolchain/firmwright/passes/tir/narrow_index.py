"""Narrows 64-bit index arithmetic to 32 bits where intervals prove that it fits.

In: PrimFuncs whose indices are built in 64 bits. Out: loop variables, lets, indices, offsets and
comparisons in `i32` wherever every value on the way fits; what does not fit stays as it is, with a
cast around the variables that became narrow. Proofs use the original expressions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from firmwright.base.dtypes import INT32, INT64
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.affine import Bounds, Interval, widens
from firmwright.ir.tir.nodes import (
    COMPARISONS,
    AccessPtr,
    Allocate,
    AllocateConst,
    Binary,
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
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Var,
    While,
)
from firmwright.ir.tir.rewrite import with_body
from firmwright.passes.per_function import each_prim_func
from firmwright.passes.tir.simplify import assuming


def narrow(func: PrimFunc) -> PrimFunc:
    """`func` with index arithmetic in 32 bits where that is exact."""
    return with_body(func, _Narrower(frozenset(), Bounds()).stmt(func.body))


def _fits(known: Interval | None) -> bool:
    return known is not None and INT32.min <= known[0] and known[1] <= INT32.max


@dataclass(frozen=True, slots=True)
class _Narrower:
    """`narrow` holds the names of variables that are 32-bit now; `bounds` speaks of old nodes."""

    narrow: frozenset[str]
    bounds: Bounds

    # ---- expressions -------------------------------------------------------------------------

    def expr(self, node: Expr) -> Expr:
        """`node` with the same dtype, narrow inside where it can be."""
        match node:
            case Var(name, dtype):
                return Cast(dtype, Var(name, INT32)) if name in self.narrow else node
            case Binary(op, a, b):
                pair = self.pair(a, b) if op in COMPARISONS else (self.expr(a), self.expr(b))
                return node if pair[0] is a and pair[1] is b else Binary(op, *pair)
            case Not(a):
                new = self.expr(a)
                return node if new is a else Not(new)
            case Cast(dtype, value):
                new = self.index(value)
                if new is value:
                    return node
                return new if new.dtype == dtype else Cast(dtype, new)
            case Select(cond, a, b):
                news = self.expr(cond), self.expr(a), self.expr(b)
                same = news[0] is cond and news[1] is a and news[2] is b
                return node if same else Select(*news)
            case BufferLoad(buffer, indices):
                new_indices = self.all(indices)
                return node if new_indices is indices else BufferLoad(buffer, new_indices)
            case AccessPtr():
                return self.pointer(node)
            case Call(name, args, dtype):
                new_args = self.same(args)
                return node if new_args is args else Call(name, new_args, dtype)
            case _:
                return node

    def index(self, node: Expr) -> Expr:
        """`node` in 32 bits if it is a 64-bit integer and fits, else with its dtype."""
        if node.dtype == INT64:
            narrowed = self.narrowed(node)
            if narrowed is not None:
                return narrowed
        return self.expr(node)

    def pair(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """Two operands that keep one dtype."""
        if a.dtype == INT64:
            left, right = self.narrowed(a), self.narrowed(b)
            if left is not None and right is not None:
                return left, right
        return self.expr(a), self.expr(b)

    def all(self, nodes: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Indices, each in the dtype it can have."""
        news = tuple(self.index(node) for node in nodes)
        return nodes if all(x is y for x, y in zip(news, nodes, strict=True)) else news

    def same(self, nodes: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Arguments, each with its dtype."""
        news = tuple(self.expr(node) for node in nodes)
        return nodes if all(x is y for x, y in zip(news, nodes, strict=True)) else news

    def pointer(self, node: AccessPtr) -> AccessPtr:
        offset = self.index(node.offset)
        return node if offset is node.offset else replace(node, offset=offset)

    def narrowed(self, node: Expr) -> Expr | None:
        """The 64-bit `node` computed in 32 bits; None if some step may not fit."""
        if not _fits(self.bounds.of(node)):
            return None
        match node:
            case IntImm(value, _):
                return IntImm(value, INT32)
            case Var(name, _):
                return Var(name, INT32) if name in self.narrow else None
            case Binary(op, a, b):
                left, right = self.narrowed(a), self.narrowed(b)
                return None if left is None or right is None else Binary(op, left, right)
            case Cast(_, value) if value.dtype == INT32:
                return self.expr(value)
            case Cast(_, value) if widens(value.dtype, INT32):
                return Cast(INT32, self.expr(value))
            case Select(cond, a, b):
                left, right = self.narrowed(a), self.narrowed(b)
                if left is None or right is None:
                    return None
                return Select(self.expr(cond), left, right)
            case _:
                return None

    # ---- statements --------------------------------------------------------------------------

    def stmt(self, node: Stmt) -> Stmt:
        match node:
            case For():
                return self._for(node)
            case Let():
                return self._let(node)
            case BufferStore(buffer, indices, value):
                news, new = self.all(indices), self.expr(value)
                same = news is indices and new is value
                return node if same else BufferStore(buffer, news, new)
            case If():
                return self._if(node)
            case While(cond, body):
                new, new_body = self.expr(cond), self.stmt(body)
                return node if new is cond and new_body is body else While(new, new_body)
            case Seq(stmts):
                new_stmts = tuple(self.stmt(stmt) for stmt in stmts)
                same = all(x is y for x, y in zip(new_stmts, stmts, strict=True))
                return node if same else Seq(new_stmts)
            case _:
                return self._memory(node)

    def _memory(self, node: Stmt) -> Stmt:
        match node:
            case Allocate(body=body) | AllocateConst(body=body):
                new_body = self.stmt(body)
                return node if new_body is body else replace(node, body=new_body)
            case DeclBuffer(buffer, source, body):
                new_source, new_body = self.pointer(source), self.stmt(body)
                same = new_source is source and new_body is body
                return node if same else DeclBuffer(buffer, new_source, new_body)
            case Evaluate(call):
                args = self.same(call.args)
                return node if args is call.args else Evaluate(Call(call.name, args, call.dtype))
            case CallPrim(args=args):
                news = self.same(args)
                return node if news is args else replace(node, args=news)
            case _:
                return node

    def _if(self, node: If) -> Stmt:
        cond = self.expr(node.cond)
        then = replace(self, bounds=assuming(self.bounds, node.cond)).stmt(node.then)
        orelse = node.orelse
        if orelse is not None:
            orelse = replace(self, bounds=assuming(self.bounds, node.cond, False)).stmt(orelse)
        same = cond is node.cond and then is node.then and orelse is node.orelse
        return node if same else If(cond, then, orelse)

    def _for(self, node: For) -> Stmt:
        inner = self.bounds.with_loop(node.var, node.start, node.extent)
        end = self.bounds.of(Binary("add", node.start, node.extent))
        if node.var.dtype == INT64 and _fits(end) and _fits(inner.of(node.var)):
            start, extent = self.narrowed(node.start), self.narrowed(node.extent)
            if start is not None and extent is not None:
                within = _Narrower(self.narrow | {node.var.name}, inner)
                body = within.stmt(node.body)
                return For(Var(node.var.name, INT32), start, extent, body, node.kind)
        start, extent = self.expr(node.start), self.expr(node.extent)
        body = _Narrower(self.narrow, inner).stmt(node.body)
        same = start is node.start and extent is node.extent and body is node.body
        return node if same else For(node.var, start, extent, body, node.kind)

    def _let(self, node: Let) -> Stmt:
        inner = self.bounds.with_let(node.var, node.value)
        value = self.narrowed(node.value) if node.var.dtype == INT64 else None
        if value is not None:
            within = _Narrower(self.narrow | {node.var.name}, inner)
            return Let(Var(node.var.name, INT32), value, within.stmt(node.body))
        value, body = self.expr(node.value), _Narrower(self.narrow, inner).stmt(node.body)
        same = value is node.value and body is node.body
        return node if same else Let(node.var, value, body)


def run(module: IRModule) -> IRModule:
    """Narrows indices in every PrimFunc."""
    return each_prim_func(module, narrow)


PASS = Pass("narrow-index", run)
