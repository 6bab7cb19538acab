"""How much time the goal `balanced` spends on kernels that take less flash."""

import pytest

from firmwright.choose.kernel_selection import _nearly_fastest
from firmwright.ir import tir
from firmwright.ops.schedule import NO_CONFIG, LoweringCandidate


def _candidate(time: int, flash_bytes: int) -> LoweringCandidate:
    kernel = tir.PrimFunc("kernel", (), tir.Seq(()))
    return LoweringCandidate(
        "rule", NO_CONFIG, kernel, flash_bytes=flash_bytes, instructions=time
    )


@pytest.mark.parametrize(
    ("time", "saved_bytes", "is_near"),
    [(104, 0, True), (105, 0, False), (110, 40, True), (110, 39, False)],
)
def test_a_slower_kernel_saves_flash_worth_four_times_its_time(
    time: int, saved_bytes: int, is_near: bool
) -> None:
    fastest, slower = _candidate(100, 1000), _candidate(time, 1000 - saved_bytes)
    near = _nearly_fastest([fastest, slower], lambda item: item.time + item.image_bytes)
    assert (slower in near) is is_near


def test_no_saving_of_flash_permits_more_than_three_times_the_time() -> None:
    fastest, slower = _candidate(100, 100_000), _candidate(301, 90_000)
    near = _nearly_fastest([fastest, slower], lambda item: item.time + item.image_bytes)
    assert near == (fastest,)
