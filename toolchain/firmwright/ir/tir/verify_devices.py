"""Verification that every call of a planned AOT main runs where its arguments are accessible.

The module attribute `visible_pools` lists the pools of each target and device. The copy device, and
calls that the main core executes at initialization, have access to all pools.
"""

from collections.abc import Iterator
from typing import cast

from firmwright.ir import tir
from firmwright.ir.graph.devices import (
    COPY_OP,
    MAIN_DEVICE,
    VISIBLE_POOLS_ATTR,
    is_copy_device,
    is_core,
)
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import statements, used_buffers


def diagnose_devices(main: tir.PrimFunc, module: IRModule) -> Iterator[str]:
    """Yield accesses of a device to a pool that it cannot access."""
    rows = cast("tuple[tuple[str, ...], ...]", module.attrs.get(VISIBLE_POOLS_ATTR, ()))
    pools = {param.name: param.name for param in main.params if param.role == "pool"}
    for node in statements(main.body) if rows else ():
        if isinstance(node, tir.DeclBuffer) and node.source.buffer.name in pools:
            pools[node.buffer.name] = pools[node.source.buffer.name]
        target = device = ""
        if isinstance(node, tir.PrimFuncCall):
            kernel, device = module.functions[node.callee], node.device
            is_copy = kernel.attrs.get("op") == COPY_OP
            if (is_copy and (is_copy_device(device) or not device)) or kernel.attrs.get("keeps"):
                continue
            target, device = str(kernel.attrs.get("target", "")), "" if is_core(device) else device
            used, subject = {name for a in node.args for name in used_buffers(a)}, node.callee
        elif isinstance(node, tir.If | tir.While):
            used, subject = {*used_buffers(node.cond)}, "a condition"
        else:
            continue
        visible = {
            p for t, d, *own in rows if d == device and (device or t in ("", target)) for p in own
        }
        for name in sorted(used):
            if pools.get(name, "") not in {"", *visible}:
                yield (
                    f"{subject} on {device or MAIN_DEVICE} uses {name}, which is in {pools[name]}; "
                    f"this device can access {', '.join(sorted(visible)) or 'no pool'}"
                )
