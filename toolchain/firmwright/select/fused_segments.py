"""Which consecutive calls can be computed row by row together, and what that takes.

In: the graph function and, for each call, its row kernels. Out: `FusedSegment`s. A segment has one
tensor that flows in and one that comes out; what is between them is needed nowhere else and never
lies in memory as a whole. Only the last call may be a fold (a mean of all rows).
"""

from __future__ import annotations

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
"""Kernels that make so many rows (the second number) of a call at a time."""

_WORD_BYTES = 4


@dataclass(frozen=True)
class SegmentBuilder:
    """Makes segments of a function's body."""

    entry: Function
    rows_of: RowsOf

    def segment(
        self, first: int, end: int, band: int = 1, *, feed: bool = False
    ) -> FusedSegment | None:
        """Calls first.. end - 1 as one segment, `band` rows at a time; None where they cannot be.

        `feed`: the source is not in memory, its rows come from outside.
        """
        calls = self.entry.body[first:end]
        if any(_height(call) % band or executing_device(call) for call in calls):
            return None
        kernels = [self.kernels(index, band) for index in range(first, end)]
        if any(found is None for found in kernels) or not self._is_closed(first, end):
            return None
        known = [found for found in kernels if found is not None]
        if any(isinstance(found.rows, RowReduction) for found in known[:-1]):
            return None
        pairs = tuple(zip(calls, known, strict=True))
        stages = [_stage(call, found, band) for call, found in pairs]
        if not all(stage.height for stage in stages):  # fewer rows than a band
            return None
        source = stages[0].sources[0]
        inside = {stage.result for stage in stages[:-1]}
        needed_whole = {value.name for call, k in pairs for value in _whole_inputs(call, k.rows)}
        if needed_whole & (inside | {source} if feed else inside):
            return None
        tensors = _tensors(calls, stages, inside, band)
        if any(t.row_bytes % _WORD_BYTES for name, t in tensors.items() if name != source):
            return None
        plan = plan_row_streaming(source, stages, tensors, feed=feed)
        if plan is None or any(
            start and tensors[name].row_bytes % _WORD_BYTES
            for stage, firing in zip(stages, plan.firings, strict=True)
            for name, start in zip(stage.sources, firing.starts, strict=True)
        ):
            return None
        picks = tuple(fastest_kernel(found.candidates) for found in known)
        return FusedSegment(first, calls, tuple(known), picks, tuple(stages), plan)

    def kernels(self, index: int, band: int) -> RowKernels | None:
        """The row kernels of call `index`, built when first asked for."""
        if (index, band) not in self._known:
            self._known[index, band] = self.rows_of(index, band)
        return self._known[index, band]

    @cached_property
    def _known(self) -> dict[tuple[int, int], RowKernels | None]:
        return {}

    def _is_closed(self, first: int, end: int) -> bool:
        """Whether what is between the first input and the last output is needed inside only."""
        return all(
            first <= user < end
            for call in self.entry.body[first : end - 1]
            for value in call.outputs
            for user in self._users.get(value.name, (-1,))
        )

    @cached_property
    def _users(self) -> dict[str, list[int]]:
        """The calls that need each value; -1 for the function's results and state."""
        users: dict[str, list[int]] = {}
        for index, call in enumerate(self.entry.body):
            for value in call.inputs:
                if value is not None:
                    users.setdefault(value.name, []).append(index)
        for value in self.entry.sinks:
            users.setdefault(value.name, []).append(-1)
        return users


def fastest_kernel(candidates: Sequence[LoweringCandidate]) -> LoweringCandidate:
    """The fastest by prediction."""
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
    """Rows that the call's bands are made of: of its output, of a fold's input."""
    shape = call.outputs[0].type.shape
    if len(shape) == 4 and shape[1] > 1:
        return shape[1]
    return next((v.type.shape[1] for v in call.variables if len(v.type.shape) == 4), 0)


def _whole_inputs(call: Call, rows: RowWindow | RowReduction) -> list[Value]:
    """The inputs of which every row takes everything."""
    indices = rows.whole_inputs if isinstance(rows, RowWindow) else ()
    found = [value for index, value in enumerate(call.inputs) if index in indices]
    return [value for value in found if value is not None]


def _tensors(
    calls: Sequence[Call], stages: Sequence[RowStage], inside: set[str], band: int
) -> dict[str, StreamedTensor]:
    """Every tensor of four dimensions whose rows the calls read or write."""
    values = [
        value
        for call, stage in zip(calls, stages, strict=True)
        for value in (*call.variables, *call.outputs)
        if value.name in stage.sources or value in call.outputs
    ]
    made = {value.name for call in calls for value in call.outputs}
    return {
        value.name: StreamedTensor(
            value.type.shape[1],
            row_bytes(value.type),
            value.name not in inside,
            band if value.name in made else 1,
        )
        for value in values
        if len(value.type.shape) == 4
    }


def row_bytes(kind: TensorType) -> int:
    """Bytes of one row (axis 1)."""
    return kind.size_bytes // kind.shape[1]
