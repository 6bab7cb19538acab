"""PlanDevices: assign every value a memory pool and every call a device with the fewest copies.

Requirements are the devices and scopes of values, the backends of partitions, and the scopes of
kernel parameters. Values defined by one call share a device; values that share memory share a
scope. A value is placed in the pool that most of its users can access; every other pool that users
need gets one `device_copy`. The pass runs before lowering and again after backends made their
kernels. A module without requirements is returned unchanged.
"""

from collections.abc import Mapping
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
    device_name,
    with_device,
    with_memory_scope,
)
from firmwright.ir.graph.nodes import Call, Function, State, Value
from firmwright.ir.graph.opdef import SUBVIEWS_OF, OpTable
from firmwright.ir.module import IRModule
from firmwright.partitioning.device_map import DeviceMap
from firmwright.passes.graph.assign_pools import map_values

PlacementClaims = list[tuple[str, str]]
"""Devices or memory scopes required for values that must share one, each with its origin."""


def plan_devices(module: IRModule, ops: OpTable) -> IRModule:
    """Return the module with devices, scopes and copies; raise UsageError for a conflict."""
    entry = module.entry
    if not isinstance(entry, Function):
        return module
    planner = _DevicePlanner(module, entry, ops, DeviceMap(module))
    return planner.run() if planner.is_needed() else module


@dataclass
class _DevicePlanner:
    module: IRModule
    entry: Function
    ops: OpTable
    device_map: DeviceMap
    parents: dict[str, str] = field(default_factory=dict)
    devices: dict[str, PlacementClaims] = field(default_factory=dict)
    scopes: dict[str, PlacementClaims] = field(default_factory=dict)

    def is_needed(self) -> bool:
        if any(value.virtual_device != UNCONSTRAINED for value in self.definitions):
            return True
        return any(
            self.device_map.device_for(call).device != MAIN_DEVICE
            or self._is_private(call)
            or any(scope for _, scope in self.device_map.parameter_scopes(call))
            for call in self.entry.body
        )

    def _is_private(self, call: Call) -> bool:
        """Return whether the call's device cannot access all shared pools."""
        return not self.device_map.shared_pools <= self.device_map.device_for(call).visible_pools

    @property
    def definitions(self) -> list[Value]:
        return [*self.entry.sources, *(v for call in self.entry.body for v in call.outputs)]

    def run(self) -> IRModule:
        for call in self.entry.body:
            for value in (*call.variables, *call.outputs[1:]) if self.is_alias(call) else ():
                self._join(call.outputs[0], value)
        for state in self.entry.state:
            self._join(state.value, state.next)
        self._collect_requirements()
        devices = {name: self._common_requirement(name, c) for name, c in self.devices.items()}
        scopes = {name: self._common_requirement(name, c) for name, c in self.scopes.items()}
        moves = _CopyPlanner(self, devices, scopes)
        for root in dict.fromkeys(self.root(value.name) for value in self.definitions):
            moves.place(root)
        entry = moves.rebuild_entry()
        return self._place_private_constants(_with_scopes(self.module.with_function(entry), entry))

    # ---- classes -------------------------------------------------------------------------------

    def root(self, name: str) -> str:
        """Return the representative of the values that share memory with `name`."""
        while name in self.parents:
            name = self.parents[name]
        return name

    def _join(self, a: Value, b: Value) -> None:
        x, y = self.root(a.name), self.root(b.name)
        if x != y:
            self.parents[y] = x

    def is_alias(self, call: Call) -> bool:
        """Return whether `call` moves no data because its values share memory."""
        if SUBVIEWS_OF in call.attrs:
            return True
        return call.op in self.ops and self.ops[call.op].is_view

    def _collect_requirements(self) -> None:
        assigned = self.module.attrs.get("device_assignments", ())
        places = {place[0] for place in cast("tuple[tuple[str, ...], ...]", assigned)}
        made_by = {v.name: call.outputs[0].name for call in self.entry.body for v in call.outputs}
        for value in self.definitions:
            name, scope = value.name, value.virtual_device.memory_scope
            device = device_name(value.virtual_device)
            why = f"--assign-device {name}={device}" if name in places else "its own text"
            if device:
                self.devices.setdefault(made_by.get(name, name), []).append((device, why))
            if scope:
                why = why if device else f"--assign-pool {name}={scope}"
                self.scopes.setdefault(self.root(name), []).append((scope, why))
        for call in self.entry.body:
            device = self.device_map.device_for(call).device
            for value in call.outputs if device != MAIN_DEVICE else ():
                why = f"the partition {call.op}, which computes {value.name},"
                self.devices.setdefault(call.outputs[0].name, []).append((device, why))
            for value, scope in self.device_map.parameter_scopes(call):
                if value in call.outputs:
                    why = f"the kernel {call.op}, which writes it,"
                    self.scopes.setdefault(self.root(value.name), []).append((scope, why))

    def _common_requirement(self, root: str, claims: PlacementClaims) -> str:
        for place, why in claims[1:]:
            if place != claims[0][0]:
                raise UsageError(
                    f"the tensor {root} has two contradictory assignments: {claims[0][1]} "
                    f"assigns it to {claims[0][0]}, and {why} assigns it to {place}.",
                    where=self.module.name,
                    hint="omit one of the two.",
                )
        return claims[0][0]

    def _place_private_constants(self, module: IRModule) -> IRModule:
        for call in self.entry.body:
            callee = module.callee(call.op)
            if isinstance(callee, tir.PrimFunc) and self._is_private(call):
                visible = self.device_map.device_for(call).visible_pools
                pool = next(name for name in self.device_map.pools if name in visible)
                attrs = {**callee.attrs, CONSTANTS_POOL_ATTR: pool}
                module = module.with_function(replace(callee, attrs=attrs))
        return module


def _with_scopes(module: IRModule, entry: Function) -> IRModule:
    """Set the scopes of a region's tensors if all its calls agree on them."""
    calls: dict[str, list[Call]] = {}
    for call in entry.body:
        if isinstance(module.callee(call.op), Function):
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
    devices: Mapping[str, str]
    scopes: Mapping[str, str]
    pools: dict[str, str] = field(default_factory=dict)
    copies: dict[tuple[str, str], Value] = field(default_factory=dict)
    reads: dict[tuple[int, str], str] = field(default_factory=dict)
    hidden_results: dict[str, str] = field(default_factory=dict)
    """New names, by original name, of results computed where the caller cannot read them."""
    names: UniqueNamer = field(init=False)
    made_with: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        body = self.planner.entry.body
        self.made_with = {v.name: call.outputs[0].name for call in body for v in call.outputs}
        names = (value.name for value in self.planner.definitions)
        self.names = UniqueNamer((*names, *self.planner.module.constants))

    def place(self, root: str) -> None:
        """Choose the pool of the values that share memory with `root`, and plan copies of them."""
        planner, device_map = self.planner, self.planner.device_map
        every = frozenset(device_map.pools)
        scope = self.scopes.get(root, "")
        makers, readers = self._users(root)
        if any(self._is_in(value, root) for value in planner.entry.params):
            every &= device_map.shared_pools
        for number, value in makers:
            every &= device_map.visible_pools(planner.entry.body[number], value)
        if scope and scope not in every:
            raise UsageError(
                f"the tensor {root} cannot be in {scope}: the device that computes it can access "
                f"{', '.join(sorted(every)) or 'no pool of this board'}.",
                where=planner.module.name,
                hint="another scope for --assign-device, or a --pool of that name.",
            )
        candidates = [p for p in device_map.pools if p in every and scope in ("", p)]
        if not candidates:
            raise self._no_visible_pool(root, "computes")
        body = planner.entry.body
        seen = {use: device_map.visible_pools(body[use[0]], use[1]) for use in readers}
        served = {p: sum(p in pools for pools in seen.values()) for p in candidates}
        best = max(candidates, key=lambda p: served[p])
        if scope or any(not device_map.shared_pools <= pools for pools in (every, *seen.values())):
            self.pools[root] = best
        for value in planner.entry.results if best not in device_map.shared_pools else ():
            if self._is_in(value, root):
                self.hidden_results[value.name] = self.names.unique(f"{value.name}_in_{best}")
        left = {use: pools for use, pools in seen.items() if best not in pools}
        while left:
            pool = max(device_map.pools, key=lambda p: sum(p in pools for pools in left.values()))
            if not any(pool in pools for pools in left.values()):
                raise self._no_visible_pool(root, "reads")
            for number, value in [use for use, pools in left.items() if pool in pools]:
                self.reads[number, value.name] = pool
                del left[number, value]

    def _no_visible_pool(self, root: str, verb: str) -> UsageError:
        pools = ", ".join(self.planner.device_map.pools)
        return UsageError(
            f"no pool can hold the tensor {root}: the device that {verb} it cannot access any of "
            f"{pools}.",
            where=self.planner.module.name,
            hint="--pool with the memory that the device needs.",
        )

    def _users(self, root: str) -> tuple[list[tuple[int, Value]], list[tuple[int, Value]]]:
        """Return the calls that write and that read the memory of `root`, without aliases."""
        makers: list[tuple[int, Value]] = []
        readers: list[tuple[int, Value]] = []
        for number, call in enumerate(self.planner.entry.body):
            if not self.planner.is_alias(call):
                makers += [(number, value) for value in call.outputs if self._is_in(value, root)]
                readers += [(number, value) for value in call.variables if self._is_in(value, root)]
        return makers, readers

    def _is_in(self, value: Value, root: str) -> bool:
        return self.planner.root(value.name) == root

    def assign(self, value: Value) -> Value:
        if value.constant is not None:
            return value
        name = value.name
        device = self.devices.get(self.made_with.get(name, name), MAIN_DEVICE)
        assigned = replace(with_device(value, device), name=self.hidden_results.get(name, name))
        scope = self.pools.get(self.planner.root(name), assigned.virtual_device.memory_scope)
        return with_memory_scope(assigned, scope)

    def rebuild_entry(self) -> Function:
        body: list[Call] = []
        for number, call in enumerate(self.planner.entry.body):
            inputs: list[Value | None] = []
            for value in call.inputs:
                pool = "" if value is None else self.reads.get((number, value.name), "")
                if value is not None and pool:
                    body += self._copy_to_pool(value, pool, call.span)
                    inputs.append(self.copies[value.name, pool])
                else:
                    inputs.append(None if value is None else self.assign(value))
            outputs = tuple(self.assign(value) for value in call.outputs)
            body.append(replace(call, inputs=tuple(inputs), outputs=outputs))
        entry, device_map = self.planner.entry, self.planner.device_map
        results = tuple(
            with_device(with_memory_scope(value, ""), device_map.copy_device(outward=True))
            if value.name in self.hidden_results
            else self.assign(value)
            for value in entry.results
        )
        for value in dict.fromkeys(results):
            if value.name in self.hidden_results:
                span = Span("", tensor=value.name)
                body.append(Call(COPY_OP, (self.assign(value),), (value,), {}, span))
        states = (State(self.assign(s.value), self.assign(s.next), s.initial) for s in entry.state)
        params = tuple(map(self.assign, entry.params))
        return replace(entry, params=params, body=tuple(body), results=results, state=tuple(states))

    def _copy_to_pool(self, value: Value, pool: str, span: Span) -> list[Call]:
        if (value.name, pool) in self.copies:
            return []
        source = self.assign(value)
        device_map = self.planner.device_map
        device = device_map.copy_device(outward=pool in device_map.shared_pools)
        target = replace(source, name=self.names.unique(f"{value.name}_in_{pool}"))
        target = with_memory_scope(with_device(target, device), pool)
        self.copies[value.name, pool] = target
        return [Call(COPY_OP, (source,), (target,), {}, span)]
