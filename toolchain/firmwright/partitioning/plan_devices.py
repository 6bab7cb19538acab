"""PlanDevices: assign every value a memory pool and every call a device with the fewest copies.

Requirements are the devices and scopes of values, the backends of partitions, and the scopes of
kernel parameters. Values defined by one call share a device; a device of a value that a branch or
loop defines is required of the calls that compute it. Each memory domain is placed in the pool that
most of its users can access; every other pool that users need gets one `device_copy` per graph. The
pass runs before lowering and again after backends made their kernels. A module without requirements
is returned unchanged.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.errors import UsageError
from firmwright.ir import tir
from firmwright.ir.core import UNCONSTRAINED, Span
from firmwright.ir.graph.devices import (
    CONSTANTS_POOL_ATTR,
    COPY_OP,
    MAIN_DEVICE,
    VISIBLE_POOLS_ATTR,
    InlinedResults,
    ValueKey,
    copy_device,
    device_name,
    is_core,
    with_device,
    with_memory_scope,
)
from firmwright.ir.graph.nodes import Call, Function, State, Value
from firmwright.ir.graph.opdef import SUBVIEWS_OF, OpTable
from firmwright.ir.module import IRModule
from firmwright.partitioning.device_map import DeviceMap
from firmwright.partitioning.engine_instances import engine_device
from firmwright.partitioning.memory_domains import MemoryDomains, Operand
from firmwright.passes.graph.assign_pools import map_values

PlacementClaims = list[tuple[str, str]]
"""Devices or memory scopes required for values that must share one, each with its origin."""


def plan_devices(module: IRModule, ops: OpTable) -> IRModule:
    """Return the module with devices, scopes and copies; raise UsageError for a conflict."""
    if not module.graphs:
        return module
    planner = _DevicePlanner(module, ops, DeviceMap(module))
    return planner.run() if planner.is_needed() else module


@dataclass
class _DevicePlanner:
    module: IRModule
    ops: OpTable
    device_map: DeviceMap
    domains: MemoryDomains = field(init=False)
    definitions: dict[ValueKey, Value] = field(default_factory=dict)
    makers: dict[ValueKey, Call] = field(default_factory=dict)
    devices: dict[ValueKey, PlacementClaims] = field(default_factory=dict)
    scopes: dict[ValueKey, PlacementClaims] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for graph in self.module.graphs:
            self.definitions |= {ValueKey(graph.name, v.name): v for v in graph.sources}
            for call in graph.body:
                keys = {ValueKey(graph.name, value.name): value for value in call.outputs}
                self.definitions |= keys
                self.makers |= dict.fromkeys(keys, call)

    def is_needed(self) -> bool:
        if any(value.virtual_device != UNCONSTRAINED for value in self.definitions.values()):
            return True
        return any(
            self.device_map.device_for(call).device != MAIN_DEVICE
            or self._is_private(call)
            or any(scope for _, scope in self.device_map.parameter_scopes(call))
            for _, call in self.calls()
        )

    def _is_private(self, call: Call) -> bool:
        """Return whether the call's device cannot access all shared pools."""
        return not self.device_map.shared_pools <= self.device_map.device_for(call).visible_pools

    def calls(self) -> Iterator[tuple[str, Call]]:
        """Yield all calls, each with the name of its graph."""
        return ((graph.name, call) for graph in self.module.graphs for call in graph.body)

    def run(self) -> IRModule:
        self.domains = MemoryDomains(self.module, self.ops, self.device_map)
        self._collect_requirements()
        devices = {key: self._common_requirement(key, c) for key, c in self.devices.items()}
        scopes = {key: self._common_requirement(key, c) for key, c in self.scopes.items()}
        for key, scope in scopes.items():
            self._require_scope(key, scope)
        moves = _CopyPlanner(self, devices, frozenset(scopes), self.domains.join_results())
        moves.place_all()
        module = self.module
        for graph in module.graphs:
            module = module.with_function(moves.rebuild(graph))
        return self._place_private_constants(_with_scopes(self._with_visible_pools(module)))

    def _with_visible_pools(self, module: IRModule) -> IRModule:
        """Record the pools that each target can access, for the verifier."""
        visible = {("", ""): self.device_map.shared_pools}
        for _, call in self.calls():
            match = self.device_map.backend_for(call)
            if match is not None:
                key = match[0], engine_device(module, match[0])
                visible[key] = self.device_map.device_for(call).visible_pools
        rows = tuple((*key, *sorted(pools)) for key, pools in visible.items())
        is_limited = any(pools != {*self.device_map.pools} for pools in visible.values())
        return module.with_attrs(**{VISIBLE_POOLS_ATTR: rows}) if is_limited else module

    # ---- requirements --------------------------------------------------------------------------

    def shown(self, key: ValueKey) -> str:
        """Return the name by which the user knows a value."""
        return key.name if key.graph == self.module.entry.name else "/".join(key)

    def made_with(self, key: ValueKey) -> ValueKey:
        """Return the first of the values that share a device with `key`."""
        call = self.makers.get(key)
        if call is None or self.module.graphs_of(call):
            return key
        return ValueKey(key.graph, call.outputs[0].name)

    def _collect_requirements(self) -> None:
        assigned = self.module.attrs.get("device_assignments", ())
        places = {place[0] for place in cast("tuple[tuple[str, ...], ...]", assigned)}
        inlined = InlinedResults(self.module)
        for key, value in self.definitions.items():
            name, scope = self.shown(key), value.virtual_device.memory_scope
            device = device_name(value.virtual_device)
            why = f"--assign-device {name}={device}" if name in places else "its own text"
            for computed in dict.fromkeys((key, *inlined.computed_as(key))) if device else ():
                self._check_computable(computed, device, why)
                self.devices.setdefault(self.made_with(computed), []).append((device, why))
            if scope:
                why = why if device else f"--assign-pool {name}={scope}"
                self.scopes.setdefault(self.domains.root(key), []).append((scope, why))
        for graph, call in self.calls():
            device = self.device_map.device_for(call).device
            for value in call.outputs if device != MAIN_DEVICE else ():
                key = ValueKey(graph, value.name)
                why = f"the partition {call.op}, which computes {self.shown(key)},"
                self.devices.setdefault(self.made_with(key), []).append((device, why))
            for value, scope in self.device_map.parameter_scopes(call):
                if value in call.outputs:
                    root = self.domains.root(ValueKey(graph, value.name))
                    why = f"the kernel {call.op}, which writes it,"
                    self.scopes.setdefault(root, []).append((scope, why))

    def _check_computable(self, key: ValueKey, device: str, why: str) -> None:
        """Raise UsageError if an accelerator is to compute an operator of the main core."""
        call = self.makers.get(key)
        if call is None or is_core(device) or self.module.graphs_of(call):
            return
        if self.device_map.device_for(call).device == MAIN_DEVICE and call.variables:
            raise UsageError(
                f"the tensor {self.shown(key)} cannot be computed on {device}, as {why} requires: "
                f"its operator {call.op} is not part of a partition for that device.",
                where=self.module.name,
                hint=f"a core, such as {MAIN_DEVICE}, or a backend that supports the operator.",
            )

    def _common_requirement(self, key: ValueKey, claims: PlacementClaims) -> str:
        for place, why in claims[1:]:
            if place != claims[0][0]:
                first, reason = claims[0]
                raise UsageError(
                    f"the tensor {self.shown(key)} has two contradictory assignments: {reason} "
                    f"assigns it to {first}, and {why} assigns it to {place}.",
                    where=self.module.name,
                    hint="omit one of the two.",
                )
        return claims[0][0]

    def _require_scope(self, key: ValueKey, scope: str) -> None:
        pools = self.domains.permitted(key)
        if scope not in pools:
            raise UsageError(
                f"the tensor {self.shown(key)} cannot be in {scope}: the device that computes it "
                f"can access {', '.join(sorted(pools)) or 'no pool of this board'}.",
                where=self.module.name,
                hint="another scope for --assign-device, or a --pool of that name.",
            )
        self.domains.restrict(key, frozenset({scope}))

    def _place_private_constants(self, module: IRModule) -> IRModule:
        for _, call in self.calls():
            callee = module.callee(call.op)
            if isinstance(callee, tir.PrimFunc) and self._is_private(call):
                visible = self.device_map.device_for(call).visible_pools
                pool = next(name for name in self.device_map.pools if name in visible)
                attrs = {**callee.attrs, CONSTANTS_POOL_ATTR: pool}
                module = module.with_function(replace(callee, attrs=attrs))
        return module


def _with_scopes(module: IRModule) -> IRModule:
    """Set the scopes of a region's tensors if all its calls agree on them."""
    calls: dict[str, list[Call]] = {}
    for graph in module.graphs:
        for call in graph.body:
            if isinstance(module.callee(call.op), Function) and not module.graphs_of(call):
                calls.setdefault(call.op, []).append(call)
    for op, users in calls.items():
        region = module.callee(op)
        assert isinstance(region, Function)
        first, *others = [
            [v.virtual_device.memory_scope for v in (*call.inputs, *call.outputs) if v is not None]
            for call in users
        ]
        if any(first) and all(scopes == first for scopes in others):
            names = [value.name for value in (*region.params, *region.results)]
            by_name = dict(zip(names, first, strict=True))
            module = module.with_function(_with_pools(region, by_name))
    return module


def _with_pools(region: Function, scopes: Mapping[str, str]) -> Function:
    return map_values(region, lambda value: with_memory_scope(value, scopes.get(value.name, "")))


@dataclass
class _CopyPlanner:
    planner: _DevicePlanner
    devices: Mapping[ValueKey, str]
    scoped: frozenset[ValueKey]
    """Values with a required scope."""
    copied: dict[ValueKey, ValueKey | None]
    """Results computed elsewhere than in the memory of the caller's value, which is None for the
    main core.
    """
    pools: dict[ValueKey, str] = field(default_factory=dict)
    """The pools of memory domains, by root."""
    copies: dict[tuple[ValueKey, str], Value] = field(default_factory=dict)
    reads: dict[Operand, str] = field(default_factory=dict)
    names: dict[str, UniqueNamer] = field(default_factory=dict)
    """The names of each graph."""
    inner_names: dict[ValueKey, str] = field(default_factory=dict)
    """New names of `copied` results inside their graphs."""

    def place_all(self) -> None:
        domains, device_map = self.planner.domains, self.planner.device_map
        users: dict[ValueKey, list[ValueKey]] = {}
        for key in self.planner.definitions:
            users.setdefault(domains.root(key), []).append(key)
            names = self.names.setdefault(key.graph, UniqueNamer(self.planner.module.constants))
            names.unique(key.name)
        scoped = {domains.root(key) for key in self.scoped}
        for root, keys in users.items():
            seen = {use: p for key in keys for use, p in domains.readers.get(key, {}).items()}
            self._place(root, seen, is_scoped=root in scoped)
        for operand, param in domains.constants.items():
            pool = self.pools.get(domains.root(param))
            self.reads |= {} if pool is None else {operand: pool}
        for graph in self.planner.module.graphs:
            sinks = {value.name for value in graph.sinks}
            views = (call for call in graph.body if SUBVIEWS_OF not in call.attrs)
            for call in (call for call in views if domains.is_alias(call)):
                key = ValueKey(graph.name, call.outputs[0].name)
                pool = self.pools.get(domains.root(key))
                if key.name in sinks and pool is not None and pool not in device_map.shared_pools:
                    self.copied.setdefault(key, key)  # only the copy device can copy it
        for key in self.copied:
            pool = self.pools.get(domains.root(key))
            name = f"{key.name}_in_{pool}" if pool else f"{key.name}_source"
            self.inner_names[key] = self.names[key.graph].unique(name)

    def _place(
        self, root: ValueKey, seen: dict[Operand, frozenset[str]], *, is_scoped: bool
    ) -> None:
        """Choose the pool of a domain that `seen` read, and plan copies for them."""
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

    def _no_visible_pool(self, root: ValueKey, verb: str) -> UsageError:
        pools = ", ".join(self.planner.device_map.pools)
        return UsageError(
            f"no pool can hold the tensor {self.planner.shown(root)}: the device that {verb} it "
            f"cannot access any of {pools}.",
            where=self.planner.module.name,
            hint="--pool with the memory that the device needs.",
        )

    # ---- the graphs ----------------------------------------------------------------------------

    def _assign(self, graph: Function, value: Value) -> Value:
        if value.constant is not None:
            return value
        key = ValueKey(graph.name, value.name)
        device, maker = self.devices.get(self.planner.made_with(key)), self.planner.makers.get(key)
        if device is None and not (maker and self.planner.module.graphs_of(maker)):
            device = MAIN_DEVICE
        assigned = replace(value, name=self.inner_names.get(key, value.name))
        assigned = with_device(assigned, device) if device else assigned
        root = self.planner.domains.root(key)
        scope = self.pools.get(root, assigned.virtual_device.memory_scope)
        return with_memory_scope(assigned, scope)

    def _sink(self, graph: Function, value: Value) -> Value:
        """Return a result or next state as the caller sees it."""
        key = ValueKey(graph.name, value.name)
        if key not in self.copied:
            return self._assign(graph, value)
        outer = self.copied[key]
        scope = "" if outer is None else self.pools.get(self.planner.domains.root(outer), "")
        return self._copied_to(value, scope)

    def _copied_to(self, value: Value, pool: str) -> Value:
        is_outward = pool in {"", *self.planner.device_map.shared_pools}
        device = copy_device(self.planner.module, outward=is_outward)
        return with_memory_scope(with_device(value, device), pool)

    def rebuild(self, graph: Function) -> Function:
        body: list[Call] = []
        for number, call in enumerate(graph.body):
            inputs: list[Value | None] = []
            for index, value in enumerate(call.inputs):
                pool = self.reads.get(Operand(graph.name, number, index), "")
                if value is not None and pool:
                    body += self._copy_to_pool(graph, value, pool, call.span)
                    inputs.append(self.copies[ValueKey(graph.name, value.name), pool])
                else:
                    inputs.append(None if value is None else self._assign(graph, value))
            outputs = tuple(self._assign(graph, value) for value in call.outputs)
            body.append(replace(call, inputs=tuple(inputs), outputs=outputs))
        for value in dict.fromkeys(graph.sinks):
            if ValueKey(graph.name, value.name) in self.copied:
                span, source = Span("", tensor=value.name), self._assign(graph, value)
                body.append(Call(COPY_OP, (source,), (self._sink(graph, value),), {}, span))
        return replace(
            graph,
            params=tuple(self._assign(graph, value) for value in graph.params),
            body=tuple(body),
            results=tuple(self._sink(graph, value) for value in graph.results),
            state=tuple(
                State(self._assign(graph, s.value), self._sink(graph, s.next), s.initial)
                for s in graph.state
            ),
        )

    def _copy_to_pool(self, graph: Function, value: Value, pool: str, span: Span) -> list[Call]:
        key = ValueKey(graph.name, value.name)
        if (key, pool) in self.copies:
            return []
        source = self._assign(graph, value)
        name = self.names[graph.name].unique(f"{value.name}_in_{pool}")
        target = self._copied_to(replace(source, name=name, constant=None), pool)
        if source.constant is not None:
            target = with_device(target, MAIN_DEVICE)
        self.copies[key, pool] = target
        return [Call(COPY_OP, (source,), (target,), {}, span)]
