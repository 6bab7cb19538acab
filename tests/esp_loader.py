"""A stand-in for the boot ROM and the flasher stub of an ESP32-C3, on a pseudo terminal.

It answers what esptool asks before and while it writes flash, by the protocol that
esptool's documentation describes ("Serial Protocol"). Registers are zeros but for the
identification of the flash. It is no emulator: the stub that
esptool uploads does not run.
"""

from __future__ import annotations

import hashlib
import os
import pty
import struct
import threading
import tty
import zlib
from collections.abc import Iterator
from enum import IntEnum

ESP32_C3, ESP32_C6 = 5, 13
_FLASH_ID_REGISTER, _FLASH_ID = 0x60002058, 0x164020
_FLASH_BYTES = 1 << 20
_HEADER = struct.Struct("<BBHI")


class Request(IntEnum):
    """The requests that need more than an empty answer."""

    FLASH_BEGIN = 0x02
    FLASH_DATA = 0x03
    MEMORY_END = 0x06
    SYNC = 0x08
    READ_REGISTER = 0x0A
    DEFLATED_BEGIN = 0x10
    DEFLATED_DATA = 0x11
    FLASH_MD5 = 0x13
    SECURITY_INFO = 0x14


class EspLoader:
    """Answers at `port` until closed; after `silent_after` requests no longer."""

    def __init__(self, chip: int = ESP32_C3, silent_after: int = 1 << 30) -> None:
        self.flash = bytearray(b"\xff" * _FLASH_BYTES)
        self._chip, self._left = chip, silent_after
        self._has_stub, self._offset = False, 0
        self._inflater = zlib.decompressobj()
        self._side, self._other = pty.openpty()
        tty.setraw(self._side)
        tty.setraw(self._other)
        self.port = os.ttyname(self._other)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        os.close(self._other)

    def _serve(self) -> None:
        for packet in self._packets():
            if len(packet) < _HEADER.size or packet[0] != 0:
                continue
            self._left -= 1
            if self._left < 0:
                return
            _, request, size, _ = _HEADER.unpack_from(packet)
            self._answer(request, packet[_HEADER.size : _HEADER.size + size])

    def _packets(self) -> Iterator[bytes]:
        """Yield frames of SLIP, which 0xC0 begins and ends."""
        frame: bytearray | None = None
        while True:
            try:
                received = os.read(self._side, 4096)
            except OSError:
                return
            for byte in received:
                if byte != 0xC0:
                    if frame is not None:
                        frame.append(byte)
                    continue
                if frame:
                    text = bytes(frame)
                    yield text.replace(b"\xdb\xdc", b"\xc0").replace(
                        b"\xdb\xdd", b"\xdb"
                    )
                frame = bytearray()

    def _send(self, frame: bytes) -> None:
        escaped = frame.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc")
        os.write(self._side, b"\xc0" + escaped + b"\xc0")

    def _reply(self, request: int, value: int = 0, data: bytes = b"") -> None:
        """Send an answer; its status has two bytes of the stub, four of the ROM."""
        body = data + bytes(2 if self._has_stub else 4)
        self._send(_HEADER.pack(1, request, len(body), value) + body)

    def _answer(self, request: int, data: bytes) -> None:
        value, answer = 0, b""
        match request:
            case Request.SYNC:  # the ROM answers eight times
                for _ in range(7):
                    self._reply(Request.SYNC)
            case Request.READ_REGISTER:
                is_id = struct.unpack_from("<I", data)[0] == _FLASH_ID_REGISTER
                value = _FLASH_ID if is_id else 0
            case Request.SECURITY_INFO:
                answer = struct.pack("<IB7sII", 0, 0, bytes(7), self._chip, 0)
            case Request.FLASH_BEGIN | Request.DEFLATED_BEGIN:
                self._offset = struct.unpack_from("<4I", data)[3]
                self._inflater = zlib.decompressobj()
            case Request.FLASH_DATA:
                self._write(data[16:])
            case Request.DEFLATED_DATA:
                self._write(self._inflater.decompress(data[16:]))
            case Request.FLASH_MD5:
                start, size = struct.unpack_from("<2I", data)
                answer = hashlib.md5(self.flash[start : start + size]).digest()
        self._reply(request, value, answer)
        if request == Request.MEMORY_END:
            self._has_stub = True
            self._send(b"OHAI")

    def _write(self, data: bytes) -> None:
        self.flash[self._offset : self._offset + len(data)] = data
        self._offset += len(data)
