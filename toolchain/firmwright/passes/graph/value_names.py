"""Changes of all values of a graph, and names of values that are unique in a module."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from firmwright.ir.graph.nodes import Call, Function, State, Value
from firmwright.ir.module import IRModule
from firmwright.passes.map_functions import names_of


def with_unique_names(module: IRModule) -> IRModule:
    """Rename values with the name of a value of another graph to GRAPH/NAME."""
    taken: set[str] = set()
    for graph in module.graphs:
        own = names_of(graph.values)
        names = {name: f"{graph.name}/{name}" for name in own & taken}
        if names:
            module = module.with_function(_renamed(graph, names))
        taken |= {names.get(name, name) for name in own}
    return module


def _renamed(graph: Function, names: Mapping[str, str]) -> Function:
    def renamed(value: Value) -> Value:
        return replace(value, name=names.get(value.name, value.name))

    return map_values(graph, renamed)


def map_values(function: Function, change: Callable[[Value], Value]) -> Function:
    def changed_operand(value: Value | None) -> Value | None:
        return None if value is None else change(value)

    def changed(call: Call) -> Call:
        inputs = tuple(map(changed_operand, call.inputs))
        return replace(call, inputs=inputs, outputs=tuple(map(change, call.outputs)))

    def changed_state(state: State) -> State:
        return replace(state, value=change(state.value), next=change(state.next))

    return replace(
        function,
        params=tuple(map(change, function.params)),
        body=tuple(map(changed, function.body)),
        results=tuple(map(change, function.results)),
        state=tuple(map(changed_state, function.state)),
    )
