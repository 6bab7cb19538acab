"""Two graphs as one: the result of the first is the input of the second."""

from dataclasses import replace

from firmwright.base.errors import UsageError
from firmwright.ir.graph import Call, Function, Value
from firmwright.ir.graph.nodes import State, unique_name
from firmwright.ir.graph.verify import verify_graph
from firmwright.ir.module import IRModule
from firmwright.ir.settings import ModelOrigin
from firmwright.ops.registry import op_table


def single_input(network: IRModule) -> Value:
    """Return the input of a network; UsageError if there are several."""
    params = network.entry_graph.params
    if len(params) != 1:
        names = ", ".join(value.name for value in params)
        what = f"{network.name} has the inputs {names}."
        raise UsageError(what, hint="a network with one input, the features.")
    return params[0]


def join_graphs(front: IRModule, network: IRModule) -> IRModule:
    """Return `network` with the calls of `front` before it.

    The single result of `front` has the type of the network's single input, and its
    graph calls no functions. Names of `front` that `network` has are changed.
    """
    entry = network.entry_graph
    names = _Names(front.entry_graph, network)
    (result,) = front.entry_graph.results
    names.renamed[result.name] = single_input(network).name
    head, constants = names.graph(front.entry_graph), dict(network.constants)
    for name, constant in front.constants.items():
        constants[names.renamed[name]] = replace(constant, name=names.renamed[name])
    joined = replace(
        entry,
        params=head.params,
        body=(*head.body, *entry.body),
        state=(*head.state, *entry.state),
    )
    functions = {**network.functions, entry.name: joined}
    module = replace(
        network, functions=functions, constants=constants, origin=ModelOrigin()
    )
    verify_graph(joined, module, op_table())
    return module


class _Names:
    """Names of a graph that differ from those of a module."""

    def __init__(self, graph: Function, module: IRModule) -> None:
        taken = set(module.constants)
        for function in module.graphs:
            taken.update(value.name for value in function.values)
        self.renamed: dict[str, str] = {}
        initials = [state.initial for state in graph.state]
        for name in dict.fromkeys([*(v.name for v in graph.values), *initials]):
            self.renamed[name] = unique_name(name, taken)

    def graph(self, graph: Function) -> Function:
        calls: list[Call] = []
        for call in graph.body:
            inputs = tuple(value and self.value(value) for value in call.inputs)
            outputs = tuple(map(self.value, call.outputs))
            calls.append(replace(call, inputs=inputs, outputs=outputs))
        states: list[State] = []
        for state in graph.state:
            value, following = self.value(state.value), self.value(state.next)
            states.append(State(value, following, self.renamed[state.initial]))
        params = tuple(map(self.value, graph.params))
        return replace(graph, params=params, body=tuple(calls), state=tuple(states))

    def value(self, value: Value) -> Value:
        constant = value.constant and self.renamed[value.constant]
        return replace(value, name=self.renamed[value.name], constant=constant)
