"""Candidates of Collage that divide one operator over several engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from firmwright.extensions.tune.collage import PartitionCandidate
from firmwright.extensions.tune.operator_splits import balanced_shares, split_candidates
from firmwright.extensions.vanilla.accelerator import VanillaAccelerator
from firmwright.flows.model.compilation import options_for
from firmwright.flows.model.model import Model
from firmwright.flows.model.partition_methods import prepare_module
from firmwright.graph_builder import GraphBuilder
from firmwright.ir.module import IRModule
from firmwright.partitioning.offload import format_shares, parse_shares
from firmwright.partitioning.partition_result import RegionCost
from firmwright.partitioning.regions import CallGroup
from firmwright.targets.backend_registry import BACKENDS


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([100, 100], [50, 50]),
        ([100, 300], [75, 25]),
        ([1, 1, 1], [33, 34, 33]),
        ([0, 0], [50, 50]),
        ([0, 10**40], [100, 0]),
        ([10**400, 10**400], [50, 50]),
    ],
)
def test_shares_are_in_inverse_proportion_to_costs(
    costs: Sequence[int], expected: Sequence[int]
) -> None:
    shares = balanced_shares({f"npu{n}": cost for n, cost in enumerate(costs)})
    assert [share.percent for share in shares] == expected


def test_shares_have_100_percent_and_text_is_parsed_again() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    for _ in range(200):
        costs = rng.integers(1, 50, rng.integers(2, 5)).tolist()
        shares = balanced_shares({f"npu{n}": cost for n, cost in enumerate(costs)})
        assert sum(share.percent for share in shares) == 100
        assert parse_shares(format_shares(shares)) == shares


@pytest.mark.parametrize(
    "text", ["a:101", "a:-1", "a:x", "a:50,a:50", "a:0,b:50", "a,b", "a:60,b:50", "a:"]
)
def test_wrong_shares_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="percentage"):
        parse_shares(text)


def layers() -> IRModule:
    """Return a convolution of 16 rows, a small one, and 64 channels of a dense layer."""
    rng = np.random.Generator(np.random.PCG64(5))
    g = GraphBuilder("net")
    at = {"scale": 12.0, "zero_point": -2}
    shape = {"stride": (1, 1), "dilation": (1, 1), "padding": (1, 1, 1, 1)}
    biases = g.constant(rng.integers(-100, 100, (4,), np.int32), scale=0.12)
    weights = g.constant(rng.integers(-100, 100, (4, 3, 3, 4), np.int8), scale=0.01)
    conv = (weights, biases)
    x = g.input("x", (1, 16, 4, 4), **at)
    a = g.call("conv2d", x, *conv, name="a", activation="none", **at, **shape)
    b = g.call("reshape", a, name="b", shape=(1, 256))
    weights = g.constant(rng.integers(-100, 100, (64, 256), np.int8), scale=0.01)
    biases = g.constant(rng.integers(-100, 100, (64,), np.int32), scale=0.12)
    dense = (weights, biases)
    c = g.call(
        "fully_connected", b, *dense, name="c", activation="none", keep_dims=False, **at
    )
    weights = g.constant(rng.integers(-100, 100, (4, 64), np.int8), scale=0.01)
    biases = g.constant(rng.integers(-100, 100, (4,), np.int32), scale=0.12)
    small = (weights, biases)
    d = g.call(
        "fully_connected", c, *small, name="d", activation="none", keep_dims=False, **at
    )
    return g.module(d)


def found(
    module: IRModule, target: str, costs: Sequence[int]
) -> list[PartitionCandidate]:
    options = options_for(module, {"target": target, "board": "host"})
    prepared = prepare_module(Model(module), options)
    offers: list[PartitionCandidate] = []
    names = [name for name in prepared.targets if name != "cpu"]
    for index in (0, 2, 3):
        for name, cost in zip(names, costs, strict=True):
            group = CallGroup((index,), name)
            offers.append(PartitionCandidate(group, RegionCost("ok", cost)))
    return split_candidates(prepared.entry, prepared, offers)


def test_large_operators_are_divided_by_rows_and_channels() -> None:
    target = ", ".join(["vanilla -macs-per-cycle=1"] * 2)
    conv, dense = found(layers(), target, [9216, 9216])
    assert (conv.group.calls, conv.place) == ((0,), "vanilla:50,vanilla_1:50")
    assert [part.count for part in conv.split] == [16 * 4 * 4 * 36 // 2] * 2
    assert (dense.group.calls, dense.place) == ((2,), "vanilla:50,vanilla_1:50")
    assert [part.count for part in dense.split] == [64 * 256 // 2] * 2
    assert dense.cost.count == 64 * 256 // 2


def test_sets_of_three_engines_have_the_cost_of_the_part_that_ends_last() -> None:
    target = ", ".join(f"vanilla -macs-per-cycle={speed}" for speed in (1, 2, 4))
    ways = found(layers(), target, [8, 4, 2])
    convs = [way for way in ways if way.group.calls == (0,)]
    assert {frozenset(part.share.target for part in way.split) for way in convs} == {
        frozenset(names)
        for names in (
            ("vanilla", "vanilla_1"),
            ("vanilla", "vanilla_2"),
            ("vanilla_1", "vanilla_2"),
            ("vanilla", "vanilla_1", "vanilla_2"),
        )
    }
    for way in ways:
        assert way.cost.count == max(part.count for part in way.split)


def test_undeclared_costs_of_parts_are_shares_of_the_whole() -> None:
    conv, _ = found(layers(), "vanilla, vanilla", [1000, 3000])
    assert [(part.share.percent, part.count) for part in conv.split] == [
        (75, 750),
        (25, 750),
    ]


class Merging(VanillaAccelerator):
    name, device, merge_regions = "merging", "merging0", True


class Library(VanillaAccelerator):
    name, device = "no-device", ""


@pytest.mark.parametrize("other", [Merging, Library])
def test_libraries_and_backends_that_merge_regions_divide_nothing(
    other: type[VanillaAccelerator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BACKENDS, "_known", {})
    BACKENDS.register(other)
    assert found(layers(), f"vanilla, {other.name}", [100, 100]) == []


def test_engines_that_take_no_part_divide_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Whole(VanillaAccelerator):
        name, device = "whole-only", "whole0"

        def patterns(self):
            entries = super().patterns()
            return [
                replace(entry, predicate=lambda m: m.ops[0].output.shape[1] >= 16)
                for entry in entries[:1]
            ]

    monkeypatch.setattr(BACKENDS, "_known", {})
    BACKENDS.register(Whole)
    assert found(layers(), "vanilla, whole-only", [100, 100]) == []
