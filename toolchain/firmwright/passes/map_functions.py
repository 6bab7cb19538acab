"""Construction of module passes from transformations of single functions."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from firmwright.ir import tir
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import AnyFunction, IRModule, Pass

F = TypeVar("F", Function, tir.PrimFunc)


def map_prim_funcs(module: IRModule, change: Callable[[tir.PrimFunc], tir.PrimFunc]) -> IRModule:
    """Apply `change` to every PrimFunc; return the identical module if nothing changes."""
    return _map_functions(module, tir.PrimFunc, change)


def map_graph_functions(module: IRModule, change: Callable[[Function], Function]) -> IRModule:
    return _map_functions(module, Function, change)


def graph_pass(name: str, change: Callable[[Function], Function]) -> Pass:
    return Pass(name, lambda module: map_graph_functions(module, change))


def tir_pass(name: str, change: Callable[[tir.PrimFunc], tir.PrimFunc]) -> Pass:
    return Pass(name, lambda module: map_prim_funcs(module, change))


def _map_functions(module: IRModule, kind: type[F], change: Callable[[F], F]) -> IRModule:
    functions: dict[str, AnyFunction] = {
        name: change(func) if isinstance(func, kind) else func
        for name, func in module.functions.items()
    }
    if all(functions[name] is func for name, func in module.functions.items()):
        return module
    return replace(module, functions=functions)


def count_uses(function: Function) -> Counter[str]:
    """Return the number of uses of each value; results and next states count as uses."""
    counts = Counter(v.name for call in function.body for v in call.inputs if v is not None)
    counts.update(v.name for v in function.sinks)
    return counts


def merge_into_producers(
    function: Function,
    source_of: Callable[[Call], Value | None],
    merge: Callable[[Call, Call], Call | None],
) -> Function:
    """Merge calls into the producers of their sources, which nothing else reads.

    A source that the user placed stays, because merging would remove it.

    `merge(producer, call)` returns a call that defines the outputs of `call`, or None.
    """
    uses = count_uses(function)
    producers = {v.name: k for k, call in enumerate(function.body) for v in call.outputs}
    body: list[Call | None] = list(function.body)
    for index, call in enumerate(function.body):
        source = source_of(call)
        place = producers.get(source.name) if source is not None else None
        producer = body[place] if place is not None else None
        if source is None or place is None or producer is None or uses[source.name] != 1:
            continue
        if is_placed(source):
            continue
        merged = merge(producer, call)
        if merged is not None:
            body[place] = replace(merged, outputs=call.outputs)
            body[index] = None
    return replace(function, body=tuple(call for call in body if call is not None))
