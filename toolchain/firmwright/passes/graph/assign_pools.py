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
    pools = _checked(module, pins)

    def pinned(name: str, value: Value) -> Value:
        pool = pools.get(name)
        if pool is None or value.constant is not None:
            return value
        return with_memory_scope(value, pool)

    return map_named_values(module, pinned)


def named_values(module: IRModule) -> dict[str, Value]:
    """Return the values of the entry by name, and those of other graphs as GRAPH/NAME."""
    return {
        value.name if graph is module.entry else f"{graph.name}/{value.name}": value
        for graph in module.graphs
        for value in graph.values
    }


def map_named_values(module: IRModule, change: Callable[[str, Value], Value]) -> IRModule:
    """Apply `change` to all values, with their names in `named_values`."""

    def changed(graph: Function) -> Function:
        prefix = "" if graph is module.entry else f"{graph.name}/"
        return map_values(graph, lambda value: change(prefix + value.name, value))

    functions = {graph.name: changed(graph) for graph in module.graphs}
    return replace(module, functions={**module.functions, **functions})


def map_values(function: Function, change: Callable[[Value], Value]) -> Function:

    def changed(call: Call) -> Call:
        inputs = tuple(value if value is None else change(value) for value in call.inputs)
        return replace(call, inputs=inputs, outputs=tuple(map(change, call.outputs)))

    return replace(
        function,
        params=tuple(map(change, function.params)),
        body=tuple(map(changed, function.body)),
        results=tuple(map(change, function.results)),
        state=tuple(
            replace(state, value=change(state.value), next=change(state.next))
            for state in function.state
        ),
    )


def _checked(module: IRModule, pins: PoolAssignments) -> Mapping[str, str]:
    values, entry = named_values(module), module.graphs[0]
    constants = {name for name, value in values.items() if value.constant}
    tensors = values.keys() - constants
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
