"""`flash --runner serial` to the bootloader in QEMU, through a pseudo terminal."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from firmwright.boards import load_board
from firmwright.boards.bootloader import board_for_slot
from firmwright.device.pty_process import PtyProcess
from firmwright.flows.bootloader_flashing import slot_firmware_from_folder
from firmwright.flows.firmware_images import build_tree

pytestmark = pytest.mark.qemu

WHERE = ("--board", "mps2-an386", "--runner", "serial", "--port")
FLASH_BYTES = 16 << 20


@dataclass
class Device:
    """An emulated board with a file as flash and a pseudo terminal as UART."""

    elf: str
    flash: Path
    process: PtyProcess | None = None

    def on(self) -> str:
        self.off()
        with self.flash.open("ab") as file:
            file.truncate(FLASH_BYTES)
        memory = f"memory-backend-file,id=flash,size=16M,mem-path={self.flash},share=on"
        self.process = PtyProcess(
            [
                *("qemu-system-arm", "-machine", "mps2-an386,memory-backend=flash"),
                *("-object", memory, "-kernel", self.elf, "-icount", "shift=0"),
                *("-display", "none", "-monitor", "none", "-nodefaults"),
                *("-chardev", "stdio,id=link,signal=off", "-serial", "chardev:link"),
            ]
        )
        return self.process.name

    def off(self) -> None:
        if self.process is not None:
            self.process.close()
            self.process = None

    def off_after(self, size_bytes: int) -> threading.Thread:
        """Cut the power after `size_bytes` of the flash have been written."""

        def watch() -> None:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                with self.flash.open("rb") as file:
                    file.seek(size_bytes)
                    if any(file.read(64)):
                        self.off()
                        return
                time.sleep(0.002)

        thread = threading.Thread(target=watch)
        thread.start()
        return thread


@pytest.fixture
def device(fw, tmp_path: Path) -> Iterator[Device]:
    folder = tmp_path / "loader"
    elf = fw("bootloader", "--board", "mps2-an386", "-o", folder, "--json").json["elf"]
    assert Path(elf).is_relative_to(folder)
    made = Device(elf, tmp_path / "flash.bin")
    yield made
    made.off()


def test_interrupted_flash_can_be_repeated(fw, device: Device, digits_path: Path, tmp_path: Path):
    project = tmp_path / "project"
    assert fw("compile", digits_path, "--board", "mps2-an386", "-o", project).status == 0
    board = board_for_slot(load_board("mps2-an386"), 0)
    build_tree(
        slot_firmware_from_folder(project).project(board)
    )  # so the emulator need not wait for it
    shown = fw("flash", project, *WHERE, "/dev/null", "--dry-run").out
    assert shown.strip() == "serial: project, linked for the free slot of the bootloader."
    port = device.on()
    said = fw("flash", tmp_path / "loader", *WHERE, port)
    assert (said.status, "the bootloader cannot update itself" in said.err) == (2, True)
    cutting = device.off_after(8192)
    said = fw("flash", project, *WHERE, port, "--verify")
    cutting.join()
    assert said.status == 1
    assert said.err.count("\n") == 1
    assert port in said.err
    port = device.on()
    told = fw("bootloader", "--board", "mps2-an386", "--port", port)
    assert told.out.endswith("mps2-an386 boots nothing; slot 0 is free.\n")
    done = fw("flash", project, *WHERE, port, "--verify", "--json").json
    assert (done["slot"], done["verified"], done["model_only"]) == (0, True, False)
    assert 0 < done["sent_bytes"] < done["size_bytes"], "it went on where it was cut"
    port = device.on()
    said = fw("verify", digits_path, "--board", "mps2-an386", "--port", port, "--samples", 2)
    assert "bit-exact" in said.out
    listed = fw("bootloader", "--board", "mps2-an386", "--port", port, "--json").json
    assert [slot["state"] for slot in listed["slots"]] == ["confirmed", "empty", "empty"]
    assert (listed["application"], listed["model"], listed["free"]) == (0, None, 1)


def test_firmware_unsuitable_for_the_bootloader_is_a_usage_error(fw, digits_path: Path):
    said = fw("flash", digits_path, "--board", "nucleo-h743zi", "--model-only")
    assert (said.status, "needs the bootloader on the board" in said.err) == (2, True)
    said = fw("bootloader", "--board", "nucleo-h743zi")
    assert (said.status, "does not describe a bootloader" in said.err) == (2, True)
    said = fw("flash", digits_path, *WHERE, "/dev/null", "--const-pool", "psram:external")
    assert (said.status, "cannot be sent through the bootloader" in said.err) == (2, True)
