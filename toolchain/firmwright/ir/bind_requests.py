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
    placed = [
        v
        for v in values
        if v is not None and v.constant and v.virtual_device.memory_scope
    ]
    if not placed or kernel not in module.functions:
        return module
    function = module.kernel(kernel)
    pool = max(value.virtual_device.memory_scope for value in placed)
    attrs = {**function.attrs, CONSTANTS_POOL_ATTR: pool}
    names = {value.name for value in placed}
    requests = tuple(
        replace(r, kernels=(*r.kernels, kernel))
        if r.tensor in names and kernel not in r.kernels
        else r
        for r in module.requests
    )
    return replace(
        module.with_function(replace(function, attrs=attrs)), requests=requests
    )


def bind_tensors(
    module: IRModule,
    buffers: Mapping[str, Sequence[str]],
    calls: Mapping[str, Sequence[int]],
) -> IRModule:
    """Return the module with requests bound to their tensors' buffers and calls."""
    requests = (
        replace(
            request,
            buffers=tuple(buffers.get(request.tensor, ())),
            calls=tuple(calls.get(request.tensor, ())),
        )
        for request in module.requests
    )
    return replace(module, requests=tuple(requests))


def bind_copies(module: IRModule, copies: Mapping[str, Sequence[str]]) -> IRModule:
    """Return the module with requests for constants bound to the kernels' copies."""
    requests = []
    for request in module.requests:
        if request.kernels:
            names = (
                name for kernel in request.kernels for name in copies.get(kernel, ())
            )
            request = replace(request, buffers=tuple(dict.fromkeys(names)), kernels=())
        requests.append(request)
    return replace(module, requests=tuple(requests))
