"""Each finding comes when its figures say so, and none comes of a build in balance."""

from dataclasses import replace
from typing import Any

import pytest
from sample_report import made, operator

from firmwright.report.findings import find_issues
from firmwright.report.model import MemoryRegionUsage, PoolUsage

STACK = replace(made().stack, firmware_bytes=3500)
SLOW = (operator(0, "conv2d", 900), operator(2, "softmax", 100, schedule="default"))
MOVED = (operator(0, "conv2d", 900), operator(2, "transpose", 100))
SEVERAL = (operator(0, "conv2d", 400, predicted=300), operator(2, "conv2d", 600, predicted=300))
WRONG = (operator(0, "conv2d", 600, predicted=300), operator(2, "softmax", 400))


def test_a_build_in_balance_has_no_findings():
    assert find_issues(made()) == ()


@pytest.mark.parametrize(
    ("changed", "said", "hint"),
    [
        ({"operators": SLOW}, "softmax 2 run as default loops, 10.0 %", "firmwright ops"),
        ({"operators": MOVED}, "1 transposes left: 100 instructions, 10.0 % of", "export"),
        ({"pools": (PoolUsage("sram", 96, 100),)}, "pool sram is nearly full: 96 of 100", "--ram"),
        (
            {"regions": (MemoryRegionUsage("code", 95, 100),)},
            "region code is nearly full",
            "--const-pool",
        ),
        ({"stack": STACK}, "the worst path takes 3,500 of the 4,096 bytes", "[limits]"),
        ({"lower_bound_bytes": 150}, "the plan is 10 bytes above", "--planner exact"),
        ({"operators": SEVERAL}, "conv2d 0, 2 is off: measured +33 % to +100 %", "tune"),
        ({"library_floats": True}, "floats are computed by the compiler's library", "quantize"),
        ({"operators": WRONG}, "the prediction for conv2d 0 is off: measured +100 %.", "tune"),
    ],
)
def test_figures_out_of_balance_are_told(changed: dict[str, Any], said: str, hint: str):
    (found,) = find_issues(made(**changed))
    assert said in found.what
    assert hint in found.hint


def test_a_slow_operator_that_takes_nothing_is_not_worth_a_word():
    quick = (operator(0, "conv2d", 990), operator(2, "softmax", 10, schedule="default"))
    assert find_issues(made(operators=quick)) == ()
