"""Bottom-up rewriting of TIR trees.

A rule `rule(node) -> node | None` sees a node after its children were rewritten; None keeps it.
Unchanged trees are returned as the identical object. To drop a statement, replace it by
`EMPTY_STMT`, which enclosing `Seq`s omit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias, cast

from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.tir.traversal import Node

RewriteRule: TypeAlias = Callable[[Node], Node | None]

EMPTY_STMT = tir.Seq(())
"""The statement without effect."""


def rewrite_expr(node: tir.Expr, rule: RewriteRule) -> tir.Expr:
    """Apply `rule` to every expression in `node`, innermost first."""
    rebuilt = _rebuilt_expr(node, rule)
    result = rule(rebuilt)
    return rebuilt if result is None else cast(tir.Expr, result)


def rewrite_stmt(node: tir.Stmt, rule: RewriteRule) -> tir.Stmt:
    """Apply `rule` to every statement and expression in `node`, innermost first."""
    rebuilt = _rebuilt_stmt(node, rule)
    result = rule(rebuilt)
    return rebuilt if result is None else cast(tir.Stmt, result)


def rewrite_func(func: tir.PrimFunc, rule: RewriteRule) -> tir.PrimFunc:
    """Return `func` with its body rewritten."""
    return with_body(func, rewrite_stmt(func.body, rule))


def with_body(func: tir.PrimFunc, body: tir.Stmt) -> tir.PrimFunc:
    """Return `func` with `body`, or `func` itself if the body is unchanged."""
    return func if body is func.body else replace(func, body=body)


def make_sequence(stmts: list[tir.Stmt]) -> tir.Stmt:
    """Return the statements in sequence, with nested sequences flattened."""
    flat: list[tir.Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, tir.Seq) else (stmt,))
    return flat[0] if len(flat) == 1 else tir.Seq(tuple(flat))


def substitute(
    node: tir.Stmt,
    variables: Mapping[str, tir.Expr],
    buffers: Mapping[str, tir.Buffer] | None = None,
) -> tir.Stmt:
    """Replace variables by expressions and uses of buffers by other buffers.

    Also replaces the buffer in its `Allocate`, `AllocateConst` or `DeclBuffer`.
    """
    moved = buffers or {}

    def rule(part: Node) -> Node | None:
        match part:
            case tir.Var(name, _):
                return variables.get(name)
            case (
                tir.BufferLoad(buffer)
                | tir.BufferStore(buffer)
                | tir.AccessPtr(buffer)
                | tir.Allocate(buffer)
                | tir.AllocateConst(buffer)
                | tir.DeclBuffer(buffer)
            ) if buffer.name in moved:
                return replace(part, buffer=moved[buffer.name])
            case _:
                return None

    return rewrite_stmt(node, rule)


def substitute_expr(node: tir.Expr, variables: Mapping[str, tir.Expr]) -> tir.Expr:
    """Replace variables in `node` by expressions."""
    return rewrite_expr(
        node, lambda part: variables.get(part.name) if isinstance(part, tir.Var) else None
    )


def _rebuilt_exprs(nodes: tuple[tir.Expr, ...], rule: RewriteRule) -> tuple[tir.Expr, ...]:
    new = tuple(rewrite_expr(node, rule) for node in nodes)
    return nodes if all(a is b for a, b in zip(new, nodes, strict=True)) else new


def _rebuilt_expr(node: tir.Expr, rule: RewriteRule) -> tir.Expr:
    match node:
        case tir.IntImm() | tir.FloatImm() | tir.Var():
            return node
        case tir.Binary(op, a, b):
            new_a, new_b = rewrite_expr(a, rule), rewrite_expr(b, rule)
            return node if new_a is a and new_b is b else tir.Binary(op, new_a, new_b)
        case tir.Not(a):
            new_a = rewrite_expr(a, rule)
            return node if new_a is a else tir.Not(new_a)
        case tir.Cast(dtype, value):
            new = rewrite_expr(value, rule)
            return node if new is value else tir.Cast(dtype, new)
        case tir.Select(cond, a, b):
            new_cond, new_a, new_b = (rewrite_expr(part, rule) for part in (cond, a, b))
            same = new_cond is cond and new_a is a and new_b is b
            return node if same else tir.Select(new_cond, new_a, new_b)
        case tir.BufferLoad(buffer, indices):
            news = _rebuilt_exprs(indices, rule)
            return node if news is indices else tir.BufferLoad(buffer, news)
        case tir.AccessPtr(buffer, offset, extent, access):
            new = rewrite_expr(offset, rule)
            return node if new is offset else tir.AccessPtr(buffer, new, extent, access)
        case tir.IntrinsicCall(name, args, dtype):
            news = _rebuilt_exprs(args, rule)
            return node if news is args else tir.IntrinsicCall(name, news, dtype)


def _rebuilt_stmt(node: tir.Stmt, rule: RewriteRule) -> tir.Stmt:
    match node:
        case tir.For(var, start, extent, body, kind):
            new_start, new_extent = rewrite_expr(start, rule), rewrite_expr(extent, rule)
            new_body = rewrite_stmt(body, rule)
            same = new_start is start and new_extent is extent and new_body is body
            return node if same else tir.For(var, new_start, new_extent, new_body, kind)
        case tir.BufferStore(buffer, indices, value):
            news, new = _rebuilt_exprs(indices, rule), rewrite_expr(value, rule)
            return node if news is indices and new is value else tir.BufferStore(buffer, news, new)
        case tir.Let(var, value, body):
            new, new_body = rewrite_expr(value, rule), rewrite_stmt(body, rule)
            return node if new is value and new_body is body else tir.Let(var, new, new_body)
        case tir.If(cond, then, orelse):
            return _rebuilt_if(node, cond, then, orelse, rule)
        case tir.While(cond, body):
            new, new_body = rewrite_expr(cond, rule), rewrite_stmt(body, rule)
            return node if new is cond and new_body is body else tir.While(new, new_body)
        case tir.Seq(stmts):
            new_stmts = [rewrite_stmt(stmt, rule) for stmt in stmts]
            same = all(a is b for a, b in zip(new_stmts, stmts, strict=True))
            return node if same else make_sequence(new_stmts)
        case tir.Allocate(buffer, body, kind):
            new_body = rewrite_stmt(body, rule)
            return node if new_body is body else tir.Allocate(buffer, new_body, kind)
        case tir.AllocateConst(buffer, constant, body):
            new_body = rewrite_stmt(body, rule)
            return node if new_body is body else tir.AllocateConst(buffer, constant, new_body)
        case tir.DeclBuffer(buffer, source, body):
            return _rebuilt_decl(node, buffer, source, body, rule)
        case tir.Evaluate(call):
            new = rewrite_expr(call, rule)
            return node if new is call else tir.Evaluate(cast(tir.IntrinsicCall, new))
        case tir.PrimFuncCall(args=args):
            news = _rebuilt_exprs(args, rule)
            return node if news is args else replace(node, args=news)


def _rebuilt_if(
    node: tir.If, cond: tir.Expr, then: tir.Stmt, orelse: tir.Stmt | None, rule: RewriteRule
) -> tir.Stmt:
    new_cond, new_then = rewrite_expr(cond, rule), rewrite_stmt(then, rule)
    new_else = None if orelse is None else rewrite_stmt(orelse, rule)
    same = new_cond is cond and new_then is then and new_else is orelse
    return node if same else tir.If(new_cond, new_then, new_else)


def _rebuilt_decl(
    node: tir.DeclBuffer,
    buffer: tir.Buffer,
    source: tir.AccessPtr,
    body: tir.Stmt,
    rule: RewriteRule,
) -> tir.Stmt:
    new_source, new_body = rewrite_expr(source, rule), rewrite_stmt(body, rule)
    if not isinstance(new_source, tir.AccessPtr):
        raise InternalError(f"a rule replaced the source of {buffer.name} by another kind of node")
    same = new_source is source and new_body is body
    return node if same else tir.DeclBuffer(buffer, new_source, new_body)
