"""Node tests of the package `onnx` and our own: a sample, or all with --deep."""

from __future__ import annotations

import functools

import pytest

from firmwright.flows.verify.operator_names import onnx_operators
from tests.onnx.backend import (
    ROWS,
    SupportedTest,
    all_tests,
    collect_tests,
    compiled_mismatches,
    conformance,
    group_tests,
    import_test,
    read_list,
    read_skips,
    reference_mismatch,
)
from tests.onnx.own_cases import own_cases

SAMPLE_OPS = (
    "ConvTranspose",
    "Einsum",
    "QLinearConv",
    "Resize",
    "RNN",
    "ScatterND",
    "TopK",
)
SAMPLE_MAX = 10


@functools.cache
def sample() -> tuple[SupportedTest, ...]:
    """Return some supported tests, evenly distributed over operators of many kinds."""
    supported = [
        item
        for item in map(import_test, collect_tests(SAMPLE_OPS))
        if isinstance(item, SupportedTest)
    ]
    return tuple(supported[:: max(1, len(supported) // SAMPLE_MAX)])


@pytest.mark.deep
@pytest.mark.host_c
def test_generated_c_passes_the_node_tests() -> None:
    assert len(sample()) >= SAMPLE_MAX
    wrong = {
        name: why
        for group in group_tests(sample())
        for name, why in compiled_mismatches(group).items()
        if why
    }
    assert not wrong


def test_each_supported_operator_has_a_representative_test() -> None:
    rows = read_list(ROWS)
    standard = [
        name for name in onnx_operators() if not name.startswith("com.microsoft:")
    ]
    assert list(rows) == standard
    assert not read_skips().keys() & rows.values()


@pytest.mark.host_c
def test_generated_c_passes_our_own_cases() -> None:
    items = [
        item
        for item in map(import_test, own_cases())
        if isinstance(item, SupportedTest)
    ]
    assert {item.test.name for item in items} >= {
        name for name in read_list(ROWS).values() if name.startswith("own_")
    }
    wrong = {
        name: why
        for group in group_tests(items)
        for name, why in compiled_mismatches(group).items()
        if why
    }
    assert not wrong


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547"])
def test_a_board_passes_the_representative_tests(board: str) -> None:
    representatives = {
        name: items[0] for name, items in conformance(all_tests()).items() if items
    }
    assert {
        name: item.test.name for name, item in representatives.items()
    } == read_list(ROWS)
    items = list({item.test.name: item for item in representatives.values()}.values())
    wrong = {
        name: why
        for group in group_tests(items)
        for name, why in compiled_mismatches(group, board).items()
        if why
    }
    assert not wrong


@pytest.mark.deep
@pytest.mark.host_c
def test_every_node_test_passes_or_is_listed_with_its_reason() -> None:
    results = {test.name: import_test(test) for test in collect_tests()}
    assert {
        name: why for name, why in results.items() if isinstance(why, str)
    } == read_skips()
    items = [item for item in results.values() if isinstance(item, SupportedTest)]
    assert not {
        item.test.name: why for item in items if (why := reference_mismatch(item))
    }
    wrong = {
        name: why
        for group in group_tests(items)
        for name, why in compiled_mismatches(group).items()
        if why
    }
    assert not wrong
    assert len([item for item in items if not item.is_bound]) > 1100
