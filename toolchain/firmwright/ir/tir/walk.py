"""Reading TIR trees: every node in order, what a tree uses, what it calls.

In: an expression or a statement. Out: iterators and sets; nothing is changed. Traversal is
pre-order in the order of execution (a loop's start and extent before its body), so whatever is
collected in a dict or list keeps the order of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

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

Node: TypeAlias = Expr | Stmt


_PARTS: Mapping[type, Callable[[Any], tuple[Node, ...]]] = MappingProxyType(
    {
        IntImm: lambda node: (),
        FloatImm: lambda node: (),
        Var: lambda node: (),
        Binary: lambda node: (node.a, node.b),
        Not: lambda node: (node.a,),
        Cast: lambda node: (node.value,),
        Select: lambda node: (node.cond, node.a, node.b),
        BufferLoad: lambda node: node.indices,
        AccessPtr: lambda node: (node.offset,),
        Call: lambda node: node.args,
        For: lambda node: (node.start, node.extent, node.body),
        BufferStore: lambda node: (*node.indices, node.value),
        Let: lambda node: (node.value, node.body),
        If: lambda node: (node.cond, node.then, *(() if node.orelse is None else (node.orelse,))),
        While: lambda node: (node.cond, node.body),
        Seq: lambda node: node.stmts,
        Allocate: lambda node: (node.body,),
        AllocateConst: lambda node: (node.body,),
        DeclBuffer: lambda node: (node.source, node.body),
        Evaluate: lambda node: (node.call,),
        CallPrim: lambda node: node.args,
    }
)
"""The direct parts of each kind of node. A table, because trees are walked all the time."""


_BODIES: Mapping[type, Callable[[Any], tuple[Stmt, ...]]] = MappingProxyType(
    {
        For: lambda node: (node.body,),
        Let: lambda node: (node.body,),
        If: lambda node: (node.then,) if node.orelse is None else (node.then, node.orelse),
        While: lambda node: (node.body,),
        Seq: lambda node: node.stmts,
        Allocate: lambda node: (node.body,),
        AllocateConst: lambda node: (node.body,),
        DeclBuffer: lambda node: (node.body,),
    }
)
"""The statements directly in those statements that have some."""


def children(node: Node) -> tuple[Node, ...]:
    """The direct parts of `node`, in the order of execution."""
    return _PARTS[type(node)](node)


def walk(node: Node) -> Iterator[Node]:
    """`node` and everything below it, pre-order."""
    stack: list[Node] = [node]
    while stack:
        top = stack.pop()
        yield top
        parts = _PARTS[type(top)](top)
        if parts:
            stack.extend(parts[::-1])


def statements(node: Stmt) -> Iterator[Stmt]:
    """`node` and every statement in it, pre-order; expressions are not entered."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        if bodies := _BODIES.get(type(top)):
            stack.extend(bodies(top)[::-1])


def used_buffers(node: Node) -> dict[str, Buffer]:
    """Buffers that are read, written or pointed into below `node`, by name, first use first."""
    return {
        part.buffer.name: part.buffer
        for part in walk(node)
        if isinstance(part, BufferLoad | BufferStore | AccessPtr)
    }


def declared_buffers(node: Stmt) -> dict[str, Buffer]:
    """Buffers that an Allocate, AllocateConst or DeclBuffer below `node` introduces, by name."""
    return {
        part.buffer.name: part.buffer
        for part in statements(node)
        if isinstance(part, Allocate | AllocateConst | DeclBuffer)
    }


def used_constants(node: Stmt) -> list[str]:
    """Names in the module's table of constants that `node` links, each once, in order."""
    names = (part.constant for part in statements(node) if isinstance(part, AllocateConst))
    return list(dict.fromkeys(names))


def bound_vars(node: Stmt) -> set[str]:
    """Names of the variables that loops and lets below `node` bind."""
    return {part.var.name for part in statements(node) if isinstance(part, For | Let)}


def free_vars(node: Expr) -> set[str]:
    """Names of the variables used in `node`: an expression binds none."""
    return {part.name for part in walk(node) if isinstance(part, Var)}


def prim_calls(node: Stmt) -> Iterator[CallPrim]:
    """Every call of a PrimFunc in `node`, in the order of the text."""
    return (part for part in statements(node) if isinstance(part, CallPrim))


def callees(node: Stmt) -> list[str]:
    """Names of the PrimFuncs that `node` calls, each once, in order of the first call."""
    return list(dict.fromkeys(call.callee for call in prim_calls(node)))


def local_names(func: PrimFunc) -> set[str]:
    """Every name of a variable or buffer of `func`: parameters, variables, declared buffers."""
    names = {param.name for param in func.params}
    return names | bound_vars(func.body) | set(declared_buffers(func.body))
