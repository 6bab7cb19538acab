"""Each finding is reported for its figures, and none for an unremarkable build."""

from dataclasses import replace
from typing import Any

import pytest

from firmwright.artifacts import ImageRegionUsage
from firmwright.report.findings import find_issues
from firmwright.report.model import PoolUsage
from tests.unit.report.sample_report import make_report, operator

STACK = replace(make_report().stack, firmware_bytes=3500)
SLOW = (operator(0, "conv2d", 900), operator(2, "softmax", 100, schedule="default"))
MOVED = (operator(0, "conv2d", 900), operator(2, "transpose", 100))
SEVERAL = (
    operator(0, "conv2d", 400, predicted=300),
    operator(2, "conv2d", 600, predicted=300),
)
WRONG = (operator(0, "conv2d", 600, predicted=300), operator(2, "softmax", 400))


def test_unremarkable_build_has_no_findings():
    assert find_issues(make_report()) == ()


@pytest.mark.parametrize(
    ("changed", "text", "hint"),
    [
        (
            {"operators": SLOW},
            "softmax 2 uses the default loops (10.0 % of the run)",
            "firmwright ops",
        ),
        (
            {"operators": MOVED},
            "1 transpose operator remains: 100 instructions",
            "export",
        ),
        (
            {"pools": (PoolUsage("sram", 96, 100),)},
            "pool sram is nearly full: 96 of 100",
            "--ram",
        ),
        (
            {"regions": (ImageRegionUsage("code", 95, 100),)},
            "region code is nearly full",
            "--const-pool",
        ),
        ({"stack": STACK}, "the worst path needs 3,500 of 4,096 bytes", "[limits]"),
        ({"lower_bound_bytes": 150}, "the plan is 10 bytes above", "--planner exact"),
        (
            {"operators": SEVERAL},
            "conv2d 0, 2 is inaccurate: measured +33 % to +100 %",
            "tune",
        ),
        (
            {"library_floats": True},
            "the compiler's library computes floats",
            "quantize",
        ),
        (
            {"operators": WRONG},
            "the prediction for conv2d 0 is inaccurate: measured +100 %.",
            "tune",
        ),
    ],
)
def test_unusual_figures_are_reported(changed: dict[str, Any], text: str, hint: str):
    (finding,) = find_issues(make_report(**changed))
    assert text in finding.what
    assert hint in finding.hint


def test_slow_operators_with_a_small_share_are_ignored():
    quick = (operator(0, "conv2d", 990), operator(2, "softmax", 10, schedule="default"))
    assert find_issues(make_report(operators=quick)) == ()
