"""Instances of one engine, such as `--target "npu, npu"`, each a device of its own.

A call is assigned to the instance that can start it first; a byte from another device costs a
cycle. Constants and tensors must fit in the private pools.
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
    instances = [n for n, other in module.targets.items() if other.kind == backend.name]
    first = parse_device(backend.device)
    return f"{first.device_type}{first.device_id + instances.index(target)}"


def listed_engines(module: IRModule) -> set[str]:
    """Return the engines in the attribute `devices`, which share their calls with the cores."""
    return {engine_device(module, name) for name in module.targets} & {*module_devices(module)}


def spread_over_instances(
    function: Function,
    module: IRModule,
    groups: Sequence[CallGroup],
    instances: Mapping[str, Sequence[str]],
) -> list[CallGroup]:
    """Assign groups without annotated calls to `instances` of their targets."""
    if all(len(names) == 1 for names in instances.values()):
        return list(groups)
    schedule = _InstanceSchedule(function, module, instances)
    ordered = sorted(with_unmatched(function, groups), key=lambda group: group.calls[-1])
    return [group for group in map(schedule.assign, ordered) if group.target]


@dataclass
class _InstanceSchedule:
    function: Function
    module: IRModule
    instances: Mapping[str, Sequence[str]]
    ready: dict[str, tuple[int, str]] = field(default_factory=dict)
    """When each tensor is computed, and by which target."""
    free: Counter[str] = field(default_factory=Counter)
    constants: Counter[str] = field(default_factory=Counter)

    def assign(self, group: CallGroup) -> CallGroup:
        calls = [self.function.body[index] for index in group.calls]
        own = [group.target]
        names = own if any(c.target for c in calls) else self.instances.get(group.target, own)
        size = sum(v.type.size_bytes for c in calls for v in c.inputs if v and v.constant)
        moved = sum(v.type.size_bytes for c in calls for v in (*c.variables, *c.outputs))
        names = [name for name in names if self._has_room(name, size + moved)] or names
        starts = {name: self._start(name, calls) for name in names}
        target = min(starts, key=starts.__getitem__)
        macs = sum(self._macs(call) for call in calls)
        self.free[target] = starts[target] + macs
        self.constants[target] += size
        self.ready |= {v.name: (self.free[target], target) for c in calls for v in c.outputs}
        return replace(group, target=target)

    def _has_room(self, target: str, size_bytes: int) -> bool:
        own = [pool for pool in self.module.pools if target in pool.targets]
        limit = sum(pool.size_bytes or sys.maxsize for pool in own)
        return not own or self.constants[target] + size_bytes <= limit

    def _start(self, target: str, calls: Sequence[Call]) -> int:
        start = self.free[target]
        for value in (value for call in calls for value in call.variables):
            end, place = self.ready.get(value.name, (0, ""))
            start = max(start, end + (value.type.size_bytes if place != target else 0))
        return start

    def _macs(self, call: Call) -> int:
        table = op_table()
        return table[call.op].macs(make_op_call(call, self.module)) if call.op in table else 0
