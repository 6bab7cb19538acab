"""Measurements as costs: the best measured kernel is first, stale ones are ignored."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.flows.model.compilation import compile_for, module_after
from firmwright.flows.model.model import load_model
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.lower.lowering import Lowering
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import LoweringCandidate, Schedule
from firmwright.ops.tuning_records import (
    NO_TUNING_RECORDS,
    ConfiguredSchedule,
    Measurement,
    MeasurementContext,
    TuningRecords,
    configured_schedule,
    kernel_digest,
    layer_digest,
)
from firmwright.pipeline import Options, make_lowering
from firmwright.schedules.cortex_m_dsp.conv2d_fully_connected import Im2colConfig
from firmwright.schedules.registry import INTRINSICS, SCHEDULES
from firmwright.targets.registry import target_features

BOARD = "mps2-an386"
AT = MeasurementContext(BOARD, "exact", "gcc 12", "-O2", "0.1.0")
CALL = 2
"""The pointwise convolution of the digits example that these tests tune."""


@pytest.fixture
def lowering(digits_path: Path) -> Lowering:
    options = Options(board=BOARD)
    return make_lowering(
        module_after(load_model(digits_path), "reorder-calls", options), options
    )


def offered(
    lowering: Lowering, tuning: TuningRecords = NO_TUNING_RECORDS
) -> tuple[LoweringCandidate, ...]:
    return replace(lowering, tuning=tuning).calls()[CALL].candidates


def record(
    lowering: Lowering, item: LoweringCandidate, count: int, **changes: object
) -> Measurement:
    call = make_op_call(lowering.entry.body[CALL], lowering.module)
    digest = layer_digest(call, lowering.module.targets["cpu"])
    choice = configured_schedule(item.rule, item.config)
    kernel = kernel_digest(item.function)
    made = Measurement(digest, kernel, choice, "ok", count, "instructions", "", AT)
    return replace(made, **changes)  # type: ignore[arg-type]


def schedules(candidates: tuple[LoweringCandidate, ...]) -> list[object]:
    return [item.function.attrs["schedule"] for item in candidates]


def test_without_measurements_nothing_changes(lowering: Lowering) -> None:
    elsewhere = record(lowering, offered(lowering)[0], 1, layer="another")
    assert offered(lowering, TuningRecords.from_measurements([elsewhere])) == offered(
        lowering
    )


def test_the_best_measured_candidate_comes_first_with_its_count(
    lowering: Lowering,
) -> None:
    plain = offered(lowering)
    log = [record(lowering, item, 100 - i) for i, item in enumerate(plain)]
    tuned = offered(lowering, TuningRecords.from_measurements(log))
    assert schedules(tuned) == list(reversed(schedules(plain)))
    assert [item.instructions for item in tuned] == list(
        range(100 - len(plain) + 1, 101)
    )


def test_predictions_are_corrected_by_the_error_of_the_best_measurement(
    lowering: Lowering,
) -> None:
    first, second, *_ = plain = offered(lowering)
    tuned = offered(
        lowering,
        TuningRecords.from_measurements(
            [record(lowering, second, 3 * second.instructions)]
        ),
    )
    assert schedules(tuned) == schedules(plain)
    assert tuned[0].instructions == 3 * first.instructions


def test_nearly_equal_counts_keep_the_order(lowering: Lowering) -> None:
    first, second, third, *_ = offered(lowering)
    counts = ((first, 100_100), (second, 100_000), (third, 99_000))
    tuned = offered(
        lowering,
        TuningRecords.from_measurements(
            [record(lowering, item, n) for item, n in counts]
        ),
    )
    expected = schedules((third, first, second))
    measured = [item for item in tuned if item.function.attrs["schedule"] in expected]
    assert schedules(tuple(measured)) == expected
    assert [item.instructions for item in measured] == [99_000, 100_000, 100_000]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("status", ["wrong", "failed"])
def test_wrong_or_failed_kernels_are_not_candidates(
    lowering: Lowering, status: str
) -> None:
    first = offered(lowering)[0]
    bad = record(lowering, first, 0, status=status)
    good = record(lowering, first, 1)
    for log in ([bad], [bad, good]):
        tuned = offered(lowering, TuningRecords.from_measurements(log))
        assert schedules(tuned) == schedules(offered(lowering))[1:]


def test_cycles_rank_kernels_and_keep_the_scale_of_predictions(
    lowering: Lowering,
) -> None:
    first, second, *_ = offered(lowering)
    counts = ((first, 300), (second, 200))
    log = [record(lowering, item, count, unit="cycles") for item, count in counts]
    tuned = offered(lowering, TuningRecords.from_measurements(log))
    prices = dict(
        zip(schedules(tuned), (item.instructions for item in tuned), strict=True)
    )
    assert schedules(tuned)[0] == second.function.attrs["schedule"]
    assert prices[second.function.attrs["schedule"]] == second.instructions
    assert prices[first.function.attrs["schedule"]] == round(1.5 * second.instructions)


def test_stale_measurements_are_counted_and_ignored(
    lowering: Lowering, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, *_ = offered(lowering)
    log = [
        record(lowering, first, 9, kernel="of an earlier version"),
        record(lowering, second, 8, choice=ConfiguredSchedule("no.such.rule")),
        record(
            lowering,
            second,
            7,
            choice=ConfiguredSchedule(second.rule, (("pixels", 77),)),
        ),
    ]
    with caplog.at_level(logging.WARNING):
        assert offered(lowering, TuningRecords.from_measurements(log)) == offered(
            lowering
        )
    assert [r.getMessage() for r in caplog.records] == [
        "digits: 3 measurements of the tuning log are ignored: they are of kernels that are not "
        "made any more"
    ]


def test_the_best_configuration_of_the_search_space_is_a_candidate(
    lowering: Lowering,
) -> None:
    def widened(rule: Schedule) -> Schedule:
        if rule.name != "dsp.conv2d.im2col":
            return rule
        return replace(
            rule, configs=lambda call: (Im2colConfig(4),), space=rule.configs
        )

    rules = tuple(widened(rule) for rule in SCHEDULES)
    narrow = replace(lowering, rules=rules)
    assert "dsp.conv2d.im2col pixels=1" not in schedules(offered(narrow))
    extra = narrow.kernel(
        CALL, configured_schedule("dsp.conv2d.im2col", Im2colConfig(1))
    )
    two = narrow.kernel(CALL, configured_schedule("dsp.conv2d.im2col", Im2colConfig(2)))
    known = [record(narrow, item, 100) for item in offered(narrow)]
    tuning = TuningRecords.from_measurements(
        [*known, record(narrow, extra, 5), record(narrow, two, 6)]
    )
    tuned = offered(narrow, tuning)
    assert schedules(tuned)[0] == "dsp.conv2d.im2col pixels=1"
    assert "dsp.conv2d.im2col pixels=2" not in schedules(tuned)
    again = Lowering(
        lowering.module, op_table(), rules, INTRINSICS, target_features
    ).calls()
    assert schedules(again[CALL].candidates) == schedules(offered(narrow))


def test_compilation_uses_the_tuning_log(lowering: Lowering, digits_path: Path) -> None:
    plain = compile_for(load_model(digits_path), BOARD)
    *fast, slow = offered(lowering)
    log = [record(lowering, slow, 1), *(record(lowering, item, 100) for item in fast)]
    tuned = compile_for(
        load_model(digits_path), BOARD, tuning=TuningRecords.from_measurements(log)
    )
    rows = [compiled.metadata["operators"] for compiled in (plain, tuned)]
    changed = [new["schedule"] for old, new in zip(*rows, strict=True) if old != new]
    assert changed == [slow.function.attrs["schedule"]]
    assert "tuning" in tuned.metadata["options"]
    assert "tuning" not in plain.metadata["options"]
