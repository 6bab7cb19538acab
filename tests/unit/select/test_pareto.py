"""Programs of parts: the fastest under every budget, against all sequences."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from firmwright.select.pareto import (
    ProgramRegion,
    RegionSequence,
    cheapest_within_budget,
    pareto_front,
    sequence_peak_bytes,
    total_time,
)
from firmwright.select.streaming_candidates import drop_dominated

CALLS = 5


def _random_parts(rng: random.Random) -> list[ProgramRegion]:
    return [
        ProgramRegion(first, end, rng.randint(1, 20), rng.randint(1, 20) * (end - first), pick)
        for first in range(CALLS)
        for end in range(first + 1, CALLS + 1)
        for pick in range(2)
        if end == first + 1 or rng.random() < 0.4
    ]


def _all(parts: Sequence[ProgramRegion], at: int = 0) -> Iterator[RegionSequence]:
    if at == CALLS:
        yield ()
    for part in parts:
        if part.first == at:
            for rest in _all(parts, part.end):
                yield (part, *rest)


def test_no_program_under_the_budget_is_faster() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        parts = _random_parts(rng)
        programs = list(_all(parts))
        for budget in range(1, 21):
            within = [p for p in programs if sequence_peak_bytes(p) <= budget]
            found = cheapest_within_budget(parts, CALLS, budget)
            if not within:
                assert found is None
                continue
            assert found is not None
            assert sequence_peak_bytes(found) <= budget
            assert total_time(found) == min(map(total_time, within))


def test_the_frontier_is_what_no_program_beats_in_both() -> None:
    for seed in range(30):
        parts = _random_parts(random.Random(seed))
        points = {(sequence_peak_bytes(p), total_time(p)) for p in _all(parts)}
        best = {
            (size, count)
            for size, count in points
            if not any(s <= size and c <= count and (s, c) != (size, count) for s, c in points)
        }
        found = pareto_front(parts, CALLS)
        assert {(sequence_peak_bytes(p), total_time(p)) for p in found} == best
        assert [sequence_peak_bytes(p) for p in found] == sorted(
            map(sequence_peak_bytes, found), reverse=True
        )


def test_parts_that_others_beat_are_left_out() -> None:
    slow, fat, best = (
        ProgramRegion(0, 1, 8, 9),
        ProgramRegion(0, 1, 9, 5),
        ProgramRegion(0, 1, 8, 5),
    )
    lean = ProgramRegion(0, 1, 4, 30)
    assert drop_dominated([slow, fat, best, lean]) == [best, lean]
