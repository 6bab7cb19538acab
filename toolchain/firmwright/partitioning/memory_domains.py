"""Values that must or may be in one memory pool, over all graphs of a module.

A domain is a set of values that share memory: views, states and their next values, loop variables,
parameters and arguments. A result of a graph joins the domain of the caller's value if that leaves
a pool; otherwise it is copied. Names of values are unique.
"""

from dataclasses import dataclass, field

from firmwright.ir.graph import Call, Value
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
    """The domains of all values of a module."""

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
    """The caller's value for each result that a call computes, or "" for the main core's."""

    def __post_init__(self) -> None:
        graphs = self.module.graphs
        self.calls = tuple(call for graph in graphs for call in graph.body)
        self.makers = {value.name: call for call in self.calls for value in call.outputs}
        for number, call in enumerate(self.calls):
            self._add(number, call)
        for state in (state for graph in graphs for state in graph.state):
            self._join(state.value.name, state.next.name)
        for value in graphs[0].params:
            self.restrict(value.name, self._pools_for_caller(value))
        self._outer |= {value.name: "" for value in graphs[0].results}

    def root(self, name: str) -> str:
        while name in self._parents:
            name = self._parents[name]
        return name

    def permitted(self, name: str) -> frozenset[str]:
        return self._permitted.get(self.root(name), frozenset(self.device_map.pools))

    def restrict(self, name: str, pools: frozenset[str]) -> None:
        self._permitted[self.root(name)] = self.permitted(name) & pools

    def is_alias(self, call: Call) -> bool:
        """Return whether `call` moves no data because its values share memory."""
        return is_subview(call.attrs) or self.is_view(call)

    def is_view(self, call: Call) -> bool:
        return call.op in self.ops and self.ops[call.op].is_view

    def join_results(self) -> dict[str, str]:
        """Join results with the caller's values; return those that must be copied to them."""
        copied: dict[str, str] = {}
        results = {v.name: self._pools_for_caller(v) for v in self.module.graphs[0].results}
        for inner, outer in self._outer.items():
            own = results.get(inner, self.device_map.shared_pools)
            pools = self.permitted(outer) if outer else own
            if not self.permitted(inner) & pools:
                copied[inner] = outer
            elif outer:
                self._join(outer, inner)
            else:
                self.restrict(inner, pools)
        return copied

    def _pools_for_caller(self, value: Value) -> frozenset[str]:
        """Return the pools for an input or output, also that of the engine assigned to it."""
        scope, device = value.virtual_device.memory_scope, device_name(value.virtual_device)
        targets = {
            name for pool in self.module.pools if pool.name == scope for name in pool.targets
        }
        engines = {engine_device(self.module, t) for t in targets & self.module.targets.keys()}
        return self.device_map.shared_pools | ({scope} if device in engines else set())

    def _add(self, number: int, call: Call) -> None:
        graphs = self.module.graphs_of(call)
        if not graphs and self.is_alias(call):
            for value in (*call.variables, *call.outputs[1:]):
                self._join(call.outputs[0].name, value.name)
            return
        if graphs:
            self._bind(number, call)
        for value in () if graphs else call.outputs:
            self.restrict(value.name, self.device_map.visible_pools(call, value))
        read = call.inputs[: int(call.op == "if")] if graphs else call.inputs
        for position, operand in enumerate(read):
            if operand is not None and operand.constant is None:
                uses = self.readers.setdefault(self.root(operand.name), {})
                uses[number, position] = self.device_map.visible_pools(call, operand)

    def _bind(self, number: int, call: Call) -> None:
        """Join arguments and parameters; a loop keeps its variables in its outputs."""
        first = int(call.op == "if")
        arguments = call.outputs if call.op == "while" else call.inputs[first:]
        for index, graph in enumerate(self.module.graphs_of(call)):
            for position, (param, value) in enumerate(zip(graph.params, arguments, strict=True)):
                if value is not None and value.constant is None:
                    self._join(value.name, param.name)
                else:
                    self.constants[number, first + position] = param.name
            is_condition = call.op == "while" and index == 0
            callers = [""] if is_condition else [value.name for value in call.outputs]
            for result, caller in zip(graph.results, callers, strict=True):
                if result.name not in self.makers:
                    continue  # a copy of a parameter or constant
                other = self._outer.setdefault(result.name, caller)
                if other and caller:
                    self._join(other, caller)

    def _join(self, a: str, b: str) -> None:
        first, second = self.root(a), self.root(b)
        if first != second:
            pools = self.permitted(first) & self.permitted(second)
            self._parents[second] = first
            self._permitted[first] = pools
            self.readers.setdefault(first, {}).update(self.readers.pop(second, {}))
