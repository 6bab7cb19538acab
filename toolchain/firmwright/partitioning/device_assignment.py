"""Who does a call of a graph, and which pools that one sees.

In: a module with its targets, pools and who copies. Out: answers about calls. A pool that names
targets is theirs alone: a backend with a device works there and nowhere else, and everybody but
who copies does without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from firmwright.ir import tir
from firmwright.ir.graph.devices import COPY_DEVICE_ATTR, COPY_OP, MAIN_DEVICE
from firmwright.ir.graph.nodes import Call, Value
from firmwright.ir.module import IRModule
from firmwright.partitioning.function_targets import target_of
from firmwright.targets.backend import Backend
from firmwright.targets.registry import backend_of

_PLAIN_SCOPES = ("global", "const")


@dataclass(frozen=True, slots=True)
class ExecutionDevice:
    """Who does a call, and the pools that it sees."""

    device: str
    visible_pools: frozenset[str]


@dataclass(frozen=True, slots=True)
class DeviceMap:
    """Asked about the calls of one module."""

    module: IRModule

    @property
    def pools(self) -> tuple[str, ...]:
        found = tuple(pool.name for pool in self.module.pools if pool.access == "rw")
        return found or ("sram",)

    @property
    def copy_device(self) -> str:
        """Who copies from memory to memory."""
        return str(self.module.attrs.get(COPY_DEVICE_ATTR, MAIN_DEVICE))

    @property
    def common(self) -> frozenset[str]:
        """The pools that the main core sees: all but those that are an engine's own."""
        default = next(iter(self.module.targets), "")
        own = {p.name for p in self.module.pools if p.targets and default not in p.targets}
        return frozenset(self.pools) - own

    def of(self, call: Call) -> ExecutionDevice:
        """Who does `call` as far as targets say: a backend's device, or the main core."""
        if call.op == COPY_OP:
            return ExecutionDevice(self.copy_device, frozenset(self.pools))
        found = self.backend(call)
        if found is None:
            return ExecutionDevice(MAIN_DEVICE, self.common)
        target, backend = found
        own = self.own_pools(target)
        sees = frozenset(backend.visible_pools) or (backend.device and own) or self.common | own
        return ExecutionDevice(backend.device or MAIN_DEVICE, sees)

    def backend(self, call: Call) -> tuple[str, Backend] | None:
        """The backend that does `call` with its target's name; None for what cores do."""
        callee = self.module.callee(call.op)
        name = target_of(callee) if callee is not None else ""
        target = self.module.targets.get(name)
        backend = backend_of(target) if target is not None else None
        return None if backend is None else (name, backend)

    def own_pools(self, target: str) -> frozenset[str]:
        """The pools that are kept for that target."""
        return frozenset(pool.name for pool in self.module.pools if target in pool.targets)

    def scopes(self, call: Call) -> Iterator[tuple[Value, str]]:
        """The scopes that a kernel's parameters name, with the values that they are given."""
        callee = self.module.callee(call.op)
        if not isinstance(callee, tir.PrimFunc):
            return
        values = [v for v in (*call.inputs, *call.outputs) if v is not None]
        for value, param in zip(values, callee.params, strict=False):
            if isinstance(param.value, tir.Buffer) and param.value.scope not in _PLAIN_SCOPES:
                yield value, param.value.scope

    def visible_pools(self, call: Call, value: Value) -> frozenset[str]:
        """The pools in which `value` may lie for `call`."""
        named = {scope for given, scope in self.scopes(call) if given.name == value.name}
        return self.of(call).visible_pools & named if named else self.of(call).visible_pools
