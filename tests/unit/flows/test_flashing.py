"""Flashing: command lines of the tools, missing tools, refused plans, verification."""

import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.artifacts import Image
from firmwright.base.errors import (
    DeviceError,
    ToolFailedError,
    ToolMissingError,
    UsageError,
)
from firmwright.boards import list_boards, load_board
from firmwright.boards.flash_tools import FLASH_RUNNERS
from firmwright.device.flash_tools import TOOLS
from firmwright.flows.board import flashing
from firmwright.flows.board.flashing import (
    erase,
    find_volume,
    flash,
    plan_erase,
    plan_flashing,
)
from tests.runtime.stm32_image import stm32_image

SAYS = {
    "pyocd": "echo 0012 I Erased 4096 bytes, programmed 512 bytes, skipped 0 bytes >&2",
    "openocd": "echo '** Programming Finished **' >&2",
    "jlink": "echo 'J-Link: Flash download: Total: 0.1s (Prepare: 0.05s, Program: 0.05s)'",
    "st-flash": "echo '2026-01-01T10:00:00 INFO common.c: Flash written and verified! jolly good!'",
    "esptool": "echo 'Hash of data verified.'",
    "picotool": "echo 'Loading into Flash:   [==============================]  100%'",
}
"""What the tools print after success, in the words of their sources or manuals."""
PROVEN_ON = {
    "pyocd": "nrf52840-dk",
    "openocd": "nucleo-h743zi",
    "jlink": "nrf52840-dk",
    "st-flash": "disco-f746ng",
    "esptool": "disco-f746ng",
    "picotool": "rpi-pico2",
}


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return stm32_image(tmp_path)


def test_command_lines_of_flash_tools(
    image: Image, golden: Callable[..., None]
) -> None:
    boards = {
        "pyocd": "nrf52840-dk",
        "openocd": "nucleo-h743zi",
        "jlink": "nrf52840-dk",
        "st-flash": "disco-f746ng",
        "picotool": "rpi-pico2",
    }
    lines = []
    for runner, board in boards.items():
        plan = plan_flashing(load_board(board), image, runner)
        for verify in (False, True):
            lines.append(f"{runner} on {board}{', verified' if verify else ''}:")
            lines += [
                "  " + shlex.join(command) for command in plan.commands(verify=verify)
            ]
            script = TOOLS[runner].script_text(plan.job, verify)
            lines += ["  | " + line for line in script.splitlines()]
        lines += [
            "  erase: " + shlex.join(c) for c in TOOLS[runner].erase_commands(plan.job)
        ]
    golden("\n".join(lines).replace(str(image.directory), "DIR"))


def test_every_tool_is_in_the_board_schema_and_every_board_has_a_tool() -> None:
    assert set(TOOLS) < set(FLASH_RUNNERS)
    physical = [board for board in list_boards() if board.run.kind == "serial"]
    assert len(physical) >= 8
    assert all(board.flash_tools.tools for board in physical)


def put_tool(
    folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / name).write_text("#!/bin/sh\n" + script)
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")


def test_missing_tool_error_has_install_hint(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolMissingError) as caught:
        flash(plan_flashing(load_board("bluepill-f103"), image))
    assert str(caught.value) == (
        "bluepill-f103: st-flash is not installed. Try: apt install stlink-tools."
    )


def test_read_back_contents_are_compared(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script replaces the tool and reads back an environment variable's value."""
    reads = f'case "$1" in read) cat {tmp_path}/chip > "$2";; *) {SAYS["st-flash"]};; esac\n'
    put_tool(tmp_path, "st-flash", reads, monkeypatch)
    plan = plan_flashing(load_board("bluepill-f103"), image)
    (tmp_path / "chip").write_bytes(bytes.fromhex("deadbeef"))
    assert flash(plan, verify=True).verified
    (tmp_path / "chip").write_bytes(bytes.fromhex("deadbfef"))
    with pytest.raises(DeviceError, match=r"differ from the image at 0x8000002"):
        flash(plan, verify=True)
    put_tool(tmp_path, "st-flash", SAYS["st-flash"], monkeypatch)
    with pytest.raises(
        ToolFailedError, match="not proved: the tool did not read the flash back"
    ):
        flash(plan, verify=True)


DENIES = {
    "pyocd": "0012 E Erased 0 bytes, programmed 0 bytes: error",
    "openocd": 'Error: could not reach "** Programming Finished **": ** Programming Failed **',
    "jlink": "Error: no Flash download: Total failure",
    "st-flash": "ERROR: NOT Flash written and verified",
    "esptool": "Error: no Hash of data verified.",
    "picotool": "ERROR: Loading into Flash did not reach 100%",
}
"""Lines of errors that contain the words of a proof."""


@pytest.mark.parametrize("runner", SAYS)
def test_only_the_message_of_a_tool_proves_that_it_flashed(
    runner: str, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool without a board may print something else and exit with 0."""
    board = load_board(PROVEN_ON[runner])
    if runner not in dict(board.flash_tools.tools):
        tools = replace(board.flash_tools, tools=((runner, "any"),))
        board = replace(board, flash_tools=tools)
    plan = plan_flashing(board, image, runner)
    put_tool(tmp_path, TOOLS[runner].program, f"{SAYS[runner]}\n", monkeypatch)
    assert flash(plan).runner == runner
    put_tool(
        tmp_path, TOOLS[runner].program, "echo 'Waiting for a probe...'\n", monkeypatch
    )
    with pytest.raises(
        ToolFailedError, match=r"flashing is not proved: \S+ ended with 0, but"
    ):
        flash(plan)
    put_tool(tmp_path, TOOLS[runner].program, f"echo '{DENIES[runner]}'\n", monkeypatch)
    with pytest.raises(ToolFailedError, match="flashing is not proved"):
        flash(plan)
    if TOOLS[runner].verify:
        put_tool(tmp_path, TOOLS[runner].program, f"{SAYS[runner]}\n", monkeypatch)
        with pytest.raises(ToolFailedError, match="flashing is not proved"):
            flash(plan, verify=True)
    with pytest.raises(ToolFailedError, match="erasing is not proved"):
        erase(plan_erase(board, runner))


def test_output_of_failing_tool_is_quoted(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_tool(tmp_path, "openocd", "echo no probe found; exit 3\n", monkeypatch)
    with pytest.raises(
        ToolFailedError, match=r"openocd could not flash the board\.\nno probe"
    ):
        flash(plan_flashing(load_board("nucleo-h743zi"), image))


def test_uf2_is_copied_to_the_volume_and_cannot_be_verified(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_flashing(load_board("rpi-pico"), image)
    volume = tmp_path / "media" / "me" / "RPI-RP2"
    volume.mkdir(parents=True)
    with pytest.raises(DeviceError, match="not the volume of a boot ROM"):
        flash(plan, address=str(volume))
    (volume / "INFO_UF2.TXT").write_text("UF2 Bootloader")
    monkeypatch.setattr(flashing, "RESTART_TIMEOUT_S", 0.2)
    with pytest.raises(
        DeviceError, match=r"not proved: the volume remained for 0\.2 s"
    ):
        flash(plan, address=str(volume))
    # A boot ROM removes its volume after the last block.
    monkeypatch.setattr(os, "fsync", lambda _: (volume / "INFO_UF2.TXT").unlink())
    done = flash(plan, address=str(volume))
    assert (done.place, done.verified) == (str(volume), False)
    (volume / "INFO_UF2.TXT").write_text("UF2 Bootloader")
    assert (volume / "firmware.uf2").stat().st_size == 512
    with pytest.raises(UsageError, match="cannot be read back"):
        flash(plan, verify=True, address=str(volume))
    assert find_volume("RPI-RP2", (tmp_path / "media",), "rpi-pico") == volume
    with pytest.raises(DeviceError, match="no volume called RP2350 is mounted"):
        find_volume("RP2350", (tmp_path / "media",), "rpi-pico2")


def test_unconfigured_runner_is_refused(image: Image) -> None:
    with pytest.raises(
        UsageError, match="does not configure 'uf2'; it has st-flash, openocd"
    ):
        plan_flashing(load_board("bluepill-f103"), image, "uf2")
    with pytest.raises(
        UsageError, match="no runner was given, and the board's file configures none"
    ):
        plan_flashing(load_board("mps2-an385"), image)
    assert (
        plan_flashing(load_board("mps2-an386"), image, "gdb", "localhost:1").argument
        == "localhost:1"
    )


def test_erase_uses_the_first_capable_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        plan_erase(load_board("rpi-pico")).runner == "openocd"
    )  # of a volume nothing is erased
    said = f'for last; do :; done; cat "$last" > {tmp_path}/said; echo Erasing done.\n'
    put_tool(tmp_path, "JLinkExe", said, monkeypatch)
    erase(plan_erase(load_board("nrf52840-dk"), "jlink"))
    assert (tmp_path / "said").read_text() == "halt\nerase\nreset\nexit\n"
    with pytest.raises(
        UsageError, match="no configured tool erases this board; its file has none"
    ):
        plan_erase(load_board("mps2-an385"))
