"""Two graphs as one: the result of the first is the input of the second."""

from dataclasses import dataclass, replace

from firmwright.base.dtypes import FLOAT32
from firmwright.base.errors import UsageError
from firmwright.graph_builder import GraphBuilder
from firmwright.ir.core import Constant, Span
from firmwright.ir.graph import Call, Function, TensorType, Value
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.nodes import State, unique_name
from firmwright.ir.graph.periodic_calls import PeriodicCalls, unique_values
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


def emit_in_type(g: GraphBuilder, x: Value, wanted: TensorType, name: str) -> Value:
    """Emit `x`, of floats or quantized, in the type of a network's input."""
    own = x.type
    is_same = wanted.dtype == own.dtype
    is_same = is_same and wanted.quantization in (own.quantization, None)
    if not is_same:
        op = "dequantize" if wanted.dtype == FLOAT32 else "quantize"
        kind = TensorType(own.shape, wanted.dtype, wanted.quantization)
        (x,) = g.calls(op, x, types=[kind])
    (result,) = g.calls("reshape", x, results=[name], types=[wanted])
    return result


def join_graphs(front: IRModule, network: IRModule, stride: int = 1) -> IRModule:
    """Return `network` with the calls of `front` before it.

    The single result of `front` has the type of the network's single input, and its
    graph calls no functions. Names of `front` that `network` has are changed. The
    network's calls are made in every n-th run, for n = `stride`; in others its results
    and its state keep their values.
    """
    entry = network.entry_graph
    names = _Names(front.entry_graph, network)
    (result,) = front.entry_graph.results
    entry, constants = network.entry_graph, dict(network.constants)
    functions = dict(network.functions)
    if stride > 1:
        branches = {graph.name: graph for graph in network.graphs}
        entry = _Strided(constants, branches, names.taken).graph(entry, stride)
        functions |= branches
    names.renamed[result.name] = entry.params[0].name
    head = names.graph(front.entry_graph)
    for name, constant in front.constants.items():
        constants[names.renamed[name]] = replace(constant, name=names.renamed[name])
    joined = replace(
        entry,
        params=head.params,
        body=(*head.body, *entry.body),
        state=(*head.state, *entry.state),
    )
    functions[entry.name] = joined
    module = replace(
        network, functions=functions, constants=constants, origin=ModelOrigin()
    )
    verify_graph(joined, module, op_table())
    return module


@dataclass(frozen=True)
class _Strided:
    """Makes graphs whose calls are made in every n-th run."""

    constants: dict[str, Constant]
    functions: dict[str, Function]
    taken: set[str]

    def graph(self, network: Function, stride: int) -> Function:
        """Return the network with its calls in a branch."""
        copies, network = self._copy_sources_that_are_sinks(network)
        calls = PeriodicCalls(self.functions, self._add_constant, self.taken)
        before = {state.next.name: state.value for state in network.state}
        results, states = unique_values(network.sinks), list(network.state)
        for value in results:
            if value.name not in before:
                states.append(calls.state_between_runs(value))
                before[value.name] = states[-1].value
        counter = calls.counter(network.params[0].name, stride, Span(""))
        body = (*copies, *network.body)
        branch = calls.branch(body, results, before, counter.is_due, Span(""))
        state = (*states, counter.state)
        return replace(network, body=(*counter.calls, branch), state=state)

    def _copy_sources_that_are_sinks(
        self, network: Function
    ) -> tuple[list[Call], Function]:
        """Return copies to their names, and the network with other names for them.

        A run of the network makes all of its sinks then, as no source is one.
        """
        copies: list[Call] = []
        renamed: dict[str, Value] = {}
        sinks = {value.name for value in network.sinks}
        for value in network.sources:
            if value.name in sinks:
                name = unique_name(value.name, self.taken)
                renamed[value.name] = replace(value, name=name)
                copies.append(
                    Call("reshape", (renamed[value.name],), (value,), NO_ATTRS)
                )
        params = tuple(renamed.get(value.name, value) for value in network.params)
        state: list[State] = []
        for each in network.state:
            state.append(replace(each, value=renamed.get(each.value.name, each.value)))
        return copies, replace(network, params=params, state=tuple(state))

    def _add_constant(self, constant: Constant) -> str:
        name = unique_name(constant.name, self.taken)
        self.constants[name] = replace(constant, name=name)
        return name


class _Names:
    """Names of a graph that differ from those of a module."""

    def __init__(self, graph: Function, module: IRModule) -> None:
        self.taken = set(module.constants)
        for function in module.graphs:
            self.taken.update(value.name for value in function.values)
        self.renamed: dict[str, str] = {}
        initials = [state.initial for state in graph.state]
        for name in dict.fromkeys([*(v.name for v in graph.values), *initials]):
            self.renamed[name] = unique_name(name, self.taken)

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
