"""Candidates: programs of a model from the fastest to the one that takes least, as modules.

In: the alternatives of every call, best first, the row kernels of those that have some, and what
the pipeline's planner says of a module. Out: `ProgramCandidate`s, the fastest first. Parts are
priced by
arithmetic at first; where the planner says that one needs more, its price is corrected and the
programs are sought again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeAlias

from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import LoweringCandidate
from firmwright.select.aot_main import build_main
from firmwright.select.fused_segments import RowsOf, SegmentBuilder
from firmwright.select.memory_refinement import (
    CandidateIndices,
    PlanEstimate,
    memory_need_per_candidate,
    refine_choice,
)
from firmwright.select.pareto import (
    ProgramRegion,
    RegionSequence,
    pareto_front,
    sequence_peak_bytes,
)
from firmwright.select.row_streaming_loop import FusedSegment
from firmwright.select.streaming_candidates import SegmentCandidates, single_call_candidates

OrderedCandidates: TypeAlias = Sequence[tuple[Call, Sequence[LoweringCandidate]]]

_ROUNDS = 4
"""Times that the planner corrects the prices of parts."""
_MOVED_PERCENT = 110
"""What a call may cost of its fastest when it changes so that its neighbours fit."""


@dataclass(frozen=True, slots=True)
class ProgramCandidate:
    """A selected module with what it takes by estimate; `segments` are spans of call indices."""

    module: IRModule
    time: int
    instructions: int
    workspace_bytes: int
    image_bytes: int
    segments: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryTradeoff:
    """A way to compile a model: its workspace, the instructions of a run as predicted.

    `segments` are the spans of operators (first, end) that are computed row by row.
    """

    workspace_bytes: int
    instructions: int
    segments: tuple[tuple[int, int], ...]


def whole_call_candidate(
    module: IRModule,
    ordered: OrderedCandidates,
    picks: CandidateIndices,
    estimate: Callable[[IRModule], PlanEstimate],
) -> ProgramCandidate:
    """Every call as a whole, with those alternatives."""
    built = build_selected_module(module, ordered, picks)
    taken = _taken(ordered, picks)
    time, instructions, image_bytes = _spent(taken)
    return ProgramCandidate(built, time, instructions, estimate(built).workspace_bytes, image_bytes)


def build_selected_module(
    module: IRModule,
    ordered: OrderedCandidates,
    picks: CandidateIndices,
    segments: Sequence[FusedSegment] = (),
) -> IRModule:
    """The module with kernels and AOT main."""
    chosen = tuple(
        (call, found[pick] if found else None)
        for (call, found), pick in zip(ordered, picks, strict=True)
    )
    return build_main(module, chosen, segments)


def _taken(
    ordered: OrderedCandidates, picks: CandidateIndices, segments: Sequence[tuple[int, int]] = ()
) -> list[LoweringCandidate]:
    """The alternatives of the calls outside of `segments`."""
    inside = {index for first, end in segments for index in range(first, end)}
    return [
        found[pick]
        for index, ((_, found), pick) in enumerate(zip(ordered, picks, strict=True))
        if found and index not in inside
    ]


def _spent(taken: Sequence[LoweringCandidate]) -> tuple[int, int, int]:
    """Predicted time and instructions, and bytes of flash."""
    return (
        sum(item.time for item in taken),
        sum(item.instructions for item in taken),
        sum(item.image_bytes for item in taken),
    )


def count_within_percent(found: Sequence[LoweringCandidate], percent: int) -> int:
    """How many alternatives take at most that much time of the fastest, and all before them."""
    limit = percent * min((item.time for item in found), default=0)
    within = [index for index, item in enumerate(found) if 100 * item.time <= limit]
    return within[-1] + 1 if within else 0


@dataclass(frozen=True)
class ProgramSearch:
    """The programs of a module whose calls take at most `percent` of their fastest.

    `ordered` has each call's alternatives by their `price`: time, and what else shall be saved.
    """

    module: IRModule
    ordered: OrderedCandidates
    rows_of: RowsOf
    estimate: Callable[[IRModule], PlanEstimate]
    percent: int
    price: Callable[[LoweringCandidate], int] = attrgetter("time")

    def candidates(self) -> tuple[ProgramCandidate, ...]:
        """The fastest first; none takes more of both than another."""
        widths = [count_within_percent(found, self.percent) for _, found in self.ordered]
        needs = memory_need_per_candidate(widths, lambda picks: self._ask(picks, ()))
        parts = self._parts(widths, needs)
        for _ in range(_ROUNDS):
            programs = pareto_front(parts, len(self.ordered))
            estimates = [self._estimate(program) for program in programs]
            more = _underestimated(programs, estimates)
            if not more:
                break
            parts = [replace(p, bytes=more[id(p)]) if id(p) in more else p for p in parts]
        found: list[ProgramCandidate] = []
        for program, estimate in zip(programs, estimates, strict=True):
            found += self._variants(program, needs, estimate)
        return _unbeaten(found)

    def _parts(self, widths: Sequence[int], needs: Sequence[Sequence[int]]) -> list[ProgramRegion]:
        entry = self.module.entry
        assert isinstance(entry, Function)
        offered = [found[:count] for (_, found), count in zip(self.ordered, widths, strict=True)]
        fed = self.module.io.stream_input_rows
        singles = [
            part
            for part in single_call_candidates(offered, needs, self.price)
            if part.first or not fed
        ]
        return (
            singles
            + SegmentCandidates(self.module, entry, SegmentBuilder(entry, self.rows_of)).parts()
        )

    def _estimate(self, program: RegionSequence) -> PlanEstimate:
        return self._ask(self._picks(program), _segments(program))

    def _picks(self, program: RegionSequence) -> CandidateIndices:
        picked = {part.first: part.pick for part in program}
        return tuple(picked.get(index, 0) for index in range(len(self.ordered)))

    def _ask(self, picks: CandidateIndices, segments: Sequence[FusedSegment]) -> PlanEstimate:
        return self.estimate(build_selected_module(self.module, self.ordered, picks, segments))

    def _variants(
        self, program: RegionSequence, needs: Sequence[Sequence[int]], estimate: PlanEstimate
    ) -> list[ProgramCandidate]:
        """The program, and where its plan takes more than its peak, one with calls that agree.

        Calls next to each other may have to write in one direction, which no part's price says.
        """
        segments, picks = _segments(program), self._picks(program)
        found = [self._candidate(program, picks, estimate)]
        if estimate.workspace_bytes > sequence_peak_bytes(program):
            allowed = [
                count_within_percent(alternatives, _MOVED_PERCENT)
                for _, alternatives in self.ordered
            ]
            calls = [p.first for p in program if p.segment is None and allowed[p.first] > 1]
            taken = zip(needs, allowed, picks, strict=True)
            narrowed = [mine[: max(count, pick + 1)] for mine, count, pick in taken]
            agreed = refine_choice(
                picks,
                sequence_peak_bytes(program),
                narrowed,
                calls,
                lambda p: self._ask(p, segments),
            )
            found.append(self._candidate(program, agreed, self._ask(agreed, segments)))
        return found

    def _candidate(
        self, program: RegionSequence, picks: CandidateIndices, estimate: PlanEstimate
    ) -> ProgramCandidate:
        """`program` with `picks` for the calls outside of its segments."""
        by_rows = [part for part in program if part.segment is not None]
        spans = tuple((part.first, part.end) for part in by_rows)
        segments = _segments(program)
        time, instructions, image_bytes = _spent(_taken(self.ordered, picks, spans))
        return ProgramCandidate(
            build_selected_module(self.module, self.ordered, picks, segments),
            time + sum(part.time for part in by_rows),
            instructions + sum(segment.instructions for segment in segments),
            estimate.workspace_bytes,
            image_bytes + sum(pick.image_bytes for s in segments for pick in s.picks),
            spans,
        )


def _segments(program: RegionSequence) -> list[FusedSegment]:
    return [part.segment for part in program if part.segment is not None]


def _underestimated(
    programs: Sequence[RegionSequence], estimates: Sequence[PlanEstimate]
) -> dict[int, int]:
    """What the parts need whose price is too low, by the parts' ids."""
    more: dict[int, int] = {}
    for program, estimate in zip(programs, estimates, strict=True):
        for part in program:
            calls = range(part.first, part.end)
            needed = max(estimate.call_bytes.get(call, 0) for call in calls)
            if needed > part.bytes:
                more[id(part)] = max(needed, more.get(id(part), 0))
    return more


def _unbeaten(found: Sequence[ProgramCandidate]) -> tuple[ProgramCandidate, ...]:
    kept: list[ProgramCandidate] = []
    for item in sorted(found, key=lambda c: (c.time, c.workspace_bytes)):
        if not kept or item.workspace_bytes < kept[-1].workspace_bytes:
            kept.append(item)
    return tuple(kept)
