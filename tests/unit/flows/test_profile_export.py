"""The placement of calls in traces of several cores and DMA channels."""

from firmwright.flows.profile_export import _CallSchedule, _TraceSpan
from firmwright.ir import tir


def spans(counts: dict[int, int], *calls: tuple[str, int, tir.CallPhase]) -> list[_TraceSpan]:
    schedule = _CallSchedule(counts)
    made = [tir.PrimFuncCall("f", (), op=op, device=device, phase=p) for device, op, p in calls]
    return [span for call in made for span in schedule.place(call)]


def test_cores_run_in_parallel_and_the_main_core_waits() -> None:
    found = spans(
        {0: 100, 1: 300, 2: 50, 3: 10},
        ("", 0, "call"),
        ("cpu1", 1, "start"),
        ("", 2, "call"),
        ("cpu1", 1, "wait"),
        ("", 3, "call"),
    )
    assert found == [
        _TraceSpan("main core", 0, 0, 100),
        _TraceSpan("main core", 2, 100, 150),
        _TraceSpan("cpu1", 1, 100, 400),
        _TraceSpan("main core", 3, 400, 410),
    ]


def test_a_transfer_lasts_until_its_wait() -> None:
    calls = (("dma0", 1, "start"), ("", 2, "call"), ("dma0", 1, "wait"), ("", 3, "call"))
    assert spans({1: 5, 2: 50, 3: 10}, *calls) == [
        _TraceSpan("main core", 2, 0, 50),
        _TraceSpan("dma0", 1, 0, 50),
        _TraceSpan("main core", 3, 50, 60),
    ]


def test_the_iterations_of_a_loop_count_once() -> None:
    assert spans({1: 5}, ("", 1, "call"), ("", 1, "call")) == [_TraceSpan("main core", 1, 0, 5)]
