"""The devices and memory scopes that values require, and the checks that they agree.

Requirements come from the devices and scopes of values, the backends of partitions, and
the scopes of kernel parameters. The device requested for a view is required of the call
that computes its memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from firmwright.base.errors import UsageError
from firmwright.ir.graph import Call, Value
from firmwright.ir.graph.devices import MAIN_DEVICE, device_name, is_core, is_placed
from firmwright.ir.module import IRModule
from firmwright.ir.requests import PlacementRequest
from firmwright.ir.verify_requests import requested_tensors
from firmwright.partitioning.device_map import DeviceMap
from firmwright.partitioning.memory_domains import MemoryDomains


@dataclass(frozen=True, slots=True)
class PlacementClaim:
    """A device or memory scope that a value must have.

    `reason` is the subject of a sentence: "REASON assigns it to PLACE".
    """

    place: str
    reason: str


PlacementClaims = list[PlacementClaim]
"""The claims on values that must share a device or a memory scope."""


@dataclass
class PlacementRequirements:
    """Collects a module's required devices and scopes; checks that they agree."""

    module: IRModule
    device_map: DeviceMap
    domains: MemoryDomains
    devices: dict[str, str] = field(default_factory=dict)
    """The required devices, by the value that represents those computed together."""
    scopes: dict[str, str] = field(default_factory=dict)
    """The required scopes, by the root of the memory domain."""
    _device_claims: dict[str, PlacementClaims] = field(default_factory=dict)
    _scope_claims: dict[str, PlacementClaims] = field(default_factory=dict)
    requested: frozenset[str] = field(init=False)
    """The tensors that the user placed."""
    sinks: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.requested = requested_tensors(self.module)
        sinks: set[str] = set()
        for graph in self.module.graphs:
            sinks.update(value.name for value in graph.sinks)
        self.sinks = frozenset(sinks)

    def is_needed(self) -> bool:
        """Return whether a value is placed or a call needs more than the main core."""
        if any(map(is_placed, self.definitions)):
            return True
        return any(self._has_requirement(call) for call in self.domains.calls)

    def _has_requirement(self, call: Call) -> bool:
        device = self.device_map.device_for(call).device
        if device != MAIN_DEVICE or self.is_private(call):
            return True
        return any(scope for _, scope in self.device_map.parameter_scopes(call))

    @property
    def definitions(self) -> list[Value]:
        """The values that sources and calls define, over all graphs."""
        values: list[Value] = []
        for graph in self.module.graphs:
            values += graph.sources
        for call in self.domains.calls:
            values += call.outputs
        return values

    def is_private(self, call: Call) -> bool:
        """Return whether the call's device cannot access all shared pools."""
        visible = self.device_map.device_for(call).visible_pools
        return not self.device_map.shared_pools <= visible

    def check_constants(self) -> None:
        """Raise UsageError if a call cannot access the pool requested for constants."""
        if not self.requested:
            return
        for call in self.domains.calls:
            visible = self.device_map.device_for(call).visible_pools
            read: set[str] = set()
            for value in call.inputs:
                if value is not None and value.constant:
                    read.add(value.name)
            kernel = call.op.removeprefix("@")
            for request in self.module.requests:
                is_read = request.tensor in read or kernel in request.kernels
                if is_read and request.pool and request.pool not in visible:
                    raise UsageError(
                        f"the constant {request.tensor} cannot be in {request.pool}, "
                        f"as {request.reason} requires: the device that reads it can "
                        f"access {', '.join(sorted(visible))}.",
                        where=self.module.name,
                        hint="one of these pools.",
                    )

    def made_with(self, name: str) -> str:
        """Return the first of the values that share a device with a value."""
        call = self.domains.makers.get(name)
        if call is None or self.module.graphs_of(call):
            return name
        return call.outputs[0].name

    def collect(self) -> None:
        """Set the required devices and scopes; UsageError if two contradict each other.

        A scope that is required restricts the memory domain to it.
        """
        self._collect_claims()
        for name, claims in self._device_claims.items():
            self.devices[name] = self._common_requirement(name, claims)
        for name, claims in self._scope_claims.items():
            self.scopes[name] = self._common_requirement(name, claims)
        for name, scope in self.scopes.items():
            self._require_scope(name, scope)

    def _collect_claims(self) -> None:
        """Record the claims of values, then those of the calls' targets and kernels."""
        for value in self.definitions:
            name = value.name
            device = device_name(value.virtual_device)
            if device:
                reason = self._reason(name, lambda request: request.device)
                for computed in self._computed_as(name):
                    self._check_computable(computed, device, reason)
                    self._claim_device(computed, device, reason)
            scope = value.virtual_device.memory_scope
            if scope:
                reason = self._reason(name, lambda request: request.pool)
                self._claim_scope(name, scope, reason)
        for call in self.domains.calls:
            device = self.device_map.device_for(call).device
            if device != MAIN_DEVICE:
                for value in call.outputs:
                    reason = f"the partition {call.op}, which computes {value.name},"
                    self._claim_device(value.name, device, reason)
            for value, scope in self.device_map.parameter_scopes(call):
                if value in call.outputs:
                    reason = f"the kernel {call.op}, which writes it,"
                    self._claim_scope(value.name, scope, reason)

    def _claim_device(self, name: str, device: str, reason: str) -> None:
        claims = self._device_claims.setdefault(self.made_with(name), [])
        claims.append(PlacementClaim(device, reason))

    def _claim_scope(self, name: str, scope: str, reason: str) -> None:
        claims = self._scope_claims.setdefault(self.domains.root(name), [])
        claims.append(PlacementClaim(scope, reason))

    def _reason(self, name: str, place: Callable[[PlacementRequest], str]) -> str:
        """Return the words of the user's request that places a value."""
        for request in self.module.requests:
            if request.tensor == name and place(request):
                return request.reason
        return "an earlier pass"

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
        """Return whether the call gets no kernel, as its output views its input."""
        is_copied = any(value.name in self.sinks for value in call.outputs)
        return not is_copied and self.domains.is_view(call) and bool(call.variables)

    def _check_computable(self, name: str, device: str, reason: str) -> None:
        """Raise UsageError if an accelerator is to compute the main core's operator."""
        call = self.domains.makers.get(name)
        if call is None or is_core(device) or self.module.graphs_of(call):
            return
        if self.device_map.device_for(call).device == MAIN_DEVICE and call.variables:
            raise UsageError(
                f"the tensor {name} cannot be computed on {device}, as {reason} "
                f"requires: its operator {call.op} is not part of a partition for that "
                "device.",
                where=self.module.name,
                hint=(
                    f"a core, such as {MAIN_DEVICE}, or a backend that supports the "
                    "operator."
                ),
            )

    def _common_requirement(self, name: str, claims: PlacementClaims) -> str:
        """Return the place that all claims have in common; UsageError without one."""
        first, *others = claims
        for other in others:
            if other.place != first.place:
                raise UsageError(
                    f"the tensor {name} has two contradictory assignments: "
                    f"{first.reason} assigns it to {first.place}, and {other.reason} "
                    f"assigns it to {other.place}.",
                    where=self.module.name,
                    hint="omit one of the two.",
                )
        return first.place

    def _require_scope(self, name: str, scope: str) -> None:
        """Restrict a domain to one pool; UsageError if its users cannot access it."""
        pools = self.domains.permitted(name)
        if scope not in pools:
            raise UsageError(
                f"the tensor {name} cannot be in {scope}: the device that computes it "
                f"can access {', '.join(sorted(pools)) or 'no pool of this board'}.",
                where=self.module.name,
                hint="another scope for --assign-device, or a --pool of that name.",
            )
        self.domains.restrict(name, frozenset({scope}))
