"""`flash --runner serial` onto the resident loader in QEMU, behind a pseudo terminal."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from firmwright.device.pty_process import PtyProcess

pytestmark = pytest.mark.qemu

WHERE = ("--board", "mps2-an386", "--runner", "serial", "--port")
FLASH_BYTES = 16 << 20


@dataclass
class Device:
    """An emulated board: its flash is a file, its UART a port."""

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
        """Cuts the power once so much of the flash has been written."""

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
    elf = fw("loader", "--board", "mps2-an386", "--json").json["elf"]
    made = Device(elf, tmp_path / "flash.bin")
    yield made
    made.off()


def test_a_flash_that_is_cut_in_the_middle_and_repeated_ends_with_the_model_verified(
    fw, device: Device, digits_path: Path
):
    port = device.on()
    cutting = device.off_after(8192)
    said = fw("flash", digits_path, *WHERE, port, "--verify")
    cutting.join()
    assert said.status == 1
    assert said.err.count("\n") == 1
    assert port in said.err
    port = device.on()
    told = fw("loader", "--board", "mps2-an386", "--port", port, "--json").json
    assert (told["application"], told["free"]) == (None, 0)
    assert [slot["state"] for slot in told["slots"]] == ["empty"] * 3
    done = fw("flash", digits_path, *WHERE, port, "--verify", "--json").json
    assert (done["slot"], done["verified"], done["model_only"]) == (0, True, False)
    assert 0 < done["sent_bytes"] < done["size_bytes"], "it went on where it was cut"
    said = fw("verify", digits_path, "--board", "mps2-an386", "--port", device.on(), "--samples", 2)
    assert "bit-exact" in said.out
    again = fw("flash", digits_path, *WHERE, device.on(), "--model-only")
    assert "the model alone" in again.out
    assert "It answers, and stays." in again.out
    listed = fw("loader", "--board", "mps2-an386", "--port", device.on()).out
    assert "a model for slot 0" in listed
    assert "mps2-an386 starts slot 0 with the model in slot 1; slot 2 is free." in listed


def test_what_does_not_go_through_the_loader_is_a_usage_error(
    fw, tmp_path: Path, digits_path: Path
):
    folder = tmp_path / "loader"
    built = fw("loader", "--board", "mps2-an386", "-o", folder)
    assert "of 4,096 bytes, 3 slots of 524,288 bytes" in built.out
    said = fw("flash", folder, *WHERE, "/dev/null")
    assert (said.status, "a loader does not go through itself" in said.err) == (2, True)
    said = fw("flash", digits_path, "--board", "nucleo-h743zi", "--model-only")
    assert (said.status, "needs the resident loader on the board" in said.err) == (2, True)
    said = fw("loader", "--board", "nucleo-h743zi")
    assert (said.status, "says nothing of a loader" in said.err) == (2, True)
    said = fw("flash", digits_path, *WHERE, "/dev/null", "--const-pool", "psram:external")
    assert (said.status, "do not go through the loader" in said.err) == (2, True)
    shown = fw("flash", digits_path, *WHERE, "/dev/null", "--dry-run").out
    assert shown.strip() == "serial: digits, linked for the slot that the loader says is free."
