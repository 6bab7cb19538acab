"""Devices by name, and which one does a call.

A device is written as its type and number: `cpu0` is the core that runs the AOT main, `cpu1` the
one beside it, `npu0` an engine. A call is done where its outputs are made; values that say nothing
are the main core's.
"""

from __future__ import annotations

import re
from dataclasses import replace

from firmwright.base.errors import UsageError
from firmwright.ir.core import UNCONSTRAINED, VirtualDevice
from firmwright.ir.graph.nodes import Call, Value
from firmwright.ir.module import IRModule

MAIN_DEVICE = "cpu0"
"""The device that runs the AOT main."""
DEVICES_ATTR = "devices"
"""The attribute of a module that lists the devices it may use, `MAIN_DEVICE` first."""
COPY_OP = "device_copy"
"""The operator that copies a tensor from one memory to another."""
COPY_DEVICE_ATTR = "copier"
"""The attribute of a module that names the device which does these copies, if not `MAIN_DEVICE`."""
CONSTANTS_POOL_ATTR = "constants_pool"
"""The attribute of a kernel whose constants are copied to that pool once, before the first run."""
_NAME = re.compile(r"([a-z][a-z_]*)(0|[1-9][0-9]?)\Z")


def parse_device(name: str) -> VirtualDevice:
    """The device of that name; UsageError if it is spelled otherwise."""
    found = _NAME.match(name)
    if found is None:
        raise UsageError(f"{name!r} is no device.", hint="a type and a number, such as cpu1.")
    return VirtualDevice(found[1], int(found[2]))


def device_name(device: VirtualDevice) -> str:
    """The name of a device; "" where none is said."""
    if not device.device_type or device.device_id == UNCONSTRAINED.device_id:
        return ""
    return f"{device.device_type}{device.device_id}"


def with_device(value: Value, device: str) -> Value:
    """`value` on the device of that name; its memory scope stays."""
    at = parse_device(device)
    old = value.virtual_device
    return replace(
        value,
        virtual_device=replace(old, device_type=at.device_type, device_id=at.device_id),
    )


def with_memory_scope(value: Value, scope: str) -> Value:
    """`value` in the memory of that name; its device stays."""
    return replace(value, virtual_device=replace(value.virtual_device, memory_scope=scope))


def executing_device(call: Call) -> str:
    """The device that does `call`; "" for the main core."""
    name = device_name(call.outputs[0].virtual_device) if call.outputs else ""
    return "" if name == MAIN_DEVICE else name


def module_devices(module: IRModule) -> tuple[str, ...]:
    """The devices that `module` may use; none where there is only the core that runs it."""
    found = module.attrs.get(DEVICES_ATTR, ())
    return tuple(map(str, found)) if isinstance(found, tuple) else ()


def is_copy_device(device: str) -> bool:
    """Whether a device of that name does nothing but copy."""
    return device.startswith("dma")


def module_cores(module: IRModule) -> tuple[str, ...]:
    """Those of them that run the target's own kernels."""
    return tuple(name for name in module_devices(module) if name.startswith("cpu"))
