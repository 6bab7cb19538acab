"""Search for the lowered programs on the time/memory Pareto front.

The memory need of each region is first estimated by a formula; estimates that prove too low are
corrected from actual memory plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeAlias

from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import LoweringCandidate
from firmwright.select import policy
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


@dataclass(frozen=True, slots=True)
class ProgramCandidate:
    """A selected module with its estimates; `segments` are ranges (first, end) of call indices."""

    module: IRModule
    time: int
    instructions: int
    workspace_bytes: int
    image_bytes: int
    segments: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryTradeoff:
    """Workspace and predicted instructions of one way to compile a model.

    `segments` are the ranges (first, end) of operators that are row-streamed.
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
    """Return the program that computes every call as a whole, with the given candidates."""
    selected = build_selected_module(module, ordered, picks)
    chosen = _chosen_candidates(ordered, picks)
    time, instructions, image_bytes = _total_estimates(chosen)
    return ProgramCandidate(
        selected, time, instructions, estimate(selected).workspace_bytes, image_bytes
    )


def build_selected_module(
    module: IRModule,
    ordered: OrderedCandidates,
    picks: CandidateIndices,
    segments: Sequence[FusedSegment] = (),
) -> IRModule:
    chosen = tuple(
        (call, candidates[pick] if candidates else None)
        for (call, candidates), pick in zip(ordered, picks, strict=True)
    )
    return build_main(module, chosen, segments)


def _chosen_candidates(
    ordered: OrderedCandidates, picks: CandidateIndices, segments: Sequence[tuple[int, int]] = ()
) -> list[LoweringCandidate]:
    inside = {index for first, end in segments for index in range(first, end)}
    return [
        candidates[pick]
        for index, ((_, candidates), pick) in enumerate(zip(ordered, picks, strict=True))
        if candidates and index not in inside
    ]


def _total_estimates(chosen: Sequence[LoweringCandidate]) -> tuple[int, int, int]:
    return (
        sum(item.time for item in chosen),
        sum(item.instructions for item in chosen),
        sum(item.image_bytes for item in chosen),
    )


def count_within_percent(candidates: Sequence[LoweringCandidate], percent: int) -> int:
    """Return the length of the shortest prefix that includes all candidates that are fast enough.

    The limit is `percent` percent of the time of the fastest one.
    """
    limit = percent * min((item.time for item in candidates), default=0)
    within = [index for index, item in enumerate(candidates) if 100 * item.time <= limit]
    return within[-1] + 1 if within else 0


@dataclass(frozen=True)
class ProgramSearch:
    """Search of programs whose candidates take at most `percent` percent of the fastest one's time.

    `ordered` has each call's candidates by ascending `cost_of`: time, or a blend of time and flash.
    """

    module: IRModule
    ordered: OrderedCandidates
    rows_of: RowsOf
    estimate: Callable[[IRModule], PlanEstimate]
    percent: int
    cost_of: Callable[[LoweringCandidate], int] = attrgetter("time")

    def candidates(self) -> tuple[ProgramCandidate, ...]:
        """Return the programs on the Pareto front of time and memory, fastest first."""
        widths = [count_within_percent(candidates, self.percent) for _, candidates in self.ordered]
        needs = memory_need_per_candidate(widths, lambda picks: self._estimate_plan(picks, ()))
        regions = self._regions(widths, needs)
        for _ in range(policy.PRICE_CORRECTIONS_MAX):
            programs = pareto_front(regions, len(self.ordered))
            estimates = [self._estimate(program) for program in programs]
            more = _underestimated(programs, estimates)
            if not more:
                break
            regions = [replace(r, peak_bytes=more[id(r)]) if id(r) in more else r for r in regions]
        programs_found: list[ProgramCandidate] = []
        for program, estimate in zip(programs, estimates, strict=True):
            programs_found += self._variants(program, needs, estimate)
        return _pareto_minimal(programs_found)

    def _regions(
        self, widths: Sequence[int], needs: Sequence[Sequence[int]]
    ) -> list[ProgramRegion]:
        entry = self.module.entry
        assert isinstance(entry, Function)
        allowed = [
            candidates[:count] for (_, candidates), count in zip(self.ordered, widths, strict=True)
        ]
        fed = self.module.io.stream_input_rows
        singles = [
            region
            for region in single_call_candidates(allowed, needs, self.cost_of)
            if region.first or not fed
        ]
        return (
            singles
            + SegmentCandidates(self.module, entry, SegmentBuilder(entry, self.rows_of)).regions()
        )

    def _estimate(self, program: RegionSequence) -> PlanEstimate:
        return self._estimate_plan(self._picks(program), _segments(program))

    def _picks(self, program: RegionSequence) -> CandidateIndices:
        picked = {region.first: region.choice for region in program}
        return tuple(picked.get(index, 0) for index in range(len(self.ordered)))

    def _estimate_plan(
        self, picks: CandidateIndices, segments: Sequence[FusedSegment]
    ) -> PlanEstimate:
        return self.estimate(build_selected_module(self.module, self.ordered, picks, segments))

    def _variants(
        self, program: RegionSequence, needs: Sequence[Sequence[int]], estimate: PlanEstimate
    ) -> list[ProgramCandidate]:
        """Return the program, and a variant with compatible neighbors if its plan exceeds its peak.

        Adjacent calls may have to write in the same direction, which the estimate per region
        ignores.
        """
        segments, picks = _segments(program), self._picks(program)
        variants = [self._candidate(program, picks, estimate)]
        if estimate.workspace_bytes > sequence_peak_bytes(program):
            allowed = [
                count_within_percent(alternatives, policy.VARIANT_PERCENT_MAX)
                for _, alternatives in self.ordered
            ]
            calls = [p.first for p in program if p.segment is None and allowed[p.first] > 1]
            limits = zip(needs, allowed, picks, strict=True)
            narrowed = [mine[: max(count, pick + 1)] for mine, count, pick in limits]
            agreed = refine_choice(
                picks,
                sequence_peak_bytes(program),
                narrowed,
                calls,
                lambda p: self._estimate_plan(p, segments),
            )
            variants.append(self._candidate(program, agreed, self._estimate_plan(agreed, segments)))
        return variants

    def _candidate(
        self, program: RegionSequence, picks: CandidateIndices, estimate: PlanEstimate
    ) -> ProgramCandidate:
        by_rows = [region for region in program if region.segment is not None]
        spans = tuple((region.first, region.end) for region in by_rows)
        segments = _segments(program)
        time, instructions, image_bytes = _total_estimates(
            _chosen_candidates(self.ordered, picks, spans)
        )
        return ProgramCandidate(
            build_selected_module(self.module, self.ordered, picks, segments),
            time + sum(region.cost for region in by_rows),
            instructions + sum(segment.instructions for segment in segments),
            estimate.workspace_bytes,
            image_bytes + sum(pick.image_bytes for s in segments for pick in s.picks),
            spans,
        )


def _segments(program: RegionSequence) -> list[FusedSegment]:
    return [region.segment for region in program if region.segment is not None]


def _underestimated(
    programs: Sequence[RegionSequence], estimates: Sequence[PlanEstimate]
) -> dict[int, int]:
    more: dict[int, int] = {}
    for program, estimate in zip(programs, estimates, strict=True):
        for region in program:
            calls = range(region.first, region.end)
            needed = max(estimate.call_bytes.get(call, 0) for call in calls)
            if needed > region.peak_bytes:
                more[id(region)] = max(needed, more.get(id(region), 0))
    return more


def _pareto_minimal(programs: Sequence[ProgramCandidate]) -> tuple[ProgramCandidate, ...]:
    front: list[ProgramCandidate] = []
    for item in sorted(programs, key=lambda c: (c.time, c.workspace_bytes)):
        if not front or item.workspace_bytes < front[-1].workspace_bytes:
            front.append(item)
    return tuple(front)
