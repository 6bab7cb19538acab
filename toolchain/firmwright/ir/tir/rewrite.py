"""Rebuilding TIR trees: one rule, applied bottom-up; what it leaves alone stays the same object.

In: an expression or statement and `rule(node) -> node | None`, where None means unchanged. The rule
sees a node after its parts were rewritten. Out: the new tree; the identical object if nothing
changed. Dropping a statement is replacing it by `NOTHING`, which enclosing `Seq`s leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias, cast

from firmwright.base.errors import InternalError
from firmwright.ir.tir.nodes import (
    AccessPtr,
    Allocate,
    AllocateConst,
    Binary,
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
from firmwright.ir.tir.walk import Node

Rule: TypeAlias = Callable[[Node], Node | None]

NOTHING = Seq(())
"""The statement that does nothing."""


def rewrite_expr(node: Expr, rule: Rule) -> Expr:
    """`node` with `rule` applied to every expression in it, innermost first."""
    rebuilt = _rebuilt_expr(node, rule)
    result = rule(rebuilt)
    return rebuilt if result is None else cast(Expr, result)


def rewrite_stmt(node: Stmt, rule: Rule) -> Stmt:
    """`node` with `rule` applied to every statement and expression in it, innermost first."""
    rebuilt = _rebuilt_stmt(node, rule)
    result = rule(rebuilt)
    return rebuilt if result is None else cast(Stmt, result)


def rewrite_func(func: PrimFunc, rule: Rule) -> PrimFunc:
    """`func` with its body rewritten."""
    return with_body(func, rewrite_stmt(func.body, rule))


def with_body(func: PrimFunc, body: Stmt) -> PrimFunc:
    """`func` with that body; `func` itself if it has it already."""
    return func if body is func.body else replace(func, body=body)


def sequence(stmts: list[Stmt]) -> Stmt:
    """Those statements one after the other, nested sequences opened up."""
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Seq) else (stmt,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def substitute(
    node: Stmt, variables: Mapping[str, Expr], buffers: Mapping[str, Buffer] | None = None
) -> Stmt:
    """`node` with variables replaced by expressions and uses of buffers by other buffers.

    Only uses change, and the `Allocate`, `AllocateConst` or `DeclBuffer` of a replaced buffer.
    """
    moved = buffers or {}

    def rule(part: Node) -> Node | None:
        match part:
            case Var(name, _):
                return variables.get(name)
            case (
                BufferLoad(buffer)
                | BufferStore(buffer)
                | AccessPtr(buffer)
                | Allocate(buffer)
                | AllocateConst(buffer)
                | DeclBuffer(buffer)
            ) if buffer.name in moved:
                return replace(part, buffer=moved[buffer.name])
            case _:
                return None

    return rewrite_stmt(node, rule)


def substitute_expr(node: Expr, variables: Mapping[str, Expr]) -> Expr:
    """`node` with variables replaced by expressions."""
    return rewrite_expr(
        node, lambda part: variables.get(part.name) if isinstance(part, Var) else None
    )


def _rebuilt_exprs(nodes: tuple[Expr, ...], rule: Rule) -> tuple[Expr, ...]:
    new = tuple(rewrite_expr(node, rule) for node in nodes)
    return nodes if all(a is b for a, b in zip(new, nodes, strict=True)) else new


def _rebuilt_expr(node: Expr, rule: Rule) -> Expr:
    match node:
        case IntImm() | FloatImm() | Var():
            return node
        case Binary(op, a, b):
            new_a, new_b = rewrite_expr(a, rule), rewrite_expr(b, rule)
            return node if new_a is a and new_b is b else Binary(op, new_a, new_b)
        case Not(a):
            new_a = rewrite_expr(a, rule)
            return node if new_a is a else Not(new_a)
        case Cast(dtype, value):
            new = rewrite_expr(value, rule)
            return node if new is value else Cast(dtype, new)
        case Select(cond, a, b):
            new_cond, new_a, new_b = (rewrite_expr(part, rule) for part in (cond, a, b))
            same = new_cond is cond and new_a is a and new_b is b
            return node if same else Select(new_cond, new_a, new_b)
        case BufferLoad(buffer, indices):
            news = _rebuilt_exprs(indices, rule)
            return node if news is indices else BufferLoad(buffer, news)
        case AccessPtr(buffer, offset, extent, access):
            new = rewrite_expr(offset, rule)
            return node if new is offset else AccessPtr(buffer, new, extent, access)
        case Call(name, args, dtype):
            news = _rebuilt_exprs(args, rule)
            return node if news is args else Call(name, news, dtype)


def _rebuilt_stmt(node: Stmt, rule: Rule) -> Stmt:
    match node:
        case For(var, start, extent, body, kind):
            new_start, new_extent = rewrite_expr(start, rule), rewrite_expr(extent, rule)
            new_body = rewrite_stmt(body, rule)
            same = new_start is start and new_extent is extent and new_body is body
            return node if same else For(var, new_start, new_extent, new_body, kind)
        case BufferStore(buffer, indices, value):
            news, new = _rebuilt_exprs(indices, rule), rewrite_expr(value, rule)
            return node if news is indices and new is value else BufferStore(buffer, news, new)
        case Let(var, value, body):
            new, new_body = rewrite_expr(value, rule), rewrite_stmt(body, rule)
            return node if new is value and new_body is body else Let(var, new, new_body)
        case If(cond, then, orelse):
            return _rebuilt_if(node, cond, then, orelse, rule)
        case While(cond, body):
            new, new_body = rewrite_expr(cond, rule), rewrite_stmt(body, rule)
            return node if new is cond and new_body is body else While(new, new_body)
        case Seq(stmts):
            new_stmts = [rewrite_stmt(stmt, rule) for stmt in stmts]
            same = all(a is b for a, b in zip(new_stmts, stmts, strict=True))
            return node if same else sequence(new_stmts)
        case Allocate(buffer, body, kind):
            new_body = rewrite_stmt(body, rule)
            return node if new_body is body else Allocate(buffer, new_body, kind)
        case AllocateConst(buffer, constant, body):
            new_body = rewrite_stmt(body, rule)
            return node if new_body is body else AllocateConst(buffer, constant, new_body)
        case DeclBuffer(buffer, source, body):
            return _rebuilt_decl(node, buffer, source, body, rule)
        case Evaluate(call):
            new = rewrite_expr(call, rule)
            return node if new is call else Evaluate(cast(Call, new))
        case CallPrim(args=args):
            news = _rebuilt_exprs(args, rule)
            return node if news is args else replace(node, args=news)


def _rebuilt_if(node: If, cond: Expr, then: Stmt, orelse: Stmt | None, rule: Rule) -> Stmt:
    new_cond, new_then = rewrite_expr(cond, rule), rewrite_stmt(then, rule)
    new_else = None if orelse is None else rewrite_stmt(orelse, rule)
    same = new_cond is cond and new_then is then and new_else is orelse
    return node if same else If(new_cond, new_then, new_else)


def _rebuilt_decl(
    node: DeclBuffer, buffer: Buffer, source: AccessPtr, body: Stmt, rule: Rule
) -> Stmt:
    new_source, new_body = rewrite_expr(source, rule), rewrite_stmt(body, rule)
    if not isinstance(new_source, AccessPtr):
        raise InternalError(f"a rule turned the source of {buffer.name} into another node")
    same = new_source is source and new_body is body
    return node if same else DeclBuffer(buffer, new_source, new_body)
