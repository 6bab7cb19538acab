"""Binding of placement requests to the kernels, calls and buffers of their tensors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from firmwright.ir.graph.devices import CONSTANTS_POOL_ATTR
from firmwright.ir.graph.nodes import Value
from firmwright.ir.module import IRModule


def bind_constants(
    module: IRModule, values: Iterable[Value | None], kernel: str
) -> IRModule:
    """Return the module whose `kernel` reads its constants from their pool.

    `values` has the constants, among others.
    """
    placed: list[Value] = []
    for value in values:
        if value is None or not value.constant:
            continue
        if value.virtual_device.memory_scope:
            placed.append(value)
    if not placed or kernel not in module.functions:
        return module
    function = module.kernel(kernel)
    pool = max(value.virtual_device.memory_scope for value in placed)
    attrs = {**function.attrs, CONSTANTS_POOL_ATTR: pool}
    names = {value.name for value in placed}
    requests = []
    for request in module.requests:
        if request.tensor in names and kernel not in request.kernels:
            request = replace(request, kernels=(*request.kernels, kernel))
        requests.append(request)
    bound = module.with_function(replace(function, attrs=attrs))
    return replace(bound, requests=tuple(requests))


def bind_tensors(
    module: IRModule,
    buffers: Mapping[str, Sequence[str]],
    calls: Mapping[str, Sequence[int]],
) -> IRModule:
    """Return the module with requests bound to their tensors' buffers and calls."""
    requests = []
    for request in module.requests:
        own_buffers = tuple(buffers.get(request.tensor, ()))
        own_calls = tuple(calls.get(request.tensor, ()))
        requests.append(replace(request, buffers=own_buffers, calls=own_calls))
    return replace(module, requests=tuple(requests))


def bind_copies(module: IRModule, copies: Mapping[str, Sequence[str]]) -> IRModule:
    """Return the module with requests for constants bound to the kernels' copies."""
    requests = []
    for request in module.requests:
        if request.kernels:
            names: dict[str, None] = {}
            for kernel in request.kernels:
                names |= dict.fromkeys(copies.get(kernel, ()))
            request = replace(request, buffers=tuple(names), kernels=())
        requests.append(request)
    return replace(module, requests=tuple(requests))
