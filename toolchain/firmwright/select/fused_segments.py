"""Fused segments: consecutive calls that can be computed together, row by row.

Tensors inside a segment are not used elsewhere and are never in memory as a whole. Only the last
call may be a row reduction (a mean of all rows).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from firmwright.ir.graph.devices import executing_device
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.graph.opdef import RowReduction, RowWindow
from firmwright.ir.tir.schedule import LoweringCandidate, RowKernels
from firmwright.select.row_streaming_loop import FusedSegment
from firmwright.select.row_streaming_plan import RowStage, StreamedTensor, plan_row_streaming

RowsOf: TypeAlias = Callable[[int, int], RowKernels | None]
"""Function of a call index and a band height that returns the call's kernels for such bands."""

_WORD_BYTES = 4


@dataclass(frozen=True)
class SegmentBuilder:
    """Builder of the fused segments of a function."""

    entry: Function
    rows_of: RowsOf

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
        found = [self.kernels(index, band) for index in range(first, end)]
        kernels = [row_kernels for row_kernels in found if row_kernels is not None]
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

    def _is_closed(self, first: int, end: int) -> bool:
        return all(
            first <= user < end
            for call in self.entry.body[first : end - 1]
            for value in call.outputs
            for user in self._users.get(value.name, (-1,))
        )

    @cached_property
    def _users(self) -> dict[str, list[int]]:
        users: dict[str, list[int]] = {}
        for index, call in enumerate(self.entry.body):
            for value in call.inputs:
                if value is not None:
                    users.setdefault(value.name, []).append(index)
        for value in self.entry.sinks:
            users.setdefault(value.name, []).append(-1)
        return users


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
