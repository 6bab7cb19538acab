"""Traversal, queries and bottom-up rewriting of TIR trees.

A rule `rule(node) -> node | None` receives a node whose children are already rewritten;
None keeps the node. Unchanged trees are returned as the identical object. To drop a
statement, replace it by `EMPTY_STMT`, which enclosing `Seq`s omit.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter, is_
from typing import Any, TypeAlias, TypeVar, cast

from firmwright.base.errors import InternalError
from firmwright.ir import tir

Node: TypeAlias = tir.Expr | tir.Stmt
N = TypeVar("N", bound=Node)


LEAVES = frozenset((tir.IntImm, tir.FloatImm, tir.Var))
_CHILDREN: Mapping[type, Callable[[Any], tuple[Node, ...]]] = {
    **dict.fromkeys(LEAVES, lambda node: ()),
    tir.Binary: attrgetter("a", "b"),
    tir.Not: lambda node: (node.a,),
    tir.Cast: lambda node: (node.value,),
    tir.Select: attrgetter("cond", "a", "b"),
    tir.BufferLoad: attrgetter("indices"),
    tir.AccessPtr: lambda node: (node.offset,),
    tir.IntrinsicCall: attrgetter("args"),
    tir.For: attrgetter("start", "extent", "body"),
    tir.BufferStore: lambda node: (*node.indices, node.value),
    tir.Let: attrgetter("value", "body"),
    tir.If: lambda node: (node.cond, *_BODIES[tir.If](node)),
    tir.While: attrgetter("cond", "body"),
    tir.Seq: attrgetter("stmts"),
    **dict.fromkeys((tir.Allocate, tir.AllocateConst), lambda node: (node.body,)),
    tir.DeclBuffer: attrgetter("source", "body"),
    tir.Evaluate: lambda node: (node.call,),
    tir.PrimFuncCall: attrgetter("args"),
}
"""Direct children per node type; a table makes traversal fast."""


_BODIES: Mapping[type, Callable[[Any], tuple[tir.Stmt, ...]]] = {
    **dict.fromkeys(
        (tir.For, tir.Let, tir.While, tir.Allocate, tir.AllocateConst, tir.DeclBuffer),
        lambda node: (node.body,),
    ),
    tir.If: lambda node: (
        (node.then,) if node.orelse is None else (node.then, node.orelse)
    ),
    tir.Seq: lambda node: node.stmts,
}
"""Direct child statements per statement type."""


_REBUILD: Mapping[type, Callable[[Any, tuple[Any, ...]], Node]] = {
    tir.Binary: lambda node, new: tir.Binary(node.op, *new),
    tir.Not: lambda node, new: tir.Not(*new),
    tir.Cast: lambda node, new: tir.Cast(node.dtype, *new),
    tir.Select: lambda node, new: tir.Select(*new),
    tir.BufferLoad: lambda node, new: tir.BufferLoad(node.buffer, new),
    tir.AccessPtr: lambda node, new: replace(node, offset=new[0]),
    tir.IntrinsicCall: lambda node, new: tir.IntrinsicCall(node.name, new, node.dtype),
    tir.For: lambda node, new: tir.For(node.var, new[0], new[1], new[2], node.kind),
    tir.BufferStore: lambda node, new: tir.BufferStore(node.buffer, new[:-1], new[-1]),
    tir.Let: lambda node, new: tir.Let(node.var, *new),
    tir.If: lambda node, new: tir.If(*new),
    tir.While: lambda node, new: tir.While(*new),
    tir.Seq: lambda node, new: tir.Seq(new),
    tir.Allocate: lambda node, new: tir.Allocate(node.buffer, new[0], node.kind),
    tir.AllocateConst: lambda node, new: tir.AllocateConst(
        node.buffer, node.constant, *new
    ),
    tir.DeclBuffer: lambda node, new: tir.DeclBuffer(node.buffer, *new),
    tir.Evaluate: lambda node, new: tir.Evaluate(*new),
    tir.PrimFuncCall: lambda node, new: replace(node, args=new),
}
"""Functions that rebuild a node with new children, per node type."""


def children(node: Node) -> tuple[Node, ...]:
    return _CHILDREN[type(node)](node)


def with_children(node: N, new: tuple[Node, ...]) -> N:
    """Return `node` with new direct children; `node` itself if all are identical."""
    for before, after in zip(_CHILDREN[type(node)](node), new, strict=True):
        if before is not after:
            return cast(N, _REBUILD[type(node)](node, new))
    return node


def map_children(node: N, change: Callable[[Any], Node]) -> N:
    """Return `node` with changed children.

    A loop calls `change`, because Python 3.12 and 3.13 limit recursion through `map`.
    """
    parts = _CHILDREN[type(node)](node)
    new = list(parts)
    for index, part in enumerate(parts):
        new[index] = change(part)
    if all(map(is_, new, parts)):
        return node
    return cast(N, _REBUILD[type(node)](node, tuple(new)))


def walk(node: Node) -> Iterator[Node]:
    """Yield `node` and all its descendants in pre-order."""
    stack: list[Node] = [node]
    while stack:
        top = stack.pop()
        yield top
        kind = type(top)
        if kind not in LEAVES:
            stack.extend(_CHILDREN[kind](top)[::-1])


def child_statements(node: tir.Stmt) -> tuple[tir.Stmt, ...]:
    bodies = _BODIES.get(type(node))
    return bodies(node) if bodies else ()


def statements(node: tir.Stmt) -> Iterator[tir.Stmt]:
    """Yield `node` and all statements in it in pre-order."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        bodies = _BODIES.get(type(top))
        if bodies:
            stack.extend(bodies(top)[::-1])


def used_buffers(node: Node) -> dict[str, tir.Buffer]:
    buffers: dict[str, tir.Buffer] = {}
    for part in walk(node):
        if isinstance(part, tir.BufferLoad | tir.BufferStore | tir.AccessPtr):
            buffers[part.buffer.name] = part.buffer
    return buffers


def declared_buffers(node: tir.Stmt) -> dict[str, tir.Buffer]:
    buffers: dict[str, tir.Buffer] = {}
    for part in statements(node):
        if isinstance(part, tir.Allocate | tir.AllocateConst | tir.DeclBuffer):
            buffers[part.buffer.name] = part.buffer
    return buffers


def used_constants(node: tir.Stmt) -> list[str]:
    """Return the module constants that `node` links, by name, each once, in order."""
    names: dict[str, None] = {}
    for part in statements(node):
        if isinstance(part, tir.AllocateConst):
            names[part.constant] = None
    return list(names)


def bound_vars(node: tir.Stmt) -> set[str]:
    names: set[str] = set()
    for part in statements(node):
        if isinstance(part, tir.For | tir.Let):
            names.add(part.var.name)
    return names


def free_vars(node: tir.Expr) -> set[str]:
    return {part.name for part in walk(node) if isinstance(part, tir.Var)}


def prim_calls(node: tir.Stmt) -> Iterator[tir.PrimFuncCall]:
    return (part for part in statements(node) if isinstance(part, tir.PrimFuncCall))


def callees(node: tir.Stmt) -> list[str]:
    return list(dict.fromkeys(call.callee for call in prim_calls(node)))


def local_names(func: tir.PrimFunc) -> set[str]:
    names = {param.name for param in func.params}
    return names | bound_vars(func.body) | set(declared_buffers(func.body))


RewriteRule: TypeAlias = Callable[[Node], Node | None]

EMPTY_STMT = tir.Seq(())
"""The statement without effect."""


def rewrite_stmt(node: tir.Stmt, rule: RewriteRule) -> tir.Stmt:
    """Apply `rule` to every statement and expression in `node`, innermost first.

    A load that was one object in several places still is, so that costs count it once.
    """
    loads: dict[int, Node] = {}

    def visit(node: Node) -> Node:
        if type(node) in LEAVES:
            return node if (result := rule(node)) is None else result
        if id(node) in loads:
            return loads[id(node)]
        rebuilt: Node = map_children(node, visit)
        if rebuilt is not node:
            match rebuilt:
                case tir.Seq(stmts):
                    rebuilt = make_sequence(list(stmts))
                case tir.DeclBuffer(buffer, source):
                    if not isinstance(source, tir.AccessPtr):
                        what = f"a rule replaced the source of {buffer.name}"
                        raise InternalError(f"{what} by another kind of node")
        result = rule(rebuilt)
        rebuilt = rebuilt if result is None else result
        if isinstance(node, tir.BufferLoad):
            loads[id(node)] = rebuilt
        return rebuilt

    return cast(tir.Stmt, visit(node))


def rewrite_func(func: tir.PrimFunc, rule: RewriteRule) -> tir.PrimFunc:
    return with_body(func, rewrite_stmt(func.body, rule))


def with_body(func: tir.PrimFunc, body: tir.Stmt) -> tir.PrimFunc:
    return func if body is func.body else replace(func, body=body)


def map_steps(node: tir.Stmt, change: Callable[[tir.Stmt], tir.Stmt]) -> tir.Stmt:
    """Apply `change` to the steps of an AOT main: calls, and whole loops or branches.

    Sequences and declarations are traversed, in the order of the text.
    """
    match node:
        case tir.Allocate() | tir.AllocateConst() | tir.DeclBuffer() | tir.Let():
            return replace(node, body=map_steps(node.body, change))
        case tir.Seq(stmts):
            return make_sequence([map_steps(part, change) for part in stmts])
        case _:
            return change(node)


def main_steps(node: tir.Stmt) -> Iterator[tir.Stmt]:
    """Yield the steps of an AOT main, as `map_steps` visits them."""
    match node:
        case tir.Allocate() | tir.AllocateConst() | tir.DeclBuffer() | tir.Let():
            yield from main_steps(node.body)
        case tir.Seq(stmts):
            for part in stmts:
                yield from main_steps(part)
        case _:
            yield node


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
    """Replace variables by expressions, and buffers in uses and declarations."""
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
