"""Projects that the bootloader accepts, decided by their files."""

import json
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.boards.bootloader import (
    HANDOFF_BYTES,
    board_for_bootloader,
    board_for_model_update,
    board_for_slot,
)
from firmwright.flows.bootloader_flashing import slot_firmware_from_folder, uses_bootloader

SOURCES = ["runtime/fwr_server.c"]


def project(
    folder: Path, sources: list[str], facts: dict[str, object], more: tuple[str, ...] = ()
) -> Path:
    files = {
        "metadata.json": json.dumps(facts),
        "board/board.json": json.dumps({"runtime_sources": sources}),
        "firmware/fwr_app.c": "/* the glue, changed by hand */",
        "build/release/firmware.elf": "",
        **dict.fromkeys(more, ""),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_edited_project_is_linked_for_a_slot(tmp_path: Path) -> None:
    folder = project(tmp_path, SOURCES, {"model_id": "00ff"}, ("model/m.c", "model/m.params.bin"))
    found = slot_firmware_from_folder(folder)
    board = load_board("mps2-an386")
    files = found.project(board_for_slot(board, 2)).files
    assert found.model_id == b"\x00\xff"
    assert files["firmware/fwr_app.c"] == b"/* the glue, changed by hand */"
    assert "runtime/slot_main.c" in files
    assert "runtime/fwr_main.c" not in files
    assert "ORIGIN = 0x21100000, LENGTH = 0x0007F000" in str(files["board/link.ld"])
    alone = found.project(board_for_model_update(board, 1, 0x2000_2000)).files
    assert "ORIGIN = 0x20002000, LENGTH = 0x003FDFF0" in str(alone["board/link.ld"])
    runtime = {path for path in alone if path.startswith("runtime") and path.endswith(".c")}
    assert runtime == {"runtime/model_image.c"}


@pytest.mark.parametrize(
    ("sources", "facts", "more", "says"),
    [
        ([], {"model_id": "00"}, (), "with a main of its own does not answer"),
        (
            SOURCES,
            {"model_id": "00"},
            ("model/m_psram.bin",),
            "cannot be sent through the bootloader",
        ),
        (SOURCES, {"bootloader": True}, (), "the bootloader cannot update itself"),
        (SOURCES, {}, (), "the folder holds no model"),
    ],
)
def test_projects_unsuitable_for_the_bootloader_are_refused(
    sources: list[str], facts: dict[str, object], more: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=says):
        slot_firmware_from_folder(project(tmp_path, sources, facts, more))


def test_foreign_folder_is_not_a_project(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this file is not from a Firmwright project"):
        slot_firmware_from_folder(tmp_path)


def test_bootloader_uses_the_start_of_flash_and_the_end_of_ram() -> None:
    board = load_board("microbit")
    loader, slot = board_for_bootloader(board), board_for_slot(board, 1)
    assert (loader.flash.start, loader.flash.size_bytes) == (0, 4096)
    assert loader.ram.end == slot.ram.end == board.ram.end - HANDOFF_BYTES == loader.handoff
    assert slot.ram.start == board.ram.start
    assert slot.flash.start == 4096 + 129024
    assert slot.flash.end == board.flash.end - 1024, "the record has the last page"


def test_bootloader_runner_is_configured_in_the_board_file() -> None:
    assert uses_bootloader(load_board("mps2-an386"), "")
    assert not uses_bootloader(load_board("nrf52840-dk"), "")
    assert uses_bootloader(load_board("nrf52840-dk"), "serial")
    assert not uses_bootloader(load_board("bluepill-f103"), "serial")
    assert not uses_bootloader(load_board("host"), "")
