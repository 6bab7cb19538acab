"""Narrowing of 64-bit index arithmetic to 32 bits where intervals prove that it fits.

Loop variables, lets, indices, offsets and comparisons become `i32` if every
intermediate value fits; other expressions keep their dtype, with casts of narrowed
variables. Proofs use the original expressions.
"""

from dataclasses import dataclass, replace

from firmwright.base.dtypes import INT32, INT64
from firmwright.ir import tir
from firmwright.ir.tir.affine import Bounds, is_widening
from firmwright.ir.tir.intervals import Interval
from firmwright.ir.tir.traversal import Node, map_children, with_body, with_children
from firmwright.passes.map_functions import tir_pass
from firmwright.passes.tir.simplify import assuming


def narrow_indices(func: tir.PrimFunc) -> tir.PrimFunc:
    return with_body(func, _Narrower(frozenset(), Bounds()).stmt(func.body))


def _fits(known: Interval | None) -> bool:
    return known is not None and INT32.min <= known[0] and known[1] <= INT32.max


@dataclass(frozen=True, slots=True)
class _Narrower:
    """Rewriter with the variables narrowed so far, and bounds of original nodes."""

    narrow: frozenset[str]
    bounds: Bounds

    def expr(self, node: tir.Expr) -> tir.Expr:
        match node:
            case tir.Var(name, dtype) if name in self.narrow:
                # The variable is narrow, but this expression sees the old type.
                return tir.Cast(dtype, tir.Var(name, INT32))
            case tir.Binary(op, a, b) if op in tir.COMPARISONS:
                return with_children(node, self.pair(a, b))
            case tir.Cast(dtype, value):
                new = self.index(value)
                is_exact = new is not value and new.dtype == dtype
                return new if is_exact else with_children(node, (new,))
            case tir.BufferLoad() | tir.AccessPtr():
                return map_children(node, self.index)
        return map_children(node, self.expr)

    def index(self, node: tir.Expr) -> tir.Expr:
        """Rewrite a 64-bit `node` in 32 bits if it fits; otherwise keep its dtype."""
        if node.dtype == INT64:
            narrowed = self.narrowed(node)
            if narrowed is not None:
                return narrowed
        return self.expr(node)

    def pair(self, a: tir.Expr, b: tir.Expr) -> tuple[tir.Expr, tir.Expr]:
        if a.dtype == INT64:
            left, right = self.narrowed(a), self.narrowed(b)
            if left is not None and right is not None:
                return left, right
        return self.expr(a), self.expr(b)

    def narrowed(self, node: tir.Expr) -> tir.Expr | None:
        if not _fits(self.bounds.interval_of(node)):
            return None
        match node:
            case tir.IntImm(value, _):
                return tir.IntImm(value, INT32)
            case tir.Var(name, _):
                return tir.Var(name, INT32) if name in self.narrow else None
            case tir.Binary(op, a, b):
                left, right = self.narrowed(a), self.narrowed(b)
                if left is None or right is None:
                    return None
                return tir.Binary(op, left, right)
            case tir.Cast(_, value) if value.dtype == INT32:
                return self.expr(value)
            case tir.Cast(_, value) if is_widening(value.dtype, INT32):
                return tir.Cast(INT32, self.expr(value))
            case tir.Select(cond, a, b):
                left, right = self.narrowed(a), self.narrowed(b)
                if left is None or right is None:
                    return None
                return tir.Select(self.expr(cond), left, right)
        return None

    def stmt(self, node: tir.Stmt) -> tir.Stmt:
        match node:
            case tir.For():
                return self._for(node)
            case tir.Let():
                return self._let(node)
            case tir.If():
                return self._if(node)
            case tir.BufferStore(_, indices, value):
                places = map(self.index, indices)
                return with_children(node, (*places, self.expr(value)))
        return map_children(node, self._child)

    def _child(self, node: Node) -> Node:
        return self.stmt(node) if isinstance(node, tir.Stmt) else self.expr(node)

    def _if(self, node: tir.If) -> tir.Stmt:
        new: list[Node] = [self.expr(node.cond)]
        for branch, holds in ((node.then, True), (node.orelse, False)):
            if branch is not None:
                bounds = assuming(self.bounds, node.cond, holds)
                new.append(replace(self, bounds=bounds).stmt(branch))
        return with_children(node, tuple(new))

    def _for(self, node: tir.For) -> tir.Stmt:
        inner = self.bounds.with_loop(node.var, node.start, node.extent)
        # The generated loop compares the variable with start + extent, which must fit,
        # too.
        end = self.bounds.interval_of(tir.Binary("add", node.start, node.extent))
        does_fit = _fits(end) and _fits(inner.interval_of(node.var))
        if node.var.dtype == INT64 and does_fit:
            start, extent = self.narrowed(node.start), self.narrowed(node.extent)
            if start is not None and extent is not None:
                within = _Narrower(self.narrow | {node.var.name}, inner)
                var = tir.Var(node.var.name, INT32)
                return tir.For(var, start, extent, within.stmt(node.body), node.kind)
        body = _Narrower(self.narrow, inner).stmt(node.body)
        start, extent = self.expr(node.start), self.expr(node.extent)
        return with_children(node, (start, extent, body))

    def _let(self, node: tir.Let) -> tir.Stmt:
        inner = self.bounds.with_let(node.var, node.value)
        value = self.narrowed(node.value) if node.var.dtype == INT64 else None
        if value is not None:
            within = _Narrower(self.narrow | {node.var.name}, inner)
            return tir.Let(tir.Var(node.var.name, INT32), value, within.stmt(node.body))
        body = _Narrower(self.narrow, inner).stmt(node.body)
        return with_children(node, (self.expr(node.value), body))


PASS = tir_pass("narrow-index", narrow_indices)
