"""The placement of calls on cores, engines and DMA channels."""

from firmwright.boards import load_board
from firmwright.flows.predict.run_schedule import (
    ModeledTime,
    ModeledTimes,
    RunSchedule,
    schedule_run,
)
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule

Step = tuple[str, int, tir.CallPhase]


def placed(
    counts: dict[int, int], *steps: Step, modeled: ModeledTimes | None = None
) -> list[tuple[str, int, int, int]]:
    """Return the device, operator, begin and end of each call."""
    schedule = RunSchedule(modeled or {})
    for device, op, phase in steps:
        call = tir.PrimFuncCall("f", (), op=op, device=device, phase=phase)
        schedule.add(call, counts.get(op, 0))
    return [
        (item.call.device, item.call.op, item.begin, item.end)
        for item in schedule.calls
    ]


def test_cores_run_in_parallel_and_the_main_core_waits() -> None:
    assert placed(
        {0: 100, 1: 300, 2: 50, 3: 10},
        ("", 0, "call"),
        ("cpu1", 1, "start"),
        ("", 2, "call"),
        ("cpu1", 1, "wait"),
        ("", 3, "call"),
    ) == [("", 0, 0, 100), ("", 2, 100, 150), ("cpu1", 1, 100, 400), ("", 3, 400, 410)]


def test_a_measured_transfer_lasts_until_its_wait() -> None:
    steps: list[Step] = [("dma0", 1, "start"), ("", 2, "call"), ("dma0", 1, "wait")]
    assert placed({1: 5, 2: 50}, *steps) == [("", 2, 0, 50), ("dma0", 1, 0, 50)]


def test_a_modeled_transfer_takes_its_set_up_and_its_bytes() -> None:
    modeled = {1: ModeledTime(110, 100)}
    steps: list[Step] = [("dma0", 1, "start"), ("", 2, "call"), ("dma0", 1, "wait")]
    assert placed({2: 50}, *steps, modeled=modeled) == [
        ("", 2, 0, 50),
        ("dma0", 1, 0, 110),
    ]
    # A start on a busy channel waits, and so does the core.
    steps = [
        ("dma0", 1, "start"),
        ("dma0", 3, "start"),
        ("", 2, "call"),
        ("dma0", 3, "wait"),
    ]
    modeled[3] = ModeledTime(60, 50)
    assert placed({2: 50}, *steps, modeled=modeled) == [
        ("dma0", 1, 0, 110),
        ("", 2, 110, 160),
        ("dma0", 3, 110, 170),
    ]


def test_transfers_on_two_channels_share_the_bandwidth_but_not_the_set_up() -> None:
    modeled = {1: ModeledTime(110, 100), 2: ModeledTime(60, 50)}
    steps: list[Step] = [
        ("dma0", 1, "start"),
        ("dma1", 2, "start"),
        ("dma1", 2, "wait"),
        ("dma0", 1, "wait"),
    ]
    assert placed({}, *steps, modeled=modeled) == [
        ("dma1", 2, 0, 110),
        ("dma0", 1, 0, 160),
    ]


def test_iterations_of_a_loop_count_once() -> None:
    body = tir.Seq(tuple(tir.PrimFuncCall("f", (), op=1) for _ in range(2)))
    main = tir.PrimFunc("main", (), body, attrs={"aot_main": True})
    module = IRModule("net", {"main": main}, entry_name="main")
    calls = schedule_run(module, {1: 5}, {})
    assert [(item.begin, item.end) for item in calls] == [(0, 5)]


def test_a_transfer_costs_bursts_latencies_and_both_bandwidths() -> None:
    dma = load_board("mps2-an521").dma
    assert dma is not None
    assert (dma.channels, dma.setup, dma.burst, dma.burst_cycles) == (2, 16, 16, 4)
    plain, slow = PoolInfo("a"), PoolInfo("b", write_bandwidth=0.5, write_latency=3)
    assert dma.bus_cycles(100, plain, PoolInfo("b")) == 25 + 25 + 7 * 4
    assert dma.bus_cycles(100, plain, slow) == 25 + 200 + 7 * (4 + 3)
