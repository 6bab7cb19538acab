"""How much time the goal `balanced` spends on streaming layers by rows."""

import pytest

from firmwright.choose import thresholds
from firmwright.choose.kernel_selection import _streamed_percent
from firmwright.choose.program_search import ProgramCandidate
from firmwright.ir.module import IRModule


def _program(workspace_bytes: int) -> ProgramCandidate:
    return ProgramCandidate(
        module=IRModule("m"),
        time=1000,
        instructions=1000,
        workspace_bytes=workspace_bytes,
        image_bytes=1000,
    )


@pytest.mark.parametrize(
    ("workspace_bytes", "percent"),
    [(52_000, 118), (52_001, 107), (75_000, 107), (75_001, 102)],
)
def test_a_program_may_take_more_time_the_less_memory_it_needs(
    workspace_bytes: int, percent: int
) -> None:
    whole = _program(100_000)
    limits = thresholds.STREAMED_VECTORS_PERCENT
    assert _streamed_percent(_program(workspace_bytes), whole, limits) == percent
