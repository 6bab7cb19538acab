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


@pytest.fixture(scope="module")
def runnable() -> dict[str, Any]:
    boards: dict[str, Any] = SCRIPT.runnable_boards()
    return boards


def test_the_page_equals_the_record() -> None:
    """Run `python docs/board_runs.py` to write it anew."""
    page = SCRIPT.PAGE.read_text(encoding="utf-8")
    assert f"{SCRIPT.MARKER}{SCRIPT.table(RECORD)}\n" in page


def test_records_are_of_the_boards_as_they_are(runnable: dict[str, Any]) -> None:
    """Repeat the runs of a changed board with `python docs/board_runs.py MODELS -b`."""
    for name, entry in RECORD.items():
        board = name.partition("@")[0]
        assert entry["digest"] == SCRIPT.digest_board(board), name
        assert board in runnable
        assert set(entry["models"]) <= set(SCRIPT.MODELS), name
        for result in entry["models"].values():
            if result.get("error") != SCRIPT.TOO_LARGE:
                assert result["values"] > 0, name
                assert result["mismatches"] == 0, name
        assert entry.get("selftest", {"failed": 0})["failed"] == 0, name


def test_every_emulated_board_has_run_a_model(runnable: dict[str, Any]) -> None:
    ran: set[str] = set()
    for name, entry in RECORD.items():
        if any(result.get("samples") for result in entry["models"].values()):
            ran.add(name)
    assert set(runnable) <= ran


@pytest.mark.deep
@pytest.mark.parametrize("name", ["rpi-pico", "nrf52840-dk", "mps2-an386"])
def test_a_run_repeats_its_record(name: str) -> None:
    place = SCRIPT.find_place(name)
    if place.board.run.kind != "qemu":
        pytest.importorskip("labwired", reason="needs LabWired (pip install labwired)")
    result = SCRIPT.run_model(place, SCRIPT.DIGITS, 4)["models"]["digits"]
    recorded = RECORD[name]["models"]["digits"]
    for key in ("samples", "values", "mismatches"):
        assert result[key] == recorded[key]
