"""Calibration: the fit, the board file, and a port with QEMU in place of a chip."""

import json
import os
import shutil
import socket
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from firmwright.base.errors import UsageError
from firmwright.bench import calibration
from firmwright.bench.calibration import calibrate, write_calibration
from firmwright.boards import load_board
from firmwright.boards.schema import Calibration
from firmwright.cli.main import main
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.flashing import run_flash_command
from firmwright.flows.board.model_session import open_session
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from tests.runtime.flashed_emulator import FLASH_PROGRAM

# QEMU's AN386 in place of a chip: its instruction counter is declared as one of cycles.
CHIP = """
name = "chip"
description = "The AN386 of QEMU in place of a chip"
soc = "mps2_an386"
validation = "built"

[run]
kind = "serial"

[counter]
unit = "cycles"
scale = [40, 1]

[limits]
stack = 4096

[[memory]]
name = "code"
start = 0
size = 0x0040_0000
kind = "flash"

[[memory]]
name = "sram"
start = 0x2000_0000
size = 0x0040_0000
kind = "ram"
pool = "sram"
"""
FOUND = Calibration(1.25, 1.2, 1.3, "2026-11-23 with kws", wait_states=4)


@pytest.fixture
def boards(tmp_path: Path) -> Path:
    (tmp_path / "boards" / "chip").mkdir(parents=True)
    (tmp_path / "boards" / "chip" / "board.toml").write_text(CHIP)
    return tmp_path / "boards"


@pytest.fixture
def rig(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    script, known = tmp_path / "flash.py", tmp_path / "pid"
    script.write_text(FLASH_PROGRAM)
    command = f"{sys.executable} {script} {{elf}} {port} {known}"
    yield f"socket://127.0.0.1:{port}", command
    if known.exists():
        os.kill(int(known.read_text()), 9)


@pytest.mark.deep
@pytest.mark.qemu
def test_micro_benchmarks_run_on_a_board_at_a_socket(boards: Path, rig):
    port, command = rig

    def open_chip(compiled, variant):
        image = build_image(compiled, variant)
        run_flash_command(image, command)
        return open_session(compiled, port=port, image=image)

    points, own = calibrate([], "chip", open_chip, [boards])
    assert len(points) == 14
    # One cycle for each instruction, as QEMU has it, is fewer than the modeled ones.
    for point in points:
        assert 0.2 < point.ratio <= 1.0, point
    assert own.least < own.scale < own.most
    assert own.wait_states is None  # unknown: the board file states none


def test_other_wait_states_are_taken_if_they_explain_the_cycles(
    monkeypatch: pytest.MonkeyPatch,
):
    names = ("additions", "flash_words", "flash_code")
    operators = [SimpleNamespace(index=i, name=name) for i, name in enumerate(names)]
    compiled = SimpleNamespace(summary=SimpleNamespace(operators=operators))

    def modeled(compiled, timing_board):
        waits = timing_board.flash.wait_states
        cycles = (1000, 1000 + 100 * waits, 1000 + 50 * waits)
        return SimpleNamespace(
            operators=[SimpleNamespace(cycles=count) for count in cycles]
        )

    monkeypatch.setattr(calibration, "measure_instructions", modeled)
    board = load_board("nucleo-l4r5zi")
    chip = {"additions": 1100, "flash_words": 1980, "flash_code": 1540}
    waits, points = calibration._explain(compiled, board, chip)
    assert waits == 8
    assert [round(point.ratio, 3) for point in points] == [1.1, 1.1, 1.1]
    stated = {"additions": 1000, "flash_words": 1490, "flash_code": 1260}
    assert calibration._explain(compiled, board, stated)[0] == 5


def test_the_board_file_gets_one_calibration(boards: Path, tmp_path: Path):
    file = write_calibration("chip", FOUND, tmp_path / "own", [boards])
    assert file == tmp_path / "own" / "chip" / "board.toml"
    again = replace(FOUND, scale=1.5, most=1.6)
    write_calibration("chip", again, tmp_path / "own", [boards])
    assert file.read_text().count("[calibration]") == 1
    board = load_board("chip", [tmp_path / "own"])
    assert board.calibration == again
    assert board.flash.wait_states == 4


@pytest.mark.qemu
@pytest.mark.deep
def test_modeled_cycles_are_scaled_by_the_calibration(
    boards: Path, tmp_path: Path, digits_path
):
    compiled = compile_for(load_model(digits_path), "mps2-an386")
    before = measure_instructions(compiled)
    board = replace(compiled.board, calibration=FOUND)
    after = measure_instructions(compiled, timing_board=board)
    assert after.total.cycles == pytest.approx(1.25 * before.total.cycles, abs=1)
    assert after.silicon_range[1] == pytest.approx(1.3 * before.total.cycles, rel=1e-4)
    assert "calibrated on 2026-11-23 with kws" in after.timing.source


def test_a_counter_of_instructions_is_refused():
    with pytest.raises(
        UsageError, match="counts instructions, and not cycles of a chip"
    ):
        calibrate([], "mps2-an386", lambda compiled, variant: None)


@pytest.mark.deep
@pytest.mark.qemu
def test_the_verb_writes_a_board_file_that_profile_uses(
    boards: Path, rig, tmp_path: Path, digits_path: Path, capfd
):
    def fw(*words: str):
        assert main([*words, "--json"]) == 0
        return json.loads(capfd.readouterr().out)

    port, command = rig
    words = ["--board", "chip", "--boards-dir", str(boards), "--port", port]
    words += ["--flash-command", command, "-o", str(tmp_path / "own")]
    done = fw("calibrate", str(digits_path), *words)
    digits = done["points"][-1]
    assert digits["name"] == "digits"
    shutil.rmtree(boards)
    again = [
        "--board",
        "chip",
        "--boards-dir",
        str(tmp_path / "own"),
        "--count-instructions",
    ]
    found = fw("profile", str(digits_path), *again)["exact"]
    assert "calibrated on" in found["timing"]
    assert found["modeled_cycles"] == pytest.approx(digits["measured"], rel=0.01)
