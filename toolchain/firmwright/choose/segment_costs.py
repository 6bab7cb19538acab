"""Predicted instructions and bytes of a fused segment.

Sizes of buffers are rounded up to the alignment of row buffers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from firmwright.base.rounding import round_up
from firmwright.choose import thresholds
from firmwright.choose.row_streaming_loop import ROW_ALIGNMENT, FusedSegment
from firmwright.ir.graph.nodes import TensorType
from firmwright.ops.opdef import RowReduction


def align_up(size_bytes: int) -> int:
    return round_up(size_bytes, ROW_ALIGNMENT)


def row_bytes(kind: TensorType) -> int:
    """Return the bytes of one row of a tensor [N, rows, ...]."""
    return kind.size_bytes // kind.shape[1]


def stage_bytes(
    segment: FusedSegment, types: Mapping[str, TensorType], *, in_place: bool = False
) -> list[int]:
    """Return the live bytes at each stage, without source, result and scratch.

    A transient row buffer is live from the stage that computes it to its last reader,
    every other one in all stages. The rows of a source are copied before the first
    stage. With `in_place` every stage overwrites the transient rows that it reads last,
    as far as its own fit there: no kernel needs less.
    """
    plan = segment.plan
    lasting = 0
    transient: dict[str, int] = {}
    for name, row_buffer in plan.row_buffers.items():
        size_bytes = align_up(row_buffer.rows * row_bytes(types[name]))
        if row_buffer.is_transient:
            transient[name] = size_bytes
        if not row_buffer.is_transient or name == plan.source:
            lasting += size_bytes
    rows = segment.kernels[-1].rows
    if isinstance(rows, RowReduction):
        lasting += align_up(rows.count * rows.dtype.size_bytes)
    last_reader: dict[str, int] = {}
    for index, stage in enumerate(segment.stages):
        for name in stage.sources:
            last_reader[name] = index
    live_bytes = [lasting] * len(segment.stages)
    for producer, stage in enumerate(segment.stages):
        if stage.result in transient:
            for index in range(producer, last_reader[stage.result] + 1):
                live_bytes[index] += transient[stage.result]
    for index, stage in enumerate(segment.stages if in_place else ()):
        dying = 0
        for name in stage.sources:
            if last_reader[name] == index and name != plan.source:
                dying += transient.get(name, 0)
        live_bytes[index] -= min(dying, transient.get(stage.result, 0))
    return live_bytes


def overhead_instructions(
    segment: FusedSegment, types: Mapping[str, TensorType]
) -> int:
    """Return the instructions of the loop, its calls and the moves of rows."""
    moved_bytes = 0
    for name, row_buffer in segment.plan.row_buffers.items():
        size_bytes = types[name].size_bytes
        kept_rows = row_buffer.rows - row_buffer.band
        # A band shifts the kept rows by a band; a tensor arrives in size / band bands.
        moved_bytes += kept_rows * size_bytes // row_buffer.band
        if name == segment.plan.source:
            moved_bytes += size_bytes
    calls = segment.plan.steps + sum(stage.height for stage in segment.stages)
    moving = moved_bytes * thresholds.MOVE_INSTRUCTIONS_PERCENT // 100
    return moving + calls * thresholds.CALL_INSTRUCTIONS


def overlapped_bytes(
    segment: FusedSegment, source: TensorType, result: TensorType
) -> int:
    """Return the fewest bytes that hold the segment's source and result with overlap.

    Rows of the result may overwrite unneeded rows of the source. The result begins
    below the source by the most bytes that it is ahead of the first row that is still
    to be read:

        source           |  read  |  to be read     |
        result    | written       |  to be written  |
                  | ahead|
    """
    row_in = row_bytes(source)
    row_out = result.size_bytes // segment.stages[-1].height
    written_bytes = 0
    ahead_bytes = 0
    for access in _accessed_rows(segment, source.shape[1]):
        if access.is_write:
            written_bytes = (access.row + 1) * row_out
        elif written_bytes:
            # Written so far, minus the position of the row that is read now: if the
            # result began less far below, it would overwrite this row.
            ahead_bytes = max(ahead_bytes, written_bytes - access.row * row_in)
    below = max(source.size_bytes + align_up(ahead_bytes), result.size_bytes)
    return min(source.size_bytes + result.size_bytes, below)


@dataclass(frozen=True, slots=True)
class _RowAccess:
    """A write of band `row` of the result, or a read of the source from `row`."""

    is_write: bool
    row: int


def _accessed_rows(segment: FusedSegment, height: int) -> Iterator[_RowAccess]:
    """Yield the accesses to the result, and to a source of `height` rows, in order."""
    plan, stages = segment.plan, segment.stages
    final = stages[-1]
    for step in range(plan.steps):
        if plan.fed and step < height:
            yield _RowAccess(is_write=False, row=step)
        for stage, firing in zip(stages, plan.firings, strict=True):
            row = step // firing.period - firing.lag
            fires = (step + 1) % firing.period == 0
            if not fires or not 0 <= row < stage.height:
                continue
            if stage is final:
                yield _RowAccess(is_write=True, row=row)
            for name, start in zip(stage.sources, firing.starts, strict=True):
                if name == plan.source and start is None:
                    yield _RowAccess(is_write=False, row=row * stage.rows.stride)
