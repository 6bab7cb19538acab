"""Occupied bytes over time, and the peak."""

from firmwright.report.model import occupied_bytes, occupied_bytes_by_time, peak_time
from tests.unit.report.sample_report import buffer, make_report


def test_overlapping_buffers_count_once_and_pools_add_up():
    report = make_report()
    assert occupied_bytes_by_time(report) == (96, 128, 16)
    assert peak_time(report) == 1
    assert (
        occupied_bytes((buffer("x", 0, 8, (0, 1)), buffer("y", 20, 8, (0, 1))), 0) == 16
    )


def test_empty_run_has_peak_zero():
    empty = make_report(operator_by_time=(), buffers=())
    assert occupied_bytes_by_time(empty) == ()
    assert peak_time(empty) == 0


def test_step_without_operator_has_no_kind():
    assert [make_report().call_at(time) for time in range(3)] == [
        "conv2d 0",
        "",
        "softmax 2",
    ]
