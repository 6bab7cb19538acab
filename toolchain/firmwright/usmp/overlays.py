"""Tensors that may be placed in the workspace of a call, at the offset that its kernel declares.

An input must be read for the last time by the call, an output defined by it. Inputs are copied to
the workspace before outputs are copied from it, so they may overlap.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import product
from typing import cast

from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.plan import OVERLAYS_ATTR, LiveRange, OffsetConstraint
from firmwright.ir.tir.verify_async_calls import without_phase
from firmwright.usmp.interference import InplacePair
from firmwright.usmp.liveness import ControlFlowGraph

_ONE_PLACE = 1 << 40
"""A period above every size: within the interval, one difference is allowed."""


def find_overlays(
    module: IRModule,
    flow: ControlFlowGraph,
    live: Mapping[str, tuple[LiveRange, ...]],
    at_exit: Collection[str],
) -> Iterator[InplacePair]:
    times: dict[tir.PrimFuncCall, list[int]] = {}
    for node in flow.nodes:
        if node.call is not None:
            times.setdefault(without_phase(node.call), []).append(node.time)
    for call, own in times.items():
        kernel = module.functions.get(call.callee)
        if isinstance(kernel, tir.PrimFunc) and OVERLAYS_ATTR in kernel.attrs:
            span = LiveRange(min(own), max(own) + 1)
            if len(own) == (1 if not call.device else 2):
                yield from _pairs(flow, call, kernel, span, live, at_exit)


def _pairs(
    flow: ControlFlowGraph,
    call: tir.PrimFuncCall,
    kernel: tir.PrimFunc,
    span: LiveRange,
    live: Mapping[str, tuple[LiveRange, ...]],
    at_exit: Collection[str],
) -> Iterator[InplacePair]:
    """Yield the pairs of workspace and tensor, then those of inputs and outputs."""
    args = {
        param.name: (arg.buffer, flow.roots[arg.buffer.name], param.role)
        for param, arg in zip(kernel.params, call.args, strict=True)
        if isinstance(arg, tir.AccessPtr) and arg.buffer.name in flow.roots
    }
    roots = [root for _, root, _ in args.values()]
    inside = [node for node in flow.nodes if span.first <= node.time < span.end]
    others = [node for node in inside if node.call is None or without_phase(node.call) != call]
    unusable = {name for node in others for name in node.accessed}
    inputs: list[str] = []
    outputs: list[str] = []
    rows = cast("tuple[tuple[str, str, int], ...]", kernel.attrs[OVERLAYS_ATTR])
    for name, workspace, offset in rows:
        buffer, root, role = args[name]
        if roots.count(root) > 1 or root in unusable or flow.allocates[root].buffer != buffer:
            continue
        ranges = [item for item in live[root] if item.overlaps(span)]
        if role == "in" and (root in at_exit or [r.end for r in ranges] != [span.end]):
            continue
        if role == "out" and [r.first for r in ranges] != [span.first]:
            continue
        (inputs if role == "in" else outputs).append(root)
        area = args[workspace][0]
        lo, hi = -buffer.span_bytes, area.span_bytes
        at_offset = OffsetConstraint(area.name, root, lo, hi, _ONE_PLACE, offset)
        yield InplacePair(span, (at_offset,))
    for a, b in product(inputs, outputs):
        yield InplacePair(span, (OffsetConstraint(a, b, 0, 0),))
