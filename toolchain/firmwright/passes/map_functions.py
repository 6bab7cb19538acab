"""Construction of module passes from transformations of single functions."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import AnyFunction, IRModule, Pass
from firmwright.ir.tir.kernel_code import OncePerCode

F = TypeVar("F", Function, tir.PrimFunc)


def map_prim_funcs(
    module: IRModule, change: Callable[[tir.PrimFunc], tir.PrimFunc]
) -> IRModule:
    """Apply `change` to all PrimFuncs; return the same module if none changes."""
    return _map_functions(module, tir.PrimFunc, change)


def map_graph_functions(
    module: IRModule, change: Callable[[Function], Function]
) -> IRModule:
    """Apply `change` to all graph functions; return `module` if all are equal."""

    def changed(function: Function) -> Function:
        after = change(function)
        return function if after == function else after

    return _map_functions(module, Function, changed)


def map_with_constants(
    module: IRModule, change: Callable[[Function, dict[str, Constant]], Function]
) -> IRModule:
    """Apply `change`, which may add constants, to all graph functions."""
    constants = dict(module.constants)
    changed = map_graph_functions(module, lambda func: change(func, constants))
    return module if changed is module else replace(changed, constants=constants)


def graph_pass(name: str, change: Callable[[Function], Function]) -> Pass:
    return Pass(name, lambda module: map_graph_functions(module, change))


def tir_pass(name: str, change: Callable[[tir.PrimFunc], tir.PrimFunc]) -> Pass:
    """Return the pass that applies `change` to all PrimFuncs, once to each code."""
    return Pass(name, lambda module: map_prim_funcs(module, OncePerCode(change)))


def _map_functions(
    module: IRModule, kind: type[F], change: Callable[[F], F]
) -> IRModule:
    """Apply `change` to functions of one kind; return the same module if all stay."""
    functions: dict[str, AnyFunction] = {}
    has_changed = False
    for name, function in module.functions.items():
        functions[name] = function
        if isinstance(function, kind):
            functions[name] = change(function)
            has_changed = has_changed or functions[name] is not function
    return replace(module, functions=functions) if has_changed else module


def names_of(values: Iterable[Value]) -> set[str]:
    return {value.name for value in values}


def count_uses(function: Function) -> Counter[str]:
    """Count the uses of each value; results and next states count as uses."""
    counts: Counter[str] = Counter()
    for call in function.body:
        for operand in call.inputs:
            if operand is not None:
                counts[operand.name] += 1
    counts.update(value.name for value in function.sinks)
    return counts


def producer_places(body: Sequence[Call]) -> dict[str, int]:
    """Return the index of the call that defines each value."""
    places: dict[str, int] = {}
    for index, call in enumerate(body):
        for value in call.outputs:
            places[value.name] = index
    return places


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
    places = producer_places(function.body)
    body: list[Call | None] = list(function.body)  # None in the place of a merged call
    for index, call in enumerate(function.body):
        source = source_of(call)
        if source is None or source.name not in places:
            continue
        if uses[source.name] != 1 or is_placed(source):
            continue
        place = places[source.name]
        producer = body[place]
        merged = None if producer is None else merge(producer, call)
        if merged is not None:
            body[place] = replace(merged, outputs=call.outputs)
            body[index] = None
    remaining = [call for call in body if call is not None]
    return replace(function, body=tuple(remaining))
