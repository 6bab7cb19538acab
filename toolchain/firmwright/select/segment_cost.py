"""Cost of a row-streamed segment: live bytes while it runs, and instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import RowReduction
from firmwright.ir.tir.schedule import LoweringCandidate
from firmwright.select import policy
from firmwright.select.fused_segments import row_bytes
from firmwright.select.row_streaming_loop import ROW_ALIGNMENT, FusedSegment
from firmwright.select.row_streaming_plan import RowStage, RowStreamingPlan


def with_scratch_limit(segment: FusedSegment, limit_bytes: int) -> FusedSegment | None:
    """Return the segment with the fastest kernels within the scratch limit.

    The result is None if a call has no such kernel.
    """
    picks: list[LoweringCandidate] = []
    for kernel_candidates in segment.kernels:
        lean = [item for item in kernel_candidates.candidates if item.scratch_bytes <= limit_bytes]
        if not lean:
            return None
        picks.append(min(lean, key=lambda item: (item.time, item.scratch_bytes)))
    return replace(segment, picks=tuple(picks))


def scratch_limits(segment: FusedSegment) -> tuple[int, ...]:
    """Return the amounts of scratch at which another kernel becomes possible, ascending."""
    sizes = {
        item.scratch_bytes
        for kernel_candidates in segment.kernels
        for item in kernel_candidates.candidates
    }
    return tuple(sorted(sizes))


def stage_bytes(segment: FusedSegment, types: Mapping[str, TensorType]) -> tuple[int, ...]:
    """Return the live bytes at each stage without the segment's source, result and scratch."""
    plan = segment.plan
    size = {
        name: align_up(row_buffer.rows * row_bytes(types[name]))
        for name, row_buffer in plan.row_buffers.items()
    }
    lasting = sum(
        size[name]
        for name, row_buffer in plan.row_buffers.items()
        if not row_buffer.is_transient or name == plan.source
    )
    rows = segment.kernels[-1].rows
    if isinstance(rows, RowReduction):
        lasting += align_up(rows.count * rows.dtype.size_bytes)
    live_bytes = [lasting] * len(segment.stages)
    last_user = {name: i for i, stage in enumerate(segment.stages) for name in stage.sources}
    for producer, stage in enumerate(segment.stages):
        row_buffer = plan.row_buffers.get(stage.result)
        if row_buffer is not None and row_buffer.is_transient:
            for index in range(producer, last_user[stage.result] + 1):
                live_bytes[index] += size[stage.result]
    return tuple(live_bytes)


def scratch_bytes(segment: FusedSegment) -> Iterator[int]:
    return (align_up(pick.scratch_bytes) for pick in segment.picks)


def segment_time(segment: FusedSegment, types: Mapping[str, TensorType]) -> int:
    """Return the predicted time of the loop; code around the kernels counts in instructions."""
    return _total_over_rows(
        segment, [pick.time for pick in segment.picks]
    ) + _overhead_instructions(segment, types)


def segment_instructions(segment: FusedSegment, types: Mapping[str, TensorType]) -> int:
    kernels = [pick.instructions for pick in segment.picks]
    return _total_over_rows(segment, kernels) + _overhead_instructions(segment, types)


def _total_over_rows(segment: FusedSegment, costs: Sequence[int]) -> int:
    return sum(s.height * cost for s, cost in zip(segment.stages, costs, strict=True))


def _overhead_instructions(segment: FusedSegment, types: Mapping[str, TensorType]) -> int:
    calls = sum(stage.height for stage in segment.stages)
    moved = 0
    for name, row_buffer in segment.plan.row_buffers.items():
        size_bytes = types[name].size_bytes
        moved += (row_buffer.rows - row_buffer.band) * size_bytes // row_buffer.band
        moved += size_bytes if name == segment.plan.source else 0
    return (
        moved * policy.MOVE_INSTRUCTIONS_PERCENT // 100
        + (calls + segment.plan.steps) * policy.CALL_INSTRUCTIONS
    )


def overlapped_bytes(segment: FusedSegment, source: TensorType, result: TensorType) -> int:
    """Return the least bytes of the segment's source and result if they may overlap.

    Rows of the result may overwrite rows of the source that are no longer needed.
    """
    row_in = row_bytes(source)
    row_out = result.size_bytes // segment.stages[-1].height
    written_bytes, ahead_bytes = 0, 0
    for is_write, row in _rows(segment.plan, segment.stages, source.shape[1]):
        if is_write:
            written_bytes = (row + 1) * row_out
        elif written_bytes:
            ahead_bytes = max(ahead_bytes, written_bytes - row * row_in)
    below = max(source.size_bytes + align_up(ahead_bytes), result.size_bytes)
    return min(source.size_bytes + result.size_bytes, below)


def _rows(
    plan: RowStreamingPlan, stages: Sequence[RowStage], height: int
) -> Iterator[tuple[bool, int]]:
    """Yield (True, band written to the result) and (False, first row read) in order."""
    final = stages[-1]
    for step in range(plan.steps):
        if plan.fed and step < height:
            yield False, step
        for stage, firing in zip(stages, plan.firings, strict=True):
            row = step // firing.period - firing.lag
            if (step + 1) % firing.period or not 0 <= row < stage.height:
                continue
            if stage is final:
                yield True, row
            for name, start in zip(stage.sources, firing.starts, strict=True):
                if name == plan.source and start is None:
                    yield False, row * stage.rows.stride


def align_up(size_bytes: int) -> int:
    return -(-size_bytes // ROW_ALIGNMENT) * ROW_ALIGNMENT
