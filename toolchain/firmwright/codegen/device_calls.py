"""Numbering of the calls that an AOT main delegates to other devices."""

from __future__ import annotations

from dataclasses import dataclass

from firmwright.ir import tir
from firmwright.ir.graph.devices import is_copy_device
from firmwright.ir.tir.async_calls import without_phase
from firmwright.ir.tir.rewrite import rewrite_stmt
from firmwright.ir.tir.traversal import Node, prim_calls


@dataclass(frozen=True, slots=True)
class DeviceCalls:
    """A device and its calls, numbered in the order of their first start."""

    name: str
    calls: tuple[tir.PrimFuncCall, ...]

    @property
    def is_core(self) -> bool:
        return self.name.startswith("cpu")

    @property
    def is_copier(self) -> bool:
        return is_copy_device(self.name)

    def number(self, call: tir.PrimFuncCall) -> int:
        """Return the number of `call`; a start and its wait have the same number."""
        return self.calls.index(without_phase(call))


def collect_device_calls(main: tir.PrimFunc) -> tuple[DeviceCalls, ...]:
    """Return every device other than the main core with its calls, sorted by name."""
    calls: dict[str, dict[tir.PrimFuncCall, None]] = {}
    for call in prim_calls(main.body):
        if call.device:
            calls.setdefault(call.device, {})[without_phase(call)] = None
    return tuple(DeviceCalls(name, tuple(calls[name])) for name in sorted(calls))


def without_device_calls(body: tir.Stmt) -> tir.Stmt:

    def rule(node: Node) -> Node | None:
        return tir.Seq(()) if isinstance(node, tir.PrimFuncCall) and node.device else None

    return rewrite_stmt(body, rule)
