"""Unrolling of loops of kind `unrolled`: one copy of the body per iteration.

Register indices that depend on such a loop become constants. The first copy keeps the
names of variables and buffers declared in the body; later copies get new ones.
"""

from dataclasses import replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.resource_limits import UNROLLED_MAX, check_count
from firmwright.ir import tir
from firmwright.ir.tir import traversal
from firmwright.ir.tir.affine import Bounds
from firmwright.ir.tir.traversal import Node
from firmwright.passes.map_functions import tir_pass
from firmwright.passes.tir.simplify import simplify_expr


def unroll(func: tir.PrimFunc) -> tir.PrimFunc:
    """Unroll the loops of kind `unrolled`."""
    loops = [
        node for node in traversal.statements(func.body) if isinstance(node, tir.For)
    ]
    if all(_count(loop) is None for loop in loops):
        return func
    names = UniqueNamer(traversal.local_names(func))

    def rule(node: Node) -> Node | None:
        if not isinstance(node, tir.For):
            return None
        count = _count(node)
        if count is None:
            return None
        total = count * sum(1 for _ in traversal.statements(node.body))
        check_count(
            total, UNROLLED_MAX, "an unrolled loop has {} statements", func.name
        )
        return traversal.make_sequence(
            [_copy(node, step, names) for step in range(count)]
        )

    return traversal.with_body(func, traversal.rewrite_stmt(func.body, rule))


def _count(loop: tir.For) -> int | None:
    extent = simplify_expr(loop.extent, Bounds())
    return (
        extent.value
        if loop.kind == "unrolled" and isinstance(extent, tir.IntImm)
        else None
    )


def _copy(loop: tir.For, step: int, names: UniqueNamer) -> tir.Stmt:
    start = simplify_expr(loop.start, Bounds())
    value: tir.Expr = tir.Binary("add", start, tir.IntImm(step, loop.var.dtype))
    if isinstance(start, tir.IntImm):
        value = tir.IntImm(start.value + step, loop.var.dtype)
    body = loop.body if step == 0 else rename_declarations(loop.body, names)
    return traversal.substitute(body, {loop.var.name: value})


def rename_declarations(body: tir.Stmt, names: UniqueNamer) -> tir.Stmt:
    buffers = {
        name: replace(buffer, name=names.unique(name))
        for name, buffer in traversal.declared_buffers(body).items()
    }
    variables: dict[str, tir.Var] = {
        node.var.name: tir.Var(names.unique(node.var.name), node.var.dtype)
        for node in traversal.statements(body)
        if isinstance(node, tir.For | tir.Let)
    }

    def binder(node: Node) -> Node | None:
        if isinstance(node, tir.For | tir.Let) and node.var.name in variables:
            return replace(node, var=variables[node.var.name])
        return None

    return traversal.rewrite_stmt(
        traversal.substitute(body, variables, buffers), binder
    )


PASS = tir_pass("unroll", unroll)
