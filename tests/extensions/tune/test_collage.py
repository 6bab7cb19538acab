"""The search for a partition with given costs, and how a result is applied."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from firmwright.base.errors import UsageError
from firmwright.extensions.tune.collage import (
    PartitionCandidate,
    describe_regions,
    restrict_to_known_costs,
    search_partitions,
)
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.patterns import op, wildcard
from firmwright.ir.module import IRModule
from firmwright.partitioning.byoc import partition_module, run_partition
from firmwright.partitioning.partition_result import (
    RegionCost,
    make_strategy,
    read_partition,
)
from firmwright.partitioning.pattern_matching import (
    active_backends,
    all_matches,
    greedy_cover,
    with_unmatched,
)
from firmwright.partitioning.per_target_passes import PassTimer
from firmwright.partitioning.regions import CallGroup
from firmwright.targets.backend_registry import BACKENDS
from firmwright.targets.registry import parse_target
from tests.backends.toy_backends import Toy, chain

pytestmark = pytest.mark.usefixtures("no_backends")
CHAIN = chain(("add", "x z", "a"), ("relu", "a", "b"), ("tanh", "b", "c"))
SUM = op("add").optional(lambda inner: op("relu", inner))


def function_of(module: IRModule) -> Function:
    main = module.functions["main"]
    assert isinstance(main, Function)
    return main


def candidate(
    calls: tuple[int, ...], target: str, count: int, scratch: int = 0
) -> PartitionCandidate:
    return PartitionCandidate(
        CallGroup(calls, target), RegionCost("ok", count, scratch={"ram": scratch})
    )


def free(source: str, to: str, size_bytes: int) -> int:
    return 0


def owners(program) -> list[str]:
    return [part.group.target for part in program.parts]


def test_cheapest_partition_is_chosen():
    offers = [candidate((i,), "", 10) for i in range(3)]
    offers += [
        candidate((0, 1), "one", 15),
        candidate((0,), "one", 8),
        candidate((2,), "two", 11),
    ]
    (best,) = search_partitions(function_of(CHAIN), offers, free)
    assert (owners(best), best.count) == (["one", ""], 25)


def test_transfer_cost_counts_once_per_border():
    moved = []

    def transfer(source: str, to: str, size_bytes: int) -> int:
        moved.append((source, to, size_bytes))
        return 3

    offers = [candidate((i,), "", 10) for i in range(3)]
    offers += [candidate((i,), "one", 8) for i in range(3)]
    (best,) = search_partitions(function_of(CHAIN), offers, transfer)
    # Two inputs and a result are transferred: 9, more than three operators save (6).
    assert (owners(best), best.count) == (["", "", ""], 30)
    assert set(moved) == {("", "one", 48), ("one", "", 48)}


def test_slower_programs_with_less_memory_are_kept():
    offers = [candidate((i,), "", 10) for i in range(3)] + [
        candidate((1,), "one", 2, 1000)
    ]
    fast, small = search_partitions(function_of(CHAIN), offers, free)
    assert (fast.count, small.count) == (22, 30)
    assert fast.peak_bytes - small.peak_bytes > 800


def test_unknown_costs_fall_back_to_the_order_of_preference():
    preferred = [CallGroup((0, 1), "one"), CallGroup((2,))]
    offers = [candidate((i,), "", 1) for i in range(3)]
    offers += [
        candidate((0, 1), "one", 99),
        PartitionCandidate(CallGroup((1,), "two"), RegionCost("unknown")),
    ]
    (best,) = search_partitions(
        function_of(CHAIN), restrict_to_known_costs(offers, preferred), free
    )
    assert owners(best) == ["one", ""]


def test_failed_candidates_are_dropped_and_uncovered_calls_reported():
    failed = PartitionCandidate(
        CallGroup((1,), "one"), RegionCost("failed", reason="it does not build")
    )
    offers = [candidate((0,), "", 1), candidate((2,), "", 1), failed]
    with pytest.raises(
        UsageError, match="no target can run the operator relu: every region with it"
    ):
        search_partitions(function_of(CHAIN), restrict_to_known_costs(offers, []), free)


@pytest.mark.parametrize("seed", range(8))
def test_search_finds_the_cheapest_cover(seed: int):
    rng = np.random.Generator(np.random.PCG64(seed))
    names = ["x", "z"]
    calls = []
    for i in range(6):
        a, b = (names[int(k)] for k in rng.integers(len(names), size=2))
        calls.append(("add", f"{a} {b}", f"v{i}"))
        names.append(f"v{i}")
    function = function_of(chain(*calls))
    offers = [candidate((i,), "", int(rng.integers(1, 30))) for i in range(6)]
    offers += [candidate((i,), "one", int(rng.integers(1, 30))) for i in range(6)]
    offers += [candidate((i, i + 2), "two", int(rng.integers(1, 40))) for i in range(4)]

    def transfer(source: str, to: str, size_bytes: int) -> int:
        return 4 if source and to else 2

    best = search_partitions(function, offers, transfer)[0]
    whole = [
        result
        for size in range(3, 7)
        for result in combinations(offers, size)
        if sorted(i for part in result for i in part.group.calls) == list(range(6))
    ]
    assert best.count == min(cost_of(function, result, transfer) for result in whole)


def cost_of(function: Function, parts, transfer) -> int:
    """Return the cost of a cover, tensor by tensor."""
    where = {i: part.group for part in parts for i in part.group.calls}
    maker = {v.name: i for i, call in enumerate(function.body) for v in call.outputs}
    total = sum(part.cost.count for part in parts)
    for i, call in enumerate(function.body):
        for value in call.variables:
            source = where[maker[value.name]] if value.name in maker else None
            owner = source.target if source else ""
            if source is not where[i] and owner != where[i].target:
                total += transfer(owner, where[i].target, value.type.size_bytes)
    for value in function.results:
        if where[maker[value.name]].target:
            total += transfer(
                where[maker[value.name]].target, "", value.type.size_bytes
            )
    return total


# ---- a result ------------------------------------------------------------------------


def with_toys() -> IRModule:
    BACKENDS.register(Toy({"sum": SUM}, name="one"))
    BACKENDS.register(Toy({"tanh": op("tanh", wildcard())}, name="two"))
    targets = {name: parse_target(name) for name in ("one", "two")}
    return replace(CHAIN, targets=targets)


def a_result(module: IRModule) -> str:
    function, active = function_of(module), active_backends(module)
    groups = [
        *all_matches(function, module, active),
        *(CallGroup((i,)) for i in range(3)),
    ]
    offers = [
        PartitionCandidate(group, RegionCost("ok", len(group.calls)))
        for group in groups
    ]
    program = [PartitionCandidate(g, RegionCost("ok", 1)) for g in eager_of(module)]
    from firmwright.partitioning.partition_result import PartitionResult

    parts = describe_regions(function, program, offers)
    return PartitionResult(
        "toy", "host", "one, two", "balanced", "exact", "", "collage", parts
    ).text()


def eager_of(module: IRModule) -> list[CallGroup]:
    function = function_of(module)
    result = with_unmatched(
        function, greedy_cover(function, module, active_backends(module))
    )
    return sorted(result, key=lambda group: group.calls)


def test_a_result_is_text_that_can_be_edited_and_applied():
    module = with_toys()
    text = a_result(module)
    parts = read_partition(text, "it.json")
    assert [(part.target, part.makes) for part in parts] == [
        ("one", ("a", "b")),
        ("two", ("c",)),
    ]
    again = run_partition(module, PassTimer(), make_strategy(parts, "it.json"))
    assert again == partition_module(module, PassTimer())
    edited = read_partition(
        text.replace('"target": "two"', '"target": "cpu"', 1), "it.json"
    )
    result = run_partition(module, PassTimer(), make_strategy(edited, "it.json"))
    assert [call.op for call in function_of(result).body] == ["@one_add_relu_0", "tanh"]
    # The text lists the alternatives for that call.
    assert '"makes": [\n            "a"\n          ]' in text


def test_invalid_results_are_rejected():
    module = with_toys()
    text = a_result(module)
    wrong = read_partition(
        text.replace('"target": "two"', '"target": "one"', 1), "it.json"
    )
    with pytest.raises(UsageError) as error:
        run_partition(module, PassTimer(), make_strategy(wrong, "it.json"))
    assert str(error.value) == (
        "it.json: one does not take c as one part. "
        "Try: a target of the part's alternatives, or cpu."
    )
    first = read_partition(text, "it.json")[0]
    with pytest.raises(UsageError, match=r"it\.json: two parts have the tensor a\."):
        run_partition(module, PassTimer(), make_strategy([first, first], "it.json"))
    for broken in ("{}", '{"schema": 2, "parts": []}', "[1]", "no"):
        with pytest.raises(
            UsageError, match=r"it\.json: this is not a partition result"
        ):
            read_partition(broken, "it.json")
