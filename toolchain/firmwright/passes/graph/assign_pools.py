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
        pool = pools.get(value.name)
        if pool is None or value.constant is not None:
            return value
        return with_memory_scope(value, pool)

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
        if tensor in constants:
            raise _wrong(module, tensor, pool, "it is a constant, which is part of the program")
        if tensor not in tensors:
            hint = f"{suggest_name(tensor, tensors)}."
            raise _wrong(module, tensor, pool, "no planned tensor has this name", hint)
        if pool not in pools:
            hint = f"{suggest_name(pool, pools)}."
            raise _wrong(module, tensor, pool, "no writable pool has this name", hint)
        if assigned.get(tensor, pool) != pool:
            raise _wrong(module, tensor, pool, f"it is already assigned to {assigned[tensor]}")
        assigned[tensor] = pool
    return assigned


def _wrong(module: IRModule, tensor: str, pool: str, why: str, hint: str = "") -> UsageError:
    what = f"tensor {tensor!r} cannot be assigned to pool {pool!r}: {why}."
    return UsageError(what, where=module.name, hint=hint)
