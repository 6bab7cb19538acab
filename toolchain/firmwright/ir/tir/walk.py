"""Reading TIR trees: every node in order, what a tree uses, what it calls.

In: an expression or a statement. Out: iterators and sets; nothing is changed. Traversal is
pre-order in the order of execution (a loop's start and extent before its body), so whatever is
collected in a dict or list keeps the order of the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

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


def children(node: Node) -> tuple[Node, ...]:  # noqa: C901 - one case for each node
    """The direct parts of `node`, in the order of execution."""
    match node:
        case IntImm() | FloatImm() | Var():
            return ()
        case Binary(_, a, b):
            return (a, b)
        case Not(a) | Cast(_, a):
            return (a,)
        case Select(cond, a, b):
            return (cond, a, b)
        case BufferLoad(_, indices):
            return indices
        case AccessPtr(_, offset, _, _):
            return (offset,)
        case Call(_, args, _) | CallPrim(_, args, _, _):
            return args
        case For(_, start, extent, body, _):
            return (start, extent, body)
        case BufferStore(_, indices, value):
            return (*indices, value)
        case Let(_, value, body):
            return (value, body)
        case If(cond, then, orelse):
            return (cond, then) if orelse is None else (cond, then, orelse)
        case While(cond, body):
            return (cond, body)
        case Seq(stmts):
            return stmts
        case Allocate(_, body, _) | AllocateConst(_, _, body):
            return (body,)
        case DeclBuffer(_, source, body):
            return (source, body)
        case Evaluate(call):
            return (call,)


def walk(node: Node) -> Iterator[Node]:
    """`node` and everything below it, pre-order."""
    stack: list[Node] = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))


def used_buffers(node: Node) -> dict[str, Buffer]:
    """Buffers that are read, written or pointed into below `node`, by name, first use first."""
    return {
        part.buffer.name: part.buffer
        for part in walk(node)
        if isinstance(part, BufferLoad | BufferStore | AccessPtr)
    }


def declared_buffers(node: Node) -> dict[str, Buffer]:
    """Buffers that an Allocate, AllocateConst or DeclBuffer below `node` introduces, by name."""
    return {
        part.buffer.name: part.buffer
        for part in walk(node)
        if isinstance(part, Allocate | AllocateConst | DeclBuffer)
    }


def used_constants(node: Node) -> list[str]:
    """Names in the module's table of constants that `node` links, each once, in order."""
    names = (part.constant for part in walk(node) if isinstance(part, AllocateConst))
    return list(dict.fromkeys(names))


def bound_vars(node: Node) -> set[str]:
    """Names of the variables that loops and lets below `node` bind."""
    return {part.var.name for part in walk(node) if isinstance(part, For | Let)}


def free_vars(node: Node) -> set[str]:
    """Names of the variables used below `node` and bound outside (names are unique)."""
    return {part.name for part in walk(node) if isinstance(part, Var)} - bound_vars(node)


def callees(node: Node) -> list[str]:
    """Names of the PrimFuncs that `node` calls, each once, in order of the first call."""
    return list(dict.fromkeys(part.callee for part in walk(node) if isinstance(part, CallPrim)))


def local_names(func: PrimFunc) -> set[str]:
    """Every name of a variable or buffer of `func`: parameters, variables, declared buffers."""
    names = {param.name for param in func.params}
    return names | bound_vars(func.body) | set(declared_buffers(func.body))
