"""The node tests of the package `onnx`: a sample by default, all of them with --deep."""

from __future__ import annotations

import functools

import pytest
from backend import Taken, by_reference, collected, grouped, in_c, skips, taken

SAMPLE_OPS = ("ConvTranspose", "Einsum", "QLinearConv", "Resize", "RNN", "ScatterND", "TopK")
SAMPLE_MAX = 10


@functools.cache
def sample() -> tuple[Taken, ...]:
    """Some supported tests of operators of many kinds, evenly from all of theirs."""
    found = [item for item in map(taken, collected(SAMPLE_OPS)) if isinstance(item, Taken)]
    return tuple(found[:: max(1, len(found) // SAMPLE_MAX)])


@pytest.mark.host_c
def test_generated_c_gives_what_the_node_tests_expect() -> None:
    assert len(sample()) >= SAMPLE_MAX
    wrong = {name: why for group in grouped(sample()) for name, why in in_c(group).items() if why}
    assert not wrong


@pytest.mark.deep
@pytest.mark.qemu
def test_a_board_gives_what_the_node_tests_expect() -> None:
    wrong = {
        name: why
        for group in grouped(sample())
        for name, why in in_c(group, "mps2-an386").items()
        if why
    }
    assert not wrong


@pytest.mark.deep
@pytest.mark.host_c
def test_every_node_test_passes_or_is_listed_with_its_reason() -> None:
    found = {test.name: taken(test) for test in collected()}
    assert {name: why for name, why in found.items() if isinstance(why, str)} == skips()
    items = [item for item in found.values() if isinstance(item, Taken)]
    assert not {item.test.name: why for item in items if (why := by_reference(item))}
    wrong = {name: why for group in grouped(items) for name, why in in_c(group).items() if why}
    assert not wrong
    assert len([item for item in items if not item.is_bound]) > 1100
