"""Region sequences: the cheapest within every budget, compared with enumeration."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import cast

from firmwright.choose.program_regions import (
    ProgramRegion,
    RegionSequence,
    cheapest_within_budget,
    drop_dominated,
    extended_sequences,
    pareto_front,
    sequence_peak_bytes,
)
from firmwright.choose.row_streaming_loop import FusedSegment

CALLS = 5


def _total_cost(sequence: RegionSequence) -> int:
    return sum(region.cost for region in sequence)


def _random_regions(rng: random.Random) -> list[ProgramRegion]:
    return [
        ProgramRegion(
            first, end, rng.randint(1, 20), rng.randint(1, 20) * (end - first), pick
        )
        for first in range(CALLS)
        for end in range(first + 1, CALLS + 1)
        for pick in range(2)
        if end == first + 1 or rng.random() < 0.4
    ]


def _all(regions: Sequence[ProgramRegion], at: int = 0) -> Iterator[RegionSequence]:
    if at == CALLS:
        yield ()
    for region in regions:
        if region.first == at:
            for rest in _all(regions, region.end):
                yield (region, *rest)


def test_no_sequence_within_the_budget_is_cheaper() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        regions = _random_regions(rng)
        programs = list(_all(regions))
        for budget in range(1, 21):
            within = [p for p in programs if sequence_peak_bytes(p) <= budget]
            result = cheapest_within_budget(regions, CALLS, budget)
            if not within:
                assert result is None
                continue
            assert result is not None
            assert sequence_peak_bytes(result) <= budget
            assert _total_cost(result) == min(map(_total_cost, within))


def test_front_has_all_sequences_that_are_not_dominated() -> None:
    for seed in range(30):
        regions = _random_regions(random.Random(seed))
        points = {(sequence_peak_bytes(p), _total_cost(p)) for p in _all(regions)}
        best = {
            (size, count)
            for size, count in points
            if not any(
                s <= size and c <= count and (s, c) != (size, count) for s, c in points
            )
        }
        result = pareto_front(regions, CALLS)
        assert {(sequence_peak_bytes(p), _total_cost(p)) for p in result} == best
        assert [sequence_peak_bytes(p) for p in result] == sorted(
            map(sequence_peak_bytes, result), reverse=True
        )


def test_dominated_regions_are_dropped() -> None:
    slow, fat, best = (
        ProgramRegion(0, 1, 8, 9),
        ProgramRegion(0, 1, 9, 5),
        ProgramRegion(0, 1, 8, 5),
    )
    lean = ProgramRegion(0, 1, 4, 30)
    assert drop_dominated([slow, fat, best, lean]) == [best, lean]


def test_sequences_get_one_more_segment_that_needs_no_more_memory() -> None:
    segment = cast(FusedSegment, object())
    singles = [ProgramRegion(index, index + 1, 50, 10) for index in (2, 3, 4)]
    first = ProgramRegion(0, 2, 60, 30, segment=segment)
    dear = ProgramRegion(2, 4, 40, 25, segment=segment)
    cheap = ProgramRegion(3, 5, 60, 21, segment=segment)
    large = ProgramRegion(2, 4, 61, 20, segment=segment)
    over = ProgramRegion(1, 3, 10, 10, segment=segment)
    regions = [first, *singles, dear, cheap, large, over]
    assert extended_sequences((first, *singles), regions) == [
        (first, singles[0], cheap),
        (first, dear, singles[2]),
    ]
