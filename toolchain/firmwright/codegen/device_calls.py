"""The calls of an AOT main that other devices do, numbered for each device.

In: the AOT main. Out: for each device its calls in the order of their first start. A start and its
wait have one number.
"""

from __future__ import annotations

from dataclasses import dataclass

from firmwright.ir import tir
from firmwright.ir.graph.devices import is_copy_device
from firmwright.ir.tir.async_calls import without_phase
from firmwright.ir.tir.rewrite import rewrite_stmt
from firmwright.ir.tir.traversal import Node, prim_calls


@dataclass(frozen=True, slots=True)
class DeviceCalls:
    """A device, a C identifier, and what it does in a run."""

    name: str
    calls: tuple[tir.PrimFuncCall, ...]

    @property
    def is_core(self) -> bool:
        """Whether it runs the model's own C."""
        return self.name.startswith("cpu")

    @property
    def is_copier(self) -> bool:
        """Whether its calls are copies, which it is told by their addresses."""
        return is_copy_device(self.name)

    def number(self, call: tir.PrimFuncCall) -> int:
        """What the device knows `call` by."""
        return self.calls.index(without_phase(call))


def collect_device_calls(main: tir.PrimFunc) -> tuple[DeviceCalls, ...]:
    """The devices besides the main core, by name."""
    found: dict[str, dict[tir.PrimFuncCall, None]] = {}
    for call in prim_calls(main.body):
        if call.device:
            found.setdefault(call.device, {})[without_phase(call)] = None
    return tuple(DeviceCalls(name, tuple(found[name])) for name in sorted(found))


def without_device_calls(body: tir.Stmt) -> tir.Stmt:
    """What the main core does itself."""

    def rule(node: Node) -> Node | None:
        return tir.Seq(()) if isinstance(node, tir.PrimFuncCall) and node.device else None

    return rewrite_stmt(body, rule)
