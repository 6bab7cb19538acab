"""The regions that programs consist of, and their sequences on the Pareto front."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import TypeAlias

from firmwright.choose.flash_budget import CandidateCost
from firmwright.choose.row_streaming_loop import FusedSegment
from firmwright.ops.schedule import LoweringCandidate


@dataclass(frozen=True, slots=True)
class ProgramRegion:
    """Calls first..end - 1: one call with its candidate `choice`, or a segment.

    `peak_bytes` counts all bytes in memory while the region runs. `cost` is predicted
    time, or time blended with flash bytes when the goal is `balanced`.
    """

    first: int
    end: int
    peak_bytes: int
    cost: int
    choice: int = 0
    segment: FusedSegment | None = None


RegionSequence: TypeAlias = tuple[ProgramRegion, ...]


def sequence_peak_bytes(sequence: RegionSequence) -> int:
    """Return the bytes of the region of the sequence that needs the most."""
    return max((region.peak_bytes for region in sequence), default=0)


def extended_sequences(
    sequence: RegionSequence, regions: Sequence[ProgramRegion]
) -> list[RegionSequence]:
    """Return the sequences with one of the segments in place of single calls.

    They need no more than the sequence; those that cost the least are first.
    """
    peak_bytes = sequence_peak_bytes(sequence)
    singles = {region.first: region for region in sequence if region.segment is None}
    extended: list[tuple[int, RegionSequence]] = []
    for region in regions:
        calls = range(region.first, region.end)
        is_single = all(call in singles for call in calls)
        if region.segment is None or region.peak_bytes > peak_bytes or not is_single:
            continue
        cost = region.cost - sum(singles[call].cost for call in calls)
        others = [own for own in sequence if own.first not in calls]
        placed = sorted([*others, region], key=attrgetter("first"))
        extended.append((cost, tuple(placed)))
    return [sequence for _, sequence in sorted(extended, key=itemgetter(0))]


@dataclass(frozen=True, slots=True)
class _BestSequence:
    """The best sequence of regions up to a call: cost, peak, and its last region."""

    cost: int
    peak_bytes: int
    last: ProgramRegion | None = None


def cheapest_within_budget(
    regions: Sequence[ProgramRegion], count: int, budget_bytes: int
) -> RegionSequence | None:
    """Return the cheapest sequence of regions within the budget for `count` calls.

    Ties go to the lowest peak. Returns None if nothing fits. The best sequence up to
    each call is built from the best ones up to earlier calls:

        calls   0     1     2     3     4
                |-----|-----|-----|-----|    single calls
                      |-----------|          a segment of the calls 1 and 2
    """
    by_end: dict[int, list[ProgramRegion]] = {}
    for region in regions:
        if region.peak_bytes <= budget_bytes:
            by_end.setdefault(region.end, []).append(region)
    best: dict[int, _BestSequence] = {0: _BestSequence(0, 0)}
    for end in range(1, count + 1):
        for region in by_end.get(end, ()):
            before = best.get(region.first)
            if before is None:
                continue
            cost = before.cost + region.cost
            peak_bytes = max(before.peak_bytes, region.peak_bytes)
            known = best.get(end)
            if known is None or (cost, peak_bytes) < (known.cost, known.peak_bytes):
                best[end] = _BestSequence(cost, peak_bytes, region)
    sequence: list[ProgramRegion] = []
    end = count
    while end:
        entry = best.get(end)
        if entry is None or entry.last is None:
            return None
        sequence.append(entry.last)
        end = entry.last.first
    sequence.reverse()
    return tuple(sequence)


def pareto_front(
    regions: Sequence[ProgramRegion], count: int
) -> tuple[RegionSequence, ...]:
    """Return the sequences from the cheapest to the one with the lowest peak."""
    front: list[RegionSequence] = []
    budget_bytes = max((region.peak_bytes for region in regions), default=0)
    while budget_bytes >= 0:
        program = cheapest_within_budget(regions, count, budget_bytes)
        if program is None:
            break
        front.append(program)
        budget_bytes = sequence_peak_bytes(program) - 1
    return tuple(front)


def single_call_candidates(
    candidates_per_call: Sequence[Sequence[LoweringCandidate]],
    needs: Sequence[Sequence[int]],
    cost_of: CandidateCost = attrgetter("time"),
) -> list[ProgramRegion]:
    """Return the regions of single calls by candidate; `needs` has their bytes.

    A call without candidates, such as a view, is a region without cost.
    """
    regions: list[ProgramRegion] = []
    rows = zip(candidates_per_call, needs, strict=True)
    for index, (candidates, own_needs) in enumerate(rows):
        costs = list(map(cost_of, candidates)) or [0]
        own: list[ProgramRegion] = []
        priced = zip(own_needs, costs, strict=False)
        for choice, (peak_bytes, cost) in enumerate(priced):
            own.append(ProgramRegion(index, index + 1, peak_bytes, cost, choice))
        regions += drop_dominated(own)
    return regions


def drop_dominated(regions: Sequence[ProgramRegion]) -> list[ProgramRegion]:
    """Return the regions that need fewer bytes than every cheaper one."""
    frontier: list[ProgramRegion] = []
    for region in sorted(regions, key=attrgetter("cost", "peak_bytes", "choice")):
        if not frontier or region.peak_bytes < frontier[-1].peak_bytes:
            frontier.append(region)
    return frontier
