"""PlanDevices: where every value lies, who does every call, and the fewest copies in between.

In: a module whose entry is a graph function, with what is known: devices and memory scopes that
values carry (the user's `--assign-device`, the module's text), the backends of partitions, the
scopes that
parameters of kernels name. Out: the same program in which every value has its device, those that
not everybody sees have the pool they lie in, and `device_copy` stands where a reader sees no pool
that the maker sees. It runs before lowering and again when backends have made their kernels.

Method: values that are made by one call have one device; values that share memory (a view and its
source, parts and their whole, a state and what becomes of it) have one scope. What is known of one
is known of all of its class, and two that contradict each other are one error that names both. What
nobody speaks of is the main core's. A value lies in the pool that most of those see who touch it,
and each pool that others need gets one copy. A pool that both see needs none: who waits for a call
finds what it wrote. Invariant: a module in which nobody speaks of devices or scopes is returned as
it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
from firmwright.partitioning.device_assignment import DeviceMap
from firmwright.passes.graph.assign_pools import map_values

PlacementClaims = list[tuple[str, str]]
"""What is said of a class, a device or a scope, each with who says so."""


def plan_devices(module: IRModule, ops: OpTable) -> IRModule:
    """The module with devices, scopes and copies; UsageError for a conflict."""
    entry = module.entry
    if not isinstance(entry, Function):
        return module
    planner = _DevicePlanner(module, entry, ops, DeviceMap(module))
    return planner.planned() if planner.is_needed() else module


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
        """Whether anybody speaks of devices or scopes."""
        values = (*self.entry.sources, *(v for call in self.entry.body for v in call.outputs))
        spoken = any(value.virtual_device != UNCONSTRAINED for value in values)
        return spoken or any(self._is_special(call) for call in self.entry.body)

    def _is_special(self, call: Call) -> bool:
        doer = self.device_map.of(call)
        named = any(scope for _, scope in self.device_map.scopes(call))
        return (
            doer.device != MAIN_DEVICE or not self.device_map.common <= doer.visible_pools or named
        )

    def planned(self) -> IRModule:
        self._unite()
        self._claim()
        devices = {name: self._one(name, said) for name, said in self.devices.items()}
        moves = _CopyPlanner(
            self, devices, {r: self._one(r, said) for r, said in self.scopes.items()}
        )
        for root in dict.fromkeys(self.root(value.name) for value in self._values()):
            moves.place(root)
        entry = moves.rebuilt()
        return self._with_residents(_with_scopes(self.module.with_function(entry), entry))

    # ---- classes -------------------------------------------------------------------------------

    def root(self, name: str) -> str:
        """The value that stands for the class of `name`."""
        while name in self.parents:
            name = self.parents[name]
        return name

    def _join(self, a: Value, b: Value) -> None:
        x, y = self.root(a.name), self.root(b.name)
        if x != y:
            self.parents[y] = x

    def shares(self, call: Call) -> bool:
        """Whether `call` moves nothing: its values lie in one another."""
        if SUBVIEWS_OF in call.attrs:
            return True
        return call.op in self.ops and self.ops[call.op].is_view

    def _unite(self) -> None:
        for call in self.entry.body:
            if self.shares(call):
                for value in (*call.variables, *call.outputs[1:]):
                    self._join(call.outputs[0], value)
        for state in self.entry.state:
            self._join(state.value, state.next)

    def _values(self) -> Iterator[Value]:
        yield from self.entry.sources
        for call in self.entry.body:
            yield from call.outputs

    # ---- claims --------------------------------------------------------------------------------

    def _claim(self) -> None:
        places = {str(place[0]) for place in self._places()}
        made_by = {v.name: call.outputs[0].name for call in self.entry.body for v in call.outputs}
        for value in self._values():
            device = device_name(value.virtual_device)
            scope = value.virtual_device.memory_scope
            why = (
                f"--assign-device {value.name}={device}" if value.name in places else "its own text"
            )
            if device:
                first = made_by.get(value.name, value.name)
                self.devices.setdefault(first, []).append((device, why))
            if scope:
                why = why if device else f"--assign-pool {value.name}={scope}"
                self.scopes.setdefault(self.root(value.name), []).append((scope, why))
        for call in self.entry.body:
            doer = self.device_map.of(call)
            for value in call.outputs if doer.device != MAIN_DEVICE else ():
                why = f"the partition {call.op}, which makes {value.name},"
                self.devices.setdefault(call.outputs[0].name, []).append((doer.device, why))
            for value, scope in self.device_map.scopes(call):
                if value in call.outputs:
                    why = f"the kernel {call.op}, which writes it,"
                    self.scopes.setdefault(self.root(value.name), []).append((scope, why))

    def _places(self) -> Sequence[tuple[str, ...]]:
        found = self.module.attrs.get("device_assignments", ())
        return found if isinstance(found, tuple) else ()  # type: ignore[return-value]  # as written

    def _one(self, root: str, said: PlacementClaims) -> str:
        """What all say; UsageError names the first who says otherwise than the first."""
        for place, why in said[1:]:
            if place != said[0][0]:
                raise UsageError(
                    f"the tensor {root} cannot be in two places: {said[0][1]} puts it on "
                    f"{said[0][0]}, and {why} puts it on {place}.",
                    where=self.module.name,
                    hint="leave out one of the two.",
                )
        return said[0][0]

    def _with_residents(self, module: IRModule) -> IRModule:
        """Kernels that do not see the program's memory have their constants in a pool of theirs."""
        for call in self.entry.body:
            callee = module.callee(call.op)
            doer = self.device_map.of(call)
            if (
                isinstance(callee, tir.PrimFunc)
                and not self.device_map.common <= doer.visible_pools
            ):
                pool = next(name for name in self.device_map.pools if name in doer.visible_pools)
                attrs = {**callee.attrs, CONSTANTS_POOL_ATTR: pool}
                module = module.with_function(replace(callee, attrs=attrs))
        return module


def _with_scopes(module: IRModule, entry: Function) -> IRModule:
    """The module whose regions know where their tensors lie, as far as all their calls agree."""
    calls: dict[str, list[Call]] = {}
    for call in entry.body:
        if isinstance(module.callee(call.op), Function):
            calls.setdefault(call.op, []).append(call)
    for op, users in calls.items():
        region = module.callee(op)
        assert isinstance(region, Function)
        lies = [_scopes_of((*call.inputs, *call.outputs)) for call in users]
        if any(lies[0]) and all(found == lies[0] for found in lies):
            names = [value.name for value in (*region.params, *region.results)]
            module = module.with_function(_lying(region, dict(zip(names, lies[0], strict=True))))
    return module


def _lying(region: Function, scopes: Mapping[str, str]) -> Function:
    return map_values(region, lambda value: with_memory_scope(value, scopes.get(value.name, "")))


def _scopes_of(values: Sequence[Value | None]) -> tuple[str, ...]:
    return tuple(v.virtual_device.memory_scope for v in values if v is not None)


@dataclass
class _CopyPlanner:
    """Pools for classes, and the copies that their readers need."""

    planner: _DevicePlanner
    devices: Mapping[str, str]
    scopes: Mapping[str, str]
    pools: dict[str, str] = field(default_factory=dict)
    copies: dict[tuple[str, str], Value] = field(default_factory=dict)
    reads: dict[tuple[int, str], str] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)
    """Results that are made where the caller does not look, by what they are called there."""
    names: UniqueNamer = field(init=False)
    made_with: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        body = self.planner.entry.body
        self.made_with = {v.name: call.outputs[0].name for call in body for v in call.outputs}
        taken = (value.name for value in self.planner._values())
        self.names = UniqueNamer((*taken, *self.planner.module.constants))

    def place(self, root: str) -> None:
        """The pool of a class, where it matters, and which of its readers need another one."""
        planner, doers = self.planner, self.planner.device_map
        every = frozenset(doers.pools)
        scope = self.scopes.get(root, "")
        makers, readers = self._users(root)
        if any(self._is_in(value, root) for value in planner.entry.params):
            every &= doers.common
        for number, value in makers:
            every &= doers.visible_pools(planner.entry.body[number], value)
        if scope and scope not in every:
            raise UsageError(
                f"the tensor {root} cannot lie in {scope}: who makes it sees "
                f"{', '.join(sorted(every)) or 'no pool of this board'}.",
                where=planner.module.name,
                hint="another scope for --assign-device, or a --pool of that name.",
            )
        candidates = [p for p in doers.pools if p in every and scope in ("", p)]
        if not candidates:
            raise self._unseen(root, "makes")
        seen = {use: doers.visible_pools(planner.entry.body[use[0]], use[1]) for use in readers}
        served = {p: sum(p in pools for pools in seen.values()) for p in candidates}
        best = max(candidates, key=lambda p: served[p])
        if scope or any(not doers.common <= pools for pools in (every, *seen.values())):
            self.pools[root] = best
        for value in planner.entry.results if best not in doers.common else ():
            if self._is_in(value, root):
                self.unseen[value.name] = self.names.unique(f"{value.name}_in_{best}")
        left = {use: pools for use, pools in seen.items() if best not in pools}
        while left:
            pool = max(doers.pools, key=lambda p: sum(p in pools for pools in left.values()))
            if not any(pool in pools for pools in left.values()):
                raise self._unseen(root, "reads")
            for number, value in [use for use, pools in left.items() if pool in pools]:
                self.reads[number, value.name] = pool
                del left[number, value]

    def _unseen(self, root: str, does: str) -> UsageError:
        pools = ", ".join(self.planner.device_map.pools)
        return UsageError(
            f"no pool can hold the tensor {root}: who {does} it sees none of {pools}.",
            where=self.planner.module.name,
            hint="--pool with the memory that the device needs.",
        )

    def _users(self, root: str) -> tuple[list[tuple[int, Value]], list[tuple[int, Value]]]:
        """Calls that write or read values of the class, with those; what moves nothing is none."""
        makers: list[tuple[int, Value]] = []
        readers: list[tuple[int, Value]] = []
        for number, call in enumerate(self.planner.entry.body):
            if not self.planner.shares(call):
                makers += [(number, value) for value in call.outputs if self._is_in(value, root)]
                readers += [(number, value) for value in call.variables if self._is_in(value, root)]
        return makers, readers

    def _is_in(self, value: Value, root: str) -> bool:
        return self.planner.root(value.name) == root

    def at(self, value: Value) -> Value:
        """`value` with its device and, where it matters, its pool."""
        if value.constant is not None:
            return value
        found = with_device(
            value, self.devices.get(self.made_with.get(value.name, value.name), MAIN_DEVICE)
        )
        scope = self.pools.get(self.planner.root(value.name), found.virtual_device.memory_scope)
        return with_memory_scope(
            replace(found, name=self.unseen.get(value.name, value.name)), scope
        )

    def rebuilt(self) -> Function:
        """The entry with every value where it lies, and the copies before their first reader."""
        body: list[Call] = []
        for number, call in enumerate(self.planner.entry.body):
            inputs: list[Value | None] = []
            for value in call.inputs:
                pool = "" if value is None else self.reads.get((number, value.name), "")
                if value is not None and pool:
                    body += self._copied(value, pool, call.span)
                    inputs.append(self.copies[value.name, pool])
                else:
                    inputs.append(None if value is None else self.at(value))
            outputs = tuple(self.at(value) for value in call.outputs)
            body.append(replace(call, inputs=tuple(inputs), outputs=outputs))
        entry = self.planner.entry
        seen = tuple(self._seen(value) for value in entry.results)
        for value in dict.fromkeys(value for value in seen if value.name in self.unseen):
            body.append(Call(COPY_OP, (self.at(value),), (value,), {}, Span("", tensor=value.name)))
        return replace(
            entry,
            params=tuple(self.at(value) for value in entry.params),
            body=tuple(body),
            results=seen,
            state=tuple(State(self.at(s.value), self.at(s.next), s.initial) for s in entry.state),
        )

    def _seen(self, value: Value) -> Value:
        """A result, where the caller can look at it."""
        is_unseen = value.name in self.unseen
        return (
            with_device(with_memory_scope(value, ""), self.planner.device_map.copy_device)
            if is_unseen
            else self.at(value)
        )

    def _copied(self, value: Value, pool: str, span: Span) -> list[Call]:
        """The call that copies `value` to a pool: none where it is there already."""
        if (value.name, pool) in self.copies:
            return []
        source = self.at(value)
        target = replace(source, name=self.names.unique(f"{value.name}_in_{pool}"))
        target = with_memory_scope(with_device(target, self.planner.device_map.copy_device), pool)
        self.copies[value.name, pool] = target
        return [Call(COPY_OP, (source,), (target,), {}, span)]
