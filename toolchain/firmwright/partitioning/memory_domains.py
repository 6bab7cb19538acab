"""Values that must or may be in one memory pool, over all graphs of a module.

A domain is a set of values that share memory: views, states and their next values, loop
variables, parameters and arguments. A result of a graph joins the domain of the
caller's value if that leaves a pool; otherwise it is copied. Names of values are
unique.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from firmwright.ir.graph import Call, Function, Value
from firmwright.ir.graph.attributes.movement import is_subview
from firmwright.ir.graph.devices import device_name
from firmwright.ir.module import IRModule
from firmwright.ops.opdef import OpTable
from firmwright.partitioning.device_map import DeviceMap
from firmwright.partitioning.engine_instances import engine_device

Operand = tuple[int, int]
"""The number of a call, counted over all graphs, and the position of its input."""


@dataclass
class MemoryDomains:
    """The domains of all values of a module: a union-find structure over their names.

    The permitted pools and the readers of a domain are stored at its root.
    """

    module: IRModule
    ops: OpTable
    device_map: DeviceMap
    calls: tuple[Call, ...] = ()
    makers: dict[str, Call] = field(default_factory=dict)
    readers: dict[str, dict[Operand, frozenset[str]]] = field(default_factory=dict)
    """The pools that the readers of a domain can access, by root."""
    constants: dict[Operand, str] = field(default_factory=dict)
    """Constant arguments and the parameters that they are passed for."""
    _parents: dict[str, str] = field(default_factory=dict)
    _permitted: dict[str, frozenset[str]] = field(default_factory=dict)
    _outer: dict[str, str] = field(default_factory=dict)
    """The caller's value for each result of a call, or "" for the main core's."""

    def __post_init__(self) -> None:
        graphs = self.module.graphs
        calls: list[Call] = []
        for graph in graphs:
            calls += graph.body
        self.calls = tuple(calls)
        for call in self.calls:
            for value in call.outputs:
                self.makers[value.name] = call
        for number, call in enumerate(self.calls):
            self._add(number, call)
        for graph in graphs:
            for state in graph.state:
                self._join(state.value.name, state.next.name)
        for value in graphs[0].params:
            self.restrict(value.name, self._pools_for_caller(value))
        for value in graphs[0].results:
            self._outer[value.name] = ""

    def root(self, name: str) -> str:
        """Return the value that represents the domain of a value."""
        while name in self._parents:
            name = self._parents[name]
        return name

    def permitted(self, name: str) -> frozenset[str]:
        """Return the permitted pools of a value's domain; empty after a conflict."""
        return self._permitted.get(self.root(name), frozenset(self.device_map.pools))

    def restrict(self, name: str, pools: frozenset[str]) -> None:
        """Remove all pools but `pools` from the permitted ones of a value's domain."""
        self._permitted[self.root(name)] = self.permitted(name) & pools

    def is_alias(self, call: Call) -> bool:
        """Return whether `call` moves no data because its values share memory."""
        return is_subview(call.attrs) or self.is_view(call)

    def is_view(self, call: Call) -> bool:
        return call.op in self.ops and self.ops[call.op].is_view

    def join_results(self) -> dict[str, str]:
        """Join results with the caller's values; return those that must be copied."""
        copied: dict[str, str] = {}
        results: dict[str, frozenset[str]] = {}
        for value in self.module.graphs[0].results:
            results[value.name] = self._pools_for_caller(value)
        for inner, outer in self._outer.items():
            if outer:
                pools = self.permitted(outer)
            else:
                pools = results.get(inner, self.device_map.shared_pools)
            if not self.permitted(inner) & pools:
                copied[inner] = outer
            elif outer:
                self._join(outer, inner)
            else:
                self.restrict(inner, pools)
        return copied

    def _pools_for_caller(self, value: Value) -> frozenset[str]:
        """Return the pools for an input or output, also that of its engine."""
        shared = self.device_map.shared_pools
        scope = value.virtual_device.memory_scope
        device = device_name(value.virtual_device)
        for pool in self.module.pools:
            if pool.name != scope:
                continue
            for target in pool.targets:
                if target not in self.module.targets:
                    continue
                if engine_device(self.module, target) == device:
                    return shared | {scope}
        return shared

    def _add(self, number: int, call: Call) -> None:
        """Join or restrict the values of a call, which has a number over all graphs."""
        if self.module.graphs_of(call):
            self._bind(number, call)
            # The graphs read the arguments; the call itself only an `if`'s condition.
            self._add_readers(number, call, call.inputs[: _condition_inputs(call)])
        elif self.is_alias(call):
            for value in (*call.variables, *call.outputs[1:]):
                self._join(call.outputs[0].name, value.name)
        else:
            for value in call.outputs:
                self.restrict(value.name, self.device_map.visible_pools(call, value))
            self._add_readers(number, call, call.inputs)

    def _add_readers(
        self, number: int, call: Call, inputs: Sequence[Value | None]
    ) -> None:
        for position, operand in enumerate(inputs):
            if operand is not None and operand.constant is None:
                uses = self.readers.setdefault(self.root(operand.name), {})
                uses[number, position] = self.device_map.visible_pools(call, operand)

    def _bind(self, number: int, call: Call) -> None:
        """Join arguments and parameters; a loop keeps its variables in its outputs."""
        first = _condition_inputs(call)
        arguments = call.outputs if call.op == "while" else call.inputs[first:]
        for index, graph in enumerate(self.module.graphs_of(call)):
            pairs = zip(graph.params, arguments, strict=True)
            for position, (param, value) in enumerate(pairs):
                if value is not None and value.constant is None:
                    self._join(value.name, param.name)
                else:
                    self.constants[number, first + position] = param.name
            callers = [value.name for value in call.outputs]
            if call.op == "while" and index == 0:
                callers = [""]  # The main core reads the condition of the loop.
            self._bind_results(graph, callers)

    def _bind_results(self, graph: Function, callers: Sequence[str]) -> None:
        """Record the caller's value of each result; join values of one result."""
        for result, caller in zip(graph.results, callers, strict=True):
            if result.name not in self.makers:
                continue  # The result is a copy of a parameter or constant.
            other = self._outer.setdefault(result.name, caller)
            if other and caller:
                self._join(other, caller)

    def _join(self, a: str, b: str) -> None:
        """Unite two domains; the pools that both permit remain."""
        first, second = self.root(a), self.root(b)
        if first != second:
            pools = self.permitted(first) & self.permitted(second)
            self._parents[second] = first
            self._permitted[first] = pools
            self.readers.setdefault(first, {}).update(self.readers.pop(second, {}))


def _condition_inputs(call: Call) -> int:
    """Return the number of inputs before the graphs' arguments: an `if`'s condition."""
    return 1 if call.op == "if" else 0
