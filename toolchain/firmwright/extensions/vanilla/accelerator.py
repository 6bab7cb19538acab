"""vanilla: an example accelerator that works concurrently with the core.

It executes int8 convolutions and fully connected layers with the default loops, on a
board's spare core or elsewhere in a C model that executes each call when it starts.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

from firmwright.base.dtypes import INT8
from firmwright.base.rounding import divide_up
from firmwright.ir.core import Target
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.patterns import Match, constant, op, wildcard
from firmwright.ir.module import IRModule
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.targets.backend import Backend, PatternEntry
from firmwright.targets.kernel_builder import flatten_calls
from firmwright.targets.target_kind import (
    Hooks,
    LoweredFunction,
    TargetAttribute,
    TargetKind,
)

_OPERATORS = ("conv2d", "fully_connected")
_SPEED = TargetAttribute(0, "modeled speed; 0: that of the core that executes it")


class VanillaAccelerator(Backend):
    """Example accelerator for int8 convolutions and fully connected layers."""

    name = "vanilla"
    device = "vanilla0"
    tiles = 4
    attrs: Mapping[str, TargetAttribute] = {"macs-per-cycle": _SPEED}

    def patterns(self) -> Sequence[PatternEntry]:
        weighted = (wildcard(), constant(), constant())
        entries = []
        for name in _OPERATORS:
            entries.append(PatternEntry(name, op(name, *weighted), _is_int8))
        return entries

    def cost(self, match: Match) -> int | None:
        speed = int(match.target.attr("macs-per-cycle"))
        calls = zip(match.calls, match.ops, strict=True)
        macs = sum(op_table()[call.op].macs(described) for call, described in calls)
        return divide_up(macs, speed) if speed > 0 else None

    @cached_property
    def kind(self) -> TargetKind:
        hooks = Hooks(relay_to_tir=_lower_default_loops)
        doc = type(self).__doc__ or ""
        return TargetKind(
            self.name,
            doc,
            self.attrs,
            is_core=False,
            hooks=hooks,
            passes=self.passes,
        )


def _is_int8(match: Match) -> bool:
    (call,) = match.ops
    return call.input(0).dtype == call.input(1).dtype == INT8


def _lower_default_loops(
    function: Function, module: IRModule, target: Target
) -> LoweredFunction:
    (call,) = flatten_calls(function, module)
    described, opdef = make_op_call(call, module), op_table()[call.op]
    kernel = Kernel(function.name, described, call.span)
    opdef.lower(described, kernel)
    macs = opdef.macs(described)
    prim_func = kernel.build(op=call.op, schedule=target.kind, macs=macs)
    return LoweredFunction(prim_func, dict(kernel.constants))
