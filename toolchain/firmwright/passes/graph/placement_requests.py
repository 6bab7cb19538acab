"""Recording of placement requests, before any pass runs.

The values get the requested devices and pools. A request for the device of a result of
a branch, loop or called graph is recorded for the values inside that compute it, too.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from firmwright.base.errors import UsageError
from firmwright.ir.core import UNCONSTRAINED
from firmwright.ir.graph.devices import device_name, with_device, with_memory_scope
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IRModule
from firmwright.ir.requests import PlacementRequest
from firmwright.passes.graph.value_names import map_values, with_unique_names
from firmwright.passes.map_functions import map_graph_functions, producer_places


def record_requests(module: IRModule, requests: Sequence[PlacementRequest]) -> IRModule:
    """Return the module with more requests; UsageError if two contradict each other."""
    if not requests:
        return module
    module = with_unique_names(module)
    computed_inside = _computed_inside(module)
    recorded = list(module.requests)
    for request in requests:
        for each in (request, *_requests_inside(request, computed_inside)):
            _check_contradictions(module, each, recorded)
            if each.key not in [other.key for other in recorded]:
                recorded.append(each)
    by_tensor: dict[str, list[PlacementRequest]] = {}
    for request in recorded:
        by_tensor.setdefault(request.tensor, []).append(request)

    def placed(value: Value) -> Value:
        for request in by_tensor.get(value.name, ()):
            value = _with_place(value, request)
        return value

    module = replace(module, requests=tuple(recorded))
    return map_graph_functions(module, lambda graph: map_values(graph, placed))


def record_text_requests(module: IRModule, device_names: Collection[str]) -> IRModule:
    """Return the module with requests for each `on(...)` that no option explains."""
    _check_text(module)
    if not any(value.virtual_device != UNCONSTRAINED for value in _values(module)):
        return module
    module = with_unique_names(module)
    found: dict[str, PlacementRequest] = {}
    for value in _values(module):
        device = device_name(value.virtual_device) if value.constant is None else ""
        pool = value.virtual_device.memory_scope
        devices: list[str] = []
        pools: list[str] = []
        for request in module.requests:
            if request.tensor == value.name:
                devices.append(request.device)
                pools.append(request.pool)
        device = "" if device in devices else device
        pool = "" if pool in pools else pool
        if device and device not in device_names:
            what = (
                f"its own text assigns the tensor {value.name} to {device}, which is no"
                " device."
            )
            hint = f"one of {', '.join(device_names)}, or --devices."
            raise UsageError(what, where=module.name, hint=hint)
        if device or pool:
            found[value.name] = PlacementRequest(value.name, device, pool)
    return record_requests(module, tuple(found.values()))


def _values(module: IRModule) -> Iterator[Value]:
    """Yield the values of the graphs, and the constants of partitions."""
    for graph in module.graphs:
        yield from (*graph.values, *graph.results)
    for partition in _partitions(module):
        for value in partition.values:
            if value.constant is not None:
                yield value


def _partitions(module: IRModule) -> list[Function]:
    partitions: list[Function] = []
    for function in module.functions.values():
        if isinstance(function, Function) and function.attrs.get("target"):
            partitions.append(function)
    return partitions


def _check_text(module: IRModule) -> None:
    """Raise UsageError for a place in the text that nothing plans."""
    placed: set[str] = set()
    for value in _values(module):
        if value.virtual_device != UNCONSTRAINED:
            placed.add(value.name)
    inside: list[Value] = []
    for partition in _partitions(module):
        inside += partition.values
    for value in (*_values(module), *inside):
        device, problem, hint = value.virtual_device, "", ""
        if device != UNCONSTRAINED and value.name not in placed:
            problem = "the text places it in a partition alone"
            hint = "on(...) at the tensor in the graph that calls the partition."
        elif device_name(device) and value.constant and not device.memory_scope:
            problem = "a constant is placed in a pool, since no device computes it"
            hint = "on(scope=POOL)."
        if problem:
            what = f"the tensor {value.name} cannot be placed: {problem}."
            raise UsageError(what, where=module.name, hint=hint)


def _with_place(value: Value, request: PlacementRequest) -> Value:
    if request.device and value.constant is None:
        value = with_device(value, request.device)
    return with_memory_scope(value, request.pool) if request.pool else value


def _computed_inside(module: IRModule) -> dict[str, list[str]]:
    """Return, by result of a call that runs graphs, the inner values computing it."""
    inside: dict[str, list[str]] = {}
    for graph in module.graphs:
        for call in graph.body:
            for inner in _result_graphs(module, call):
                made = producer_places(inner.body)
                for value, result in zip(call.outputs, inner.results, strict=True):
                    if result.name in made:
                        inside.setdefault(value.name, []).append(result.name)
    return inside


def _result_graphs(module: IRModule, call: Call) -> tuple[Function, ...]:
    """Return the graphs that compute the results of a call: no loop condition."""
    return module.graphs_of(call)[call.op == "while" :]


def _requests_inside(
    request: PlacementRequest, inside: dict[str, list[str]]
) -> Iterator[PlacementRequest]:
    if not request.device:
        return
    named = request.named or request.tensor
    for name in inside.get(request.tensor, ()):
        inner = replace(request, tensor=name, pool="", named=named)
        yield inner
        yield from _requests_inside(inner, inside)


def _check_contradictions(
    module: IRModule, request: PlacementRequest, recorded: Sequence[PlacementRequest]
) -> None:
    for other in recorded:
        if other.tensor != request.tensor:
            continue
        for old, new in ((other.device, request.device), (other.pool, request.pool)):
            if old and new and old != new:
                raise UsageError(
                    f"the tensor {request.tensor} has two contradictory assignments: "
                    f"{other.reason} assigns it to {old}, and {request.reason} assigns "
                    f"it to {new}.",
                    where=module.name,
                    hint="omit one of the two.",
                )
