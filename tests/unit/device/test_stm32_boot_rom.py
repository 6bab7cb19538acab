"""The client of the STM32's boot ROM, on a pty, against a chip that keeps to AN3155."""

import os
import pty
import select
import threading
import tty
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from firmwright.base.errors import DeviceError, DeviceTimeoutError
from firmwright.device.flash_image import FlashImage
from firmwright.device.serial_port import SerialTransport
from firmwright.device.stm32_boot_rom import Stm32BootRom

ACK, NACK = b"\x79", b"\x1f"
BASE, SIZE = 0x0800_0000, 4096
IMAGE = FlashImage(((BASE, bytes(range(256)) * 2 + b"tail!"),))


class HungUpError(Exception):
    """The other end was closed."""


@dataclass
class Chip:
    """Flash behind a boot ROM; as in reality, writes without an erase leave rubbish."""

    line: int
    chip_id: int = 0x450
    extended: bool = True
    page_bytes: int = 0
    """The size of a page if only pages can be erased."""
    block_bytes: int = 256
    erased: list[int] = field(default_factory=list)
    protected: bool = False
    worn_at: int | None = None
    flash: bytearray = field(default_factory=lambda: bytearray(b"\0" * SIZE))
    started_at: int | None = None

    def serve(self) -> None:
        try:
            assert self.take(1) == b"\x7f"
            self.say(ACK)
            while True:
                self.answer(self.take(2))
        except HungUpError:
            return

    def answer(self, command: bytes) -> None:
        if command[0] ^ command[1] != 0xFF:
            self.say(NACK)
            return
        erase = 0x44 if self.extended else 0x43
        match command[0]:
            case 0x00:
                known = bytes((0x00, 0x02, 0x11, 0x21, 0x31, erase))
                self.say(ACK + bytes((len(known),)) + b"\x31" + known + ACK)
            case 0x02:
                self.say(ACK + b"\x01" + self.chip_id.to_bytes(2, "big") + ACK)
            case _ if self.protected:
                self.say(NACK)
            case 0x11:
                self.say(ACK)
                at = self.address()
                count = self.take(2)
                assert count[0] ^ count[1] == 0xFF
                self.say(ACK + self.flash[at : at + count[0] + 1])
            case 0x31:
                self.say(ACK)
                self.write(self.address())
            case 0x21:
                self.say(ACK)
                self.started_at = BASE + self.address()
            case kind if kind == erase:
                self.say(ACK)
                self.erase()
            case _:
                self.say(NACK)

    def erase(self) -> None:
        count = self.take(2 if self.extended else 1)
        if count in (b"\xff\xff", b"\xff"):
            assert self.take(1) == b"\0"
            if self.page_bytes:
                self.say(NACK)
                return
            self.flash[:] = b"\xff" * SIZE
        else:
            assert self.extended
            body = self.take(2 * int.from_bytes(count, "big") + 2)
            check = self.take(1)[0]
            for byte in count + body:
                check ^= byte
            assert check == 0
            for at in range(0, len(body), 2):
                page = int.from_bytes(body[at : at + 2], "big")
                first = page * self.page_bytes
                self.flash[first : first + self.page_bytes] = b"\xff" * self.page_bytes
                self.erased.append(page)
        self.say(ACK)

    def write(self, at: int) -> None:
        count = self.take(1)[0] + 1
        assert count <= self.block_bytes
        data = self.take(count)
        check = count - 1
        for byte in data:
            check ^= byte
        assert count % 4 == 0
        if self.take(1)[0] != check:
            self.say(NACK)
            return
        for offset, byte in enumerate(data, at):
            self.flash[offset] &= byte
        if self.worn_at is not None:
            self.flash[self.worn_at] = 0
        self.say(ACK)

    def address(self) -> int:
        raw = self.take(5)
        assert raw[0] ^ raw[1] ^ raw[2] ^ raw[3] == raw[4]
        self.say(ACK)
        return int.from_bytes(raw[:4], "big") - BASE

    def take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            ready, _, _ = select.select([self.line], [], [], 5.0)
            try:
                more = os.read(self.line, count - len(data)) if ready else b""
            except OSError:
                more = b""
            if not more:
                raise HungUpError
            data += more
        return data

    def say(self, data: bytes) -> None:
        os.write(self.line, data)


class Line:
    """A pty between a chip that is played here and the port under test."""

    def __init__(self) -> None:
        self.chip_end, host_end = pty.openpty()
        tty.setraw(host_end)
        self.port = SerialTransport(os.ttyname(host_end))
        os.close(host_end)  # so that the chip sees it when the port is closed
        self.thread: threading.Thread | None = None

    def serve(self, chip: Chip) -> None:
        self.thread = threading.Thread(target=chip.serve, daemon=True)
        self.thread.start()

    def hang_up(self) -> None:
        self.port.close()
        if self.thread is not None:
            self.thread.join(10)


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.hang_up()
    os.close(made.chip_end)


@pytest.mark.parametrize("extended", [True, False])
def test_a_chip_is_erased_written_read_back_and_started(
    extended: bool, line: Line
) -> None:
    chip = Chip(line.chip_end, extended=extended)
    line.serve(chip)
    rom = Stm32BootRom(line.port)
    assert rom.chip_id == 0x450
    rom.load(IMAGE)
    rom.verify(IMAGE)
    rom.start(BASE)
    line.hang_up()
    assert chip.flash[:517] == IMAGE.pieces[0][1]
    assert chip.flash[517:] == b"\xff" * (SIZE - 517)
    assert chip.started_at == BASE


def test_pages_of_the_image_are_erased_where_the_rom_erases_pages_only(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firmwright.device.stm32_boot_rom._PAGES_AT_ONCE", 3)
    chip = Chip(line.chip_end, chip_id=0x447, page_bytes=128, block_bytes=128)
    line.serve(chip)
    rom = Stm32BootRom(line.port)
    rom.load(IMAGE)
    rom.verify(IMAGE)
    rom.start(BASE)
    line.hang_up()
    assert chip.flash[:517] == IMAGE.pieces[0][1]
    assert chip.erased == [0, 1, 2, 3, 4]
    assert chip.flash[640:] == b"\0" * (SIZE - 640)
    assert chip.started_at == BASE


def test_wrong_flash_contents_are_detected(line: Line) -> None:
    line.serve(Chip(line.chip_end, worn_at=300))
    rom = Stm32BootRom(line.port)
    rom.load(IMAGE)
    with pytest.raises(DeviceError, match=r"at 0x800012c there is 0x00, not 0x2c"):
        rom.verify(IMAGE)


def test_a_protected_chip_is_reported(line: Line) -> None:
    line.serve(Chip(line.chip_end, protected=True))
    with pytest.raises(
        DeviceError, match=r"refused to erase\. Try: the flash may be protected"
    ):
        Stm32BootRom(line.port).load(IMAGE)


def test_a_line_without_a_boot_rom_ends_in_a_time_out(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firmwright.device.stm32_boot_rom._ANSWER_S", 0.01)
    with pytest.raises(
        DeviceTimeoutError, match=r"no boot ROM answers\. Try: set BOOT0 high"
    ):
        Stm32BootRom(line.port)
