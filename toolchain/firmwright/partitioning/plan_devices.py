"""PlanDevices: give every value a pool and every call a device with the fewest copies.

The requirements of values are those of `partitioning/placement_requirements.py`. Each
memory domain is placed in the pool that most of its users can access; other pools get
one `device_copy` per graph (decision 0059). The pass runs before lowering and again
after backends made their kernels. Modules without requirements are unchanged.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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
    core_targets,
    executing_device,
    with_device,
    with_memory_scope,
    with_target,
)
from firmwright.ir.module import IRModule
from firmwright.ir.pass_results import PoolAccess
from firmwright.ops.opdef import OpTable
from firmwright.partitioning.device_map import DeviceMap
from firmwright.partitioning.memory_domains import MemoryDomains, Operand
from firmwright.partitioning.placement_requirements import PlacementRequirements
from firmwright.passes.graph.value_names import map_values, with_unique_names


def plan_devices(module: IRModule, ops: OpTable) -> IRModule:
    """Return the module with devices, scopes and copies; UsageError for a conflict."""
    if not module.graphs:
        return module
    module = with_unique_names(module)
    device_map = DeviceMap(module)
    domains = MemoryDomains(module, ops, device_map)
    requirements = PlacementRequirements(module, device_map, domains)
    requirements.check_constants()
    if not requirements.is_needed():
        return module
    requirements.collect()
    copies = _CopyPlanner(requirements, requirements.domains.join_results())
    copies.place_all()
    for graph in module.graphs:
        module = module.with_function(copies.rebuild(graph))
    module = _with_scopes(_with_visible_pools(module, requirements))
    return _with_private_constants(module, requirements)


def _with_visible_pools(
    module: IRModule, requirements: PlacementRequirements
) -> IRModule:
    """Record the pools that each target and device can access, unless it is all."""
    visible = {("", MAIN_DEVICE): requirements.device_map.shared_pools}
    for call in requirements.domains.calls:
        match = requirements.device_map.backend_for(call)
        if match is not None:
            target, _ = match
            execution = requirements.device_map.device_for(call)
            visible[target, execution.device] = execution.visible_pools
    if all(pools == {*requirements.device_map.pools} for pools in visible.values()):
        return module
    rows: list[PoolAccess] = []
    for (target, device), pools in visible.items():
        rows.append(PoolAccess(target, device, tuple(sorted(pools))))
    if module.results.pool_access == tuple(rows):
        return module
    return replace(module, results=replace(module.results, pool_access=tuple(rows)))


def _with_private_constants(
    module: IRModule, requirements: PlacementRequirements
) -> IRModule:
    """Set the pool of the constants of kernels that cannot read flash themselves.

    A bus master reads it although it cannot access all pools.
    """
    for call in requirements.domains.calls:
        callee = module.callee(call.op)
        if not isinstance(callee, tir.PrimFunc) or CONSTANTS_POOL_ATTR in callee.attrs:
            continue
        match = requirements.device_map.backend_for(call)
        if match is not None and match[1].bus_master:
            continue
        if requirements.is_private(call):
            visible = requirements.device_map.device_for(call).visible_pools
            pools = requirements.device_map.pools
            readable = [name for name in pools if name in visible]
            attrs = {**callee.attrs, CONSTANTS_POOL_ATTR: readable[0]}
            module = module.with_function(replace(callee, attrs=attrs))
    return module


def _with_scopes(module: IRModule) -> IRModule:
    """Set the scopes of a region's tensors if all its calls agree on them."""
    scopes_of_calls: dict[str, set[tuple[str, ...]]] = {}
    for graph in module.graphs:
        for call in graph.body:
            is_region = isinstance(module.callee(call.op), Function)
            if is_region and not module.graphs_of(call):
                scopes = tuple(v.virtual_device.memory_scope for v in call.values)
                scopes_of_calls.setdefault(call.op, set()).add(scopes)
    for op, (first, *others) in scopes_of_calls.items():
        region = module.callee(op)
        assert isinstance(region, Function)
        if any(first) and not others:
            names = (value.name for value in (*region.params, *region.results))
            pools = dict(zip(names, first, strict=True))
            module = module.with_function(_with_pools(region, pools))
    return module


def _with_pools(region: Function, scopes: Mapping[str, str]) -> Function:
    """Return the region with the scopes of its values by name; others have none."""

    def placed(value: Value) -> Value:
        if value.constant is not None:
            return value
        return with_memory_scope(value, scopes.get(value.name, ""))

    return map_values(region, placed)


@dataclass
class _CopyPlanner:
    """Chooses the pool of each memory domain and inserts the readers' copies."""

    requirements: PlacementRequirements
    copied: dict[str, str]
    """Results that are copied to the caller's values."""
    pools: dict[str, str] = field(default_factory=dict)
    """The pools of the domains that may not be in any pool, by root."""
    copies: dict[tuple[str, str], Value] = field(default_factory=dict)
    """The copies of values in other pools, by the value and the pool."""
    reads: dict[Operand, str] = field(default_factory=dict)
    """The pools of the copies that operands read instead of the value itself."""
    inner_names: dict[str, str] = field(default_factory=dict)
    """New names of copied results."""
    names: UniqueNamer = field(init=False)
    numbers: Iterator[int] = field(default_factory=count)
    """The numbers of calls, counted over all graphs, as in `Operand`."""

    core_targets: tuple[str, ...] = field(init=False)
    """The cores with a target of their own."""

    def __post_init__(self) -> None:
        self.core_targets = core_targets(self.requirements.module)
        names = (value.name for value in self.requirements.definitions)
        self.names = UniqueNamer((*names, *self.requirements.module.constants))

    def place_all(self) -> None:
        """Choose all pools and the readers of copies, before the graphs are rebuilt."""
        domains = self.requirements.domains
        scoped = {domains.root(name) for name in self.requirements.scopes}
        roots: dict[str, None] = {}
        for value in self.requirements.definitions:
            roots[domains.root(value.name)] = None
        for root in roots:
            self._place(root, domains.readers.get(root, {}), is_scoped=root in scoped)
        for operand, param in domains.constants.items():
            if domains.root(param) in self.pools:
                self.reads[operand] = self.pools[domains.root(param)]
        for name, call in domains.makers.items():
            if name in self.requirements.sinks and self._is_private_view(name, call):
                self.copied.setdefault(name, name)
        for name in self.copied:
            pool = self.pool_of(name)
            inner = f"{name}_in_{pool}" if pool else f"{name}_source"
            self.inner_names[name] = self.names.unique(inner)

    def _is_private_view(self, name: str, call: Call) -> bool:
        """Return whether `call` makes a view of private memory.

        Only a copy device copies private memory.
        """
        domains = self.requirements.domains
        is_view = domains.is_alias(call) and not is_subview(call.attrs)
        return is_view and not self._is_shared(self.pool_of(name))

    def _is_shared(self, pool: str) -> bool:
        """Return whether the main core can access a pool; "" is any shared pool."""
        return pool == "" or pool in self.requirements.device_map.shared_pools

    def pool_of(self, name: str) -> str:
        """Return the pool of a value, or "" if it may be in any shared pool."""
        return self.pools.get(self.requirements.domains.root(name), "")

    def _place(
        self, root: str, seen: Mapping[Operand, frozenset[str]], *, is_scoped: bool
    ) -> None:
        """Choose the pool of a domain and plan copies for its readers.

        `seen` has the pools that each reader can access. The pool that most readers can
        access holds the domain. For the others, pools are added in the same way until
        all are served.
        """
        device_map = self.requirements.device_map
        permitted = self.requirements.domains.permitted(root)
        candidates = [pool for pool in device_map.pools if pool in permitted]
        if not candidates:
            raise self._no_visible_pool(root, "computes")
        best = _most_visible_pool(candidates, seen)
        visible = (permitted, *seen.values())
        if is_scoped or any(not device_map.shared_pools <= pools for pools in visible):
            self.pools[root] = best
        left: dict[Operand, frozenset[str]] = {}
        for use, pools in seen.items():
            if best not in pools:
                left[use] = pools
        while left:
            pool = _most_visible_pool(device_map.pools, left)
            served = [use for use, pools in left.items() if pool in pools]
            if not served:
                raise self._no_visible_pool(root, "reads")
            for use in served:
                self.reads[use] = pool
                del left[use]

    def _no_visible_pool(self, root: str, verb: str) -> UsageError:
        pools = ", ".join(self.requirements.device_map.pools)
        return UsageError(
            f"no pool can hold the tensor {root}: the device that {verb} it "
            f"cannot access any of {pools}.",
            where=self.requirements.module.name,
            hint="--pool with the memory that the device needs.",
        )

    # ---- the graphs ------------------------------------------------------------------

    def _assign(self, value: Value) -> Value:
        if value.constant is not None:
            return value
        name = value.name
        maker = self.requirements.domains.makers.get(name)
        device = self.requirements.devices.get(self.requirements.made_with(name), "")
        # The graphs of a call decide where its outputs are computed; others need a
        # device.
        module = self.requirements.module
        is_of_graphs = maker is not None and bool(module.graphs_of(maker))
        if not device and not is_of_graphs:
            device = MAIN_DEVICE
        assigned = replace(value, name=self.inner_names.get(name, name))
        if device:
            assigned = with_target(with_device(assigned, device), self.core_targets)
        scope = self.pool_of(name) or value.virtual_device.memory_scope
        return with_memory_scope(assigned, scope)

    def _sink(self, value: Value) -> Value:
        """Return a result or next state as the caller sees it."""
        if value.name not in self.copied:
            return self._assign(value)
        return self._copied_to(value, self.pool_of(self.copied[value.name]))

    def _copied_to(self, value: Value, pool: str) -> Value:
        """Return `value` as the result of a copy to a pool, with the copying device."""
        device = copy_device(self.requirements.module, outward=self._is_shared(pool))
        copied = with_target(with_device(value, device), self.core_targets)
        return with_memory_scope(copied, pool)

    def rebuild(self, graph: Function) -> Function:
        """Return the graph with devices, scopes and copies.

        The graphs come in the module's order.
        """
        body: list[Call] = []
        for call, number in zip(graph.body, self.numbers, strict=False):
            inputs: list[Value | None] = []
            for position, value in enumerate(call.inputs):
                pool = self.reads.get((number, position), "")
                if value is None:
                    inputs.append(None)
                elif pool:
                    body += self._copy_to_pool(value, pool, call.span)
                    inputs.append(self.copies[value.name, pool])
                else:
                    inputs.append(self._assign(value))
            outputs = tuple(map(self._assign, call.outputs))
            planned = replace(call, inputs=tuple(inputs), outputs=outputs)
            device = executing_device(planned)
            if not call.target and device in self.core_targets:
                planned = replace(planned, target=device)
            body.append(planned)
        for value in dict.fromkeys(graph.sinks):
            if value.name in self.copied:
                source, target = (self._assign(value),), (self._sink(value),)
                span = Span("", tensor=value.name)
                body.append(Call(COPY_OP, source, target, NO_ATTRS, span))
        states: list[State] = []
        for state in graph.state:
            own, following = self._assign(state.value), self._sink(state.next)
            states.append(State(own, following, state.initial))
        return replace(
            graph,
            params=tuple(map(self._assign, graph.params)),
            body=tuple(body),
            results=tuple(map(self._sink, graph.results)),
            state=tuple(states),
        )

    def _copy_to_pool(self, value: Value, pool: str, span: Span) -> list[Call]:
        """Return the copy of a value to a pool, or no call if it exists already."""
        if (value.name, pool) in self.copies:
            return []
        source = self._assign(value)
        name = self.names.unique(f"{value.name}_in_{pool}")
        target = self._copied_to(replace(source, name=name, constant=None), pool)
        if source.constant is not None:
            target = with_target(with_device(target, MAIN_DEVICE), self.core_targets)
        self.copies[value.name, pool] = target
        return [Call(COPY_OP, (source,), (target,), NO_ATTRS, span)]


def _most_visible_pool(
    candidates: Iterable[str], seen: Mapping[Operand, frozenset[str]]
) -> str:
    """Return the first of the pools that most readers can access."""
    readers: Counter[str] = Counter()
    for pools in seen.values():
        readers.update(pools)
    return max(candidates, key=lambda pool: readers[pool])
