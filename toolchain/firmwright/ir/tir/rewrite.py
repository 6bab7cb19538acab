"""Bottom-up rewriting of TIR trees.

A rule `rule(node) -> node | None` receives a node whose children are already rewritten; None keeps
the node. Unchanged trees are returned as the identical object. To drop a statement, replace it by
`EMPTY_STMT`, which enclosing `Seq`s omit.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias, cast

from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.tir.traversal import Node, map_children

RewriteRule: TypeAlias = Callable[[Node], Node | None]

EMPTY_STMT = tir.Seq(())
"""The statement without effect."""


def rewrite_stmt(node: tir.Stmt, rule: RewriteRule) -> tir.Stmt:
    """Apply `rule` to every statement and expression in `node`, innermost first."""

    def visit(node: Node) -> Node:
        rebuilt: Node = map_children(node, visit)
        if rebuilt is not node:
            match rebuilt:
                case tir.Seq(stmts):
                    rebuilt = make_sequence(list(stmts))
                case tir.DeclBuffer(buffer, source) if not isinstance(source, tir.AccessPtr):
                    raise InternalError(
                        f"a rule replaced the source of {buffer.name} by another kind of node"
                    )
        result = rule(rebuilt)
        return rebuilt if result is None else result

    return cast(tir.Stmt, visit(node))


def rewrite_func(func: tir.PrimFunc, rule: RewriteRule) -> tir.PrimFunc:
    return with_body(func, rewrite_stmt(func.body, rule))


def with_body(func: tir.PrimFunc, body: tir.Stmt) -> tir.PrimFunc:
    return func if body is func.body else replace(func, body=body)


def make_sequence(stmts: list[tir.Stmt]) -> tir.Stmt:
    """Return a `Seq` of the statements, with nested sequences flattened."""
    flat: list[tir.Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, tir.Seq) else (stmt,))
    return flat[0] if len(flat) == 1 else tir.Seq(tuple(flat))


def substitute(
    node: tir.Stmt,
    variables: Mapping[str, tir.Expr],
    buffers: Mapping[str, tir.Buffer] | None = None,
) -> tir.Stmt:
    """Replace variables by expressions, and buffers in uses and declarations by other buffers."""
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
