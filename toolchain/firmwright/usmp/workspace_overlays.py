"""Pairs of buffers that overlap in the workspace of an accelerator's kernel.

The kernel's attribute names the tensors that it needs at an offset of its workspace. A
tensor that the planner puts there is not copied.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
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
    """Yield the pairs that overlap in the workspace of an accelerator's kernel.

    Each tensor that the attribute names may be at its offset of the workspace:

        workspace   |---------------------------------|
        input           |--------|  last read by this call
        output                        |-----------|  first written by this call
    """
    times_by_call: dict[tir.PrimFuncCall, list[int]] = {}
    for node in flow.nodes:
        if node.call is not None:
            times_by_call.setdefault(without_phase(node.call), []).append(node.time)
    for call, times in times_by_call.items():
        kernel = module.functions.get(call.callee)
        if not isinstance(kernel, tir.PrimFunc):
            continue
        # A device call has a start and a wait.
        times_of_one_run = 2 if call.device else 1
        if OVERLAYS_ATTR in kernel.attrs and len(times) == times_of_one_run:
            span = LiveRange(min(times), max(times) + 1)
            overlays = _Overlays(flow, call, span, live, at_exit)
            yield from overlays.pairs(kernel)


@dataclass(frozen=True, slots=True)
class _Argument:
    """The buffer of a pointer argument, its planned buffer, the parameter's role."""

    buffer: tir.Buffer
    root: str
    role: str


@dataclass(frozen=True, slots=True)
class _Overlays:
    """The pairs of one call, which takes the time `span`."""

    flow: ControlFlowGraph
    call: tir.PrimFuncCall
    span: LiveRange
    live: Mapping[str, tuple[LiveRange, ...]]
    at_exit: Collection[str]

    def pairs(self, kernel: tir.PrimFunc) -> Iterator[InplacePair]:
        """Yield the pairs of workspace and tensor, then those of inputs and outputs."""
        args: dict[str, _Argument] = {}
        for param, arg in zip(kernel.params, self.call.args, strict=True):
            if isinstance(arg, tir.AccessPtr) and arg.buffer.name in self.flow.roots:
                root = self.flow.roots[arg.buffer.name]
                args[param.name] = _Argument(arg.buffer, root, param.role)
        uses = Counter(arg.root for arg in args.values())
        unusable = self._accessed_by_others()
        inputs: list[str] = []
        outputs: list[str] = []
        rows = cast("tuple[tuple[str, str, int], ...]", kernel.attrs[OVERLAYS_ATTR])
        for name, workspace, offset in rows:
            argument = args[name]
            if uses[argument.root] > 1 or argument.root in unusable:
                continue
            if not self._may_be_inside(argument):
                continue
            if argument.role == "in":
                inputs.append(argument.root)
            else:
                outputs.append(argument.root)
            area = args[workspace].buffer
            # Overlaps of the workspace are forbidden, except at the kernel's offset.
            a, b = area.name, argument.root
            lo, hi = -argument.buffer.span_bytes, area.span_bytes
            at_offset = OffsetConstraint(a, b, lo, hi, _ONE_PLACE, offset)
            yield InplacePair(self.span, (at_offset,))
        # Their places in the workspace are the kernel's own: it knows if they overlap.
        for a, b in product(inputs, outputs):
            yield InplacePair(self.span, (OffsetConstraint(a, b, 0, 0),))

    def _accessed_by_others(self) -> set[str]:
        """Return the buffers that other nodes access while the call runs."""
        accessed: set[str] = set()
        for node in self.flow.nodes:
            if not self.span.first <= node.time < self.span.end:
                continue
            if node.call is None or without_phase(node.call) != self.call:
                accessed |= node.accessed
        return accessed

    def _may_be_inside(self, arg: _Argument) -> bool:
        """Return whether a whole buffer is live only before, or after, this call.

        An input must end with the call and an output begin with it; another role has no
        condition.
        """
        if self.flow.allocates[arg.root].buffer != arg.buffer:
            return False
        ranges = [own for own in self.live[arg.root] if own.overlaps(self.span)]
        if arg.role == "in":
            is_read_later = arg.root in self.at_exit
            return not is_read_later and [own.end for own in ranges] == [self.span.end]
        if arg.role == "out":
            return [own.first for own in ranges] == [self.span.first]
        return True
