"""Targets: text and JSON forms, features of cores, and error messages."""

from __future__ import annotations

import json

import pytest

from firmwright.base.errors import UsageError
from firmwright.ir.core import Target
from firmwright.targets.cores import CORE_KINDS
from firmwright.targets.registry import (
    parse_target,
    parse_targets,
    target_features,
    target_to_json,
)


def test_a_target_prints_in_its_text_form() -> None:
    target = parse_target("cortex-m -mcpu=cortex-m7")
    assert str(target) == "cortex-m -mcpu=cortex-m7"
    assert parse_target(str(target)) == target


@pytest.mark.parametrize("kind", CORE_KINDS)
def test_every_kind_parses_with_its_defaults(kind: str) -> None:
    target = parse_target(kind)
    assert target.kind == kind
    assert dict(target.attrs) == {
        name: spec.default
        for name, spec in CORE_KINDS[kind].attrs.items()
        if spec.default
    }


@pytest.mark.parametrize(
    ("core", "has", "lacks"),
    [
        ("cortex-m0", "thumb1", "mulh"),
        ("cortex-m3", "mulh", "dsp"),
        ("cortex-m4", "dsp", "mve"),
        ("cortex-m55", "mve", "thumb1"),
    ],
)
def test_a_core_implies_its_features(core: str, has: str, lacks: str) -> None:
    core_features = target_features(parse_target(f"cortex-m -mcpu={core}"))
    assert has in core_features
    assert lacks not in core_features


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the target is empty. Try: --target 'cortex-m -mcpu=cortex-m4'."),
        (
            "cortexm",
            "unknown target kind 'cortexm'. Try: cortex-m, or install the package of that backend.",
        ),
        (
            "cortex-m -cpu=cortex-m4",
            "target cortex-m has no attribute 'cpu' (known: mcpu). Try: mcpu",
        ),
    ],
)
def test_an_unknown_target_suggests_the_nearest(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert str(caught.value) == message


def test_an_unknown_core_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"mcpu cannot be 'cortex-m44'\. Try: one of "):
        parse_target("cortex-m -mcpu=cortex-m44")


def test_features_of_an_unknown_kind_are_an_error() -> None:
    with pytest.raises(UsageError, match="unknown target kind 'abacus'"):
        target_features(Target("abacus"))


def test_every_core_kind_round_trips():
    for kind in CORE_KINDS:
        target = parse_target(kind)
        assert parse_target(str(target)) == target
        assert parse_target(json.dumps(target_to_json(target))) == target
    text = json.dumps([target_to_json(parse_target("c")), {"kind": "host"}])
    assert [target.kind for target in parse_targets(text)] == ["c", "host"]
    assert [str(t) for t in parse_targets("c, cortex-m -mcpu=cortex-m7")] == [
        "c",
        "cortex-m -mcpu=cortex-m7",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"kind": "cortex-m", "attrs": {"mcp": 1}}',
            "target cortex-m has no attribute 'mcp'",
        ),
        ('{"kind": "c", "attrs": 3}', "target c: attrs are an object, not 3."),
        ('{"kind": "c", "more": 1}', "is not an object with kind and attrs."),
        ("{", "the target is not valid JSON: "),
    ],
)
def test_invalid_target_json_is_an_error(text: str, said: str):
    with pytest.raises(UsageError) as error:
        parse_targets(text)
    assert said in str(error.value)
