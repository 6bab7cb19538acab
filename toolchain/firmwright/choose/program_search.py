"""Search for the lowered programs on the time/memory Pareto front.

The memory need of each region is first estimated by a formula; estimates that prove too low are
corrected from actual memory plans. Only a plan reveals whether adjacent kernels write in compatible
directions and can share memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeAlias

from firmwright.choose import thresholds
from firmwright.choose.aot_main import build_main
from firmwright.choose.flash_budget import CandidateCost, CandidatesPerCall
from firmwright.choose.row_streaming_loop import FusedSegment
from firmwright.choose.streaming_candidates import (
    ProgramRegion,
    RegionSequence,
    RowsOf,
    SegmentBuilder,
    SegmentCandidates,
    pareto_front,
    sequence_peak_bytes,
    single_call_candidates,
)
from firmwright.ir.module import IRModule
from firmwright.ir.verify_requests import requested_tensors
from firmwright.ops.schedule import LoweringCandidate

CandidateIndices: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """Workspace of a plan, and the live bytes at each call, by call index."""

    workspace_bytes: int
    call_bytes: Mapping[int, int]


EstimatePlan: TypeAlias = Callable[[CandidateIndices], PlanEstimate]


def memory_need_per_candidate(
    widths: Sequence[int], estimate_plan: EstimatePlan
) -> list[list[int]]:
    """Return, for each call and candidate, the bytes that must be live at the call.

    Trial plan k uses candidate k of every call, or its last one.
    """
    trials = range(max(1, *widths) if widths else 0)
    picks = [tuple(max(min(index, width - 1), 0) for width in widths) for index in trials]
    estimates = [estimate_plan(trial) for trial in picks]
    return [
        [estimate.call_bytes.get(call, 0) for estimate in estimates[: max(width, 1)]]
        for call, width in enumerate(widths)
    ]


def refine_choice(
    picks: CandidateIndices,
    goal: int,
    needs: Sequence[Sequence[int]],
    calls: Sequence[int],
    estimate_plan: EstimatePlan,
) -> CandidateIndices:
    """Change the choices of `calls` in `picks` to reduce the workspace towards `goal` bytes.

    `needs` has the bytes of each permitted candidate of each call. The number of trials is limited.
    """
    known: dict[CandidateIndices, int] = {}

    def workspace(choice: CandidateIndices) -> int:
        if choice not in known:
            known[choice] = estimate_plan(choice).workspace_bytes
        return known[choice]

    changed = True
    while changed and workspace(picks) > goal:
        changed = False
        for call in calls:
            before = picks
            for index, need in enumerate(needs[call]):
                if index == before[call]:
                    continue
                if len(known) >= thresholds.TRIAL_PLANS_MAX:
                    return picks
                trial = (*before[:call], index, *before[call + 1 :])
                if need < workspace(picks) and workspace(trial) < workspace(picks):
                    picks, changed = trial, True
    return picks


@dataclass(frozen=True, slots=True)
class ProgramCandidate:
    """A lowered module with its estimates; `segments` are ranges (first, end) of call indices.

    `calls` has the one candidate of each call that the program uses outside of segments.
    """

    module: IRModule
    time: int
    instructions: int
    workspace_bytes: int
    image_bytes: int
    segments: tuple[tuple[int, int], ...] = ()
    calls: CandidatesPerCall = ()


@dataclass(frozen=True)
class ProgramSearch:
    """Search for programs; a kernel may take `percent` percent of the time of the fastest one.

    `ordered` lists each call's candidates by ascending `cost_of`, which is time, or time blended
    with flash. With `streamed_percent`, each segment contains a call that needs more than that
    share of the highest need, and takes no more flash than the first candidates of its calls.
    """

    module: IRModule
    ordered: CandidatesPerCall
    rows_of: RowsOf
    estimate: Callable[[IRModule], PlanEstimate]
    percent: int = thresholds.CANDIDATE_PERCENT_MAX
    cost_of: CandidateCost = attrgetter("time")
    streamed_percent: int | None = None

    def whole_calls(self) -> ProgramCandidate:
        """Return the program without row streaming in which each call has its first candidate."""
        picks = (0,) * len(self.ordered)
        return self._candidate((), picks, self._estimate_plan(picks, ()))

    def candidates(self) -> tuple[ProgramCandidate, ...]:
        """Return the programs on the Pareto front of cost and memory, cheapest first."""
        widths = self._widths(self.percent)
        needs = memory_need_per_candidate(widths, lambda picks: self._estimate_plan(picks, ()))
        regions = self._regions(widths, needs)
        for _ in range(thresholds.PRICE_CORRECTIONS_MAX):
            programs = pareto_front(regions, len(self.ordered))
            estimates = [self._estimate_plan(self._picks(p), _segments(p)) for p in programs]
            more = _underestimated(programs, estimates)
            if not more:
                break
            regions = [replace(r, peak_bytes=more[id(r)]) if id(r) in more else r for r in regions]
        found: list[ProgramCandidate] = []
        for program, estimate in zip(programs, estimates, strict=True):
            found += self._variants(program, needs, estimate)
        front: list[ProgramCandidate] = []
        for item in sorted(found, key=lambda c: (self.cost_of(c), c.workspace_bytes)):
            if not front or item.workspace_bytes < front[-1].workspace_bytes:
                front.append(item)
        return tuple(front)

    def _widths(self, percent: int) -> list[int]:
        """Return, by call, the length of the shortest prefix that has all its fast candidates.

        These take at most `percent` percent of the fastest one's time.
        """
        widths = []
        for _, candidates in self.ordered:
            limit = percent * min((item.time for item in candidates), default=0)
            within = [index for index, item in enumerate(candidates) if 100 * item.time <= limit]
            widths.append(within[-1] + 1 if within else 0)
        return widths

    def _regions(
        self, widths: Sequence[int], needs: Sequence[Sequence[int]]
    ) -> list[ProgramRegion]:
        entry, fed = self.module.entry_graph, self.module.io.stream_input_rows
        pairs = zip(self.ordered, widths, strict=True)
        allowed = [candidates[:count] for (_, candidates), count in pairs]
        singles = single_call_candidates(allowed, needs, self.cost_of)
        builder = SegmentBuilder(entry, self.rows_of, requested_tensors(self.module))
        percent, image_bytes = -1, list[int]()
        if self.streamed_percent is not None:
            percent = self.streamed_percent
            image_bytes = [items[0].image_bytes if items else 0 for _, items in self.ordered]
        segments = SegmentCandidates(self.module, entry, builder, image_bytes)
        peak_bytes = max((region.peak_bytes for region in singles), default=0)
        high = {r.first for r in singles if 100 * r.peak_bytes > percent * peak_bytes}
        regions = [region for region in singles if region.first or not fed]
        regions += segments.regions(high)
        if not fed:
            return regions
        # Rows that the caller feeds are read once: the first segment contains all readers.
        fed_names = {value.name for value in entry.params}
        readers = [
            index
            for index, call in enumerate(entry.body)
            if any(value.name in fed_names for value in call.variables)
        ]
        return [region for region in regions if region.first or region.end > max(readers)]

    def _picks(self, program: RegionSequence) -> CandidateIndices:
        picked = {region.first: region.choice for region in program}
        return tuple(picked.get(index, 0) for index in range(len(self.ordered)))

    def _build_module(self, picks: CandidateIndices, segments: Sequence[FusedSegment]) -> IRModule:
        pairs = zip(self.ordered, picks, strict=True)
        chosen = [(call, items[pick] if items else None) for (call, items), pick in pairs]
        return build_main(self.module, chosen, segments)

    def _estimate_plan(
        self, picks: CandidateIndices, segments: Sequence[FusedSegment]
    ) -> PlanEstimate:
        return self.estimate(self._build_module(picks, segments))

    def _variants(
        self, program: RegionSequence, needs: Sequence[Sequence[int]], estimate: PlanEstimate
    ) -> list[ProgramCandidate]:
        """Return the program, and a variant with less memory if the plan exceeds the estimate.

        The estimate ignores that adjacent calls may have to write in the same direction.
        """
        segments, picks = _segments(program), self._picks(program)
        peak_bytes = sequence_peak_bytes(program)
        variants = [self._candidate(program, picks, estimate)]
        if estimate.workspace_bytes > peak_bytes:
            allowed = self._widths(thresholds.VARIANT_PERCENT_MAX)
            calls = [p.first for p in program if p.segment is None and allowed[p.first] > 1]
            limits = zip(needs, allowed, picks, strict=True)
            narrowed = [mine[: max(count, pick + 1)] for mine, count, pick in limits]
            agreed = refine_choice(
                picks, peak_bytes, narrowed, calls, lambda p: self._estimate_plan(p, segments)
            )
            variants.append(self._candidate(program, agreed, self._estimate_plan(agreed, segments)))
        return variants

    def _candidate(
        self, program: RegionSequence, picks: CandidateIndices, estimate: PlanEstimate
    ) -> ProgramCandidate:
        by_rows = [region for region in program if region.segment is not None]
        spans = tuple((region.first, region.end) for region in by_rows)
        inside = {index for first, end in spans for index in range(first, end)}
        picked = [
            (call, items[pick : pick + 1])
            for (call, items), pick in zip(self.ordered, picks, strict=True)
        ]
        outside: list[LoweringCandidate] = []
        for index, (_, items) in enumerate(picked):
            if index not in inside:
                outside += items
        segments = _segments(program)
        of_segments = [kernel for segment in segments for kernel in segment.picks]
        parts: list[LoweringCandidate | FusedSegment] = [*outside, *segments]
        return ProgramCandidate(
            module=self._build_module(picks, segments),
            time=sum(part.time for part in parts),
            instructions=sum(part.instructions for part in parts),
            workspace_bytes=estimate.workspace_bytes,
            image_bytes=sum(kernel.image_bytes for kernel in (*outside, *of_segments)),
            segments=spans,
            calls=picked,
        )


def _segments(program: RegionSequence) -> list[FusedSegment]:
    return [region.segment for region in program if region.segment is not None]


def _underestimated(
    programs: Sequence[RegionSequence], estimates: Sequence[PlanEstimate]
) -> dict[int, int]:
    """Return the bytes that underestimated regions need in the plans, by identity of the region."""
    more: dict[int, int] = {}
    for program, estimate in zip(programs, estimates, strict=True):
        for region in program:
            calls = range(region.first, region.end)
            needed = max(estimate.call_bytes.get(call, 0) for call in calls)
            if needed > region.peak_bytes:
                more[id(region)] = max(needed, more.get(id(region), 0))
    return more
