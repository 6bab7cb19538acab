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
    if not any(map(_is_unrolled, traversal.statements(func.body))):
        return func
    names = UniqueNamer(traversal.local_names(func))

    def rule(node: Node) -> Node | None:
        if not isinstance(node, tir.For):
            return None
        count = _count(node)
        if count is None:
            return None
        total = count * len(list(traversal.statements(node.body)))
        what = "an unrolled loop has {} statements"
        check_count(total, UNROLLED_MAX, what, func.name)
        copies = [_copy(node, step, names) for step in range(count)]
        return traversal.make_sequence(copies)

    return traversal.with_body(func, traversal.rewrite_stmt(func.body, rule))


def _is_unrolled(stmt: tir.Stmt) -> bool:
    return isinstance(stmt, tir.For) and _count(stmt) is not None


def _count(loop: tir.For) -> int | None:
    extent = simplify_expr(loop.extent, Bounds())
    if loop.kind == "unrolled" and isinstance(extent, tir.IntImm):
        return extent.value
    return None


def _copy(loop: tir.For, step: int, names: UniqueNamer) -> tir.Stmt:
    start = simplify_expr(loop.start, Bounds())
    value: tir.Expr = tir.Binary("add", start, tir.IntImm(step, loop.var.dtype))
    if isinstance(start, tir.IntImm):
        value = tir.IntImm(start.value + step, loop.var.dtype)
    body = loop.body if step == 0 else rename_declarations(loop.body, names)
    return traversal.substitute(body, {loop.var.name: value})


def rename_declarations(body: tir.Stmt, names: UniqueNamer) -> tir.Stmt:
    buffers: dict[str, tir.Buffer] = {}
    for name, buffer in traversal.declared_buffers(body).items():
        buffers[name] = replace(buffer, name=names.unique(name))
    variables: dict[str, tir.Var] = {}
    for stmt in traversal.statements(body):
        if isinstance(stmt, tir.For | tir.Let):
            name = stmt.var.name
            variables[name] = tir.Var(names.unique(name), stmt.var.dtype)

    def binder(node: Node) -> Node | None:
        if isinstance(node, tir.For | tir.Let) and node.var.name in variables:
            return replace(node, var=variables[node.var.name])
        return None

    renamed = traversal.substitute(body, variables, buffers)
    return traversal.rewrite_stmt(renamed, binder)


PASS = tir_pass("unroll", unroll)
