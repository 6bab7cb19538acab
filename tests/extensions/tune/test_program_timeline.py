"""Predicted timelines of partitions, and moves that make runs shorter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from firmwright.extensions.tune.collage import (
    PartCost,
    PartitionCandidate,
    PartitionedProgram,
)
from firmwright.extensions.tune.program_timeline import ProgramTimeline, shorten_run
from firmwright.ir.graph.nodes import Function
from firmwright.partitioning.offload import OffloadShare
from firmwright.partitioning.partition_result import RegionCost
from firmwright.partitioning.regions import CallGroup
from tests.backends.toy_backends import chain

DEVICES = {"one": "npu0", "two": "npu1", "library": ""}


def function_of(*calls: tuple[str, str, str]) -> Function:
    main = chain(*calls).functions["main"]
    assert isinstance(main, Function)
    return main


def free(source: str, to: str, size_bytes: int) -> int:
    return 0


def on(call: int, target: str, count: int) -> PartitionCandidate:
    return PartitionCandidate(CallGroup((call,), target), RegionCost("ok", count))


def divided(call: int, **counts: int) -> PartitionCandidate:
    share = 100 // len(counts)
    parts = [PartCost(OffloadShare(name, share), n) for name, n in counts.items()]
    (first, *_) = counts
    cost = RegionCost("ok", max(counts.values()))
    return PartitionCandidate(CallGroup((call,), first), cost, tuple(parts))


def program(*parts: PartitionCandidate) -> PartitionedProgram:
    return PartitionedProgram(parts, sum(part.cost.count for part in parts), 0)


TWO_BRANCHES = function_of(("relu", "x", "a"), ("relu", "x", "b"), ("add", "a b", "c"))


@pytest.mark.parametrize(
    ("parts", "cycles"),
    [
        ([on(0, "", 5), on(1, "", 7), on(2, "", 2)], 14),
        ([on(0, "one", 5), on(1, "one", 7), on(2, "", 2)], 14),
        ([on(0, "one", 5), on(1, "two", 7), on(2, "", 2)], 9),
        ([on(0, "one", 5), on(1, "", 7), on(2, "", 2)], 9),
        ([on(0, "library", 5), on(1, "", 7), on(2, "", 2)], 14),
        ([divided(0, one=3, two=2), on(1, "two", 7), on(2, "", 2)], 11),
        ([divided(0, one=3, two=2), divided(1, one=3, two=4), on(2, "", 2)], 8),
        ([on(0, "one", 0), on(1, "two", 0), on(2, "", 0)], 0),
    ],
)
def test_devices_work_at_the_same_time(
    parts: Sequence[PartitionCandidate], cycles: int
) -> None:
    assert ProgramTimeline(TWO_BRANCHES, DEVICES, free).makespan(parts) == cycles


def test_transfers_are_part_of_the_way_to_and_from_a_device() -> None:
    def transfer(source: str, to: str, size_bytes: int) -> int:
        return 100

    line = ProgramTimeline(TWO_BRANCHES, DEVICES, transfer)
    on_engines = [on(0, "one", 5), on(1, "two", 7)]
    assert line.makespan([*on_engines, on(2, "", 2)]) == 100 + 7 + 100 + 2
    assert line.makespan([*on_engines, on(2, "two", 2)]) == 100 + 5 + 100 + 2 + 100


def test_work_moves_to_a_slower_device_that_is_free() -> None:
    line = ProgramTimeline(TWO_BRANCHES, DEVICES, free)
    fast = [on(0, "one", 10), on(1, "one", 10)]
    offers = [*fast, on(0, "two", 15), on(1, "two", 15), on(2, "", 2), on(2, "two", 90)]
    shorter = shorten_run(line, program(*fast, on(2, "", 2)), offers)
    assert [part.place for part in shorter.parts] == ["two", "one", "cpu"]
    assert line.makespan(shorter.parts) == 17


def test_operator_of_a_chain_is_divided_but_not_those_that_run_together() -> None:
    chained = function_of(("relu", "x", "a"), ("relu", "a", "b"))
    whole = [on(0, "one", 10), on(1, "one", 10)]
    offers = [*whole, divided(0, one=5, two=6), divided(1, one=10, two=10)]
    line = ProgramTimeline(chained, DEVICES, free)
    shorter = shorten_run(line, program(*whole), offers)
    assert [part.place for part in shorter.parts] == ["one:50,two:50", "one"]

    line = ProgramTimeline(TWO_BRANCHES, DEVICES, free)
    start = program(on(0, "one", 10), on(1, "two", 10), on(2, "", 2))
    assert shorten_run(line, start, [*offers, *start.parts]) is start


def test_failed_candidates_are_no_moves() -> None:
    line = ProgramTimeline(TWO_BRANCHES, DEVICES, free)
    start = program(on(0, "one", 10), on(1, "one", 10), on(2, "", 2))
    failed = PartitionCandidate(CallGroup((1,), "two"), RegionCost("failed", 0))
    assert shorten_run(line, start, [failed, *start.parts]) is start


def test_no_single_move_shortens_the_result_and_most_results_are_optimal() -> None:
    """Random costs of six calls on three devices, compared with all 729 programs."""
    edges = [("x", "a"), ("x", "b"), ("a", "c"), ("b", "d"), ("a", "e")]
    calls = [("relu", source, to) for source, to in edges]
    function = function_of(*calls, ("add", "c d", "f"))
    line = ProgramTimeline(function, DEVICES, free)
    rng = np.random.Generator(np.random.PCG64(11))
    optimal = 0
    for _ in range(20):
        table = rng.integers(1, 100, (6, 3))
        choices: list[list[PartitionCandidate]] = []
        for call, costs in enumerate(table):
            targets = zip(("", "one", "two"), costs, strict=True)
            choices.append([on(call, target, int(count)) for target, count in targets])
        cheapest = [min(own, key=lambda part: part.cost.count) for own in choices]
        offers = [part for own in choices for part in own]
        shorter = shorten_run(line, program(*cheapest), offers)
        length = line.makespan(shorter.parts)
        assert length <= line.makespan(cheapest)
        for call, own in enumerate(choices):
            for other in own:
                moved = [*shorter.parts]
                moved[call] = other
                assert line.makespan(moved) >= length
        optimal += length == min(map(line.makespan, product(*choices)))
        again = shorten_run(line, program(*cheapest), offers[::-1])
        assert line.makespan(again.parts) <= line.makespan(cheapest)
    assert optimal >= 10


def test_hundred_layers_on_three_engines_take_few_predictions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["x", *(f"t{index}" for index in range(100))]
    calls = [("relu", names[index], names[index + 1]) for index in range(100)]
    targets = ("", "one", "two", "three")
    offers: list[PartitionCandidate] = []
    for index in range(100):
        offers += [on(index, name, 10 + n) for n, name in enumerate(targets)]
        offers.append(divided(index, one=6, two=6, three=6))
    line = ProgramTimeline(function_of(*calls), {**DEVICES, "three": "npu2"}, free)
    counted: list[int] = []
    real = ProgramTimeline.makespan

    def makespan(self: ProgramTimeline, parts: Sequence[PartitionCandidate]) -> int:
        counted.append(len(parts))
        return real(self, parts)

    monkeypatch.setattr(ProgramTimeline, "makespan", makespan)
    shorter = shorten_run(line, program(*offers[::5]), offers)
    assert {part.place for part in shorter.parts} == {"one:33,two:33,three:33"}
    assert len(counted) == 1 + 2 * len(offers), "the second round changes nothing"
