"""A log is read whatever became of it, and a module goes on with its first log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.flows.model.compilation import compile_for, module_after, options_for
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.model.tuning_log import read_measurements, read_tuning
from firmwright.ops.tuning_records import (
    DEFAULT_CHOICE,
    Measurement,
    MeasurementContext,
    TuningRecords,
)
from firmwright.pipeline import Options

AT = MeasurementContext("mps2-an386", "exact", "gcc 12", "-O2", "0.1.0")
RECORD = Measurement("l", "k", DEFAULT_CHOICE, "ok", 5, "instructions", "conv2d", AT)


def test_invalid_log_lines_are_skipped_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(f'{RECORD.line()}\n{{"schema": 9}}\n\n{RECORD.line()[:40]}')
    with caplog.at_level(logging.WARNING):
        assert read_measurements(log) == (RECORD,)
    assert [r.getMessage() for r in caplog.records] == [
        f"{log}: ignored 2 of 3 lines: incomplete, or of another version"
    ]


def test_concatenated_logs_are_merged(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(f"{RECORD.line()}\n" * 2)
    assert read_tuning(log) == TuningRecords.from_measurements([RECORD])


def test_missing_log_error_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="the tuning log cannot be read: No such file"
    ) as raised:
        read_tuning(tmp_path / "none")
    assert "firmwright tune MODEL" in raised.value.hint


def test_started_module_requires_the_same_tuning_log(digits_path: Path) -> None:
    tuning = TuningRecords.from_measurements([RECORD])
    model = load_model(digits_path)
    begun = Model(
        module_after(
            model, "reorder-calls", options_for(model.module, {"tuning": tuning})
        )
    )
    assert (
        compile_for(begun, tuning=tuning).metadata["options"]["tuning"] == tuning.digest
    )
    with pytest.raises(
        UsageError, match="compiled up to reorder-calls with a tuning log"
    ):
        compile_for(begun)
    plain = Model(module_after(model, "reorder-calls", Options()))
    with pytest.raises(
        UsageError, match="compiled up to reorder-calls without a tuning log"
    ):
        compile_for(plain, tuning=tuning)
