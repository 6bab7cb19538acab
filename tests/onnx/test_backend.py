"""The node tests of the package `onnx`, and ours: a sample by default, all of them with --deep."""

from __future__ import annotations

import functools

import pytest
from backend import (
    ROWS,
    Taken,
    all_tests,
    by_reference,
    collected,
    conformance,
    grouped,
    in_c,
    listed,
    skips,
    taken,
)
from own_cases import own_cases

from firmwright.flows.operator_catalog import onnx_operators

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


def test_each_operator_that_is_translated_has_a_test_that_stands_for_it() -> None:
    rows = listed(ROWS)
    assert tuple(rows) == onnx_operators()
    assert not skips().keys() & rows.values()


@pytest.mark.host_c
def test_generated_c_gives_what_our_own_cases_expect() -> None:
    items = [item for item in map(taken, own_cases()) if isinstance(item, Taken)]
    assert {item.test.name for item in items} >= {
        name for name in listed(ROWS).values() if name.startswith("own_")
    }
    wrong = {name: why for group in grouped(items) for name, why in in_c(group).items() if why}
    assert not wrong


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547"])
def test_a_board_gives_what_the_test_of_each_operator_expects(board: str) -> None:
    found = {name: items[0] for name, items in conformance(all_tests()).items() if items}
    assert {name: item.test.name for name, item in found.items()} == listed(ROWS)
    items = list({item.test.name: item for item in found.values()}.values())
    wrong = {
        name: why for group in grouped(items) for name, why in in_c(group, board).items() if why
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
