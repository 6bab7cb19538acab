"""Verification of placement requests: in graphs, AOT main and memory plan.

* A requested tensor is a value of the graphs until they are lowered. Its value names
  the requested device and pool; the source of a `device_copy` counts as computed by the
  copy's device or its own.
* After lowering, the calls that compute the tensor run on the device, and its buffers
  are pinned to the pool or, once planned, in it. A tensor that no call computes is in
  memory that the device can access. The copies of a constant are in its pool.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from firmwright.base.grouping import group_pairs
from firmwright.ir import tir
from firmwright.ir.core import Attrs
from firmwright.ir.graph import devices
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IRModule
from firmwright.ir.requests import PlacementRequest
from firmwright.ir.tir.traversal import prim_calls, statements


def diagnose_requests(module: IRModule) -> list[str]:
    """Return a message with tensor and request for each request that is not kept."""
    if not module.requests:
        return []
    entry = module.entry
    if isinstance(entry, Function):
        problems_of = _RequestsInGraphs(module).problems
    elif entry.attrs.get("aot_main"):
        problems_of = _RequestsInMain(module, entry).problems
    else:
        return []
    found: list[str] = []
    for request in module.requests:
        broken = f"the tensor {request.tensor} is not where {request.reason} places it"
        found += [f"{broken}: {problem}" for problem in problems_of(request)]
    return found


def diagnose_kept_requests(before: IRModule, after: IRModule) -> list[str]:
    """Return the problems of `after`, and the requests of `before` that it lost."""
    recorded = {request.key for request in after.requests}
    dropped: list[str] = []
    for request in before.requests:
        if request.key not in recorded:
            lost = f"the request {request.reason} for the tensor {request.tensor}"
            dropped.append(f"{lost} is no longer in the module")
    return dropped + diagnose_requests(after)


def requested_tensors(module: IRModule) -> frozenset[str]:
    """Return the tensors with a request, which passes must not remove."""
    return frozenset(request.tensor for request in module.requests)


@dataclass(frozen=True)
class _RequestsInGraphs:
    module: IRModule

    @cached_property
    def values(self) -> Mapping[str, Value]:
        """The values of the graphs by name, and the constants of partitions."""
        found: dict[str, Value] = {}
        for function in self.module.functions.values():
            if isinstance(function, Function):
                constants = (v for v in function.values if v.constant is not None)
                found |= {value.name: value for value in constants}
        for graph in self.module.graphs:
            found |= {value.name: value for value in graph.values}
        return found

    @cached_property
    def makers(self) -> Mapping[str, Call]:
        makers: dict[str, Call] = {}
        for graph in self.module.graphs:
            for call in graph.body:
                makers |= dict.fromkeys((value.name for value in call.outputs), call)
        return makers

    def problems(self, request: PlacementRequest) -> Iterator[str]:
        yield from _kernel_problems(self.module, request)
        value = self.values.get(request.tensor)
        if value is None:
            if not request.kernels:
                yield "it is no longer in the module"
            return
        pool = value.virtual_device.memory_scope
        if request.pool not in ("", pool):
            yield f"it is in {pool or 'no certain pool'}, not in {request.pool}"
        found = self._devices(value)
        if request.device and value.constant is None and request.device not in found:
            place = found[-1] or "no certain device"
            yield f"it is computed on {place}, not on {request.device}"

    def _devices(self, value: Value) -> list[str]:
        """Return the device of a value and, through copies, those of its sources."""
        found = [devices.device_name(value.virtual_device)]
        maker = self.makers.get(value.name)
        while (
            maker is not None
            and maker.op == devices.COPY_OP
            and maker.inputs[0] is not None
        ):
            found.append(devices.device_name(maker.inputs[0].virtual_device))
            maker = self.makers.get(maker.inputs[0].name)
        return found


def _kernel_problems(module: IRModule, request: PlacementRequest) -> Iterator[str]:
    """Yield the kernels that read a constant and do not take it from its pool."""
    for name in request.kernels:
        kernel = module.functions.get(name)
        attrs: Attrs = {} if kernel is None else kernel.attrs
        pool = attrs.get(devices.CONSTANTS_POOL_ATTR)
        if pool != request.pool:
            place = pool or "program memory"
            yield f"the kernel @{name} reads its constants from {place}"


@dataclass(frozen=True)
class _RequestsInMain:
    module: IRModule
    main: tir.PrimFunc

    @cached_property
    def parents(self) -> Mapping[str, str]:
        """The buffer or pool of which each buffer is a part; itself if allocated."""
        found = {param.name: param.name for param in self.main.params}
        for node in statements(self.main.body):
            if isinstance(node, tir.DeclBuffer):
                found[node.buffer.name] = node.source.buffer.name
            elif isinstance(node, tir.Allocate | tir.AllocateConst):
                found[node.buffer.name] = node.buffer.name
        return found

    @cached_property
    def pins(self) -> Mapping[str, str]:
        pins = cast(
            "tuple[tuple[str, str], ...]", self.main.attrs.get("pool_assignments", ())
        )
        return {self._root(name): pool for name, pool in pins if name in self.parents}

    @cached_property
    def devices_of_calls(self) -> Mapping[int, list[str]]:
        calls = prim_calls(self.main.body)
        return group_pairs((c.op, c.device or devices.MAIN_DEVICE) for c in calls)

    def problems(self, request: PlacementRequest) -> Iterator[str]:
        yield from _kernel_problems(self.module, request)
        if request.kernels:
            return
        missing = [name for name in request.buffers if name not in self.parents]
        if missing or not (request.buffers or request.calls):
            yield "it has no memory of its own in the AOT main"
            return
        for name in request.buffers if request.pool else ():
            pool = self._pool(name)
            if pool != request.pool:
                yield f"it is in {pool or 'no certain pool'}, not in {request.pool}"
        if request.device:
            yield from self._device_problems(request)

    def _device_problems(self, request: PlacementRequest) -> Iterator[str]:
        for op in request.calls:
            found = self.devices_of_calls.get(op, [])
            others = [device for device in found if device != request.device]
            if others or not found:
                place = others[0] if others else "no device"
                yield f"it is computed on {place}, not on {request.device}"
        if request.calls or self.module.plan is None:
            return
        visible = self._visible_pools(request.device)
        for name in request.buffers:
            pool = self._pool(name)
            if visible and pool not in visible:
                yield f"it is in {pool}, which {request.device} cannot access"

    def _visible_pools(self, device: str) -> frozenset[str]:
        """Return the pools that a device can access; empty if there is no limit."""
        place = devices.MAIN_DEVICE if devices.is_core(device) else device
        pools: set[str] = set()
        for row in self.module.results.pool_access:
            if row.device == place:
                pools.update(row.pools)
        return frozenset(pools)

    def _root(self, name: str) -> str:
        while self.parents.get(name, name) != name:
            name = self.parents[name]
        return name

    def _pool(self, name: str) -> str:
        """Return the pool that holds a buffer or, before the plan, its pinned pool."""
        root = self._root(name)
        if self.module.plan is None:
            return self.pins.get(root, "")
        return root if root in self.module.plan.pool_bytes else ""
