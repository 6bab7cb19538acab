"""Verification that every call of a planned AOT main runs where its arguments are accessible.

Copies by the main core or a copy device have access to all pools.
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
    rows = cast("tuple[tuple[str, ...], ...]", module.attrs.get(VISIBLE_POOLS_ATTR, ()))
    pools = {param.name: param.name for param in main.params if param.role == "pool"}
    for node in statements(main.body) if rows else ():
        if isinstance(node, tir.DeclBuffer) and node.source.buffer.name in pools:
            pools[node.buffer.name] = pools[node.source.buffer.name]
        if not isinstance(node, tir.PrimFuncCall):
            continue
        attrs, device = module.functions[node.callee].attrs, node.device or MAIN_DEVICE
        is_copy = bool(attrs.get("keeps")) or attrs.get("op") == COPY_OP
        if is_copy and (is_core(device) or is_copy_device(device)):
            continue
        place = MAIN_DEVICE if is_core(device) else device
        targets = {attrs.get("target"), ""} if is_core(device) else {row[0] for row in rows}
        visible = {p for t, at, *own in rows if at == place and t in targets for p in own}
        for name in sorted({name for arg in node.args for name in used_buffers(arg)}):
            if pools.get(name, "") not in {"", *visible}:
                yield (
                    f"{node.callee} on {device} uses {name}, which is in {pools[name]}; "
                    f"this device can access {', '.join(sorted(visible)) or 'no pool'}"
                )
