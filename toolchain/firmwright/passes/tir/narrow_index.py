"""Narrowing of 64-bit index arithmetic to 32 bits where intervals prove that it fits.

Loop variables, lets, indices, offsets and comparisons become `i32` if every intermediate value
fits; other expressions keep their dtype, with casts of narrowed variables. Proofs use the original
expressions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from firmwright.base.dtypes import INT32, INT64
from firmwright.ir import tir
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.affine import Bounds, Interval, is_widening
from firmwright.ir.tir.rewrite import with_body
from firmwright.passes.map_functions import map_prim_funcs
from firmwright.passes.tir.simplify import assuming


def narrow_indices(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` with index arithmetic in 32 bits where that is exact."""
    return with_body(func, _Narrower(frozenset(), Bounds()).stmt(func.body))


def _fits(known: Interval | None) -> bool:
    return known is not None and INT32.min <= known[0] and known[1] <= INT32.max


@dataclass(frozen=True, slots=True)
class _Narrower:
    """Rewriter; `narrow` names the variables that are now 32-bit, `bounds` refers to old nodes."""

    narrow: frozenset[str]
    bounds: Bounds

    # ---- expressions -------------------------------------------------------------------------

    def expr(self, node: tir.Expr) -> tir.Expr:
        """Rewrite `node` with the same dtype, narrowed inside where possible."""
        match node:
            case tir.Var(name, dtype):
                return tir.Cast(dtype, tir.Var(name, INT32)) if name in self.narrow else node
            case tir.Binary(op, a, b):
                pair = self.pair(a, b) if op in tir.COMPARISONS else (self.expr(a), self.expr(b))
                return node if pair[0] is a and pair[1] is b else tir.Binary(op, *pair)
            case tir.Not(a):
                new = self.expr(a)
                return node if new is a else tir.Not(new)
            case tir.Cast(dtype, value):
                new = self.index(value)
                if new is value:
                    return node
                return new if new.dtype == dtype else tir.Cast(dtype, new)
            case tir.Select(cond, a, b):
                news = self.expr(cond), self.expr(a), self.expr(b)
                same = news[0] is cond and news[1] is a and news[2] is b
                return node if same else tir.Select(*news)
            case tir.BufferLoad(buffer, indices):
                new_indices = self.all(indices)
                return node if new_indices is indices else tir.BufferLoad(buffer, new_indices)
            case tir.AccessPtr():
                return self.pointer(node)
            case tir.IntrinsicCall(name, args, dtype):
                new_args = self.same(args)
                return node if new_args is args else tir.IntrinsicCall(name, new_args, dtype)
            case _:
                return node

    def index(self, node: tir.Expr) -> tir.Expr:
        """Rewrite `node` in 32 bits if it is a fitting 64-bit integer, else with its dtype."""
        if node.dtype == INT64:
            narrowed = self.narrowed(node)
            if narrowed is not None:
                return narrowed
        return self.expr(node)

    def pair(self, a: tir.Expr, b: tir.Expr) -> tuple[tir.Expr, tir.Expr]:
        """Rewrite two operands that must keep a common dtype."""
        if a.dtype == INT64:
            left, right = self.narrowed(a), self.narrowed(b)
            if left is not None and right is not None:
                return left, right
        return self.expr(a), self.expr(b)

    def all(self, nodes: tuple[tir.Expr, ...]) -> tuple[tir.Expr, ...]:
        """Rewrite indices, narrowing each where possible."""
        news = tuple(self.index(node) for node in nodes)
        return nodes if all(x is y for x, y in zip(news, nodes, strict=True)) else news

    def same(self, nodes: tuple[tir.Expr, ...]) -> tuple[tir.Expr, ...]:
        """Rewrite arguments with their dtypes."""
        news = tuple(self.expr(node) for node in nodes)
        return nodes if all(x is y for x, y in zip(news, nodes, strict=True)) else news

    def pointer(self, node: tir.AccessPtr) -> tir.AccessPtr:
        offset = self.index(node.offset)
        return node if offset is node.offset else replace(node, offset=offset)

    def narrowed(self, node: tir.Expr) -> tir.Expr | None:
        """Return the 64-bit `node` computed in 32 bits, or None if a step may not fit."""
        if not _fits(self.bounds.of(node)):
            return None
        match node:
            case tir.IntImm(value, _):
                return tir.IntImm(value, INT32)
            case tir.Var(name, _):
                return tir.Var(name, INT32) if name in self.narrow else None
            case tir.Binary(op, a, b):
                left, right = self.narrowed(a), self.narrowed(b)
                return None if left is None or right is None else tir.Binary(op, left, right)
            case tir.Cast(_, value) if value.dtype == INT32:
                return self.expr(value)
            case tir.Cast(_, value) if is_widening(value.dtype, INT32):
                return tir.Cast(INT32, self.expr(value))
            case tir.Select(cond, a, b):
                left, right = self.narrowed(a), self.narrowed(b)
                if left is None or right is None:
                    return None
                return tir.Select(self.expr(cond), left, right)
            case _:
                return None

    # ---- statements --------------------------------------------------------------------------

    def stmt(self, node: tir.Stmt) -> tir.Stmt:
        match node:
            case tir.For():
                return self._for(node)
            case tir.Let():
                return self._let(node)
            case tir.BufferStore(buffer, indices, value):
                news, new = self.all(indices), self.expr(value)
                same = news is indices and new is value
                return node if same else tir.BufferStore(buffer, news, new)
            case tir.If():
                return self._if(node)
            case tir.While(cond, body):
                new, new_body = self.expr(cond), self.stmt(body)
                return node if new is cond and new_body is body else tir.While(new, new_body)
            case tir.Seq(stmts):
                new_stmts = tuple(self.stmt(stmt) for stmt in stmts)
                same = all(x is y for x, y in zip(new_stmts, stmts, strict=True))
                return node if same else tir.Seq(new_stmts)
            case _:
                return self._memory(node)

    def _memory(self, node: tir.Stmt) -> tir.Stmt:
        match node:
            case tir.Allocate(body=body) | tir.AllocateConst(body=body):
                new_body = self.stmt(body)
                return node if new_body is body else replace(node, body=new_body)
            case tir.DeclBuffer(buffer, source, body):
                new_source, new_body = self.pointer(source), self.stmt(body)
                same = new_source is source and new_body is body
                return node if same else tir.DeclBuffer(buffer, new_source, new_body)
            case tir.Evaluate(call):
                args = self.same(call.args)
                return (
                    node
                    if args is call.args
                    else tir.Evaluate(tir.IntrinsicCall(call.name, args, call.dtype))
                )
            case tir.PrimFuncCall(args=args):
                news = self.same(args)
                return node if news is args else replace(node, args=news)
            case _:
                return node

    def _if(self, node: tir.If) -> tir.Stmt:
        cond = self.expr(node.cond)
        then = replace(self, bounds=assuming(self.bounds, node.cond)).stmt(node.then)
        orelse = node.orelse
        if orelse is not None:
            orelse = replace(self, bounds=assuming(self.bounds, node.cond, False)).stmt(orelse)
        same = cond is node.cond and then is node.then and orelse is node.orelse
        return node if same else tir.If(cond, then, orelse)

    def _for(self, node: tir.For) -> tir.Stmt:
        inner = self.bounds.with_loop(node.var, node.start, node.extent)
        end = self.bounds.of(tir.Binary("add", node.start, node.extent))
        if node.var.dtype == INT64 and _fits(end) and _fits(inner.of(node.var)):
            start, extent = self.narrowed(node.start), self.narrowed(node.extent)
            if start is not None and extent is not None:
                within = _Narrower(self.narrow | {node.var.name}, inner)
                body = within.stmt(node.body)
                return tir.For(tir.Var(node.var.name, INT32), start, extent, body, node.kind)
        start, extent = self.expr(node.start), self.expr(node.extent)
        body = _Narrower(self.narrow, inner).stmt(node.body)
        same = start is node.start and extent is node.extent and body is node.body
        return node if same else tir.For(node.var, start, extent, body, node.kind)

    def _let(self, node: tir.Let) -> tir.Stmt:
        inner = self.bounds.with_let(node.var, node.value)
        value = self.narrowed(node.value) if node.var.dtype == INT64 else None
        if value is not None:
            within = _Narrower(self.narrow | {node.var.name}, inner)
            return tir.Let(tir.Var(node.var.name, INT32), value, within.stmt(node.body))
        value, body = self.expr(node.value), _Narrower(self.narrow, inner).stmt(node.body)
        same = value is node.value and body is node.body
        return node if same else tir.Let(node.var, value, body)


def run(module: IRModule) -> IRModule:
    """Narrow indices in every PrimFunc."""
    return map_prim_funcs(module, narrow_indices)


PASS = Pass("narrow-index", run)
