"""Flashing through an STM32's boot ROM over a UART with even parity (AN3155).

A high level at BOOT0 during reset starts the boot ROM.
"""

import functools
import operator
from collections.abc import Mapping
from typing import Final

from firmwright.base.errors import DeviceError, DeviceTimeoutError
from firmwright.device.flash_image import FlashImage, check_read_back
from firmwright.device.transport import Transport

BAUD: Final = 115200
PARITY: Final = "E"

_SYNC: Final = 0x7F
_ACK: Final = 0x79
_NACK: Final = 0x1F
_GET, _GET_ID, _READ, _GO, _WRITE, _ERASE, _EXTENDED_ERASE = (
    b"\x00\x02\x11\x21\x31\x43\x44"
)
_FLASH_START: Final = 0x0800_0000
_BLOCK_BYTES: Final = 256
_SMALL_BLOCK_BYTES: Final = 128
_L0_PAGE_BYTES, _L1_PAGE_BYTES = 128, 256
_PAGE_BYTES: Final[Mapping[int, int]] = {
    **dict.fromkeys((0x417, 0x425, 0x447, 0x457), _L0_PAGE_BYTES),
    **dict.fromkeys((0x416, 0x427, 0x429, 0x436, 0x437), _L1_PAGE_BYTES),
}
"""The pages of chips whose boot ROM cannot erase everything at once, by chip id."""
_PAGES_AT_ONCE: Final = 64
_ANSWER_S: Final = 1.0
_ERASE_S: Final = 60.0
"""The time limit for erasing a whole chip; two megabytes take half a minute."""
_SYNC_TRIES: Final = 5


class Stm32BootRom:
    """A connection to the boot ROM, which measures the baud rate of the first byte."""

    def __init__(self, line: Transport) -> None:
        self._line = line
        self._synchronise()
        self._commands = self._query(_GET, "report its commands")[1:]
        self.chip_id = int.from_bytes(self._query(_GET_ID, "report the chip id"), "big")

    def load(self, image: FlashImage) -> None:
        """Erase, then write; chips of the series L0 and L1 erase by pages only."""
        page_bytes = _PAGE_BYTES.get(self.chip_id, 0)
        if page_bytes:
            self._erase_pages(image, page_bytes)
        else:
            self._erase_all()
        block_bytes = _SMALL_BLOCK_BYTES if page_bytes else _BLOCK_BYTES
        for address, data in image.chunks(block_bytes, align=4):
            action = f"write to {address:#x}"
            self._command(_WRITE, "write")
            self._send_checked(address.to_bytes(4, "big"), action)
            self._send_checked(bytes((len(data) - 1,)) + data, action)

    def verify(self, image: FlashImage) -> None:
        for address, data in image.chunks(_BLOCK_BYTES):
            found = self._read(address, len(data))
            check_read_back(found, data, address, self._line.name)

    def start(self, address: int) -> None:
        """Start the program with its vector table at `address`."""
        self._command(_GO, "start the program")
        action = f"start the program at {address:#x}"
        self._send_checked(address.to_bytes(4, "big"), action)

    def _erase_all(self) -> None:
        extended = _EXTENDED_ERASE in self._commands
        self._command(_EXTENDED_ERASE if extended else _ERASE, "erase")
        self._line.write(b"\xff\xff\x00" if extended else b"\xff\x00")
        self._acknowledged("erase", _ERASE_S)

    def _erase_pages(self, image: FlashImage, page_bytes: int) -> None:
        pages: set[int] = set()
        for start, data in image.pieces:
            first = (start - _FLASH_START) // page_bytes
            last = (start + len(data) - 1 - _FLASH_START) // page_bytes
            pages.update(range(first, last + 1))
        ordered = sorted(pages)
        for at in range(0, len(ordered), _PAGES_AT_ONCE):
            part = ordered[at : at + _PAGES_AT_ONCE]
            numbers = (len(part) - 1, *part)
            words = b"".join(number.to_bytes(2, "big") for number in numbers)
            self._command(_EXTENDED_ERASE, "erase")
            self._send_checked(words, f"erase pages {part[0]} to {part[-1]}", _ERASE_S)

    def _synchronise(self) -> None:
        """Send the byte that shows the baud rate; a ROM that knows it answers NACK."""
        for _ in range(_SYNC_TRIES):
            self._line.write(bytes((_SYNC,)))
            answer = self._line.read(1, _ANSWER_S)
            if answer in (bytes((_ACK,)), bytes((_NACK,))):
                return
        what = "no boot ROM answers."
        hint = (
            "set BOOT0 high and reset the chip; the ROM listens only on certain pins."
        )
        raise DeviceTimeoutError(what, where=self._line.name, hint=hint)

    def _query(self, command: int, action: str) -> bytes:
        self._command(command, action)
        answer = self._take(self._take(1)[0] + 1)
        self._acknowledged(action)
        return answer

    def _read(self, address: int, size_bytes: int) -> bytes:
        self._command(_READ, "read")
        self._send_checked(address.to_bytes(4, "big"), f"read at {address:#x}")
        self._line.write(_with_complement(size_bytes - 1))
        self._acknowledged(f"read at {address:#x}")
        return self._take(size_bytes)

    def _command(self, command: int, action: str) -> None:
        self._line.write(_with_complement(command))
        self._acknowledged(action)

    def _send_checked(
        self, data: bytes, action: str, timeout_s: float | None = None
    ) -> None:
        self._line.write(data + bytes((functools.reduce(operator.xor, data),)))
        self._acknowledged(action, timeout_s)

    def _acknowledged(self, action: str, timeout_s: float | None = None) -> None:
        answer = self._take(1, timeout_s or _ANSWER_S)[0]
        if answer == _ACK:
            return
        reply = f"answered {answer:#04x} and did not"
        if answer == _NACK:
            reply = "refused to"
        what = f"the boot ROM {reply} {action}."
        hint = (
            "the flash may be protected (option bytes), "
            "or the address is not of this chip."
        )
        raise DeviceError(what, where=self._line.name, hint=hint)

    def _take(self, count: int, timeout_s: float = _ANSWER_S) -> bytes:
        data = b""
        while len(data) < count:
            more = self._line.read(count - len(data), timeout_s)
            if not more:
                what = f"the boot ROM stopped after {len(data)} of {count} bytes."
                hint = "reset the chip with BOOT0 high and flash again."
                raise DeviceTimeoutError(what, where=self._line.name, hint=hint)
            data += more
        return data


def _with_complement(byte: int) -> bytes:
    return bytes((byte, byte ^ 0xFF))
