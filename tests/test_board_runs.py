"""The page of boards that ran equals its record, and the record is of today's boards."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load_script() -> Any:
    path = ROOT / "docs" / "board_runs.py"
    spec = importlib.util.spec_from_file_location("board_runs", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


SCRIPT = load_script()
RECORD: dict[str, Any] = SCRIPT.read_record()


def test_the_page_equals_the_record() -> None:
    """Run `python docs/board_runs.py` to write it anew."""
    page = SCRIPT.PAGE.read_text(encoding="utf-8")
    assert f"{SCRIPT.MARKER}{SCRIPT.table(RECORD)}\n" in page


@pytest.mark.parametrize("name", RECORD)
def test_a_record_is_of_the_board_as_it_is(name: str) -> None:
    """Repeat the runs of a changed board with `python docs/board_runs.py MODELS -b`."""
    entry = RECORD[name]
    assert entry["digest"] == SCRIPT.digest_board(name)
    assert name in SCRIPT.runnable_boards()
    assert set(entry["models"]) <= set(SCRIPT.MODELS)
    for result in entry["models"].values():
        if result.get("error") != "does_not_fit":
            assert result["values"] > 0
            assert result["mismatches"] == 0
    assert entry.get("selftest", {"failed": 0})["failed"] == 0


def test_every_board_of_labwired_has_run_a_model() -> None:
    """Boards of QEMU are also tested without a record, those of LabWired by it."""
    ran: set[str] = set()
    for name, entry in RECORD.items():
        if any(result.get("samples") for result in entry["models"].values()):
            ran.add(name)
    boards = SCRIPT.runnable_boards().values()
    assert {board.name for board in boards if board.emulator is not None} <= ran


@pytest.mark.deep
@pytest.mark.parametrize("name", ["rpi-pico", "nrf52840-dk", "mps2-an386"])
def test_a_run_repeats_its_record(name: str) -> None:
    board = SCRIPT.load_board(name)
    if board.run.kind != "qemu":
        pytest.importorskip("labwired", reason="needs LabWired (pip install labwired)")
    result = SCRIPT.run_model(board, SCRIPT.DIGITS, 4)
    recorded = RECORD[name]["models"]["digits"]
    for key in ("samples", "values", "mismatches"):
        assert result[key] == recorded[key]
