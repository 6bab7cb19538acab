"""Conformance cases as firmware on emulated boards, many per image.

By default a Cortex-M55 runs one case of every third operator. --deep runs all cases,
more boards and the tflm profile.
"""

from __future__ import annotations

import pytest

from firmwright.boards import load_board
from firmwright.conformance.case_tables import EMULATED_BOARDS
from firmwright.flows.verify.operator_catalog import supported_operators
from firmwright.flows.verify.operator_conformance import (
    OperatorTestResult,
    run_operator_test,
)
from firmwright.ops.registry import op_table
from firmwright.schedules.registry import SCHEDULES


def _all_passed(found: OperatorTestResult) -> bool:
    failed = [f"{one.op} {one.case}: {one.first}" for one in found.failed]
    assert not failed
    return not found.skipped


@pytest.mark.sampled(3)
@pytest.mark.qemu
@pytest.mark.parametrize(
    "board", [pytest.param("mps2-an386", marks=pytest.mark.deep), "mps3-an547"]
)
@pytest.mark.parametrize("first", range(3))
def test_one_case_of_every_third_operator_passes(board: str, first: int) -> None:
    ops = list(op_table())[first::3]
    found = run_operator_test(board, ops=ops, one_each=True, sample_count=2)
    assert _all_passed(found)
    assert found.images <= 2
    said = {
        item.name
        for item in supported_operators(op_table(), SCHEDULES)
        if board in item.boards
    }
    assert {result.op for result in found.results} == said & set(ops)


@pytest.mark.deep
@pytest.mark.qemu("arm", "riscv32")
@pytest.mark.parametrize(
    ("board", "numerics"),
    [
        *((board, "litert") for board in EMULATED_BOARDS),
        ("mps2-an386", "tflm"),
        ("microbit", "litert"),
        ("qemu-riscv32-virt", "litert"),
    ],
)
def test_every_case_passes(board: str, numerics: str) -> None:
    found = run_operator_test(board, numerics=numerics)
    fits = _all_passed(found)
    assert fits or load_board(board).flash.size_bytes < 1 << 20
