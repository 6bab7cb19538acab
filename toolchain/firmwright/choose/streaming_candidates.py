"""Row-streamed segments of a function as candidate regions of a program."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import TypeAlias

from firmwright.choose import segment_costs, thresholds
from firmwright.choose.flash_budget import solve_knapsack
from firmwright.choose.program_regions import ProgramRegion, drop_dominated
from firmwright.choose.row_streaming_loop import FusedSegment
from firmwright.choose.row_streaming_plan import (
    RowStage,
    RowStreamingPlan,
    StreamedTensor,
    plan_row_streaming,
)
from firmwright.ir.graph.devices import executing_device
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.module import IRModule
from firmwright.ops.opdef import RowReduction, RowWindow
from firmwright.ops.schedule import LoweringCandidate, RowKernels

RowsOf: TypeAlias = Callable[[int, int], RowKernels | None]
"""Returns the kernels of a call, by its index, for bands of a height, or None."""

_WORD_BYTES = 4
_CALLER = -1
"""The reader of results, in place of the index of a call."""


@dataclass(frozen=True)
class SegmentBuilder:
    """Builder of fused segments of a function: consecutive calls computed by rows.

    Tensors inside a segment are not used elsewhere and are never in memory as a whole.
    Only the last call may be a row reduction (a mean of all rows).
    """

    entry: Function
    rows_of: RowsOf
    requested: frozenset[str] = frozenset()
    """Tensors and constants that the user placed, which stay whole."""

    def segment(
        self, first: int, end: int, band: int = 1, *, feed: bool = False
    ) -> FusedSegment | None:
        """Return the segment of calls first..end - 1 with the fastest kernels.

        For the arguments and the result None see `shape`.
        """
        shape = self.shape(first, end, band, feed=feed)
        if shape is None:
            return None
        picks = tuple(fastest_kernel(kernels.candidates) for kernels in shape.kernels)
        return replace(shape, picks=picks)

    def shape(
        self, first: int, end: int, band: int = 1, *, feed: bool = False
    ) -> FusedSegment | None:
        """Fuse calls first..end - 1 into a segment that computes `band` rows at a time.

        No kernel is chosen or built. Return None if the calls cannot be fused. With
        `feed` the source is not in memory and its rows are supplied externally.
        """
        calls = self.entry.body[first:end]
        for call in calls:
            if _height(call) % band or executing_device(call):
                return None
        if self._has_requested(calls):
            return None
        kernels = self._kernels_of_segment(first, end, band)
        if kernels is None or not self._is_closed(first, end):
            return None
        stages: list[RowStage] = []
        needed_whole: set[str] = set()
        for call, row_kernels in zip(calls, kernels, strict=True):
            stages.append(_stage(call, row_kernels, band))
            for value in _whole_inputs(call, row_kernels.rows):
                needed_whole.add(value.name)
        if not all(stage.height for stage in stages):  # fewer rows than a band
            return None
        source = stages[0].sources[0]
        inside = {stage.result for stage in stages[:-1]}
        if needed_whole & inside or (feed and source in needed_whole):
            return None
        tensors = _streamed_tensors(calls, stages, inside, band)
        plan = plan_row_streaming(source, stages, tensors, feed=feed)
        if plan is None or not _are_rows_aligned(stages, tensors, plan):
            return None
        return FusedSegment(first, calls, tuple(kernels), (), tuple(stages), plan)

    def _kernels_of_segment(
        self, first: int, end: int, band: int
    ) -> list[RowKernels] | None:
        """Return each call's row kernels; None if missing or reduced too early."""
        kernels: list[RowKernels] = []
        for index in range(first, end):
            row_kernels = self.kernels(index, band)
            if row_kernels is None:
                return None
            if isinstance(row_kernels.rows, RowReduction) and index < end - 1:
                return None
            kernels.append(row_kernels)
        return kernels

    def kernels(self, index: int, band: int) -> RowKernels | None:
        """Return the row kernels of call `index`."""
        if (index, band) not in self._known:
            self._known[index, band] = self.rows_of(index, band)
        return self._known[index, band]

    @cached_property
    def _known(self) -> dict[tuple[int, int], RowKernels | None]:
        return {}

    def _has_requested(self, calls: Sequence[Call]) -> bool:
        """Return whether calls stream a requested tensor or read such a constant."""
        names: set[str] = set()
        for call in calls:
            for operand in call.inputs:
                if operand is not None and operand.constant:
                    names.add(operand.name)
        for call in calls[:-1]:
            names.update(value.name for value in call.outputs)
        return not names.isdisjoint(self.requested)

    def _is_closed(self, first: int, end: int) -> bool:
        """Return whether only calls of the segment use the values that it streams."""
        for call in self.entry.body[first : end - 1]:
            for value in call.outputs:
                users = self._users.get(value.name, [_CALLER])
                if not all(first <= user < end for user in users):
                    return False
        return True

    @cached_property
    def _users(self) -> dict[str, list[int]]:
        """The calls that read each value."""
        users: dict[str, list[int]] = {}
        for index, call in enumerate(self.entry.body):
            for value in call.variables:
                users.setdefault(value.name, []).append(index)
        for value in self.entry.sinks:
            users.setdefault(value.name, []).append(_CALLER)
        return users


def _are_rows_aligned(
    stages: Sequence[RowStage],
    tensors: Mapping[str, StreamedTensor],
    plan: RowStreamingPlan,
) -> bool:
    """Return whether all rows that kernels access start at a multiple of a word.

    Only the source may have rows of another size, if all its windows start at row 0 of
    a buffer or in the whole tensor.
    """
    for name, tensor in tensors.items():
        if name != plan.source and tensor.row_bytes % _WORD_BYTES:
            return False
    for stage, firing in zip(stages, plan.firings, strict=True):
        for name, start in zip(stage.sources, firing.starts, strict=True):
            if start and tensors[name].row_bytes % _WORD_BYTES:
                return False
    return True


def fastest_kernel(candidates: Sequence[LoweringCandidate]) -> LoweringCandidate:
    """Return the fastest candidate; of several, the one with the least scratch."""
    return min(candidates, key=attrgetter("time", "scratch_bytes"))


def _stage(call: Call, kernels: RowKernels, band: int) -> RowStage:
    """Return a call as a stage; a reduction reads bands without overlap."""
    if isinstance(kernels.rows, RowReduction):
        sources = tuple(value.name for value in call.variables)
        height = call.variables[0].type.shape[1]
        return RowStage(sources, "", RowWindow(band, band), height // band)
    sources = tuple(value.name for value in kernels.rows.row_inputs(call))
    height = call.outputs[0].type.shape[1]
    return RowStage(sources, call.outputs[0].name, kernels.rows, height // band)


def _height(call: Call) -> int:
    """Return the number of rows to divide: of the output, or a reduction's input."""
    shape = call.outputs[0].type.shape
    if len(shape) == 4 and shape[1] > 1:
        return shape[1]
    for value in call.variables:
        if len(value.type.shape) == 4:
            return value.type.shape[1]
    return 0


def _whole_inputs(call: Call, rows: RowWindow | RowReduction) -> list[Value]:
    """Return the inputs that a row kernel reads as whole tensors."""
    if isinstance(rows, RowReduction):
        return []
    values: list[Value] = []
    for index, value in enumerate(call.inputs):
        if index in rows.whole_inputs and value is not None:
            values.append(value)
    return values


def _streamed_tensors(
    calls: Sequence[Call], stages: Sequence[RowStage], inside: set[str], band: int
) -> dict[str, StreamedTensor]:
    """Return the tensors [N, rows, ...] that the calls read or write by rows.

    Those that the segment computes arrive `band` rows at a time, all others one row.
    """
    outputs: set[str] = set()
    for call in calls:
        outputs.update(value.name for value in call.outputs)
    tensors: dict[str, StreamedTensor] = {}
    for call, stage in zip(calls, stages, strict=True):
        for value in (*call.variables, *call.outputs):
            name, kind = value.name, value.type
            is_streamed = name in stage.sources or value in call.outputs
            if is_streamed and len(kind.shape) == 4:
                tensors[name] = StreamedTensor(
                    height=kind.shape[1],
                    row_bytes=segment_costs.row_bytes(kind),
                    outside=name not in inside,
                    band=band if name in outputs else 1,
                )
    return tensors


@dataclass(frozen=True)
class SegmentCandidates:
    """The fused segments of a function as regions of a program.

    A segment takes at most the `image_bytes` of its calls. Those that need more than
    `bytes_max` are left out before their kernels are built; None is no limit. With
    `in_place` they are priced at the least that any kernels need, whether or not such
    kernels exist.
    """

    module: IRModule
    entry: Function
    segments: SegmentBuilder
    image_bytes: Sequence[int] = ()
    bytes_max: int | None = None
    in_place: bool = False

    def regions(self, calls: AbstractSet[int]) -> list[ProgramRegion]:
        """Return the segments that contain one of `calls`, and end near them."""
        regions: list[ProgramRegion] = []
        for shapes in self._shapes(calls):
            own: list[ProgramRegion] = []
            for shape in shapes:
                own += self._price_segment(shape)
            regions += drop_dominated(own)
        return regions

    def floors(self, calls: AbstractSet[int]) -> list[ProgramRegion]:
        """Return the same segments without scratch and time; no kernel is built."""
        floors: list[ProgramRegion] = []
        for shapes in self._shapes(calls):
            for shape in shapes:
                least_bytes = self._end_bytes(shape) + max(self._stage_bytes(shape))
                floors.append(ProgramRegion(shape.first, shape.end, least_bytes, 0))
        return floors

    def _shapes(self, calls: AbstractSet[int]) -> Iterator[list[FusedSegment]]:
        """Yield the segments for all bands of the calls from one to another."""
        around = thresholds.SEGMENT_MARGIN_CALLS
        count = min(len(self.entry.body), max(calls, default=-1) + 1 + around)
        for first in range(max(min(calls, default=0) - around, 0), count):
            is_fed = self.module.io.stream_input_rows and first == 0
            last = min(count, first + thresholds.SEGMENT_CALLS_MAX)
            for end in range(first + (1 if is_fed else 2), last + 1):
                if self.segments.kernels(end - 1, 1) is None:
                    break
                if calls.isdisjoint(range(first, end)):
                    continue
                shapes: list[FusedSegment] = []
                for band in thresholds.BAND_ROWS:
                    shape = self.segments.shape(first, end, band, feed=is_fed)
                    if shape is not None:
                        shapes.append(shape)
                yield shapes

    def _price_segment(self, segment: FusedSegment) -> Iterator[ProgramRegion]:
        """Yield the segment with cost and bytes for each limit of kernel scratch."""
        ends_bytes, stages_bytes = self._end_bytes(segment), self._stage_bytes(segment)
        bytes_without_scratch = ends_bytes + max(stages_bytes)
        if self.bytes_max is not None and bytes_without_scratch > self.bytes_max:
            return
        overhead = segment_costs.overhead_instructions(segment, self._types)
        limits: set[int] = set()
        for row_kernels in segment.kernels:
            limits.update(item.scratch_bytes for item in row_kernels.candidates)
        for limit in sorted(limits):
            lean = self._with_scratch_limit(segment, limit)
            if lean is None:
                continue
            peak_bytes = 0
            time = instructions = overhead
            rows = zip(lean.picks, lean.stages, stages_bytes, strict=True)
            for pick, stage, stage_bytes in rows:
                scratch_bytes = segment_costs.align_up(pick.scratch_bytes)
                peak_bytes = max(peak_bytes, stage_bytes + scratch_bytes)
                time += stage.height * pick.time
                instructions += stage.height * pick.instructions
            peak_bytes += ends_bytes
            priced = replace(lean, time=time, instructions=instructions)
            first, end = segment.first, segment.end
            yield ProgramRegion(first, end, peak_bytes, time, segment=priced)

    def _with_scratch_limit(
        self, segment: FusedSegment, limit_bytes: int
    ) -> FusedSegment | None:
        """Return the segment with the fastest kernels within the limit, or None.

        If these take more flash than the segment may, the fastest ones within both
        limits.
        """
        lean: list[list[LoweringCandidate]] = []
        for row_kernels in segment.kernels:
            own = row_kernels.candidates
            lean.append([item for item in own if item.scratch_bytes <= limit_bytes])
        if not all(lean):
            return None
        picks = [fastest_kernel(items) for items in lean]
        own_bytes = sum(self.image_bytes[segment.first : segment.end])
        if self.image_bytes and sum(pick.image_bytes for pick in picks) > own_bytes:
            times: list[list[int]] = []
            sizes: list[list[int]] = []
            for items, stage in zip(lean, segment.stages, strict=True):
                times.append([stage.height * item.time for item in items])
                sizes.append([item.image_bytes for item in items])
            chosen = solve_knapsack(times, sizes, own_bytes)
            if chosen is None:
                return None
            picks = [items[index] for items, index in zip(lean, chosen, strict=True)]
        return replace(segment, picks=tuple(picks))

    def _end_bytes(self, segment: FusedSegment) -> int:
        """Return the bytes of the values in memory as a whole while the segment runs.

        These are its source and result, which overlap if the source is not needed
        afterwards, and the values that the segment reads besides or that later calls
        need.
        """
        source = self._by_name[segment.plan.source]
        result = segment.calls[-1].outputs[0]
        own = {source.name}
        read: set[str] = set()
        for call in segment.calls:
            own.update(value.name for value in call.outputs)
            read.update(value.name for value in call.inputs if value is not None)
        other_bytes = 0
        for name, value in self._by_name.items():
            is_needed = name in read or self._last[name] >= segment.end
            if name not in own and self._first[name] < segment.first and is_needed:
                other_bytes += self._bytes(value)
        source_bytes, result_bytes = self._bytes(source), self._bytes(result)
        if self.in_place and not segment.stages[-1].result:
            # The result of a reduction is written when its source has been read.
            return other_bytes + max(source_bytes, result_bytes)
        lasts = self._last[source.name] >= segment.end or not segment.stages[-1].result
        if lasts or not source_bytes or not result_bytes:
            return other_bytes + source_bytes + result_bytes
        overlapped = segment_costs.overlapped_bytes(segment, source.type, result.type)
        return other_bytes + segment_costs.align_up(overlapped)

    def _stage_bytes(self, segment: FusedSegment) -> list[int]:
        return segment_costs.stage_bytes(segment, self._types, in_place=self.in_place)

    def _bytes(self, value: Value) -> int:
        """Return the bytes of a value in the workspace; 0 if the caller stores it."""
        if value.name in self._caller_values:
            return 0
        return segment_costs.align_up(value.type.size_bytes)

    @cached_property
    def _caller_values(self) -> frozenset[str]:
        io = self.module.io
        inputs = () if io.inputs_in_pools else self.entry.params
        outputs = () if io.outputs_in_pools else self.entry.results
        return frozenset(value.name for value in (*inputs, *outputs))

    @cached_property
    def _by_name(self) -> dict[str, Value]:
        """The sources of the function and the outputs of its calls."""
        values = {value.name: value for value in self.entry.sources}
        for call in self.entry.body:
            for value in call.outputs:
                values[value.name] = value
        return values

    @cached_property
    def _types(self) -> dict[str, TensorType]:
        return {name: value.type for name, value in self._by_name.items()}

    @cached_property
    def _first(self) -> dict[str, int]:
        """The call that defines each value; -1 for a source."""
        first = {value.name: -1 for value in self.entry.sources}
        for index, call in enumerate(self.entry.body):
            for value in call.outputs:
                first[value.name] = index
        return first

    @cached_property
    def _last(self) -> dict[str, int]:
        """The last call that reads each value; -1 for none, the end if it lasts."""
        last = dict.fromkeys(self._by_name, -1)
        for index, call in enumerate(self.entry.body):
            for value in call.variables:
                last[value.name] = index
        lasting = list(self.entry.sinks)
        lasting += [state.value for state in self.entry.state]
        if self.module.io.preserve_input:
            lasting += self.entry.params
        for value in lasting:
            last[value.name] = len(self.entry.body)
        return last
