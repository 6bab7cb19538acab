"""Pareto front of cost and memory for divisions of a program into single calls and segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from firmwright.select.row_streaming_loop import FusedSegment


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
    by_end: dict[int, list[ProgramRegion]] = {}
    for region in regions:
        if region.peak_bytes <= budget_bytes:
            by_end.setdefault(region.end, []).append(region)
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
