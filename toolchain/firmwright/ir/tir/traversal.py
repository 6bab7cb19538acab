"""Reading TIR trees: every node in order, what a tree uses, what it calls.

In: an expression or a statement. Out: iterators and sets; nothing is changed. Traversal is
pre-order in the order of execution (a loop's start and extent before its body), so whatever is
collected in a dict or list keeps the order of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from firmwright.ir import tir

Node: TypeAlias = tir.Expr | tir.Stmt


_CHILDREN: Mapping[type, Callable[[Any], tuple[Node, ...]]] = MappingProxyType(
    {
        tir.IntImm: lambda node: (),
        tir.FloatImm: lambda node: (),
        tir.Var: lambda node: (),
        tir.Binary: lambda node: (node.a, node.b),
        tir.Not: lambda node: (node.a,),
        tir.Cast: lambda node: (node.value,),
        tir.Select: lambda node: (node.cond, node.a, node.b),
        tir.BufferLoad: lambda node: node.indices,
        tir.AccessPtr: lambda node: (node.offset,),
        tir.IntrinsicCall: lambda node: node.args,
        tir.For: lambda node: (node.start, node.extent, node.body),
        tir.BufferStore: lambda node: (*node.indices, node.value),
        tir.Let: lambda node: (node.value, node.body),
        tir.If: lambda node: (
            node.cond,
            node.then,
            *(() if node.orelse is None else (node.orelse,)),
        ),
        tir.While: lambda node: (node.cond, node.body),
        tir.Seq: lambda node: node.stmts,
        tir.Allocate: lambda node: (node.body,),
        tir.AllocateConst: lambda node: (node.body,),
        tir.DeclBuffer: lambda node: (node.source, node.body),
        tir.Evaluate: lambda node: (node.call,),
        tir.PrimFuncCall: lambda node: node.args,
    }
)
"""The direct parts of each kind of node. A table, because trees are walked all the time."""


_BODIES: Mapping[type, Callable[[Any], tuple[tir.Stmt, ...]]] = MappingProxyType(
    {
        tir.For: lambda node: (node.body,),
        tir.Let: lambda node: (node.body,),
        tir.If: lambda node: (node.then,) if node.orelse is None else (node.then, node.orelse),
        tir.While: lambda node: (node.body,),
        tir.Seq: lambda node: node.stmts,
        tir.Allocate: lambda node: (node.body,),
        tir.AllocateConst: lambda node: (node.body,),
        tir.DeclBuffer: lambda node: (node.body,),
    }
)
"""The statements directly in those statements that have some."""


def children(node: Node) -> tuple[Node, ...]:
    """The direct parts of `node`, in the order of execution."""
    return _CHILDREN[type(node)](node)


def walk(node: Node) -> Iterator[Node]:
    """`node` and everything below it, pre-order."""
    stack: list[Node] = [node]
    while stack:
        top = stack.pop()
        yield top
        parts = _CHILDREN[type(top)](top)
        if parts:
            stack.extend(parts[::-1])


def statements(node: tir.Stmt) -> Iterator[tir.Stmt]:
    """`node` and every statement in it, pre-order; expressions are not entered."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        if bodies := _BODIES.get(type(top)):
            stack.extend(bodies(top)[::-1])


def used_buffers(node: Node) -> dict[str, tir.Buffer]:
    """Buffers that are read, written or pointed into below `node`, by name, first use first."""
    return {
        part.buffer.name: part.buffer
        for part in walk(node)
        if isinstance(part, tir.BufferLoad | tir.BufferStore | tir.AccessPtr)
    }


def declared_buffers(node: tir.Stmt) -> dict[str, tir.Buffer]:
    """Buffers that an Allocate, AllocateConst or DeclBuffer below `node` introduces, by name."""
    return {
        part.buffer.name: part.buffer
        for part in statements(node)
        if isinstance(part, tir.Allocate | tir.AllocateConst | tir.DeclBuffer)
    }


def used_constants(node: tir.Stmt) -> list[str]:
    """Names in the module's table of constants that `node` links, each once, in order."""
    names = (part.constant for part in statements(node) if isinstance(part, tir.AllocateConst))
    return list(dict.fromkeys(names))


def bound_vars(node: tir.Stmt) -> set[str]:
    """Names of the variables that loops and lets below `node` bind."""
    return {part.var.name for part in statements(node) if isinstance(part, tir.For | tir.Let)}


def free_vars(node: tir.Expr) -> set[str]:
    """Names of the variables used in `node`: an expression binds none."""
    return {part.name for part in walk(node) if isinstance(part, tir.Var)}


def prim_calls(node: tir.Stmt) -> Iterator[tir.PrimFuncCall]:
    """Every call of a PrimFunc in `node`, in the order of the text."""
    return (part for part in statements(node) if isinstance(part, tir.PrimFuncCall))


def callees(node: tir.Stmt) -> list[str]:
    """Names of the PrimFuncs that `node` calls, each once, in order of the first call."""
    return list(dict.fromkeys(call.callee for call in prim_calls(node)))


def local_names(func: tir.PrimFunc) -> set[str]:
    """Every name of a variable or buffer of `func`: parameters, variables, declared buffers."""
    names = {param.name for param in func.params}
    return names | bound_vars(func.body) | set(declared_buffers(func.body))
