"""A lower bound on the workspace of all programs, known before any kernel is built."""

from firmwright.choose.program_regions import ProgramRegion, cheapest_within_budget
from firmwright.choose.streaming_candidates import (
    RowsOf,
    SegmentBuilder,
    SegmentCandidates,
)
from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule


def is_below_floor(module: IRModule, rows_of: RowsOf, bytes_max: int) -> bool:
    """Return whether every program needs more than `bytes_max` bytes.

    A call alone needs its largest tensor, a segment its row buffers without scratch.
    Where tensors may be outside the pools of the core, nothing is known.
    """
    io = module.io
    if len(module.targets) > 1 or not (io.inputs_in_pools and io.outputs_in_pools):
        return False
    entry = module.entry_graph
    singles: list[ProgramRegion] = []
    large: set[int] = set()
    for index, call in enumerate(entry.body):
        least_bytes = _largest_tensor_bytes(call)
        singles.append(ProgramRegion(index, index + 1, least_bytes, 0))
        if least_bytes > bytes_max:
            large.add(index)
    if not large:
        return False
    builder = SegmentBuilder(entry, rows_of)
    segments = SegmentCandidates(module, entry, builder, in_place=True)
    regions = [*singles, *segments.floors(large)]
    return cheapest_within_budget(regions, len(entry.body), bytes_max) is None


def _largest_tensor_bytes(call: Call) -> int:
    values = (*call.variables, *call.outputs)
    return max((value.type.size_bytes for value in values), default=0)
