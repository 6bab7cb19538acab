"""Candidate regions (single calls by kernel, row-streamed segments) and their Pareto front."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from operator import add, attrgetter
from typing import TypeAlias

from firmwright.base.grouping import group_pairs
from firmwright.choose import thresholds
from firmwright.choose.flash_budget import CandidateCost, solve_knapsack
from firmwright.choose.row_streaming_loop import ROW_ALIGNMENT, FusedSegment
from firmwright.choose.row_streaming_plan import RowStage, StreamedTensor, plan_row_streaming
from firmwright.ir.graph.devices import executing_device
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.module import IRModule
from firmwright.ops.opdef import RowReduction, RowWindow
from firmwright.ops.schedule import LoweringCandidate, RowKernels

RowsOf: TypeAlias = Callable[[int, int], RowKernels | None]
"""Function of a call index and a band height that returns the call's kernels for such bands."""

_WORD_BYTES = 4


@dataclass(frozen=True)
class SegmentBuilder:
    """Builder of the fused segments of a function: consecutive calls computed row by row.

    Tensors inside a segment are not used elsewhere and are never in memory as a whole. Only the
    last call may be a row reduction (a mean of all rows).
    """

    entry: Function
    rows_of: RowsOf
    requested: frozenset[str] = frozenset()
    """Tensors and constants that the user placed, which stay whole."""

    def segment(
        self, first: int, end: int, band: int = 1, *, feed: bool = False
    ) -> FusedSegment | None:
        """Fuse calls first..end - 1 into a segment that computes `band` rows at a time.

        Return None if they cannot be fused. With `feed` the source is not in memory and its
        rows are supplied externally.
        """
        calls = self.entry.body[first:end]
        if any(_height(call) % band or executing_device(call) for call in calls):
            return None
        if self._has_requested(calls):
            return None
        by_call = (self.kernels(index, band) for index in range(first, end))
        kernels = [row_kernels for row_kernels in by_call if row_kernels is not None]
        if len(kernels) < len(calls) or not self._is_closed(first, end):
            return None
        if any(isinstance(row_kernels.rows, RowReduction) for row_kernels in kernels[:-1]):
            return None
        pairs = tuple(zip(calls, kernels, strict=True))
        stages = [_stage(call, row_kernels, band) for call, row_kernels in pairs]
        if not all(stage.height for stage in stages):  # fewer rows than a band
            return None
        source = stages[0].sources[0]
        inside = {stage.result for stage in stages[:-1]}
        needed_whole = {value.name for call, k in pairs for value in _whole_inputs(call, k.rows)}
        if needed_whole & (inside | {source} if feed else inside):
            return None
        tensors = _streamed_tensors(calls, stages, inside, band)
        if any(t.row_bytes % _WORD_BYTES for name, t in tensors.items() if name != source):
            return None
        plan = plan_row_streaming(source, stages, tensors, feed=feed)
        if plan is None or any(
            start and tensors[name].row_bytes % _WORD_BYTES
            for stage, firing in zip(stages, plan.firings, strict=True)
            for name, start in zip(stage.sources, firing.starts, strict=True)
        ):
            return None
        picks = tuple(fastest_kernel(row_kernels.candidates) for row_kernels in kernels)
        return FusedSegment(first, calls, tuple(kernels), picks, tuple(stages), plan)

    def kernels(self, index: int, band: int) -> RowKernels | None:
        """Return the row kernels of call `index`, built on first use."""
        if (index, band) not in self._known:
            self._known[index, band] = self.rows_of(index, band)
        return self._known[index, band]

    @cached_property
    def _known(self) -> dict[tuple[int, int], RowKernels | None]:
        return {}

    def _has_requested(self, calls: Sequence[Call]) -> bool:
        """Return whether the calls stream a requested tensor or read a requested constant."""
        streamed = [value for call in calls[:-1] for value in call.outputs]
        constants = [v for call in calls for v in call.inputs if v is not None and v.constant]
        return any(value.name in self.requested for value in (*streamed, *constants))

    def _is_closed(self, first: int, end: int) -> bool:
        return all(
            first <= user < end
            for call in self.entry.body[first : end - 1]
            for value in call.outputs
            for user in self._users.get(value.name, (-1,))
        )

    @cached_property
    def _users(self) -> dict[str, list[int]]:
        calls = enumerate(self.entry.body)
        inside = ((value.name, index) for index, call in calls for value in call.variables)
        return group_pairs([*inside, *((value.name, -1) for value in self.entry.sinks)])


def fastest_kernel(candidates: Sequence[LoweringCandidate]) -> LoweringCandidate:
    return min(candidates, key=lambda item: (item.time, item.scratch_bytes))


def _stage(call: Call, kernels: RowKernels, band: int) -> RowStage:
    if isinstance(kernels.rows, RowReduction):
        folded = tuple(value.name for value in call.variables)
        height = call.variables[0].type.shape[1]
        return RowStage(folded, "", RowWindow(band, band), height // band)
    sources = tuple(value.name for value in kernels.rows.row_inputs(call))
    height = call.outputs[0].type.shape[1]
    return RowStage(sources, call.outputs[0].name, kernels.rows, height // band)


def _height(call: Call) -> int:
    """Return the number of rows to divide into bands: output rows, or input rows of a reduction."""
    shape = call.outputs[0].type.shape
    if len(shape) == 4 and shape[1] > 1:
        return shape[1]
    return next((v.type.shape[1] for v in call.variables if len(v.type.shape) == 4), 0)


def _whole_inputs(call: Call, rows: RowWindow | RowReduction) -> list[Value]:
    indices = rows.whole_inputs if isinstance(rows, RowWindow) else ()
    values = [value for index, value in enumerate(call.inputs) if index in indices]
    return [value for value in values if value is not None]


def _streamed_tensors(
    calls: Sequence[Call], stages: Sequence[RowStage], inside: set[str], band: int
) -> dict[str, StreamedTensor]:
    outputs = {value.name for call in calls for value in call.outputs}
    tensors: dict[str, StreamedTensor] = {}
    for call, stage in zip(calls, stages, strict=True):
        for value in (*call.variables, *call.outputs):
            name, kind = value.name, value.type
            if (name in stage.sources or value in call.outputs) and len(kind.shape) == 4:
                arriving = band if name in outputs else 1
                tensors[name] = StreamedTensor(
                    kind.shape[1], row_bytes(kind), name not in inside, arriving
                )
    return tensors


def row_bytes(kind: TensorType) -> int:
    return kind.size_bytes // kind.shape[1]


@dataclass(frozen=True, slots=True)
class ProgramRegion:
    """Calls first..end - 1: one call with its candidate `choice`, or a segment.

    `peak_bytes` counts all bytes in memory while the region runs. `cost` is predicted time, or time
    blended with flash bytes when the goal is `balanced`.
    """

    first: int
    end: int
    peak_bytes: int
    cost: int
    choice: int = 0
    segment: FusedSegment | None = None


RegionSequence: TypeAlias = tuple[ProgramRegion, ...]


def sequence_peak_bytes(sequence: RegionSequence) -> int:
    return max((region.peak_bytes for region in sequence), default=0)


def cheapest_within_budget(
    regions: Sequence[ProgramRegion], count: int, budget_bytes: int
) -> RegionSequence | None:
    """Return the cheapest sequence of regions within the budget that covers `count` calls.

    Ties go to the lowest peak. Returns None if nothing fits.
    """
    by_end = group_pairs((item.end, item) for item in regions if item.peak_bytes <= budget_bytes)
    best: list[tuple[int, int, ProgramRegion | None] | None] = [(0, 0, None), *([None] * count)]
    for end in range(1, count + 1):
        for region in by_end.get(end, ()):
            before = best[region.first]
            if before is None:
                continue
            cost = before[0] + region.cost, max(before[1], region.peak_bytes)
            known_best = best[end]
            if known_best is None or cost < known_best[:2]:
                best[end] = (*cost, region)
    sequence: list[ProgramRegion] = []
    while count:
        entry = best[count]
        if entry is None or entry[2] is None:
            return None
        sequence.append(entry[2])
        count = entry[2].first
    return tuple(reversed(sequence))


def pareto_front(regions: Sequence[ProgramRegion], count: int) -> tuple[RegionSequence, ...]:
    """Return the sequences from the cheapest to the one with the lowest peak."""
    front: list[RegionSequence] = []
    budget = max((region.peak_bytes for region in regions), default=0)
    while (program := cheapest_within_budget(regions, count, budget)) is not None:
        front.append(program)
        budget = sequence_peak_bytes(program) - 1
        if budget < 0:
            break
    return tuple(front)


def single_call_candidates(
    candidates_per_call: Sequence[Sequence[LoweringCandidate]],
    needs: Sequence[Sequence[int]],
    cost_of: CandidateCost = attrgetter("time"),
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
    """The fused segments of a function as regions of a program.

    A segment takes at most the `image_bytes` of its calls, with a few percent of slack.
    """

    module: IRModule
    entry: Function
    segments: SegmentBuilder
    image_bytes: Sequence[int] = ()

    def regions(self, calls: AbstractSet[int]) -> list[ProgramRegion]:
        """Return the segments that contain one of `calls`, and end near them."""
        around = thresholds.SEGMENT_MARGIN_CALLS
        count = min(len(self.entry.body), max(calls, default=-1) + 1 + around)
        regions: list[ProgramRegion] = []
        for first in range(max(min(calls, default=0) - around, 0), count):
            is_fed = self.module.io.stream_input_rows and first == 0
            last = min(count, first + thresholds.SEGMENT_CALLS_MAX)
            for end in range(first + (1 if is_fed else 2), last + 1):
                if self.segments.kernels(end - 1, 1) is None:
                    break
                if calls.isdisjoint(range(first, end)):
                    continue
                own: list[ProgramRegion] = []
                for band in thresholds.BAND_ROWS:
                    segment = self.segments.segment(first, end, band, feed=is_fed)
                    own += self._price_segment(segment) if segment is not None else ()
                regions += drop_dominated(own)
        return regions

    def _price_segment(self, segment: FusedSegment) -> Iterator[ProgramRegion]:
        types = {name: value.type for name, value in self._by_name.items()}
        ends_bytes, overhead = self._end_bytes(segment), _overhead_instructions(segment, types)
        stages_bytes = _stage_bytes(segment, types)
        kernels = [item for row_kernels in segment.kernels for item in row_kernels.candidates]
        for limit in sorted({item.scratch_bytes for item in kernels}):
            lean = self._with_scratch_limit(segment, limit)
            if lean is None:
                continue
            scratch = [_align_up(pick.scratch_bytes) for pick in lean.picks]
            peak_bytes = ends_bytes + max(map(add, stages_bytes, scratch))
            runs = list(zip(lean.picks, lean.stages, strict=True))
            time = sum(stage.height * pick.time for pick, stage in runs) + overhead
            instructions = sum(stage.height * pick.instructions for pick, stage in runs) + overhead
            priced = replace(lean, time=time, instructions=instructions)
            yield ProgramRegion(segment.first, segment.end, peak_bytes, time, segment=priced)

    def _with_scratch_limit(self, segment: FusedSegment, limit_bytes: int) -> FusedSegment | None:
        """Return the segment with the fastest kernels within the limit, or None without any."""
        lean = [
            [item for item in row_kernels.candidates if item.scratch_bytes <= limit_bytes]
            for row_kernels in segment.kernels
        ]
        if not all(lean):
            return None
        picks = list(map(fastest_kernel, lean))
        own_bytes = sum(self.image_bytes[segment.first : segment.end])
        budget = own_bytes * thresholds.STREAMED_FLASH_PERCENT // 100
        if self.image_bytes and sum(pick.image_bytes for pick in picks) > budget:
            times = [
                [stage.height * item.time for item in items]
                for items, stage in zip(lean, segment.stages, strict=True)
            ]
            sizes = [[item.image_bytes for item in items] for items in lean]
            chosen = solve_knapsack(times, sizes, budget)
            if chosen is None:
                return None
            picks = [items[index] for items, index in zip(lean, chosen, strict=True)]
        return replace(segment, picks=tuple(picks))

    def _end_bytes(self, segment: FusedSegment) -> int:
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
        return other_bytes + _align_up(_overlapped_bytes(segment, source_value.type, result.type))

    def _bytes(self, value: Value) -> int:
        return 0 if value.name in self._caller_values else _align_up(value.type.size_bytes)

    @cached_property
    def _caller_values(self) -> frozenset[str]:
        io = self.module.io
        inputs = () if io.inputs_in_pools else self.entry.params
        outputs = () if io.outputs_in_pools else self.entry.results
        return frozenset(value.name for value in (*inputs, *outputs))

    @cached_property
    def _by_name(self) -> dict[str, Value]:
        outputs = (value for call in self.entry.body for value in call.outputs)
        return {value.name: value for value in (*self.entry.sources, *outputs)}

    @cached_property
    def _first(self) -> dict[str, int]:
        definitions = {value.name: -1 for value in self.entry.sources}
        for index, call in enumerate(self.entry.body):
            definitions |= {value.name: index for value in call.outputs}
        return definitions

    @cached_property
    def _last(self) -> dict[str, int]:
        last = dict.fromkeys(self._by_name, -1)
        for index, call in enumerate(self.entry.body):
            last |= {value.name: index for value in call.variables}
        preserved = self.entry.params if self.module.io.preserve_input else ()
        state = [state.value for state in self.entry.state]
        lasting = (*self.entry.sinks, *state, *preserved)
        return last | {value.name: len(self.entry.body) for value in lasting}


# ---- cost of a segment -------------------------------------------------------------------------


def _stage_bytes(segment: FusedSegment, types: Mapping[str, TensorType]) -> list[int]:
    """Return the live bytes at each stage without the segment's source, result and scratch."""
    plan = segment.plan
    size = {n: _align_up(r.rows * row_bytes(types[n])) for n, r in plan.row_buffers.items()}
    transient = {name for name, r in plan.row_buffers.items() if r.is_transient}
    lasting = sum(size[name] for name in size if name not in transient or name == plan.source)
    rows = segment.kernels[-1].rows
    if isinstance(rows, RowReduction):
        lasting += _align_up(rows.count * rows.dtype.size_bytes)
    live_bytes = [lasting] * len(segment.stages)
    last_user = {name: i for i, stage in enumerate(segment.stages) for name in stage.sources}
    for producer, stage in enumerate(segment.stages):
        if stage.result in transient:
            for index in range(producer, last_user[stage.result] + 1):
                live_bytes[index] += size[stage.result]
    return live_bytes


def _overhead_instructions(segment: FusedSegment, types: Mapping[str, TensorType]) -> int:
    calls = sum(stage.height for stage in segment.stages)
    moved = 0
    for name, row_buffer in segment.plan.row_buffers.items():
        size_bytes = types[name].size_bytes
        moved += (row_buffer.rows - row_buffer.band) * size_bytes // row_buffer.band
        moved += size_bytes if name == segment.plan.source else 0
    calls += segment.plan.steps
    moving = moved * thresholds.MOVE_INSTRUCTIONS_PERCENT // 100
    return moving + calls * thresholds.CALL_INSTRUCTIONS


def _overlapped_bytes(segment: FusedSegment, source: TensorType, result: TensorType) -> int:
    """Return the fewest bytes that hold the segment's source and result with overlap.

    Rows of the result may overwrite unneeded rows of the source.
    """
    row_in = row_bytes(source)
    row_out = result.size_bytes // segment.stages[-1].height
    written_bytes, ahead_bytes = 0, 0
    for is_write, row in _accessed_rows(segment, source.shape[1]):
        if is_write:
            written_bytes = (row + 1) * row_out
        elif written_bytes:
            ahead_bytes = max(ahead_bytes, written_bytes - row * row_in)
    below = max(source.size_bytes + _align_up(ahead_bytes), result.size_bytes)
    return min(source.size_bytes + result.size_bytes, below)


def _accessed_rows(segment: FusedSegment, height: int) -> Iterator[tuple[bool, int]]:
    """Yield (True, band written to the result) and (False, first row read) in order."""
    plan, stages = segment.plan, segment.stages
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


def _align_up(size_bytes: int) -> int:
    return -(-size_bytes // ROW_ALIGNMENT) * ROW_ALIGNMENT
