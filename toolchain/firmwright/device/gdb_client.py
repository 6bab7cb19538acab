"""Flashing and debugging through a GDB stub, whose memory map tells what is flash."""

import contextlib
import re
import socket
from typing import Final

from firmwright.base.closeable import Closeable
from firmwright.base.errors import DeviceError, DeviceTimeoutError, UsageError
from firmwright.device.flash_image import FlashImage, check_read_back

PACKET_BYTES: Final = 1024
"""The packet size to assume if the stub does not report one."""
_HEX_OF_ONE_BYTE: Final = 2
_SP, _PC, _XPSR, _RISCV_PC = 13, 15, 25, 32
_XPSR_THUMB: Final = 1 << 24
_PACKET: Final = re.compile(rb"\$([^#]*)#([0-9a-fA-F]{2})")
_FLASH_REGION: Final = re.compile(
    r'<memory\s+type="flash"\s+start="(\w+)"\s+length="(\w+)"'
)


class GdbClient(Closeable):
    """A connection to a GDB stub at `HOST:PORT` or `unix:PATH` of a halted target.

    If it is already connected, `line` is the socket and `address` a name for errors.
    """

    def __init__(
        self,
        address: str,
        *,
        line: socket.socket | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self._address = address
        self._socket = _connect(address, timeout_s) if line is None else line
        self._socket.settimeout(timeout_s)
        self._received = bytearray()
        try:
            self._packet_bytes = self._supported()
            self._flash = self._flash_regions()
            if self._has_features:
                # Some stubs accept register writes only after this request.
                self._request(b"qXfer:features:read:target.xml:0,400")
            self._request(b"?")
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Detach, which resumes a halted target, and disconnect."""
        with contextlib.suppress(DeviceError, OSError):
            self._request(b"D")
        self._socket.close()

    def load(self, image: FlashImage) -> None:
        """Write the image, erasing flash first."""
        for start, data in image.pieces:
            if self._is_flash(start):
                erase = b"vFlashErase:%x,%x" % (start, len(data))
                self._expect_ok(erase, "erase flash")
        for address, data in image.chunks(self._data_bytes):
            if self._is_flash(address):
                write = b"vFlashWrite:%x:" % address + _escaped(data)
                self._expect_ok(write, "write flash")
            else:
                self.write(address, data)
        if any(self._is_flash(start) for start, _ in image.pieces):
            self._expect_ok(b"vFlashDone", "finish with flash")

    def verify(self, image: FlashImage) -> None:
        hint = "flash again; if the error persists, this memory is not writable."
        for address, data in image.chunks(self._data_bytes):
            found = self.read(address, len(data))
            check_read_back(found, data, address, self._address, hint)

    def write(self, address: int, data: bytes) -> None:
        command = b"M%x,%x:" % (address, len(data))
        self._expect_ok(command + data.hex().encode(), f"write to {address:#x}")

    def read(self, address: int, size_bytes: int) -> bytes:
        answer = self._request(b"m%x,%x" % (address, size_bytes))
        try:
            data = bytes.fromhex(answer.decode("ascii"))
        except ValueError:
            data = b""
        if len(data) != size_bytes:
            raise self._refused(f"read {size_bytes} bytes at {address:#x}", answer)
        return data

    def write_all(self, address: int, data: bytes) -> None:
        """Write data of any size, in several packets."""
        for offset in range(0, len(data), self._data_bytes):
            piece = data[offset : offset + self._data_bytes]
            self.write(address + offset, piece)

    def read_all(self, address: int, size_bytes: int) -> bytes:
        """Read data of any size, in several packets."""
        data = bytearray()
        while (left := size_bytes - len(data)) > 0:
            data += self.read(address + len(data), min(left, self._data_bytes))
        return bytes(data)

    def begin_cortex_m(self, vectors: int) -> None:
        """Set stack pointer and program counter from a vector table, for `close`.

        `close` resumes there.
        """
        stack = int.from_bytes(self.read(vectors, 4), "little")
        reset = int.from_bytes(self.read(vectors + 4, 4), "little")
        self._set_register(_XPSR, _XPSR_THUMB)
        self._set_register(_SP, stack)
        self._set_register(_PC, reset & ~1)

    def begin_riscv(self, entry: int) -> None:
        """Set the program counter to the entry point; `close` resumes there."""
        self._set_register(_RISCV_PC, entry)

    def go(self) -> None:
        """Resume the target; only `halt` may be called next."""
        self._send(b"c")

    def halt(self) -> None:
        try:
            self._socket.sendall(b"\x03")
        except OSError as error:
            raise self._gone(error) from error
        self._expect_stop(self._receive(), "halt")

    def step(self) -> None:
        self._expect_stop(self._request(b"s"), "execute one instruction")

    def register(self, number: int) -> int:
        answer = self._request(b"p%x" % number)
        try:
            return int.from_bytes(bytes.fromhex(answer.decode("ascii")), "little")
        except ValueError as error:
            raise self._refused(f"read register {number}", answer) from error

    @property
    def _data_bytes(self) -> int:
        """How many bytes fit, as hex, into a packet after the longest command."""
        fitting = (self._packet_bytes - 64) // _HEX_OF_ONE_BYTE
        return max(64, fitting // 64 * 64)

    def _supported(self) -> int:
        reply = self._request(b"qSupported:xmlRegisters=arm,riscv")
        answer = reply.decode("ascii", "replace")
        packet_size = re.search(r"PacketSize=([0-9a-fA-F]+)", answer)
        self._has_map = "qXfer:memory-map:read+" in answer
        self._has_features = "qXfer:features:read+" in answer
        if not packet_size:
            return PACKET_BYTES
        return min(int(packet_size[1], 16), 8 * PACKET_BYTES)

    def _flash_regions(self) -> tuple[range, ...]:
        text = b""
        while self._has_map:
            answer = self._request(b"qXfer:memory-map:read::%x,%x" % (len(text), 512))
            if answer[:1] not in (b"l", b"m"):
                raise self._refused("return its memory map", answer)
            text += answer[1:]
            if answer[:1] == b"l":
                break
        regions = []
        for digits in _FLASH_REGION.findall(text.decode("ascii", "replace")):
            start, size = (int(number, 0) for number in digits)
            regions.append(range(start, start + size))
        return tuple(regions)

    def _is_flash(self, address: int) -> bool:
        return any(address in region for region in self._flash)

    def _set_register(self, number: int, value: int) -> None:
        digits = value.to_bytes(4, "little").hex().encode()
        self._expect_ok(b"P%x=" % number + digits, f"set register {number}")

    def _expect_ok(self, command: bytes, action: str) -> None:
        answer = self._request(command)
        if answer != b"OK":
            raise self._refused(action, answer)

    def _expect_stop(self, answer: bytes, action: str) -> None:
        if answer[:1] not in (b"S", b"T"):
            raise self._refused(action, answer)

    def _refused(self, action: str, answer: bytes) -> DeviceError:
        text = answer.decode("ascii", "replace")
        reply = text or "with an empty packet (unsupported)"
        what = f"the stub failed to {action}: it answered {reply}."
        hint = "halt the target, and check that the image is for this board."
        return DeviceError(what, where=self._address, hint=hint)

    def _request(self, command: bytes) -> bytes:
        self._send(command)
        while True:
            answer = self._receive()
            if answer[:1] != b"O" or answer == b"OK":
                return answer

    def _send(self, command: bytes) -> None:
        packet = b"$" + command + b"#%02x" % (sum(command) & 0xFF)
        try:
            self._socket.sendall(packet)
        except OSError as error:
            raise self._gone(error) from error

    def _receive(self) -> bytes:
        while (packet := _PACKET.search(self._received)) is None:
            self._received += self._receive_piece()
        data, check = bytes(packet[1]), int(packet[2], 16)
        del self._received[: packet.end()]
        if sum(data) & 0xFF != check:
            raise DeviceError("a packet from the stub is damaged.", where=self._address)
        with contextlib.suppress(OSError):
            self._socket.sendall(b"+")
        return _unescaped(data)

    def _receive_piece(self) -> bytes:
        where = self._address
        try:
            piece = self._socket.recv(4096)
        except TimeoutError as error:
            hint = "check that no other client is connected."
            what = "the stub does not answer."
            raise DeviceTimeoutError(what, where=where, hint=hint) from error
        except OSError as error:
            raise self._gone(error) from error
        if not piece:
            raise self._gone(None)
        return piece

    def _gone(self, error: OSError | None) -> DeviceError:
        why = f": {error}" if error is not None else ""
        message = f"the stub closed the connection{why}."
        return DeviceError(message, where=self._address, hint="start it again.")


def _connect(address: str, timeout_s: float) -> socket.socket:
    try:
        if address.startswith("unix:"):
            line = socket.socket(socket.AF_UNIX)
            line.settimeout(timeout_s)
            try:
                line.connect(address.removeprefix("unix:"))
            except OSError:
                line.close()
                raise
            return line
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit():
            hint = "HOST:PORT, such as localhost:3333, or unix:PATH."
            raise UsageError(f"{address!r} is not a stub address.", hint=hint)
        return socket.create_connection((host or "localhost", int(port)), timeout_s)
    except OSError as error:
        hint = "start the emulator with -S -gdb, or the debug probe's GDB server."
        what = f"cannot connect to the stub: {error}."
        raise DeviceError(what, where=address, hint=hint) from error


def _escaped(data: bytes) -> bytes:
    """Write a reserved byte as `}` and the byte with bit 5 inverted."""
    return re.sub(rb"[#$}*]", lambda match: bytes((0x7D, match[0][0] ^ 0x20)), data)


def _unescaped(data: bytes) -> bytes:
    """Remove escapes and expand runs.

    In a run, `*` and a character repeat the byte before 3 to 97 more times.
    """
    out = bytearray()
    for escape, run, byte in re.findall(rb"(?s)\}(.)|(?<=.)\*(.)|(.)", data):
        if escape:
            out.append(escape[0] ^ 0x20)
        elif run:
            out += out[-1:] * (run[0] - 29)
        else:
            out += byte
    return bytes(out)
