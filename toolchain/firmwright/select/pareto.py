"""How a model may be cut into single calls and row-streamed segments, and what each way costs.

In: `ProgramRegion`s, each covering calls first..end - 1 at a price in bytes (all that is in memory
while it
runs) and predicted time. Out: the fastest sequence of parts under a budget of bytes, and the
frontier of those that no other beats in both. A sequence takes as many bytes as its most demanding
part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from firmwright.select.row_streaming_loop import FusedSegment


@dataclass(frozen=True, slots=True)
class ProgramRegion:
    """Calls first..end - 1: one call with its alternative `pick`, or a segment."""

    first: int
    end: int
    bytes: int
    time: int
    pick: int = 0
    segment: FusedSegment | None = None


RegionSequence: TypeAlias = tuple[ProgramRegion, ...]


def sequence_peak_bytes(program: RegionSequence) -> int:
    """What the program takes at its most demanding part."""
    return max((part.bytes for part in program), default=0)


def total_time(program: RegionSequence) -> int:
    return sum(part.time for part in program)


def cheapest_within_budget(
    parts: Sequence[ProgramRegion], count: int, budget_bytes: int
) -> RegionSequence | None:
    """The program of `count` calls of least time, no part of it above the budget.

    Of equally fast ones the one with the lowest peak; None where nothing fits.
    """
    by_end: dict[int, list[ProgramRegion]] = {}
    for part in parts:
        if part.bytes <= budget_bytes:
            by_end.setdefault(part.end, []).append(part)
    best: list[tuple[int, int, ProgramRegion | None] | None] = [(0, 0, None), *([None] * count)]
    for end in range(1, count + 1):
        for part in by_end.get(end, ()):
            before = best[part.first]
            if before is None:
                continue
            cost = before[0] + part.time, max(before[1], part.bytes)
            held = best[end]
            if held is None or cost < held[:2]:
                best[end] = (*cost, part)
    return _traced(best, count)


def _traced(
    best: Sequence[tuple[int, int, ProgramRegion | None] | None], count: int
) -> RegionSequence | None:
    program: list[ProgramRegion] = []
    at = count
    while at:
        held = best[at]
        if held is None or held[2] is None:
            return None
        program.insert(0, held[2])
        at = held[2].first
    return tuple(program)


def pareto_front(parts: Sequence[ProgramRegion], count: int) -> tuple[RegionSequence, ...]:
    """From the fastest program to the one that takes least, each with a lower peak."""
    found: list[RegionSequence] = []
    budget = max((part.bytes for part in parts), default=0)
    while (program := cheapest_within_budget(parts, count, budget)) is not None:
        found.append(program)
        budget = sequence_peak_bytes(program) - 1
        if budget < 0:
            break
    return tuple(found)
