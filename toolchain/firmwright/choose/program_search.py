"""Search for the lowered programs on the time/memory Pareto front.

The memory need of each region is first estimated by a formula; estimates that prove too
low are corrected from actual memory plans. Only a plan reveals whether adjacent kernels
write in compatible directions and can share memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import TypeAlias

from firmwright.choose import thresholds
from firmwright.choose.aot_main import build_main
from firmwright.choose.flash_budget import (
    CallCandidates,
    CandidateCost,
    CandidatesPerCall,
)
from firmwright.choose.program_regions import (
    ProgramRegion,
    RegionSequence,
    extended_sequences,
    pareto_front,
    sequence_peak_bytes,
    single_call_candidates,
)
from firmwright.choose.row_streaming_loop import FusedSegment
from firmwright.choose.streaming_candidates import (
    RowsOf,
    SegmentBuilder,
    SegmentCandidates,
)
from firmwright.ir.graph.nodes import Call
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
    estimates: list[PlanEstimate] = []
    for trial in range(max(1, *widths) if widths else 0):
        picks = tuple(max(min(trial, width - 1), 0) for width in widths)
        estimates.append(estimate_plan(picks))
    needs: list[list[int]] = []
    for call, width in enumerate(widths):
        own_estimates = estimates[: max(width, 1)]
        own = [estimate.call_bytes.get(call, 0) for estimate in own_estimates]
        needs.append(own)
    return needs


def refine_choice(
    picks: CandidateIndices,
    goal: int,
    needs: Sequence[Sequence[int]],
    calls: Sequence[int],
    estimate_plan: EstimatePlan,
) -> CandidateIndices:
    """Change choices of `calls` in `picks` to reduce the workspace towards `goal`.

    `needs` has the bytes of each permitted candidate of each call. The number of trials
    is limited.
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
                    picks = trial
                    changed = True
    return picks


@dataclass(frozen=True, slots=True)
class ProgramCandidate:
    """A lowered module with its estimates; `segments` are ranges of call indices.

    `calls` has the one candidate of each call that the program uses outside of
    segments.
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
    """Search for programs; kernels take up to `percent` percent of the fastest's time.

    `ordered` lists each call's candidates by ascending `cost_of`, which is time, or
    time blended with flash. With `streamed_percent`, each segment contains a call that
    needs more than that share of the highest need, needs less than the highest itself,
    and takes no more flash than the first candidates of its calls. With `bytes_max`,
    each segment contains a call that needs more, and no region of a program needs more,
    priced at the least that is possible.
    """

    module: IRModule
    ordered: CandidatesPerCall
    rows_of: RowsOf
    estimate: Callable[[IRModule], PlanEstimate]
    percent: int = thresholds.CANDIDATE_PERCENT_MAX
    cost_of: CandidateCost = attrgetter("time")
    streamed_percent: int | None = None
    bytes_max: int | None = None

    def whole_calls(self) -> ProgramCandidate:
        """Return the program without row streaming of each call's first candidate."""
        picks = (0,) * len(self.ordered)
        return self._candidate((), picks, self._estimate_plan(picks, ()))

    def candidates(self) -> tuple[ProgramCandidate, ...]:
        """Return the programs on the Pareto front of cost and memory, by cost."""
        return self._programs(pareto_front)

    def smallest(self) -> tuple[ProgramCandidate, ...]:
        """Return the program with the lowest peak, in variants; () if there is none."""

        def last_of_front(
            regions: Sequence[ProgramRegion], count: int
        ) -> tuple[RegionSequence, ...]:
            return pareto_front(regions, count)[-1:]

        return self._programs(last_of_front)

    @property
    def has_sequence(self) -> bool:
        """Whether regions make up a program, as far as known without its plan."""
        return bool(pareto_front(self._first_regions, len(self.ordered)))

    @cached_property
    def _widths_in_search(self) -> list[int]:
        return self._widths(self.percent)

    @cached_property
    def _needs(self) -> list[list[int]]:
        """The bytes of each candidate of each call, from trial plans."""

        def estimate_whole_calls(picks: CandidateIndices) -> PlanEstimate:
            return self._estimate_plan(picks, ())

        return memory_need_per_candidate(self._widths_in_search, estimate_whole_calls)

    @cached_property
    def _first_regions(self) -> list[ProgramRegion]:
        """The regions with the bytes of the first estimate."""
        return self._affordable(self._regions(self._widths_in_search, self._needs))

    def _affordable(self, regions: Sequence[ProgramRegion]) -> list[ProgramRegion]:
        limit = self.bytes_max
        return [item for item in regions if limit is None or item.peak_bytes <= limit]

    def _programs(
        self,
        front_of: Callable[[Sequence[ProgramRegion], int], tuple[RegionSequence, ...]],
    ) -> tuple[ProgramCandidate, ...]:
        """Return the programs of the sequences that `front_of` gives for all calls."""
        needs, regions = self._needs, self._first_regions
        for _ in range(thresholds.PRICE_CORRECTIONS_MAX):
            # The bytes of a region are an estimate for itself alone. A plan of a whole
            # program shows where more are needed; with these bytes, the search runs
            # again, and may then prefer other regions. Bytes only grow, so few rounds
            # are enough.
            programs = front_of(regions, len(self.ordered))
            estimates: list[PlanEstimate] = []
            for program in programs:
                picks = self._picks(program)
                estimates.append(self._estimate_plan(picks, _segments(program)))
            needed = _underestimated(programs, estimates)
            if not needed:
                break
            corrected: list[ProgramRegion] = []
            for region in regions:
                if id(region) in needed:
                    region = replace(region, peak_bytes=needed[id(region)])
                corrected.append(region)
            regions = self._affordable(corrected)
        found: list[ProgramCandidate] = []
        for program, estimate in zip(programs, estimates, strict=True):
            found += self._variants(program, needs, estimate)
            found += self._with_another_segment(program, regions, estimate)
        return self._front(found)

    def _front(
        self, programs: Sequence[ProgramCandidate]
    ) -> tuple[ProgramCandidate, ...]:
        """Return the programs that need less memory than all cheaper ones, in order."""

        def rank(program: ProgramCandidate) -> tuple[int, int]:
            return self.cost_of(program), program.workspace_bytes

        front: list[ProgramCandidate] = []
        for program in sorted(programs, key=rank):
            if not front or program.workspace_bytes < front[-1].workspace_bytes:
                front.append(program)
        return tuple(front)

    def _widths(self, percent: int) -> list[int]:
        """Return, by call, the length of the shortest prefix with its fast candidates.

        These take at most `percent` percent of the fastest one's time.
        """
        widths: list[int] = []
        for _, candidates in self.ordered:
            limit = percent * min((item.time for item in candidates), default=0)
            width = 0
            for index, item in enumerate(candidates):
                if 100 * item.time <= limit:
                    width = index + 1
            widths.append(width)
        return widths

    def _regions(
        self, widths: Sequence[int], needs: Sequence[Sequence[int]]
    ) -> list[ProgramRegion]:
        """Return the regions that programs consist of: single calls and segments.

        `widths` limits the candidates of each call, and `needs` has their bytes.
        """
        allowed: list[Sequence[LoweringCandidate]] = []
        for (_, candidates), width in zip(self.ordered, widths, strict=True):
            allowed.append(candidates[:width])
        singles = single_call_candidates(allowed, needs, self.cost_of)
        if self.module.io.stream_input_rows:
            return self._fed_regions(singles)
        streamed = self._streamed_calls(singles)
        bytes_max = self.bytes_max
        if self.streamed_percent is not None:
            bytes_max = _highest_need(singles) - 1
        return [*singles, *self._segment_candidates(bytes_max).regions(streamed)]

    def _segment_candidates(self, bytes_max: int | None = None) -> SegmentCandidates:
        image_bytes: list[int] = []
        if self.streamed_percent is not None:
            for _, candidates in self.ordered:
                # The first candidate is the cheapest: segments take no more flash.
                image_bytes.append(candidates[0].image_bytes if candidates else 0)
        entry = self.module.entry_graph
        builder = SegmentBuilder(entry, self.rows_of, requested_tensors(self.module))
        return SegmentCandidates(
            self.module,
            entry,
            builder,
            image_bytes,
            bytes_max,
            in_place=self.bytes_max is not None,
        )

    def _streamed_calls(self, singles: Sequence[ProgramRegion]) -> set[int]:
        """Return the calls of which each segment must contain one.

        Without a limit, these are all, unless no call needs memory.
        """
        if self.bytes_max is not None:
            fitting = {region.first for region in self._affordable(singles)}
            return {region.first for region in singles} - fitting
        peak_bytes = _highest_need(singles)
        if self.streamed_percent is None:
            return {region.first for region in singles} if peak_bytes else set()
        limit = self.streamed_percent * peak_bytes
        return {region.first for region in singles if 100 * region.peak_bytes > limit}

    def _fed_regions(self, singles: Sequence[ProgramRegion]) -> list[ProgramRegion]:
        """Return the regions if the caller feeds the rows of the input.

        These are read once: a program begins with a segment that contains all readers.
        """
        entry = self.module.entry_graph
        inputs = {value.name for value in entry.params}
        last_reader = 0
        for index, call in enumerate(entry.body):
            if any(value.name in inputs for value in call.variables):
                last_reader = index
        regions = [region for region in singles if region.first]
        for region in self._segment_candidates().regions(self._streamed_calls(singles)):
            # Fed rows are gone after their step: only the first segment may read them.
            if region.first or region.end > last_reader:
                regions.append(region)
        return regions

    def _picks(self, program: RegionSequence) -> CandidateIndices:
        """Return the candidate of each call; inside segments, where none matters, 0."""
        picks = [0] * len(self.ordered)
        for region in program:
            picks[region.first] = region.choice
        return tuple(picks)

    def _build_module(
        self, picks: CandidateIndices, segments: Sequence[FusedSegment]
    ) -> IRModule:
        chosen: list[tuple[Call, LoweringCandidate | None]] = []
        for (call, candidates), pick in zip(self.ordered, picks, strict=True):
            chosen.append((call, candidates[pick] if candidates else None))
        return build_main(self.module, chosen, segments)

    def _estimate_plan(
        self, picks: CandidateIndices, segments: Sequence[FusedSegment]
    ) -> PlanEstimate:
        return self.estimate(self._build_module(picks, segments))

    def _variants(
        self,
        program: RegionSequence,
        needs: Sequence[Sequence[int]],
        estimate: PlanEstimate,
    ) -> list[ProgramCandidate]:
        """Return the program, and a variant with less memory if the plan needs more.

        The estimate ignores that adjacent calls may have to write in the same
        direction.
        """
        segments, picks = _segments(program), self._picks(program)
        peak_bytes = sequence_peak_bytes(program)
        variants = [self._candidate(program, picks, estimate)]
        if estimate.workspace_bytes <= peak_bytes:
            return variants
        estimates = {picks: estimate}

        def estimate_plan(trial: CandidateIndices) -> PlanEstimate:
            if trial not in estimates:
                estimates[trial] = self._estimate_plan(trial, segments)
            return estimates[trial]

        widths = self._widths(thresholds.VARIANT_PERCENT_MAX)
        calls: list[int] = []
        for region in program:
            if region.segment is None and widths[region.first] > 1:
                calls.append(region.first)
        allowed: list[Sequence[int]] = []
        for own_needs, width, pick in zip(needs, widths, picks, strict=True):
            # The present choice stays allowed, even if it is slower than the limit.
            allowed.append(own_needs[: max(width, pick + 1)])
        refined = refine_choice(picks, peak_bytes, allowed, calls, estimate_plan)
        if refined != picks:
            variants.append(self._candidate(program, refined, estimate_plan(refined)))
        return variants

    def _with_another_segment(
        self,
        program: RegionSequence,
        regions: Sequence[ProgramRegion],
        estimate: PlanEstimate,
    ) -> list[ProgramCandidate]:
        """Return programs with one more segment that need less memory than the plan.

        No region tells that tensors between two of them are in the way of both.
        """
        peak_bytes = sequence_peak_bytes(program)
        if estimate.workspace_bytes <= peak_bytes or not _segments(program):
            return []
        found: list[ProgramCandidate] = []
        for trial in extended_sequences(program, regions)[: thresholds.TRIAL_PLANS_MAX]:
            picks = self._picks(trial)
            own = self._estimate_plan(picks, _segments(trial))
            if own.workspace_bytes < estimate.workspace_bytes:
                found.append(self._candidate(trial, picks, own))
        return found

    def _candidate(
        self, program: RegionSequence, picks: CandidateIndices, estimate: PlanEstimate
    ) -> ProgramCandidate:
        """Return the program with the candidates `picks` for calls outside segments."""
        segments = _segments(program)
        inside: set[int] = set()
        for segment in segments:
            inside.update(range(segment.first, segment.end))
        calls: list[CallCandidates] = []
        outside: list[LoweringCandidate] = []
        for index, (call, candidates) in enumerate(self.ordered):
            picked = candidates[picks[index] : picks[index] + 1]
            calls.append((call, picked))
            if index not in inside:
                outside += picked
        kernels = list(outside)
        for segment in segments:
            kernels += segment.picks
        parts: list[LoweringCandidate | FusedSegment] = [*outside, *segments]
        return ProgramCandidate(
            module=self._build_module(picks, segments),
            time=sum(part.time for part in parts),
            instructions=sum(part.instructions for part in parts),
            workspace_bytes=estimate.workspace_bytes,
            image_bytes=sum(kernel.image_bytes for kernel in kernels),
            segments=tuple((segment.first, segment.end) for segment in segments),
            calls=calls,
        )


def _highest_need(regions: Sequence[ProgramRegion]) -> int:
    return max((region.peak_bytes for region in regions), default=0)


def _segments(program: RegionSequence) -> list[FusedSegment]:
    return [region.segment for region in program if region.segment is not None]


def _underestimated(
    programs: Sequence[RegionSequence], estimates: Sequence[PlanEstimate]
) -> dict[int, int]:
    """Return the bytes that underestimated regions need, by identity of the region."""
    needed: dict[int, int] = {}
    for program, estimate in zip(programs, estimates, strict=True):
        for region in program:
            calls = range(region.first, region.end)
            need = max(estimate.call_bytes.get(call, 0) for call in calls)
            if need > region.peak_bytes:
                needed[id(region)] = max(need, needed.get(id(region), 0))
    return needed
