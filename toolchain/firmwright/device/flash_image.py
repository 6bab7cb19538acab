"""Flash contents as bytes by address; Intel HEX input and UF2 output."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firmwright.base.errors import DeviceError, UsageError

UF2_BLOCK_BYTES: Final = 512
UF2_DATA_BYTES: Final = 256
_UF2_MAGICS: Final = (0x0A324655, 0x9E5D5157, 0x0AB16F30)
_UF2_HAS_FAMILY: Final = 0x2000


@dataclass(frozen=True, slots=True)
class FlashImage:
    """Flash contents: nonempty (address, bytes) pieces, ascending and with gaps."""

    pieces: tuple[tuple[int, bytes], ...]

    @property
    def size_bytes(self) -> int:
        return sum(len(data) for _, data in self.pieces)

    @property
    def start(self) -> int:
        return self.pieces[0][0]

    @property
    def end(self) -> int:
        address, data = self.pieces[-1]
        return address + len(data)

    def word(self, address: int) -> int:
        for start, data in self.pieces:
            if start <= address and address + 4 <= start + len(data):
                return int(struct.unpack_from("<I", data, address - start)[0])
        raise UsageError(f"the image has no data at {address:#x}.")

    def chunks(self, most_bytes: int, align: int = 1) -> tuple[tuple[int, bytes], ...]:
        """Split pieces into chunks of `most_bytes`; pad with 0xFF to align to `align`.

        A piece is padded in front and at its end:

            0xFF ... | data of the piece           | 0xFF ...
            ^ start - front: a multiple of `align`          ^ so is the end
        """
        chunks = []
        for start, data in self.pieces:
            front = start % align
            padded = b"\xff" * front + data
            padded += b"\xff" * (-len(padded) % align)
            for at in range(0, len(padded), most_bytes):
                chunks.append((start - front + at, padded[at : at + most_bytes]))
        return tuple(chunks)


def check_read_back(
    data: bytes,
    expected: bytes,
    address: int,
    where: str,
    hint: str = "flash again; if the error persists, the flash is worn or protected.",
) -> None:
    for at, (actual, byte) in enumerate(zip(data, expected, strict=True)):
        if actual != byte:
            what = f"at {address + at:#x} there is {actual:#04x}, not {byte:#04x}."
            raise DeviceError(what, where=where, hint=hint)


def read_hex(file: Path) -> FlashImage:
    """Read an Intel HEX file; raise a UsageError that names a malformed line."""
    bytes_at: dict[int, bytes] = {}
    base = 0
    for number, line in enumerate(file.read_text(encoding="ascii").splitlines(), 1):
        where = f"{file}:{number}"
        kind, address, data = _record(line, where)
        match kind:
            case 0:
                bytes_at[base + address] = data
            case 1:
                break
            case 2:
                base = int.from_bytes(data, "big") << 4
            case 4:
                base = int.from_bytes(data, "big") << 16
            case 3 | 5:
                # The start address, which is also in the vector table.
                continue
            case _:
                raise UsageError(f"unknown record type {kind}.", where=where)
    if not bytes_at:
        raise UsageError("the file contains no data.", where=str(file))
    return FlashImage(_joined(bytes_at))


def _record(line: str, where: str) -> tuple[int, int, bytes]:
    """Return kind, address and data of a record.

    A record is the length of its data, the address (two bytes), the kind, the data,
    and a byte that makes the sum of all 0.
    """
    try:
        raw = bytes.fromhex(line.strip().removeprefix(":"))
    except ValueError:
        raw = b""
    has_length = len(raw) >= 5 and len(raw) == raw[0] + 5
    if not line.startswith(":") or not has_length or sum(raw) & 0xFF:
        raise UsageError("this is not an Intel HEX record.", where=where)
    return raw[3], int.from_bytes(raw[1:3], "big"), raw[4:-1]


def _joined(bytes_at: dict[int, bytes]) -> tuple[tuple[int, bytes], ...]:
    pieces: list[tuple[int, bytearray]] = []
    for address in sorted(bytes_at):
        if pieces and pieces[-1][0] + len(pieces[-1][1]) == address:
            pieces[-1][1].extend(bytes_at[address])
        else:
            pieces.append((address, bytearray(bytes_at[address])))
    return tuple((address, bytes(data)) for address, data in pieces)


def to_uf2(image: FlashImage, family: int) -> bytes:
    chunks = image.chunks(UF2_DATA_BYTES, align=UF2_DATA_BYTES)
    blocks = []
    for number, (address, data) in enumerate(chunks):
        words = (_UF2_HAS_FAMILY, address, len(data), number, len(chunks), family)
        head = struct.pack("<8I", *_UF2_MAGICS[:2], *words)
        blocks.append((head + data).ljust(UF2_BLOCK_BYTES - 4, b"\0"))
    return b"".join(block + struct.pack("<I", _UF2_MAGICS[2]) for block in blocks)
