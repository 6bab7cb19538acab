"""Refuses a model of which one call alone exceeds the memory, before any search.

The input and the outputs of a call are in memory together. How far they may overlap
depends on the order in which a kernel reads and writes, so the kernels of large calls
are built first. A call that can be computed by rows within the memory is not refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from firmwright.base.errors import NotSupportedError
from firmwright.choose.aot_main import TENSOR_ALIGNMENT
from firmwright.choose.streaming_candidates import SegmentBuilder, SegmentCandidates
from firmwright.ir import tir
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IRModule
from firmwright.ir.tir.plan import BufferInfo, Constraints, LiveRange
from firmwright.lower.lowering import Lowering
from firmwright.usmp.branch_and_bound import search_planner
from firmwright.usmp.interference import (
    InplaceCache,
    InplacePair,
    build_interference,
)
from firmwright.usmp.lower_bound import lower_bound_bytes

_DURING_CALL = LiveRange(0, 1)


@dataclass(frozen=True, slots=True)
class _CallMemory:
    """The largest input and the outputs of a call with one of its kernels."""

    buffers: Sequence[BufferInfo]
    constraints: Constraints

    @property
    def least_bytes(self) -> int:
        return lower_bound_bytes(self.buffers, self.constraints)


def check_calls_fit(module: IRModule, lowering: Lowering, cache: InplaceCache) -> None:
    """Raise DoesNotFitError if a call alone needs more bytes than all pools have.

    Where tensors may be outside the pools of the core, nothing is known.
    """
    io = module.io
    is_known = io.inputs_in_pools and io.outputs_in_pools
    sizes = [pool.size_bytes for pool in module.pools if pool.access == "rw"]
    if not is_known or not sizes or module.requests or len(module.targets) > 1:
        return
    available = 0
    for size_bytes in sizes:
        if size_bytes is None:
            return
        available += size_bytes
    entry = module.entry_graph
    fed = set(entry.params)
    pools = tuple([pool.name for pool in module.pools if pool.access == "rw"])
    for index, call in enumerate(entry.body):
        is_fed = io.stream_input_rows and not fed.isdisjoint(call.variables)
        if is_fed or _size_bytes(_largest(call)) <= available:
            continue
        memory = _least_memory(entry, lowering, index, cache)
        if memory is None or memory.least_bytes <= available:
            continue
        if not _can_stream(module, lowering, index, available):
            buffers: list[BufferInfo] = []
            for buffer in memory.buffers:
                placed = replace(buffer, alignment=TENSOR_ALIGNMENT, pools=pools)
                buffers.append(placed)
            search_planner(buffers, memory.constraints, module.pools)


def _largest(call: Call) -> list[Value]:
    """Return the largest input, since inputs may share memory, and the outputs."""
    inputs = sorted(call.variables, key=lambda value: value.type.size_bytes)
    return [*inputs[-1:], *call.outputs]


def _size_bytes(values: Sequence[Value]) -> int:
    return sum([value.type.size_bytes for value in values])


def _least_memory(
    entry: Function, lowering: Lowering, index: int, cache: InplaceCache
) -> _CallMemory | None:
    """Return the memory of a call with its most frugal kernel; None if unknown."""
    call = entry.body[index]
    values = (*call.variables, *call.outputs)
    # The next value of a state may be computed in the memory of the state.
    states = {state.value.name for state in entry.state}
    states |= {state.next.name for state in entry.state}
    try:
        kernels = [item.function for item in lowering.lowered(index).candidates]
    except NotSupportedError:  # which is reported with all others
        return None
    if any(value.name in states for value in values):
        return None
    if any(len(kernel.params) != len(values) for kernel in kernels):
        return None
    frugal = [_memory_of(entry, index, kernel, cache) for kernel in kernels]
    return min(frugal, key=lambda memory: memory.least_bytes, default=None)


def _memory_of(
    entry: Function, index: int, kernel: tir.PrimFunc, cache: InplaceCache
) -> _CallMemory:
    """Return the memory of call `index` with a kernel."""
    call = entry.body[index]
    read_later = {value.name for value in entry.sinks}
    for other in entry.body[index + 1 :]:
        read_later.update(value.name for value in other.variables)
    count = len(call.variables)
    sources = zip(kernel.params[:count], call.variables, strict=True)
    results = zip(kernel.params[count:], call.outputs, strict=True)
    pairs: list[InplacePair] = []
    for (source, x), (result, y) in product(sources, results):
        constraints = cache.constraints(kernel, source.name, result.name)
        if constraints is not None and x.name not in read_later:
            renamed = tuple([c.between(x.name, y.name) for c in constraints])
            pairs.append(InplacePair(_DURING_CALL, renamed))
    buffers: list[BufferInfo] = []
    for value in _largest(call):
        size_bytes = value.type.size_bytes
        live = (_DURING_CALL,)
        buffers.append(BufferInfo(value.name, size_bytes, 1, live, "activation", ("",)))
    return _CallMemory(buffers, build_interference(buffers, pairs))


def _can_stream(
    module: IRModule, lowering: Lowering, index: int, bytes_max: int
) -> bool:
    """Return whether a segment of rows with the call may need at most `bytes_max`."""
    entry = module.entry_graph
    builder = SegmentBuilder(entry, lowering.rows)
    segments = SegmentCandidates(module, entry, builder, in_place=True)
    for region in segments.floors({index}):
        if region.first <= index < region.end and region.peak_bytes <= bytes_max:
            return True
    return False
