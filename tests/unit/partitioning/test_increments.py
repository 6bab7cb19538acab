"""Partitions in several steps: each keeps earlier ones and assigns what is open."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.cli.main import main
from firmwright.extensions.tune.partition_search import search_partition
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model, partition, save_module
from firmwright.flows.model.partition_methods import (
    PartitionRequest,
    partition_model,
)
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.patterns import op
from firmwright.ir.module import IRModule, Pass
from firmwright.partitioning.target_resolution import functions_on_target
from firmwright.targets.backend_registry import BACKENDS
from tests.backends.toy_backends import Toy, chain

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
MODEL = Model(
    chain(
        ("add", "x z", "a"), ("relu", "a", "b"), ("tanh", "b", "c"), ("relu", "c", "d")
    )
)


def once(name: str) -> Pass:
    """A pass that marks each function of a target and refuses to see one twice."""

    def run(module: IRModule) -> IRModule:
        for function in functions_on_target(module, name):
            marks = int(str(function.attrs.get("marks", 0))) + 1
            attrs = {**function.attrs, "marks": marks}
            module = module.with_function(replace(function, attrs=attrs))
        return module

    return Pass("once", run)


@pytest.fixture(autouse=True)
def toys(no_backends: None) -> None:
    for name, ops in (("one", ("add", "relu")), ("two", ("relu", "tanh"))):
        phases = {"post_partition": (once(name),)}
        BACKENDS.register(Toy({o: op(o) for o in ops}, name=name, own_phases=phases))  # type: ignore[arg-type]


def body_of(module: IRModule) -> list[str]:
    function = module.functions["main"]
    assert isinstance(function, Function)
    return [call.op.rstrip("_0123456789").lstrip("@") for call in function.body]


def test_each_step_keeps_the_work_of_the_earlier_ones():
    first = partition(MODEL, "one", offload={"d": "cpu"})
    assert body_of(first.module) == ["one_add", "one_relu", "tanh", "relu"]
    second = partition(first, "two")
    assert body_of(second.module) == ["one_add", "one_relu", "two_tanh", "two_relu"]
    kept = {k: f for k, f in first.module.functions.items() if k != "main"}
    assert {k: second.module.functions[k] for k in kept} == kept
    assert all(
        f.attrs["marks"] == 1 for k, f in second.module.functions.items() if k != "main"
    )
    assert partition(second, "one, two").module == second.module
    together = partition(MODEL, "one, two", offload={"d": "two"})
    assert compile_for(second).tree.files == compile_for(together).tree.files
    with_target = compile_for(
        first, target="two"
    )  # the same step as part of a compilation
    assert with_target.tree.files == compile_for(second).tree.files


def test_steps_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    files = [str(tmp_path / f"{name}.fwir") for name in "mab"]
    save_module(MODEL.module, files[0])
    words = ["--target", "one", "--offload", "d=cpu", "-o", files[1]]
    assert main(["partition", files[0], *words]) == 0
    assert (
        main(["partition", files[1], "--target", "two", "-o", files[2], "--json"]) == 0
    )
    shown = json.loads("{" + capsys.readouterr().out.partition("\n{")[2])
    assert [(row["target"], row["operators"]) for row in shown["targets"]] == [
        ("one", 2),
        ("two", 2),
    ]
    expected = partition(partition(MODEL, "one", offload={"d": "cpu"}), "two")
    assert load_model(files[2]).module == expected.module


def test_a_predicate_chooses_operators():
    last = partition(
        MODEL, "one", where=lambda match: match.calls[-1].outputs[0].name == "d"
    )
    assert body_of(last.module) == ["add", "relu", "tanh", "one_relu"]
    rest = partition(last, "one")
    assert body_of(rest.module) == ["one_add", "one_relu", "tanh", "one_relu"]


@pytest.mark.parametrize(
    ("offload", "how", "expected"),
    [
        ({"b": "two"}, "eager", ["one_add", "two_relu", "two_tanh", "one_relu"]),
        ({"b": "two"}, "none", ["add", "two_relu", "tanh", "relu"]),
        (
            {"b": "two", "a": "cpu"},
            "eager",
            ["add", "two_relu", "two_tanh", "one_relu"],
        ),
    ],
)
def test_offloaded_operators_precede_the_method(offload, how, expected, tmp_path: Path):
    given = {"target": "one, two", "offload": tuple(offload.items())}
    choice = partition_model(MODEL, given, PartitionRequest(how))
    rows = compile_for(choice.model, **choice.options).metadata["operators"]
    assert [row["schedule"] == "toy" for row in rows] == [
        "_" in name for name in expected
    ]
    if how == "none":
        assert body_of(choice.model.module) == expected
    else:
        assert body_of(partition(MODEL, "one, two", offload=offload).module) == expected


@pytest.mark.parametrize(
    ("offload", "said"),
    [
        (
            {"bb": "one"},
            r"--offload bb=one is invalid: no operator makes it\. Try: b\.",
        ),
        ({"b": "three"}, r"there is no target three\. Try: cpu, one, two\."),
        (
            {"a": "two"},
            r"no pattern of the target takes it\. Try: firmwright backends two",
        ),
    ],
)
def test_offload_that_is_impossible_is_an_error(offload, said):
    with pytest.raises(UsageError, match=said):
        partition(MODEL, "one, two", offload=offload)
    with pytest.raises(UsageError, match=said):
        compile_for(MODEL, target="one, two", offload=tuple(offload.items()))


def test_an_operator_of_an_earlier_step_cannot_be_offloaded_elsewhere():
    first = partition(MODEL, "one")
    with pytest.raises(
        UsageError, match="--offload b=two is invalid: it is assigned to one alrea"
    ):
        partition(first, "two", offload={"b": "two"})
    assert (
        partition(first, "two", offload={"b": "one"}).module
        == partition(first, "two").module
    )


def test_collage_searches_the_open_operators(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Toy, "cost", lambda self, match: 1)
    first = partition(MODEL, "one", offload={"d": "cpu"})
    result = search_partition(first, {"target": "two"}, PartitionRequest("collage"))
    assert body_of(result.model.module) == [
        "one_add",
        "one_relu",
        "two_tanh",
        "one_relu",
    ]
    assert [part.target for part in result.partition.parts] == [
        "one",
        "one",
        "two",
        "one",
    ]
    monkeypatch.setattr(Toy, "transfer", lambda self, size_bytes: 10**6)
    result = search_partition(first, {"target": "two"}, PartitionRequest("collage"))
    assert [part.target for part in result.partition.parts] == [
        "one",
        "one",
        "cpu",
        "cpu",
    ]


def test_collage_respects_offloaded_operators(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Toy, "cost", lambda self, match: 10**9)
    given = {"target": "one, two", "offload": (("b", "two"), ("a", "cpu"))}
    choice = partition_model(MODEL, given, PartitionRequest("collage"))
    assert body_of(choice.model.module) == ["add", "two_relu", "tanh", "relu"]
    rows = compile_for(choice.model, **choice.options).metadata["operators"]
    assert [row["schedule"] == "toy" for row in rows] == [False, True, False, False]


def test_result_of_a_search_is_applied_to_the_partly_partitioned_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(Toy, "cost", lambda self, match: 1)
    first, given = partition(MODEL, "one", offload={"d": "cpu"}), {"target": "two"}
    result = search_partition(first, given, PartitionRequest("collage"))
    file = tmp_path / "found.json"
    file.write_text(result.partition.text())
    applied = partition_model(first, given, PartitionRequest(str(file))).model
    assert applied.module == result.model.module
    file.write_text(
        result.partition.text().replace('"target": "one"', '"target": "two"', 1)
    )
    with pytest.raises(
        UsageError, match="the operator of a is assigned to one already"
    ):
        partition_model(first, given, PartitionRequest(str(file)))
