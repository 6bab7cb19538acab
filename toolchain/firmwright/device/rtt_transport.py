"""The link through memory: ring buffers accessed through a GDB stub (`console_rtt.c`).

A stub halts its target for each access. For servers with an RTT port, use `socket://`
instead.
"""

import struct
import time
from typing import Final

from firmwright.base.errors import DeviceError
from firmwright.device.gdb_client import GdbClient

_ID: Final = b"SEGGER RTT\0\0\0\0\0\0"
_UP, _DOWN = 24, 48
"""Offsets of the channels; each is six words: name, buffer, size, write, read, flags.

A ring buffer holds the bytes from `read` up to `write`, which may be below it. It is
empty if both are equal, so one byte always remains free.
"""
_WRITE, _READ = 12, 16
_SEARCHED_BYTES: Final = 1 << 16
_PIECE_BYTES: Final = 4096
_START_S: Final = 5.0
_WRITE_S: Final = 10.0
_PAUSE_S: Final = 0.002


class RttTransport:
    """A byte stream over RTT ring buffers in a target's memory; it owns `stub`."""

    def __init__(
        self, stub: GdbClient, ram_start: int, ram_bytes: int, name: str
    ) -> None:
        self._stub = stub
        self.name = name
        self._waiting = b""
        self._closed = False
        try:
            self._block = self._find(ram_start, min(ram_bytes, _SEARCHED_BYTES))
        except BaseException:
            stub.close()
            raise

    def read(self, limit: int, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        while not self._waiting:
            self._waiting = self._take()
            if self._waiting or time.monotonic() >= deadline:
                break
            time.sleep(_PAUSE_S)
        data, self._waiting = self._waiting[:limit], self._waiting[limit:]
        return data

    def write(self, data: bytes) -> None:
        deadline = time.monotonic() + _WRITE_S
        while data := data[self._put(data) :]:
            if time.monotonic() >= deadline:
                what = "the firmware does not empty its receive buffer."
                hint = "the firmware hangs: reset the target."
                raise DeviceError(what, where=self.name, hint=hint)
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stub.halt()
            self._stub.close()

    def _find(self, start: int, size_bytes: int) -> int:
        """Run the target until the control block exists, and return its address."""
        deadline = time.monotonic() + _START_S
        while True:
            self._stub.go()
            time.sleep(_PAUSE_S)
            self._stub.halt()
            at = self._search(start, size_bytes)
            if at is not None:
                self._stub.go()
                return at
            if time.monotonic() >= deadline:
                what = f"no RTT block in the {size_bytes} bytes at {start:#x}."
                hint = 'build the firmware for a board with console driver "rtt".'
                raise DeviceError(what, where=self.name, hint=hint)

    def _search(self, start: int, size_bytes: int) -> int | None:
        text = b""
        for offset in range(0, size_bytes, _PIECE_BYTES):
            piece_bytes = min(_PIECE_BYTES, size_bytes - offset)
            text += self._stub.read_all(start + offset, piece_bytes)
            at = text.find(_ID)
            if at >= 0:
                return start + at
        return None

    def _channel(self, at: int) -> tuple[int, int, int, int]:
        words = struct.unpack("<6I", self._stub.read(self._block + at, 24))
        return words[1], words[2], words[3], words[4]

    def _take(self) -> bytes:
        self._stub.halt()
        try:
            address, size, write, read = self._channel(_UP)
            if write >= read:
                data = self._stub.read_all(address + read, write - read)
            else:
                data = self._stub.read_all(address + read, size - read)
                data += self._stub.read_all(address, write)
            if data:
                self._move(_UP + _READ, write)
        finally:
            self._stub.go()
        return data

    def _put(self, data: bytes) -> int:
        self._stub.halt()
        try:
            address, size, write, read = self._channel(_DOWN)
            room = (read - write - 1) % size
            count = min(room, len(data))
            first = min(count, size - write)
            for at, piece in ((write, data[:first]), (0, data[first:count])):
                if piece:
                    self._stub.write(address + at, piece)
            if count:
                self._move(_DOWN + _WRITE, (write + count) % size)
        finally:
            self._stub.go()
        return count

    def _move(self, at: int, place: int) -> None:
        self._stub.write(self._block + at, place.to_bytes(4, "little"))
