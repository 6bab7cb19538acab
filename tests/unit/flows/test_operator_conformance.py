"""The conformance cases as firmware: grouped by memory, each judged by itself."""

import pytest

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.conformance.case_tables import EMULATED_BOARDS, conformance_cases
from firmwright.flows.verify.operator_conformance import (
    NamedCase,
    budget_bytes,
    cases_module,
    cases_to_run,
    grouped,
    run_operator_test,
)
from firmwright.ir.graph.nodes import Function
from firmwright.ops.registry import op_table


def named_cases(op: str) -> list[NamedCase]:
    return [NamedCase(op, case) for case in conformance_cases(op)]


def test_each_case_is_one_call():
    cases = named_cases("relu") + named_cases("softmax")
    main = cases_module(cases).entry
    assert isinstance(main, Function)
    assert [call.op for call in main.body] == [item.op for item in cases]
    assert len({value.name for call in main.body for value in call.outputs}) == len(
        cases
    )


def test_groups_respect_order_and_budget():
    cases = named_cases("conv2d")
    groups = list(grouped(cases, 2000))
    assert [item for group in groups for item in group] == cases
    assert len(groups) > 1
    assert list(grouped(cases, 1 << 30)) == [cases]


def test_the_budget_of_a_small_board_leaves_room_for_code_and_scratch():
    board = load_board("microbit")
    assert 0 < budget_bytes(board) <= 12 << 10


def test_boards_choose_different_cases():
    drawn = {}
    for board in EMULATED_BOARDS:
        drawn[board] = [
            item.case.name
            for item in cases_to_run(board, sorted(op_table()), one_each=True)
        ]
    first, second = drawn.values()
    assert (
        len(first)
        == len(second)
        == sum(1 for op in op_table() if any(conformance_cases(op)))
    )
    assert first != second


def test_unknown_operator_error_lists_the_operators():
    with pytest.raises(UsageError, match=r"no operator 'convolution'.*conv2d"):
        run_operator_test("host", ops=["convolution"])


@pytest.mark.host_c
def test_every_case_of_an_operator_passes_on_the_host():
    found = run_operator_test("host", ops=["relu", "add"], sample_count=3)
    assert found.images == 1
    assert {result.op for result in found.results} == {"relu", "add"}
    assert not found.failed
    assert not found.skipped


@pytest.mark.parametrize(
    "op", ["conv2d", "depthwise_conv2d", "fully_connected", "transpose_conv"]
)
def test_the_cases_have_one_scale_and_scales_of_channels(op: str) -> None:
    """Without these cases, a backend passed that expects one scale per channel."""
    scales = {
        len(weights.scales) > 1
        for case in conformance_cases(op)
        if (weights := case.inputs[1]) is not None and weights.dtype == "int8"
    }
    assert scales == {False, True}
