"""Assignment of tensors to memory pools as requested by the user.

Every use of the tensor gets the pool as memory scope. The equivalent in module text is `%a: i8[16]
on(scope="dtcm") = relu(%x)`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from firmwright.base.errors import UsageError
from firmwright.base.suggestions import suggest_name
from firmwright.ir.graph.devices import with_memory_scope
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IRModule
from firmwright.passes.map_functions import map_graph_functions

PoolAssignments = Sequence[tuple[str, str]]


def assign_tensor_pools(module: IRModule, pins: PoolAssignments) -> IRModule:
    """Return the module with the tensors assigned; raise UsageError if a request is invalid."""
    if not pins:
        return module
    if not module.graphs:
        raise UsageError(
            "tensors of a lowered module cannot be assigned to pools.",
            where=module.name,
            hint="assign them when compiling the original model.",
        )
    module = with_unique_names(module)
    pools = _checked(module, pins)

    def pinned(value: Value) -> Value:
        return with_memory_scope(value, pools[value.name]) if value.name in pools else value

    return map_graph_functions(module, lambda graph: map_values(graph, pinned))


def with_unique_names(module: IRModule) -> IRModule:
    """Rename values with the name of a value of another graph to GRAPH/NAME."""
    taken: set[str] = set()
    for graph in module.graphs:
        own = {value.name for value in graph.values}
        names = {name: f"{graph.name}/{name}" for name in own & taken}
        if names:
            module = module.with_function(_renamed(graph, names))
        taken |= {names.get(name, name) for name in own}
    return module


def _renamed(graph: Function, names: Mapping[str, str]) -> Function:
    return map_values(graph, lambda value: replace(value, name=names.get(value.name, value.name)))


def map_values(function: Function, change: Callable[[Value], Value]) -> Function:

    def changed(call: Call) -> Call:
        inputs = tuple(value if value is None else change(value) for value in call.inputs)
        return replace(call, inputs=inputs, outputs=tuple(map(change, call.outputs)))

    return replace(
        function, params=tuple(map(change, function.params)),
        body=tuple(map(changed, function.body)), results=tuple(map(change, function.results)),
        state=tuple(
            replace(state, value=change(state.value), next=change(state.next))
            for state in function.state
        ),
    )  # fmt: skip


def _checked(module: IRModule, pins: PoolAssignments) -> Mapping[str, str]:
    entry, *_ = module.graphs
    values = [value for graph in module.graphs for value in graph.values]
    constants = {value.name for value in values if value.constant}
    tensors = {value.name for value in values} - constants
    if module.io.mode == "caller":
        tensors -= {value.name for value in (*entry.params, *entry.results)}
    pools = {pool.name for pool in module.pools if pool.access == "rw"}
    assigned: dict[str, str] = {}
    for tensor, pool in pins:
        problem, hint = "", ""
        if tensor in constants:
            problem = "it is a constant, which is part of the program"
        elif tensor not in tensors:
            problem, hint = "no planned tensor has this name", f"{suggest_name(tensor, tensors)}."
        elif pool not in pools:
            problem, hint = "no writable pool has this name", f"{suggest_name(pool, pools)}."
        elif assigned.get(tensor, pool) != pool:
            problem = f"it is already assigned to {assigned[tensor]}"
        if problem:
            what = f"tensor {tensor!r} cannot be assigned to pool {pool!r}: {problem}."
            raise UsageError(what, where=module.name, hint=hint)
        assigned[tensor] = pool
    return assigned
