"""Instances of one engine, such as `--target "npu, npu"`, each a device of its own.

A call is assigned to the instance that can start it first. This is list scheduling with
a simple clock: a multiply-accumulate takes one cycle, and so does a byte that comes
from another device. The constants and tensors of a call must fit in the private pools
of its instance.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from firmwright.ir.graph.devices import module_devices, parse_device
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table
from firmwright.partitioning.regions import CallGroup, with_unmatched
from firmwright.targets.saved_backend import backend_in


def engine_device(module: IRModule, target: str) -> str:
    """Return the device of a target, or "" for the main core."""
    backend = backend_in(module, target)
    if backend is None or not backend.device:
        return ""
    instances: list[str] = []
    for name, other in module.targets.items():
        if other.kind == backend.name:
            instances.append(name)
    first = parse_device(backend.device)
    return f"{first.device_type}{first.device_id + instances.index(target)}"


def listed_engines(module: IRModule) -> set[str]:
    """Return the engines in the setting `devices`, which share calls with the cores."""
    engines = {engine_device(module, name) for name in module.targets}
    return engines & {*module_devices(module)}


def spread_over_instances(
    function: Function,
    module: IRModule,
    groups: Sequence[CallGroup],
    instances: Mapping[str, Sequence[str]],
) -> list[CallGroup]:
    """Assign groups without annotated calls to `instances` of their targets.

    Groups without a target stay on the core and are not returned, but the schedule has
    them: a tensor that the core computes is not there at the start.
    """
    if all(len(names) == 1 for names in instances.values()):
        return list(groups)
    schedule = _InstanceSchedule(function, module, instances)
    whole = with_unmatched(function, groups)
    ordered = sorted(whole, key=lambda group: group.calls[-1])
    assigned = [schedule.assign(group) for group in ordered]
    return [group for group in assigned if group.target]


@dataclass(frozen=True, slots=True)
class ComputedTensor:
    """The cycle in which a tensor is complete, and its target ("" is the core)."""

    end: int
    target: str


_AVAILABLE_AT_START = ComputedTensor(0, "")
"""An input of the function."""


@dataclass
class _InstanceSchedule:
    """The schedule of the assigned groups, in cycles from the start of a run."""

    function: Function
    module: IRModule
    instances: Mapping[str, Sequence[str]]
    """The names of the targets that may execute the groups of a target."""
    computed: dict[str, ComputedTensor] = field(default_factory=dict)
    free: Counter[str] = field(default_factory=Counter)
    """The cycle from which each target has no work."""
    constants: Counter[str] = field(default_factory=Counter)
    """The bytes of constants that each target reads."""

    def assign(self, group: CallGroup) -> CallGroup:
        """Return the group with the instance that starts it first; record its work."""
        calls = [self.function.body[index] for index in group.calls]
        constants = _constant_bytes(calls)
        names = self._permitted_instances(group, calls)
        needed = constants + _tensor_bytes(calls)
        with_room = [name for name in names if self._has_room(name, needed)]
        starts = {name: self._start(name, calls) for name in with_room or names}
        target = min(starts, key=starts.__getitem__)
        end = starts[target] + sum(self._macs(call) for call in calls)
        self.free[target] = end
        self.constants[target] += constants
        for call in calls:
            for value in call.outputs:
                self.computed[value.name] = ComputedTensor(end, target)
        return replace(group, target=target)

    def _permitted_instances(
        self, group: CallGroup, calls: Sequence[Call]
    ) -> Sequence[str]:
        """Return the instances of the group's target; only it for annotated calls."""
        is_annotated = any(call.target for call in calls)
        if is_annotated or group.target not in self.instances:
            return [group.target]
        return self.instances[group.target]

    def _has_room(self, target: str, size_bytes: int) -> bool:
        """Return whether the target's private pools, if any, hold `size_bytes` more."""
        own = [pool for pool in self.module.pools if target in pool.targets]
        limit = sum(pool.size_bytes or sys.maxsize for pool in own)
        return not own or self.constants[target] + size_bytes <= limit

    def _start(self, target: str, calls: Sequence[Call]) -> int:
        """Return the cycle in which the target is free and has the calls' inputs."""
        start = self.free[target]
        for call in calls:
            for value in call.variables:
                source = self.computed.get(value.name, _AVAILABLE_AT_START)
                transfer = 0 if source.target == target else value.type.size_bytes
                start = max(start, source.end + transfer)
        return start

    def _macs(self, call: Call) -> int:
        table = op_table()
        if call.op not in table:
            return 0
        return table[call.op].macs(make_op_call(call, self.module))


def _constant_bytes(calls: Sequence[Call]) -> int:
    size = 0
    for call in calls:
        for value in call.inputs:
            if value is not None and value.constant:
                size += value.type.size_bytes
    return size


def _tensor_bytes(calls: Sequence[Call]) -> int:
    size = 0
    for call in calls:
        for value in (*call.variables, *call.outputs):
            size += value.type.size_bytes
    return size
