"""Values that must or may be in one memory pool, over all graphs of a module.

A domain is a set of values in one pool, and the pools that all of them permit. Values that share
memory are in one domain: views, states and their next values, loop variables, and the parameters of
inlined graphs with their arguments. A result of a graph joins the domain of the caller's value if
that leaves a pool; otherwise it is copied at the end of the graph.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from firmwright.ir.graph.devices import ValueKey
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.graph.opdef import SUBVIEWS_OF, OpTable
from firmwright.ir.module import IRModule
from firmwright.partitioning.device_map import DeviceMap


class Operand(NamedTuple):
    """An input of call `number` of a graph."""

    graph: str
    number: int
    position: int


class Binding(NamedTuple):
    """A graph that a call runs, and the caller's values for its parameters and results.

    The result of a loop's condition, which the main core reads, has None.
    """

    graph: Function
    arguments: tuple[Value, ...]
    results: tuple[Value | None, ...]


def graph_bindings(module: IRModule, call: Call) -> Iterator[Binding]:
    """Yield the graphs that `call` runs; a loop keeps its variables in its outputs."""
    arguments = call.inputs[1:] if call.op == "if" else call.inputs
    if call.op == "while":
        arguments = call.outputs
    values = tuple(value for value in arguments if value is not None)
    for number, graph in enumerate(module.graphs_of(call)):
        is_condition = call.op == "while" and number == 0
        yield Binding(graph, values, (None,) if is_condition else call.outputs)


@dataclass
class MemoryDomains:
    """The domains of a module, and the operands that read each."""

    module: IRModule
    ops: OpTable
    device_map: DeviceMap
    readers: dict[ValueKey, dict[Operand, frozenset[str]]] = field(default_factory=dict)
    """Calls that read a value, with the pools that they can access."""
    constants: dict[Operand, ValueKey] = field(default_factory=dict)
    """Constant arguments and the parameters that they are passed for."""
    _parents: dict[ValueKey, ValueKey] = field(default_factory=dict)
    _permitted: dict[ValueKey, frozenset[str]] = field(default_factory=dict)
    _outer: dict[ValueKey, ValueKey | None] = field(default_factory=dict)
    _carried: set[ValueKey] = field(default_factory=set)

    def __post_init__(self) -> None:
        entry, *_ = self.module.graphs
        for graph in self.module.graphs:
            for number, call in enumerate(graph.body):
                self._add(graph.name, number, call)
            for state in graph.state:
                self._join(*(ValueKey(graph.name, v.name) for v in (state.value, state.next)))
        for value in entry.params:
            self.restrict(ValueKey(entry.name, value.name), self.device_map.shared_pools)
        for value in entry.results:
            self._outer[ValueKey(entry.name, value.name)] = None

    def root(self, key: ValueKey) -> ValueKey:
        """Return the representative of the domain of `key`."""
        while key in self._parents:
            key = self._parents[key]
        return key

    def permitted(self, key: ValueKey) -> frozenset[str]:
        return self._permitted.get(self.root(key), frozenset(self.device_map.pools))

    def restrict(self, key: ValueKey, pools: frozenset[str]) -> None:
        self._permitted[self.root(key)] = self.permitted(key) & pools

    def is_alias(self, call: Call) -> bool:
        """Return whether `call` moves no data because its values share memory."""
        return SUBVIEWS_OF in call.attrs or (call.op in self.ops and self.ops[call.op].is_view)

    def join_results(self) -> dict[ValueKey, ValueKey | None]:
        """Join results with the caller's values; return those that must be copied instead.

        The caller's value is None if the main core reads the result.
        """
        copied: dict[ValueKey, ValueKey | None] = {}
        for inner, outer in self._outer.items():
            pools = self.device_map.shared_pools if outer is None else self.permitted(outer)
            if not self.permitted(inner) & pools:
                copied |= {} if inner in self._carried else {inner: outer}
            elif outer is None:
                self.restrict(inner, pools)
            else:
                self._join(outer, inner)
        return copied

    def _add(self, graph: str, number: int, call: Call) -> None:
        def read(index: int, pools: frozenset[str]) -> None:
            value = call.inputs[index]
            if value is not None and value.constant is None:
                uses = self.readers.setdefault(ValueKey(graph, value.name), {})
                uses[Operand(graph, number, index)] = pools

        bindings = tuple(graph_bindings(self.module, call))
        for binding in bindings:
            self._bind(graph, number, call, binding)
        if call.op == "if":
            read(0, self.device_map.shared_pools)
        if bindings:
            return
        if self.is_alias(call):
            for value in (*call.variables, *call.outputs[1:]):
                self._join(ValueKey(graph, call.outputs[0].name), ValueKey(graph, value.name))
            return
        for value in call.outputs:
            key = ValueKey(graph, value.name)
            self.restrict(key, self.device_map.visible_pools(call, value))
        for index, operand in enumerate(call.inputs):
            if operand is not None:
                read(index, self.device_map.visible_pools(call, operand))

    def _bind(self, graph: str, number: int, call: Call, binding: Binding) -> None:
        inlined, arguments, results = binding
        for index, (param, value) in enumerate(zip(inlined.params, arguments, strict=True)):
            key = ValueKey(inlined.name, param.name)
            if value.constant is None:
                self._join(ValueKey(graph, value.name), key)
            else:
                self.constants[Operand(graph, number, index + (call.op == "if"))] = key
        defined = {value.name for inner in inlined.body for value in inner.outputs}
        outer = [ValueKey(graph, value.name) if value else None for value in results]
        for result, caller in zip(inlined.results, outer, strict=True):
            key = ValueKey(inlined.name, result.name)
            known = self._outer.setdefault(key, caller) if result.name in defined else None
            if known is not None and caller is not None:
                self._join(known, caller)
            if call.op == "while" and caller is not None:
                self._carried.add(key)

    def _join(self, a: ValueKey, b: ValueKey) -> None:
        first, second = self.root(a), self.root(b)
        if first != second:
            pools = self.permitted(first) & self.permitted(second)
            self._parents[second] = first
            self._permitted[first] = pools
