"""Candidate regions: single calls with each of their kernels, and row-streamed segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import add, attrgetter

from firmwright.ir.graph.nodes import Function, TensorType, Value
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import LoweringCandidate
from firmwright.select import policy
from firmwright.select.fused_segments import SegmentBuilder
from firmwright.select.pareto import ProgramRegion
from firmwright.select.row_streaming_loop import FusedSegment
from firmwright.select.segment_cost import (
    align_up,
    overlapped_bytes,
    scratch_bytes,
    scratch_limits,
    segment_instructions,
    segment_time,
    stage_bytes,
    with_scratch_limit,
)


def single_call_candidates(
    candidates_per_call: Sequence[Sequence[LoweringCandidate]],
    needs: Sequence[Sequence[int]],
    cost_of: Callable[[LoweringCandidate], int] = attrgetter("time"),
) -> list[ProgramRegion]:
    regions: list[ProgramRegion] = []
    for index, (candidates, bytes_of) in enumerate(zip(candidates_per_call, needs, strict=True)):
        costs = [cost_of(item) for item in candidates] or [0]
        rows = zip(bytes_of, costs, strict=False)
        own = [
            ProgramRegion(index, index + 1, size, time, pick)
            for pick, (size, time) in enumerate(rows)
        ]
        regions += drop_dominated(own)
    return regions


def drop_dominated(regions: Sequence[ProgramRegion]) -> list[ProgramRegion]:
    """Return the regions that need fewer bytes than every cheaper one."""
    frontier: list[ProgramRegion] = []
    for region in sorted(regions, key=lambda r: (r.cost, r.peak_bytes, r.choice)):
        if not frontier or region.peak_bytes < frontier[-1].peak_bytes:
            frontier.append(region)
    return frontier


@dataclass(frozen=True)
class SegmentCandidates:
    """The fused segments of a function as regions of a program."""

    module: IRModule
    entry: Function
    segments: SegmentBuilder

    def regions(self) -> list[ProgramRegion]:
        count = len(self.entry.body)
        regions: list[ProgramRegion] = []
        for first in range(count):
            shortest = 1 if self._streams_input(first) else 2
            for end in range(first + shortest, min(count, first + policy.SEGMENT_CALLS_MAX) + 1):
                if self.segments.kernels(end - 1, 1) is None:
                    break
                regions += drop_dominated(list(self._for_each_band(first, end)))
        return regions

    def _for_each_band(self, first: int, end: int) -> Iterator[ProgramRegion]:
        for band in policy.BAND_ROWS:
            segment = self.segments.segment(first, end, band, feed=self._streams_input(first))
            if segment is not None:
                yield from self._price_segment(segment)

    def _streams_input(self, first: int) -> bool:
        return self.module.io.stream_input_rows and first == 0

    def _price_segment(self, segment: FusedSegment) -> Iterator[ProgramRegion]:
        ends_bytes = self._bytes_besides_row_buffers(segment)
        stages_bytes = stage_bytes(segment, self._types)
        for limit in scratch_limits(segment):
            lean = with_scratch_limit(segment, limit)
            if lean is None:
                continue
            most = max(map(add, stages_bytes, scratch_bytes(lean)))
            priced = replace(lean, instructions=segment_instructions(lean, self._types))
            time = segment_time(lean, self._types)
            yield ProgramRegion(segment.first, segment.end, ends_bytes + most, time, segment=priced)

    def _bytes_besides_row_buffers(self, segment: FusedSegment) -> int:
        source, result = segment.plan.source, segment.calls[-1].outputs[0]
        read = {v.name for call in segment.calls for v in call.inputs if v is not None}
        defined = {v.name for call in segment.calls for v in call.outputs}
        other_bytes = sum(
            self._bytes(value)
            for value in self._by_name.values()
            if value.name not in (source, *defined)
            and self._first[value.name] < segment.first
            and (self._last[value.name] >= segment.end or value.name in read)
        )
        source_value = self._by_name[source]
        lasts = self._last[source] >= segment.end or not segment.stages[-1].result
        if lasts or not self._bytes(source_value) or not self._bytes(result):
            return other_bytes + self._bytes(source_value) + self._bytes(result)
        return other_bytes + align_up(overlapped_bytes(segment, source_value.type, result.type))

    def _bytes(self, value: Value) -> int:
        return 0 if value.name in self._caller_values else align_up(value.type.size_bytes)

    @cached_property
    def _caller_values(self) -> frozenset[str]:
        io = self.module.io
        inputs = () if io.inputs_in_pools else self.entry.params
        outputs = () if io.outputs_in_pools else self.entry.results
        return frozenset(value.name for value in (*inputs, *outputs))

    @cached_property
    def _by_name(self) -> dict[str, Value]:
        values = [*self.entry.sources]
        for call in self.entry.body:
            values += call.outputs
        return {value.name: value for value in values}

    @cached_property
    def _types(self) -> dict[str, TensorType]:
        return {name: value.type for name, value in self._by_name.items()}

    @cached_property
    def _first(self) -> dict[str, int]:
        definitions = {value.name: -1 for value in self.entry.sources}
        for index, call in enumerate(self.entry.body):
            definitions.update({value.name: index for value in call.outputs})
        return definitions

    @cached_property
    def _last(self) -> dict[str, int]:
        count = len(self.entry.body)
        last = dict.fromkeys(self._by_name, -1)
        for index, call in enumerate(self.entry.body):
            for value in call.inputs:
                if value is not None and value.name in last:
                    last[value.name] = index
        preserved = self.entry.params if self.module.io.preserve_input else ()
        state = [state.value for state in self.entry.state]
        for value in (*self.entry.sinks, *state, *preserved):
            last[value.name] = count
        return last
