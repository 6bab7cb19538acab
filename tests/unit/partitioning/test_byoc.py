"""Matches of patterns, growth of regions, and the functions that are cut out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.errors import UsageError
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.patterns import Pattern, constant, op, wildcard
from firmwright.ir.graph.verify import verify_graph
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.pass_results import PassResults
from firmwright.ops.registry import op_table
from firmwright.partitioning.byoc import partition_module
from firmwright.partitioning.per_target_passes import PassTimer
from firmwright.partitioning.regions import CallGroup, merge_regions, sort_topologically
from firmwright.targets.backend_registry import BACKENDS
from firmwright.targets.registry import parse_targets
from tests.backends.toy_backends import Toy, chain

pytestmark = pytest.mark.usefixtures("no_backends")


def partitioned(module: IRModule, *toys: Toy, names: str = "") -> IRModule:
    """Partition `module` and check that it is valid and equivalent."""
    for toy in toys:
        BACKENDS.register(toy)
    targets = parse_targets(names or ",".join(toy.name for toy in toys))
    named = {f"t{i}": target for i, target in enumerate(targets)}
    module = replace(module, targets=named)
    result = partition_module(module, PassTimer())
    for function in result.functions.values():
        assert isinstance(function, Function)
        verify_graph(function, result, op_table())
    rng = np.random.Generator(np.random.PCG64(1))
    inputs = {n: rng.normal(size=(1, 2, 2, 3)).astype(np.float32) for n in ("x", "z")}
    before, after = (
        evaluate_graph(m, inputs, op_table(), {}) for m in (module, result)
    )
    for value in module.functions["main"].results:  # type: ignore[union-attr]  # a graph
        assert np.array_equal(before[value.name], after[value.name])
    return result


def shape_of(module: IRModule) -> dict[str, list[str]]:
    """Return the operators that each function calls."""
    return {
        name: [call.op for call in func.body]
        for name, func in module.functions.items()
        if isinstance(func, Function)
    }


x, y = wildcard(), wildcard()
RELU_AFTER_ADD = op("add", x, y).optional(lambda inner: op("relu", inner))


def test_optional_pattern_is_matched_if_present():
    module = chain(("add", "x z", "a"), ("relu", "a", "b"), ("add", "b z", "c"))
    assert shape_of(partitioned(module, Toy({"sum": RELU_AFTER_ADD}))) == {
        "main": ["@t0_add_relu_0", "@t0_add_0"],
        "t0_add_relu_0": ["add", "relu"],
        "t0_add_0": ["add"],
    }


def test_value_read_outside_of_a_match_is_not_inside():
    module = chain(("add", "x z", "a"), ("relu", "a", "b"), ("mul", "a b", "c"))
    assert shape_of(partitioned(module, Toy({"sum": RELU_AFTER_ADD})))["main"] == [
        "@t0_add_0",
        "relu",
        "mul",
    ]


@pytest.mark.parametrize(
    ("pattern", "calls", "taken"),
    [
        (op("mul", x, op("logistic", x)), "x a", True),
        (op("mul", x, op("logistic", x)), "z a", False),
        (
            op("mul", op("logistic", x), x) | op("mul", x, op("logistic", x)),
            "x a",
            True,
        ),
        (op("mul", wildcard(), wildcard(), wildcard()), "x a", False),
        (op("mul", wildcard(), wildcard(), wildcard(absent=True)), "x a", True),
        (op("mul", wildcard(), constant()), "x a", False),
        (op("mul", activation="relu"), "x a", False),
        (op("mul", activation=frozenset({"relu", "none"})), "x a", True),
        (op("mul", activation=lambda found: found == "none"), "x a", True),
        (op("mul", axis=1), "x a", False),
    ],
)
def test_pattern_matches_its_operators(pattern: Pattern, calls: str, *, taken: bool):
    module = chain(("logistic", "x", "a"), ("mul", calls, "b"))
    found = partitioned(module, Toy({"it": pattern}))
    assert (len(found.functions) > 1) == taken


def test_entries_are_tried_in_order_and_predicates_can_reject():
    module = chain(("add", "x z", "a"), ("relu", "a", "b"))
    seen = []

    def judge(match):
        seen.append(([call.op for call in match.ops], match.target.kind, match.version))
        return False

    toy = Toy({"both": RELU_AFTER_ADD, "sum": op("add")}, predicates={"both": judge})
    result = partitioned(module, toy)
    assert seen == [(["add", "relu"], "toy", "1"), (["add"], "toy", "1")]
    assert result.functions["t0_add_0"].attrs["composite"] == "toy.sum"


def test_first_target_has_precedence():
    module = chain(("add", "x z", "a"), ("relu", "a", "b"))
    one, two = (
        Toy({"r": op("relu")}, name="one"),
        Toy({"s": RELU_AFTER_ADD}, name="two"),
    )
    assert shape_of(partitioned(module, one, two))["main"] == [
        "@t1_add_0",
        "@t0_relu_0",
    ]
    assert shape_of(partitioned(module, one, two, names="two,one"))["main"] == [
        "@t0_add_relu_0"
    ]
    both = partitioned(module, one, two, names="one,one,two")
    assert shape_of(both)["main"] == ["@t2_add_0", "@t0_relu_0"]


DIAMOND = (
    ("relu", "x", "a"),
    ("tanh", "a", "b"),
    ("add", "a z", "c"),
    ("add", "b c", "d"),
)


def test_regions_are_merged_as_far_as_they_stay_convex():
    toy = Toy({"sum": op("add"), "relu": op("relu")}, merge_regions=True)
    result = partitioned(chain(*DIAMOND), toy)
    # a and d cannot be one region, as tanh is between them. c is better merged with d:
    # with a, which tanh reads too, there would be an additional result.
    assert shape_of(result) == {
        "main": ["@t0_relu_0", "tanh", "@t0_add_add_0"],
        "t0_relu_0": ["relu"],
        "t0_add_0": ["add"],
        "t0_add_1": ["add"],
        "t0_add_add_0": ["@t0_add_0", "@t0_add_1"],
    }
    assert "composite" not in result.functions["t0_add_add_0"].attrs
    apart = partitioned(chain(*DIAMOND), Toy({"sum": op("add"), "relu": op("relu")}))
    assert len(shape_of(apart)["main"]) == 4


@pytest.mark.parametrize("seed", range(6))
def test_no_other_way_to_merge_has_fewer_boundaries(seed: int):
    rng = np.random.Generator(np.random.PCG64(seed))
    names, calls = ["x", "z"], []
    for i in range(7):
        a, b = (
            names[int(k)] for k in rng.integers(max(0, len(names) - 4), len(names), 2)
        )
        calls.append((str(rng.choice(["add", "mul"])), f"{a} {b}", f"v{i}"))
        names.append(f"v{i}")
    main = chain(*calls).functions["main"]
    assert isinstance(main, Function)
    groups = [
        CallGroup((i,), "own" if c.op == "add" else "") for i, c in enumerate(main.body)
    ]
    mine = [group for group in groups if group.target]
    result = merge_regions(main, groups, {"own"})
    assert len(sort_topologically(main, result)) == len(result)
    rest = [group for group in groups if not group.target]
    possible = [
        boundaries(main, way)
        for way in divisions(mine)
        if all(hangs_together(main, region) for region in way)
        and len(sort_topologically(main, [*rest, *way])) == len(rest) + len(way)
    ]
    assert boundaries(main, [g for g in result if g.target]) == min(possible)


def divisions(groups: list[CallGroup]) -> list[list[CallGroup]]:
    """Yield every division of groups into regions."""
    ways: list[list[CallGroup]] = [[]]
    for group in groups:
        ways = [
            new
            for way in ways
            for new in (
                [*way, group],
                *(
                    [*way[:i], way[i].merge(group), *way[i + 1 :]]
                    for i in range(len(way))
                ),
            )
        ]
    return ways


def hangs_together(main: Function, region: CallGroup) -> bool:
    """Return whether the calls are connected by tensors."""
    maker = {v.name: i for i, call in enumerate(main.body) for v in call.outputs}
    reached, new = {region.calls[0]}, True
    while new:
        edges = [
            (i, maker.get(v.name)) for i in region.calls for v in main.body[i].variables
        ]
        new = {
            b
            for e in edges
            for a, b in (e, e[::-1])
            if a in reached and b in region.calls
        }
        new = new - reached
        reached |= new
    return reached == set(region.calls)


def boundaries(main: Function, regions: list[CallGroup]) -> int:
    """Return the number of parameters and results, counted tensor by tensor."""
    where = {i: n for n, region in enumerate(regions) for i in region.calls}
    maker = {v.name: i for i, call in enumerate(main.body) for v in call.outputs}
    results = {value.name for value in main.results}
    chosen, inputs = set(), {(where[maker[n]], n) for n in results if maker[n] in where}
    for i, call in enumerate(main.body):
        for value in call.variables:
            source = where.get(maker.get(value.name, -1))
            if source is None or source != where.get(i):
                chosen |= {(where[i], value.name)} if i in where else set()
                inputs |= {(source, value.name)} if source is not None else set()
    return len(chosen) + len(inputs)


def test_regions_never_depend_on_each_other():
    calls = (
        ("relu", "x", "a1"),
        ("tanh", "z", "b1"),
        ("add", "a1 b1", "a2"),
        ("mul", "b1 a1", "b2"),
    )
    toys = [
        Toy({"r": op("relu"), "a": op("add")}, name="one", merge_regions=True),
        Toy({"t": op("tanh"), "m": op("mul")}, name="two", merge_regions=True),
    ]
    result = shape_of(partitioned(chain(*calls), *toys))["main"]
    assert len(result) == 3  # one pair is merged, the other cannot be


def test_names_do_not_depend_on_other_operators():
    module = chain(("add", "x z", "a"), ("tanh", "a", "b"), ("add", "b z", "c"))
    other = chain(
        ("relu", "x", "r"), ("add", "r z", "a"), ("tanh", "a", "b"), ("add", "b z", "c")
    )
    toy = Toy({"sum": op("add"), "relu": op("relu")})
    names = {name for name in partitioned(module, toy).functions if "add" in name}
    assert names == {
        name for name in partitioned(other, toy).functions if "add" in name
    }


def test_pass_can_annotate_single_calls():
    def annotate(module: IRModule) -> IRModule:
        main = module.functions["main"]
        assert isinstance(main, Function)
        body = tuple(
            replace(c, target="t0") if c.op == "tanh" else c for c in main.body
        )
        return module.with_function(replace(main, body=body))

    phases = {"pre_partition": (Pass("annotate", annotate),)}
    module = chain(("add", "x z", "a"), ("tanh", "a", "b"))
    result = partitioned(module, Toy({"mul": op("mul")}, own_phases=phases))
    assert shape_of(result)["main"] == ["add", "@t0_tanh_0"]
    assert "composite" not in result.functions["t0_tanh_0"].attrs


def test_functions_with_a_target_are_unchanged():
    module = chain(("add", "x z", "a"), ("tanh", "a", "b"))
    once = partitioned(module, Toy({"sum": op("add")}))
    again = partition_module(replace(once, results=PassResults()), PassTimer())
    assert again.functions == once.functions


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (
            {"it": op("conv2")},
            r"backend toy: the pattern toy.it names the unknown operator 'conv2'",
        ),
        ({"it": wildcard()}, "backend toy: the pattern toy.it covers no operator"),
    ],
)
def test_invalid_pattern_table_is_rejected_at_registration(entries, said):
    with pytest.raises(UsageError, match=said):
        BACKENDS.register(Toy(entries))
    assert "toy" not in BACKENDS.all()


def test_error_for_an_unknown_operator_suggests_the_nearest():
    with pytest.raises(UsageError, match=r"Try: conv2d; `firmwright ops` lists them\."):
        BACKENDS.register(Toy({"it": op("conv2")}))
