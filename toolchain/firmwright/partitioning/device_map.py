"""Map each graph call to its executing device and the memory pools visible to that
device.

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
        """Return the device that the targets assign to `call`, by default the main
        core.
        """
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
        """Return the target name and backend that execute `call`, or None if a core
        executes it.
        """
        callee = self.module.callee(call.op)
        name = target_of(callee) if callee is not None else ""
        backend = backend_in(self.module, name) if name in self.module.targets else None
        return None if backend is None else (name, backend)

    def private_pools(self, target: str) -> frozenset[str]:
        return frozenset(
            pool.name for pool in self.module.pools if target in pool.targets
        )

    def transfer_cycles(
        self, target: str, size_bytes: int, dma: DmaController | None
    ) -> int:
        """Return the cycles of a transfer as the backend declares them, or those of the
        DMA.
        """
        backend = (
            backend_in(self.module, target) if target in self.module.targets else None
        )
        if backend is None:
            return 0
        declared = backend_calls.transfer_cycles(backend, size_bytes)
        if declared is not None:
            return declared
        inside = [p for p in self.module.pools if p.name in self.private_pools(target)]
        outside = [p for p in self.module.pools if p.name in self.shared_pools]
        if dma is None or not inside or not outside:
            return 0
        return dma.setup + dma.bus_cycles(size_bytes, outside[0], inside[0])

    def parameter_scopes(self, call: Call) -> Iterator[tuple[Value, str]]:
        """Yield the values of a call for which its kernel requires a pool, with the
        pool.
        """
        callee = self.module.callee(call.op)
        if not isinstance(callee, tir.PrimFunc):
            return
        for value, param in zip(call.values, callee.params, strict=False):
            if (
                isinstance(param.value, tir.Buffer)
                and param.value.scope not in _PLAIN_SCOPES
            ):
                yield value, param.value.scope

    def visible_pools(self, call: Call, value: Value) -> frozenset[str]:
        """Return the pools in which `value` may be stored when `call` uses it."""
        pools = self.device_for(call).visible_pools
        scopes = {
            scope
            for other, scope in self.parameter_scopes(call)
            if other.name == value.name
        }
        return pools & scopes if scopes else pools
