"""Removes what nothing uses: buffers, lets, functions, constants.

In: a module at any stage. Out: no allocation, window or let without a use in its body (the AOT
main's inputs, outputs and state stay: the caller uses them), no store to a register that nothing
reads, no function that the entry does not reach, no constant that nothing names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from firmwright.ir import tir
from firmwright.ir.graph.nodes import Function, called_functions
from firmwright.ir.module import AnyFunction, IRModule, Pass
from firmwright.ir.tir.rewrite import EMPTY_STMT, make_sequence, rewrite_stmt, with_body
from firmwright.ir.tir.traversal import Node, callees, used_constants, walk
from firmwright.passes.map_functions import map_prim_funcs

_Register: TypeAlias = "tuple[str, tuple[tir.Expr, ...] | None]"


def eliminate_dead_statements(
    func: tir.PrimFunc, keep: frozenset[str] = frozenset()
) -> tir.PrimFunc:
    """`func` without unused buffers (save those in `keep`), unused lets and empty statements."""
    while True:
        used, read = _used_names(func) | keep, _read_registers(func)
        pruned = with_body(func, rewrite_stmt(func.body, lambda node: _pruned(node, used, read)))  # noqa: B023 - called at once
        if pruned is func:
            return func
        func = pruned


def _used_names(func: tir.PrimFunc) -> set[str]:
    """Names of variables and buffers that occur other than by being declared."""
    names: set[str] = set()
    for node in walk(func.body):
        match node:
            case tir.BufferLoad(buffer) | tir.BufferStore(buffer) | tir.AccessPtr(buffer):
                names.add(buffer.name)
            case tir.Var(name):
                names.add(name)
    return names


def _read_registers(func: tir.PrimFunc) -> set[_Register]:
    """Every register whose value is used."""
    found: set[_Register] = set()
    for node in walk(func.body):
        match node:
            case tir.BufferLoad(buffer, indices) if buffer.scope == "reg":
                found.add(_register(buffer, indices))
            case tir.AccessPtr(buffer) if buffer.scope == "reg":
                found.add((buffer.name, None))
    return found


def _register(buffer: tir.Buffer, indices: tuple[tir.Expr, ...]) -> _Register:
    """Which register those indices mean; None for its place where it is not known yet."""
    if all(isinstance(index, tir.IntImm) for index in indices):
        return buffer.name, indices
    return buffer.name, None


def _is_read(buffer: tir.Buffer, indices: tuple[tir.Expr, ...], read: set[_Register]) -> bool:
    name, place = _register(buffer, indices)
    if place is None:
        return any(other == name for other, _ in read)
    return (name, place) in read or (name, None) in read


def _pruned(node: Node, used: set[str] | frozenset[str], read: set[_Register]) -> Node | None:
    match node:
        case tir.BufferStore(buffer, indices) if buffer.scope == "reg":
            return None if _is_read(buffer, indices, read) else EMPTY_STMT
        case (
            tir.Allocate(buffer, body)
            | tir.AllocateConst(buffer, _, body)
            | tir.DeclBuffer(buffer, _, body)
        ):
            return None if buffer.name in used else body
        case tir.Let(var, _, body):
            return None if var.name in used and body != EMPTY_STMT else body
        case tir.For(body=tir.Seq(())):
            return EMPTY_STMT
        case tir.Seq(stmts) if any(isinstance(stmt, tir.Seq) for stmt in stmts):
            return make_sequence(list(stmts))
    return None


def reachable_functions(module: IRModule) -> set[str]:
    """Names of the functions that the entry leads to; all of them if it is missing."""
    entry = str(module.attrs.get("entry", "main"))
    if entry not in module.functions:
        return set(module.functions)
    found: set[str] = set()
    queue = [entry]
    while queue:
        name = queue.pop()
        if name in module.functions and name not in found:
            found.add(name)
            queue.extend(_called(module.functions[name]))
    return found


def _called(func: AnyFunction) -> list[str]:
    if isinstance(func, tir.PrimFunc):
        return callees(func.body)
    return [name for call in func.body for name in called_functions(call)]


def referenced_constants(module: IRModule) -> set[str]:
    """Names of the constants that functions of the module use."""
    names = {state.initial for state in module.io.state}
    for func in module.functions.values():
        names.update(
            used_constants(func.body) if isinstance(func, tir.PrimFunc) else _graph_constants(func)
        )
    return names


def _graph_constants(func: Function) -> set[str]:
    values = [*func.sinks, *(value for call in func.body for value in call.inputs if value)]
    initial = {state.initial for state in func.state}
    return initial | {value.constant for value in values if value.constant is not None}


def run(module: IRModule) -> IRModule:
    """Removes dead code from the whole module."""
    io = (*module.io.inputs, *module.io.outputs, *module.io.state)
    keep = frozenset(tensor.buffer for tensor in io)
    entry = str(module.attrs.get("entry", "main"))
    live = reachable_functions(module)
    if live != set(module.functions):
        functions = {name: func for name, func in module.functions.items() if name in live}
        module = replace(module, functions=functions)
    module = map_prim_funcs(
        module, lambda f: eliminate_dead_statements(f, keep if f.name == entry else frozenset())
    )
    named = referenced_constants(module)
    if named >= set(module.constants):
        return module
    kept = {name: value for name, value in module.constants.items() if name in named}
    return replace(module, constants=kept)


PASS = Pass("tir-dce", run)
