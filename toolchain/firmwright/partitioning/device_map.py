"""Map each graph call to its executing device and the pools visible to that device.

A pool with targets is private: only the devices of those targets, and the copy device,
may use it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from firmwright.boards.peripherals import DmaController
from firmwright.ir import tir
from firmwright.ir.graph import devices
from firmwright.ir.graph.nodes import Call, Value
from firmwright.ir.module import IRModule
from firmwright.partitioning.engine_instances import engine_device
from firmwright.partitioning.target_resolution import target_of
from firmwright.targets import backend_calls
from firmwright.targets.backend import Backend
from firmwright.targets.saved_backend import backend_in

_PLAIN_SCOPES = ("global", "const")
"""Scopes of kernel parameters that require no certain pool."""


@dataclass(frozen=True, slots=True)
class ExecutionDevice:
    """A device and the pools that it can access."""

    device: str
    visible_pools: frozenset[str]


@dataclass(frozen=True, slots=True)
class DeviceMap:
    """The devices and visible pools of the calls of one module."""

    module: IRModule

    @property
    def pools(self) -> tuple[str, ...]:
        writable = tuple(pool.name for pool in self.module.pools if pool.access == "rw")
        return writable or ("sram",)

    @property
    def shared_pools(self) -> frozenset[str]:
        """Return the pools that are not private, which the main core can access."""
        return frozenset(self.pools) - devices.private_pools(self.module)

    def device_for(self, call: Call) -> ExecutionDevice:
        """Return the device that the targets assign to `call`, else the main core."""
        if call.op == devices.COPY_OP:
            copier = devices.device_name(call.outputs[0].virtual_device)
            if not copier:
                copier = devices.copy_device(self.module, outward=False)
            return ExecutionDevice(copier, frozenset(self.pools))
        match = self.backend_for(call)
        if match is None:
            return ExecutionDevice(devices.MAIN_DEVICE, self.shared_pools)
        target, backend = match
        device = engine_device(self.module, target)
        visible = self._pools_of_backend(target, backend, is_engine=bool(device))
        return ExecutionDevice(device or devices.MAIN_DEVICE, visible)

    def _pools_of_backend(
        self, target: str, backend: Backend, *, is_engine: bool
    ) -> frozenset[str]:
        """Return the pools that the kernels of a backend can access.

        The backend's own list comes first. An engine that works concurrently with the
        core and has private pools sees only these; kernels that the core executes see
        all other pools too. A bus master never sees the memory that is coupled to the
        core.
        """
        private = self.private_pools(target)
        if backend.visible_pools:
            visible = frozenset(backend.visible_pools)
        elif is_engine and private:
            visible = private
        else:
            visible = self.shared_pools | private
        if backend.bus_master:
            visible -= {pool.name for pool in self.module.pools if pool.tightly_coupled}
        return visible

    def backend_for(self, call: Call) -> tuple[str, Backend] | None:
        """Return target name and backend that execute `call`, or None for a core."""
        callee = self.module.callee(call.op)
        name = target_of(callee) if callee is not None else ""
        if name not in self.module.targets:
            return None
        backend = backend_in(self.module, name)
        return None if backend is None else (name, backend)

    def private_pools(self, target: str) -> frozenset[str]:
        pools = self.module.pools
        return frozenset(pool.name for pool in pools if target in pool.targets)

    def transfer_cycles(
        self, target: str, size_bytes: int, dma: DmaController | None
    ) -> int:
        """Return the transfer cycles that the backend declares, or those of the DMA."""
        if target not in self.module.targets:
            return 0
        backend = backend_in(self.module, target)
        if backend is None:
            return 0
        declared = backend_calls.transfer_cycles(backend, size_bytes)
        if declared is not None:
            return declared
        private, shared = self.private_pools(target), self.shared_pools
        inside = [pool for pool in self.module.pools if pool.name in private]
        outside = [pool for pool in self.module.pools if pool.name in shared]
        if dma is None or not inside or not outside:
            return 0
        return dma.setup + dma.bus_cycles(size_bytes, outside[0], inside[0])

    def parameter_scopes(self, call: Call) -> Iterator[tuple[Value, str]]:
        """Yield the values for which the call's kernel requires a pool, with it."""
        callee = self.module.callee(call.op)
        if not isinstance(callee, tir.PrimFunc):
            return
        for value, param in zip(call.values, callee.params, strict=False):
            buffer = param.value
            if isinstance(buffer, tir.Buffer) and buffer.scope not in _PLAIN_SCOPES:
                yield value, buffer.scope

    def visible_pools(self, call: Call, value: Value) -> frozenset[str]:
        """Return the pools in which `value` may be stored when `call` uses it."""
        pools = self.device_for(call).visible_pools
        scopes: set[str] = set()
        for other, scope in self.parameter_scopes(call):
            if other.name == value.name:
                scopes.add(scope)
        return pools & scopes if scopes else pools
