"""Dead-code elimination on TIR and the module tables.

Removes allocations, views and lets without uses (inputs, outputs and state of the AOT
main stay), stores to registers that are never read, unreachable functions and
unreferenced constants.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar

from firmwright.ir import tir
from firmwright.ir.graph.nodes import called_functions
from firmwright.ir.module import DEFAULT_ENTRY, IRModule, Pass
from firmwright.ir.tir import traversal
from firmwright.ir.tir.kernel_code import OncePerCode
from firmwright.ir.tir.traversal import Node
from firmwright.passes.map_functions import map_prim_funcs

_Item = TypeVar("_Item")
_Register: TypeAlias = "tuple[str, tuple[tir.Expr, ...] | None]"


def eliminate_dead_statements(func: tir.PrimFunc, keep: frozenset[str]) -> tir.PrimFunc:
    """Return `func` without empty statements, unused lets and buffers (but `keep`)."""
    while True:
        names, read = _uses(func)
        rule = partial(_pruned, names=names | keep, read=read)
        pruned = traversal.rewrite_func(func, rule)
        if pruned is func:
            return func
        func = pruned


def _uses(func: tir.PrimFunc) -> tuple[set[str], set[_Register]]:
    """Return the names of used buffers and variables, and the registers read."""
    names: set[str] = set()
    registers: set[_Register] = set()
    for node in traversal.walk(func.body):
        match node:
            case tir.Var(name):
                names.add(name)
            case tir.BufferStore(buffer):
                names.add(buffer.name)
            case tir.BufferLoad(buffer, indices):
                names.add(buffer.name)
                registers.add(_register(buffer, indices))
            case tir.AccessPtr(buffer):
                names.add(buffer.name)
                registers.add((buffer.name, None))
    return names, registers


def _register(buffer: tir.Buffer, indices: tuple[tir.Expr, ...]) -> _Register:
    """Return the register that the indices select, with index None if it is unknown."""
    if all(isinstance(index, tir.IntImm) for index in indices):
        return buffer.name, indices
    return buffer.name, None


def _is_read(
    buffer: tir.Buffer, indices: tuple[tir.Expr, ...], read: set[_Register]
) -> bool:
    name, place = _register(buffer, indices)
    # An index that is not constant may select any element of the register.
    if place is None:
        return any(other == name for other, _ in read)
    return (name, place) in read or (name, None) in read


def _pruned(node: Node, names: set[str], read: set[_Register]) -> Node | None:
    match node:
        case tir.BufferStore(buffer, indices) if buffer.scope == "reg":
            return None if _is_read(buffer, indices, read) else traversal.EMPTY_STMT
        case (
            tir.Allocate(buffer, body)
            | tir.AllocateConst(buffer, _, body)
            | tir.DeclBuffer(buffer, _, body)
        ):
            return None if buffer.name in names else body
        case tir.Let(var, _, body):
            return None if var.name in names and body != traversal.EMPTY_STMT else body
        case tir.For(body=tir.Seq(())):
            return traversal.EMPTY_STMT
        case tir.Seq(stmts) if any(isinstance(stmt, tir.Seq) for stmt in stmts):
            return traversal.make_sequence(list(stmts))
    return None


def reachable_functions(module: IRModule, roots: Iterable[str]) -> set[str]:
    reachable: set[str] = set()
    queue = list(roots)
    while queue:
        func = module.functions.get(queue.pop())
        if func is None or func.name in reachable:
            continue
        reachable.add(func.name)
        if isinstance(func, tir.PrimFunc):
            queue += traversal.callees(func.body)
        else:
            for call in func.body:
                queue += called_functions(call)
    return reachable


def referenced_constants(module: IRModule) -> set[str]:
    names = {state.initial for state in module.io.state}
    for func in module.functions.values():
        if isinstance(func, tir.PrimFunc):
            names.update(traversal.used_constants(func.body))
        else:
            names.update(state.initial for state in func.state)
            for value in (*func.values, *func.sinks):
                if value.constant is not None:
                    names.add(value.constant)
    return names


def drop_unreferenced_constants(module: IRModule) -> IRModule:
    """Return `module` without unused constants, or `module` itself if all are used."""
    names = referenced_constants(module)
    if names >= set(module.constants):
        return module
    return replace(module, constants=_restricted(module.constants, names))


def _restricted(table: Mapping[str, _Item], names: Collection[str]) -> dict[str, _Item]:
    return {name: item for name, item in table.items() if name in names}


def run(module: IRModule) -> IRModule:
    io = (*module.io.inputs, *module.io.outputs, *module.io.state)
    keep = frozenset(tensor.buffer for tensor in io)
    entry = module.entry_name or DEFAULT_ENTRY
    live = reachable_functions(module, [entry])
    if entry in module.functions and live != set(module.functions):
        module = replace(module, functions=_restricted(module.functions, live))

    eliminate_in_kernel = OncePerCode(
        lambda func: eliminate_dead_statements(func, frozenset())
    )

    def change(func: tir.PrimFunc) -> tir.PrimFunc:
        if func.name == entry:
            return eliminate_dead_statements(func, keep)
        return eliminate_in_kernel(func)

    return drop_unreferenced_constants(map_prim_funcs(module, change))


PASS = Pass("tir-dce", run)
