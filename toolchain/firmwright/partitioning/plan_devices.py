"""PlanDevices: assign every value a memory pool and every call a device with the fewest copies.

Requirements are the devices and scopes of values, the backends of partitions, and the scopes of
kernel parameters. The device requested for a view is required of the call that computes its memory.
Each memory domain is placed in the pool that most of its users can access; other pools get one
`device_copy` per graph (decision 0059). The pass runs before lowering and again after backends made
their kernels. Modules without requirements are unchanged.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.errors import UsageError
from firmwright.ir import tir
from firmwright.ir.core import Span
from firmwright.ir.graph import Call, Function, State, Value
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.attributes.movement import is_subview
from firmwright.ir.graph.devices import (
    CONSTANTS_POOL_ATTR,
    COPY_OP,
    MAIN_DEVICE,
    copy_device,
    device_name,
    is_core,
    is_placed,
    with_device,
    with_memory_scope,
)
from firmwright.ir.module import IRModule
from firmwright.ir.pass_results import PoolAccess
from firmwright.ir.requests import PlacementRequest
from firmwright.ir.verify_requests import requested_tensors
from firmwright.ops.opdef import OpTable
from firmwright.partitioning.device_map import DeviceMap
from firmwright.partitioning.memory_domains import MemoryDomains, Operand
from firmwright.passes.graph.value_names import map_values, with_unique_names

PlacementClaims = list[tuple[str, str]]
"""Devices or memory scopes required for values that must share one, each with its origin."""


def plan_devices(module: IRModule, ops: OpTable) -> IRModule:
    """Return the module with devices, scopes and copies; raise UsageError for a conflict."""
    if not module.graphs:
        return module
    module = with_unique_names(module)
    device_map = DeviceMap(module)
    planner = _DevicePlanner(module, device_map, MemoryDomains(module, ops, device_map))
    planner.check_constants()
    return planner.run() if planner.is_needed() else module


@dataclass
class _DevicePlanner:
    module: IRModule
    device_map: DeviceMap
    domains: MemoryDomains
    devices: dict[str, PlacementClaims] = field(default_factory=dict)
    scopes: dict[str, PlacementClaims] = field(default_factory=dict)
    requested: frozenset[str] = field(init=False)
    sinks: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.requested = requested_tensors(self.module)
        sinks = (value.name for graph in self.module.graphs for value in graph.sinks)
        self.sinks = frozenset(sinks)

    def is_needed(self) -> bool:
        if any(map(is_placed, self.definitions)):
            return True
        return any(
            self.device_map.device_for(call).device != MAIN_DEVICE
            or self._is_private(call)
            or any(scope for _, scope in self.device_map.parameter_scopes(call))
            for call in self.domains.calls
        )

    @property
    def definitions(self) -> list[Value]:
        sources = (value for graph in self.module.graphs for value in graph.sources)
        return [*sources, *(value for call in self.domains.calls for value in call.outputs)]

    def _is_private(self, call: Call) -> bool:
        """Return whether the call's device cannot access all shared pools."""
        return not self.device_map.shared_pools <= self.device_map.device_for(call).visible_pools

    def check_constants(self) -> None:
        """Raise UsageError if a call cannot access the pool requested for its constants."""
        for call in self.domains.calls if self.requested else ():
            visible = self.device_map.device_for(call).visible_pools
            read = {value.name for value in call.inputs if value is not None and value.constant}
            for request in self.module.requests:
                is_read = request.tensor in read or call.op.removeprefix("@") in request.kernels
                if is_read and request.pool and request.pool not in visible:
                    raise UsageError(
                        f"the constant {request.tensor} cannot be in {request.pool}, as "
                        f"{request.reason} requires: the device that reads it can access "
                        f"{', '.join(sorted(visible))}.",
                        where=self.module.name,
                        hint="one of these pools.",
                    )

    def run(self) -> IRModule:
        self._collect_requirements()
        devices = {name: self._common_requirement(name, c) for name, c in self.devices.items()}
        scopes = {name: self._common_requirement(name, c) for name, c in self.scopes.items()}
        for name, scope in scopes.items():
            self._require_scope(name, scope)
        moves = _CopyPlanner(self, devices, frozenset(scopes), self.domains.join_results())
        moves.place_all()
        module = self.module
        for graph in module.graphs:
            module = module.with_function(moves.rebuild(graph))
        return self._place_private_constants(_with_scopes(self._with_visible_pools(module)))

    def _with_visible_pools(self, module: IRModule) -> IRModule:
        visible = {("", MAIN_DEVICE): self.device_map.shared_pools}
        for call in self.domains.calls:
            match, device = self.device_map.backend_for(call), self.device_map.device_for(call)
            if match is not None:
                visible[match[0], device.device] = device.visible_pools
        rows = tuple(PoolAccess(*key, tuple(sorted(pools))) for key, pools in visible.items())
        is_limited = any(pools != {*self.device_map.pools} for pools in visible.values())
        if not is_limited:
            return module
        return replace(module, results=replace(module.results, pool_access=rows))

    # ---- requirements --------------------------------------------------------------------------

    def made_with(self, name: str) -> str:
        """Return the first of the values that share a device with a value."""
        call = self.domains.makers.get(name)
        return name if call is None or self.module.graphs_of(call) else call.outputs[0].name

    def _collect_requirements(self) -> None:
        for value in self.definitions:
            name, scope = value.name, value.virtual_device.memory_scope
            device = device_name(value.virtual_device)
            if device:
                why = self._reason(name, lambda request: request.device)
                for computed in self._computed_as(name):
                    self._check_computable(computed, device, why)
                    self.devices.setdefault(self.made_with(computed), []).append((device, why))
            if scope:
                why = self._reason(name, lambda request: request.pool)
                self.scopes.setdefault(self.domains.root(name), []).append((scope, why))
        for call in self.domains.calls:
            device = self.device_map.device_for(call).device
            for value in call.outputs if device != MAIN_DEVICE else ():
                why = f"the partition {call.op}, which computes {value.name},"
                self.devices.setdefault(self.made_with(value.name), []).append((device, why))
            for value, scope in self.device_map.parameter_scopes(call):
                if value in call.outputs:
                    root = self.domains.root(value.name)
                    why = f"the kernel {call.op}, which writes it,"
                    self.scopes.setdefault(root, []).append((scope, why))

    def _reason(self, name: str, place: Callable[[PlacementRequest], str]) -> str:
        """Return the words of the user's request that places a value."""
        requests = (r for r in self.module.requests if r.tensor == name and place(r))
        return next((request.reason for request in requests), "an earlier pass")

    def _computed_as(self, name: str) -> Iterator[str]:
        """Yield a value and, if it is a requested view, those whose memory it shows."""
        yield name
        call = self.domains.makers.get(name)
        if name not in self.requested or call is None or self.module.graphs_of(call):
            return
        while call is not None and self._is_view(call):
            source = call.inputs[0]
            assert source is not None
            yield source.name
            call = self.domains.makers.get(source.name)

    def _is_view(self, call: Call) -> bool:
        """Return whether the call gets no kernel because its output is a view of its input."""
        is_copied = any(value.name in self.sinks for value in call.outputs)
        return not is_copied and self.domains.is_view(call) and bool(call.variables)

    def _check_computable(self, name: str, device: str, why: str) -> None:
        """Raise UsageError if an accelerator is to compute an operator of the main core."""
        call = self.domains.makers.get(name)
        if call is None or is_core(device) or self.module.graphs_of(call):
            return
        if self.device_map.device_for(call).device == MAIN_DEVICE and call.variables:
            raise UsageError(
                f"the tensor {name} cannot be computed on {device}, as {why} requires: "
                f"its operator {call.op} is not part of a partition for that device.",
                where=self.module.name,
                hint=f"a core, such as {MAIN_DEVICE}, or a backend that supports the operator.",
            )

    def _common_requirement(self, name: str, claims: PlacementClaims) -> str:
        for place, why in claims[1:]:
            if place != claims[0][0]:
                first, reason = claims[0]
                raise UsageError(
                    f"the tensor {name} has two contradictory assignments: {reason} "
                    f"assigns it to {first}, and {why} assigns it to {place}.",
                    where=self.module.name,
                    hint="omit one of the two.",
                )
        return claims[0][0]

    def _require_scope(self, name: str, scope: str) -> None:
        pools = self.domains.permitted(name)
        if scope not in pools:
            raise UsageError(
                f"the tensor {name} cannot be in {scope}: the device that computes it "
                f"can access {', '.join(sorted(pools)) or 'no pool of this board'}.",
                where=self.module.name,
                hint="another scope for --assign-device, or a --pool of that name.",
            )
        self.domains.restrict(name, frozenset({scope}))

    def _place_private_constants(self, module: IRModule) -> IRModule:
        for call in self.domains.calls:
            callee = module.callee(call.op)
            match = self.device_map.backend_for(call)
            if isinstance(callee, tir.PrimFunc) and CONSTANTS_POOL_ATTR in callee.attrs:
                continue
            if match is not None and match[1].bus_master:
                continue
            if isinstance(callee, tir.PrimFunc) and self._is_private(call):
                visible = self.device_map.device_for(call).visible_pools
                pool = next(name for name in self.device_map.pools if name in visible)
                attrs = {**callee.attrs, CONSTANTS_POOL_ATTR: pool}
                module = module.with_function(replace(callee, attrs=attrs))
        return module


def _with_scopes(module: IRModule) -> IRModule:
    """Set the scopes of a region's tensors if all its calls agree on them."""
    calls: dict[str, set[tuple[str, ...]]] = {}
    for call in (call for graph in module.graphs for call in graph.body):
        if isinstance(module.callee(call.op), Function) and not module.graphs_of(call):
            scopes = tuple(value.virtual_device.memory_scope for value in call.values)
            calls.setdefault(call.op, set()).add(scopes)
    for op, (first, *others) in calls.items():
        region = module.callee(op)
        assert isinstance(region, Function)
        if any(first) and not others:
            names = (value.name for value in (*region.params, *region.results))
            pools = dict(zip(names, first, strict=True))
            module = module.with_function(_with_pools(region, pools))
    return module


def _with_pools(region: Function, scopes: Mapping[str, str]) -> Function:
    def placed(value: Value) -> Value:
        if value.constant is not None:
            return value
        return with_memory_scope(value, scopes.get(value.name, ""))

    return map_values(region, placed)


@dataclass
class _CopyPlanner:
    planner: _DevicePlanner
    devices: Mapping[str, str]
    scoped: frozenset[str]
    """Values with a required scope."""
    copied: dict[str, str]
    """Results that are copied to the caller's values."""
    pools: dict[str, str] = field(default_factory=dict)
    copies: dict[tuple[str, str], Value] = field(default_factory=dict)
    reads: dict[Operand, str] = field(default_factory=dict)
    inner_names: dict[str, str] = field(default_factory=dict)
    """New names of copied results."""
    names: UniqueNamer = field(init=False)
    numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        names = (value.name for value in self.planner.definitions)
        self.names = UniqueNamer((*names, *self.planner.module.constants))

    def place_all(self) -> None:
        domains, shared = self.planner.domains, self.planner.device_map.shared_pools
        scoped = {domains.root(name) for name in self.scoped}
        for root in dict.fromkeys(domains.root(v.name) for v in self.planner.definitions):
            self._place(root, domains.readers.get(root, {}), is_scoped=root in scoped)
        for operand, param in domains.constants.items():
            if domains.root(param) in self.pools:
                self.reads[operand] = self.pools[domains.root(param)]
        sinks = {value.name for graph in self.planner.module.graphs for value in graph.sinks}
        for name, call in domains.makers.items():
            is_view = domains.is_alias(call) and not is_subview(call.attrs)
            if name in sinks and is_view and self.pool_of(name) not in {"", *shared}:
                self.copied.setdefault(name, name)  # only a copy device can copy it
        for name in self.copied:
            inner = f"{name}_in_{self.pool_of(name)}" if self.pool_of(name) else f"{name}_source"
            self.inner_names[name] = self.names.unique(inner)

    def pool_of(self, name: str) -> str:
        return self.pools.get(self.planner.domains.root(name), "")

    def _place(self, root: str, seen: Mapping[Operand, frozenset[str]], *, is_scoped: bool) -> None:
        """Choose the pool of a domain and plan copies for its readers."""
        device_map = self.planner.device_map
        permitted = self.planner.domains.permitted(root)
        candidates = [pool for pool in device_map.pools if pool in permitted]
        if not candidates:
            raise self._no_visible_pool(root, "computes")
        served = {p: sum(p in pools for pools in seen.values()) for p in candidates}
        best = max(candidates, key=lambda p: served[p])
        visible = (permitted, *seen.values())
        if is_scoped or any(not device_map.shared_pools <= pools for pools in visible):
            self.pools[root] = best
        left = {use: pools for use, pools in seen.items() if best not in pools}
        while left:
            pool = max(device_map.pools, key=lambda p: sum(p in pools for pools in left.values()))
            if not any(pool in pools for pools in left.values()):
                raise self._no_visible_pool(root, "reads")
            for use in [use for use, pools in left.items() if pool in pools]:
                self.reads[use] = pool
                del left[use]

    def _no_visible_pool(self, root: str, verb: str) -> UsageError:
        pools = ", ".join(self.planner.device_map.pools)
        return UsageError(
            f"no pool can hold the tensor {root}: the device that {verb} it "
            f"cannot access any of {pools}.",
            where=self.planner.module.name,
            hint="--pool with the memory that the device needs.",
        )

    # ---- the graphs ----------------------------------------------------------------------------

    def _assign(self, value: Value) -> Value:
        if value.constant is not None:
            return value
        name, maker = value.name, self.planner.domains.makers.get(value.name)
        device = self.devices.get(self.planner.made_with(name), "")
        if not (maker and self.planner.module.graphs_of(maker)):
            device = device or MAIN_DEVICE
        assigned = replace(value, name=self.inner_names.get(name, name))
        assigned = with_device(assigned, device) if device else assigned
        return with_memory_scope(assigned, self.pool_of(name) or value.virtual_device.memory_scope)

    def _sink(self, value: Value) -> Value:
        """Return a result or next state as the caller sees it."""
        if value.name not in self.copied:
            return self._assign(value)
        return self._copied_to(value, self.pool_of(self.copied[value.name]))

    def _copied_to(self, value: Value, pool: str) -> Value:
        is_outward = pool in {"", *self.planner.device_map.shared_pools}
        device = copy_device(self.planner.module, outward=is_outward)
        return with_memory_scope(with_device(value, device), pool)

    def rebuild(self, graph: Function) -> Function:
        body: list[Call] = []
        for call, number in zip(graph.body, self.numbers, strict=False):
            inputs: list[Value | None] = []
            for position, value in enumerate(call.inputs):
                pool = self.reads.get((number, position), "")
                if value is not None and pool:
                    body += self._copy_to_pool(value, pool, call.span)
                    inputs.append(self.copies[value.name, pool])
                else:
                    inputs.append(None if value is None else self._assign(value))
            outputs = tuple(map(self._assign, call.outputs))
            body.append(replace(call, inputs=tuple(inputs), outputs=outputs))
        for value in dict.fromkeys(graph.sinks):
            if value.name in self.copied:
                span = Span("", tensor=value.name)
                body.append(
                    Call(COPY_OP, (self._assign(value),), (self._sink(value),), NO_ATTRS, span)
                )
        states = (State(self._assign(s.value), self._sink(s.next), s.initial) for s in graph.state)
        params, results = map(self._assign, graph.params), map(self._sink, graph.results)
        graph = replace(graph, params=tuple(params), results=tuple(results))
        return replace(graph, body=tuple(body), state=tuple(states))

    def _copy_to_pool(self, value: Value, pool: str, span: Span) -> list[Call]:
        if (value.name, pool) in self.copies:
            return []
        source = self._assign(value)
        name = self.names.unique(f"{value.name}_in_{pool}")
        target = self._copied_to(replace(source, name=name, constant=None), pool)
        if source.constant is not None:
            target = with_device(target, MAIN_DEVICE)
        self.copies[value.name, pool] = target
        return [Call(COPY_OP, (source,), (target,), NO_ATTRS, span)]
