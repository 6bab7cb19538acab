"""The calls of an AOT main that other devices do, numbered for each device.

In: the AOT main. Out: for each device its calls in the order of their first start. A start and its
wait have one number.
"""

from __future__ import annotations

from dataclasses import dataclass

from firmwright.ir.graph.devices import is_copier
from firmwright.ir.tir.nodes import CallPrim, PrimFunc, Seq, Stmt
from firmwright.ir.tir.phases import alone
from firmwright.ir.tir.rewrite import rewrite_stmt
from firmwright.ir.tir.walk import Node, prim_calls


@dataclass(frozen=True, slots=True)
class DeviceCalls:
    """A device, a C identifier, and what it does in a run."""

    name: str
    calls: tuple[CallPrim, ...]

    @property
    def is_core(self) -> bool:
        """Whether it runs the model's own C."""
        return self.name.startswith("cpu")

    @property
    def is_copier(self) -> bool:
        """Whether its calls are copies, which it is told by their addresses."""
        return is_copier(self.name)

    def number(self, call: CallPrim) -> int:
        """What the device knows `call` by."""
        return self.calls.index(alone(call))


def device_calls(main: PrimFunc) -> tuple[DeviceCalls, ...]:
    """The devices besides the main core, by name."""
    found: dict[str, dict[CallPrim, None]] = {}
    for call in prim_calls(main.body):
        if call.device:
            found.setdefault(call.device, {})[alone(call)] = None
    return tuple(DeviceCalls(name, tuple(found[name])) for name in sorted(found))


def without_device_calls(body: Stmt) -> Stmt:
    """What the main core does itself."""

    def rule(node: Node) -> Node | None:
        return Seq(()) if isinstance(node, CallPrim) and node.device else None

    return rewrite_stmt(body, rule)
