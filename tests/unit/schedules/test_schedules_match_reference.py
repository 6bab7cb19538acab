"""Every schedule matches the reference on random layers and rows, in every configuration."""

from __future__ import annotations

import pytest

from firmwright.schedules.registry import SCHEDULES

SEEDS = range(30)
ROW_SEEDS = range(8)
FOR_OTHER_LAYERS = (
    ".direct", ".int16_im2col", ".int16_rows", ".int16", ".fused", ".separate", ".strips",
    ".winograd",
)  # fmt: skip
"""Schedules for float or int16 layers or large windows (test_int16_schedules.py), or whole tiles."""
FOR_SOME_LAYERS = {"helium.depthwise.channels"}


def _is_for_others(rule) -> bool:
    return rule.name.startswith("fpu.") or rule.name.endswith(FOR_OTHER_LAYERS)


def _rules(op: str):
    return [rule for rule in SCHEDULES if rule.op == op]


@pytest.mark.parametrize("rule", _rules("conv2d"), ids=lambda rule: rule.name)
def test_convolution_rules_equal_the_reference(rule, judge, random_convolution) -> None:
    for seed in SEEDS:
        call = random_convolution(seed, depthwise=False)
        for config in rule.configs(call):
            judge(call, rule, config)


@pytest.mark.parametrize("rule", _rules("depthwise_conv2d"), ids=lambda rule: rule.name)
def test_depthwise_rules_equal_the_reference(rule, judge, random_convolution) -> None:
    for seed in SEEDS:
        call = random_convolution(seed, depthwise=True)
        for config in rule.configs(call):
            judge(call, rule, config)


@pytest.mark.parametrize("rule", _rules("depthwise_conv2d"), ids=lambda rule: rule.name)
def test_windows_wider_than_their_input_equal_the_reference(rule, judge, narrow_depthwise) -> None:
    for width, size in ((1, 5), (1, 7), (2, 5), (2, 4), (3, 7), (4, 5)):
        call = narrow_depthwise(width, size)
        for config in rule.configs(call):
            judge(call, rule, config)


@pytest.mark.parametrize(
    "rule", [*_rules("conv2d"), *_rules("depthwise_conv2d")], ids=lambda rule: rule.name
)
def test_rules_equal_the_reference_on_single_rows(rule, judge, random_row) -> None:
    for seed in ROW_SEEDS:
        call = random_row(seed, depthwise=rule.op == "depthwise_conv2d")
        for config in rule.configs(call):
            judge(call, rule, config)


@pytest.mark.parametrize("rule", _rules("fully_connected"), ids=lambda rule: rule.name)
def test_fully_connected_rules_equal_the_reference(rule, judge, random_fully_connected) -> None:
    for seed in SEEDS:
        call = random_fully_connected(seed)
        for config in rule.configs(call):
            judge(call, rule, config)


def test_each_rule_applies_to_most_random_layers(
    random_convolution, random_fully_connected
) -> None:
    makers = {
        "conv2d": lambda seed: random_convolution(seed, depthwise=False),
        "depthwise_conv2d": lambda seed: random_convolution(seed, depthwise=True),
        "fully_connected": random_fully_connected,
    }
    for rule in SCHEDULES:
        if rule.op in makers and not rule.goal and not _is_for_others(rule):
            applied = sum(bool(rule.configs(makers[rule.op](seed))) for seed in SEEDS)
            least = 0.25 if rule.name in FOR_SOME_LAYERS else 0.8
            assert applied >= least * len(SEEDS), rule.name
