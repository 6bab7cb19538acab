"""Names of devices and the assignment of values and calls to them.

A device name is a type and a number: `cpu0` runs the AOT main, `cpu1` is the second
core, `npu0` an accelerator. A call runs on the device of its first output, by default
on the main core.
"""

import re
from collections.abc import Collection
from dataclasses import replace

from firmwright.base.errors import UsageError
from firmwright.ir.core import UNCONSTRAINED, VirtualDevice
from firmwright.ir.graph.nodes import Call, Value
from firmwright.ir.module import IRModule

MAIN_DEVICE = "cpu0"
"""The device that runs the AOT main."""
COPY_OP = "device_copy"
"""The operator that copies a tensor from one memory to another."""
CYCLES_ATTR = "modeled_cycles"
"""Kernel attribute: the cycles of a call, if `Backend.cost` declares them."""
CONSTANTS_POOL_ATTR = "constants_pool"
"""Kernel attribute: the pool to which constants are copied before the first run."""
_NAME = re.compile(r"([a-z][a-z_]*)(0|[1-9][0-9]?)\Z")


def is_device_name(name: str) -> bool:
    """Return whether a name is a type and a number, such as cpu1."""
    return _NAME.match(name) is not None


def parse_device(name: str) -> VirtualDevice:
    match = _NAME.match(name)
    if match is None:
        hint = "a type and a number, such as cpu1."
        raise UsageError(f"{name!r} is not a device name.", hint=hint)
    return VirtualDevice(match[1], int(match[2]))


def device_name(device: VirtualDevice) -> str:
    """Return the device's name, or "" for an unconstrained device."""
    if not device.device_type or device.device_id == UNCONSTRAINED.device_id:
        return ""
    return f"{device.device_type}{device.device_id}"


def with_device(value: Value, device: str) -> Value:
    at = parse_device(device)
    old = value.virtual_device
    new = replace(old, device_type=at.device_type, device_id=at.device_id)
    return replace(value, virtual_device=new)


def with_target(value: Value, targets: Collection[str]) -> Value:
    """Return a value with the target of its device if that is one of `targets`."""
    own = device_name(value.virtual_device)
    device = replace(value.virtual_device, target=own if own in targets else "")
    return replace(value, virtual_device=device)


def with_memory_scope(value: Value, scope: str) -> Value:
    device = replace(value.virtual_device, memory_scope=scope)
    return replace(value, virtual_device=device)


def is_placed(value: Value) -> bool:
    """Return whether a device or pool is assigned to `value`.

    Passes keep such a value until it is lowered.

    Before devices are planned, these are the tensors and constants that the user
    placed.
    """
    return value.virtual_device != UNCONSTRAINED


def executing_device(call: Call) -> str:
    """Return the device that executes `call`, or "" for the main core."""
    name = device_name(call.outputs[0].virtual_device) if call.outputs else ""
    return "" if name == MAIN_DEVICE else name


def module_devices(module: IRModule) -> tuple[str, ...]:
    """Return the devices of `module`; empty if it has the main core only."""
    return module.settings.devices.names


def is_copy_device(device: str) -> bool:
    return device.startswith("dma")


def placed_values(module: IRModule) -> frozenset[str]:
    """Return the names of the values with a device or pool."""
    values = (value for graph in module.graphs for value in graph.values)
    return frozenset(value.name for value in values if is_placed(value))


def copy_device(module: IRModule, *, outward: bool) -> str:
    """Return the device of copies from (`outward`) or to private memory."""
    devices = module.settings.devices.copiers or (MAIN_DEVICE,)
    return devices[-1 if outward else 0]


def private_pools(module: IRModule) -> frozenset[str]:
    """Return the pools that the main core cannot access."""
    default = next(iter(module.targets), "")
    private: set[str] = set()
    for pool in module.pools:
        if pool.targets and default not in pool.targets:
            private.add(pool.name)
    return frozenset(private)


def is_core(device: str) -> bool:
    return device.startswith("cpu")


def core_targets(module: IRModule) -> tuple[str, ...]:
    """Return the cores with a target of their own, beside the main core.

    Each is the name of a device and of its target.
    """
    return tuple(filter(is_core_target, module.targets))


def is_core_target(name: str) -> bool:
    """Return whether a target is that of a core beside the main core, such as cpu1."""
    return is_device_name(name) and is_core(name)


def module_cores(module: IRModule) -> tuple[str, ...]:
    """Return the devices that run kernels of the main target."""
    cores = tuple(filter(is_core, module_devices(module)))
    return cores or (MAIN_DEVICE,)
