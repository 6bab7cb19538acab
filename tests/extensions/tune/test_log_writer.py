"""The log is ordered, survives an interruption, and has one writer."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.extensions.tune.log_writer import TuningLogWriter
from firmwright.ops.tuning_records import (
    ConfiguredSchedule,
    Measurement,
    MeasurementContext,
)

AT = MeasurementContext("mps2-an386", "exact", "gcc 12", "-O2", "0.1.0")
ITEMS = [
    Measurement(
        "l",
        "k",
        ConfiguredSchedule("rule", (("n", n),)),
        "ok",
        5 + n,
        "instructions",
        "conv2d",
        AT,
    )
    for n in range(4)
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def lines(items: list[Measurement]) -> str:
    return "".join(item.line() + "\n" for item in items)


def test_a_line_is_on_the_disk_as_soon_as_it_is_appended(path: Path) -> None:
    with TuningLogWriter(path) as book:
        book.append(ITEMS[0])
        assert path.read_text() == lines(ITEMS[:1])
        book.append(ITEMS[0])
    assert path.read_text() == lines(ITEMS[:1])


def test_early_measurements_survive_an_interruption(path: Path) -> None:
    book = TuningLogWriter(path)
    book.append(ITEMS[0])
    book.record_early(ITEMS[2])
    ahead = path.with_name("log.jsonl.ahead")
    assert ahead.read_text() == lines(ITEMS[2:3])
    book.close()
    with TuningLogWriter(path) as again:
        assert again.find(ITEMS[2].key) == ITEMS[2]
        assert again.find(ITEMS[1].key) is None
        for item in ITEMS:
            again.append(item)
    assert path.read_text() == lines(ITEMS)
    assert not ahead.exists()


def test_incomplete_last_line_is_removed_with_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(lines(ITEMS[:2])[:-10])
    with caplog.at_level(logging.WARNING), TuningLogWriter(path) as book:
        assert book.find(ITEMS[1].key) is None
        book.append(ITEMS[1])
    assert path.read_text() == lines(ITEMS[:2])
    assert [r.getMessage() for r in caplog.records] == [
        f"{path}: the last line is incomplete and is removed"
    ]


def test_two_searches_do_not_write_one_log(path: Path) -> None:
    with (
        TuningLogWriter(path),
        pytest.raises(UsageError, match="another search is writing this log"),
    ):
        TuningLogWriter(path)


def test_log_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="the tuning log cannot be written: Is a directory"
    ):
        TuningLogWriter(tmp_path)


def test_a_kernel_of_another_compiler_is_another_measurement(path: Path) -> None:
    with TuningLogWriter(path) as book:
        book.append(ITEMS[0])
        other = replace(ITEMS[0], at=replace(AT, compiler="gcc 13"))
        assert book.find(other.key) is None
