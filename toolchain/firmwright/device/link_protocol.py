"""The link's little-endian messages: frames with COBS and CRC-32, and payloads.

runtime_c/ABI.md describes them.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from firmwright.base.dtypes import STORAGE_DTYPES, get_dtype
from firmwright.base.errors import DeviceError
from firmwright.base.version import ABI as ABI

LINK_VERSION = 4

HEADER_BYTES = 6
CRC_BYTES = 4
HELLO_PAYLOAD_BYTES = 64  # the limit before both sides agree on more
PAYLOAD_MAX_BYTES = 65000
OPERATOR_BYTES = 16
WORD_BYTES = 4
RUN_CHECKSUMS = 1
TAP_ALL = 0xFFFF
MODEL_CONSUMES_INPUT = 1

KIND_ANSWER = 0x80
KIND_STARTED = 0xFD
KIND_DAMAGED = 0xFE
KIND_FAULT = 0xFF

# One extra byte per 254 for COBS, plus header, checksum and slack.
_ENCODED_MAX_BYTES = (PAYLOAD_MAX_BYTES + HEADER_BYTES + CRC_BYTES) * 255 // 254 + 2


class Command(IntEnum):
    """Request codes (runtime_c/fwr_server.h)."""

    HELLO = 1
    TEXT = 2
    TENSOR = 3
    WRITE_INPUT = 4
    WRITE_PARAMS = 5
    RUN = 6
    READ_OUTPUT = 7
    PROFILE_READ = 8
    STACK = 9
    RESET = 10
    BAUD = 11
    STEP = 12
    TAP_READ = 13
    IDENTITY = 14


class Status(IntEnum):
    """Result codes of requests (runtime_c/fwr.h)."""

    OK = 0
    BUSY = 1
    PAUSED = 2
    COMMAND = -1
    SIZE = -2
    RANGE = -3
    SESSION = -4
    NO_OUTPUT = -5
    RUN = -6
    UNSUPPORTED = -7
    FAULT = -8
    IO = -9
    PARAMS = -10


class TextKind(IntEnum):
    """Selectors of a TEXT request."""

    MODEL = 0
    BOARD = 1
    START_UP = 2
    COUNTER_UNIT = 3
    INPUT_NAME = 4
    OUTPUT_NAME = 5


_DTYPES = "int8 uint8 int16 uint16 int32 uint32 int64 float32 bool uint64 float64"
_STORED = [dtype.name for dtype in STORAGE_DTYPES]
DTYPE_NAMES = dict(enumerate((*_DTYPES.split(), *_STORED), 1))
"""numpy's names by the values of fwr.h's enum fwr_dtype."""


# ---- Frames --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of a session."""

    session: int
    sequence: int
    kind: int
    status: int = 0
    payload: bytes = b""


def cobs_encode(data: bytes) -> bytes:
    """Apply consistent overhead byte stuffing, which removes zero bytes."""
    out = bytearray()
    for piece in data.split(b"\0"):
        full, rest = divmod(len(piece), 254)
        for i in range(full):
            out += b"\xff" + piece[254 * i : 254 * (i + 1)]
        out.append(rest + 1)
        out += piece[254 * full :]
    last = len(data) - (data.rfind(b"\0") + 1)
    if last and last % 254 == 0:
        del out[-1]  # a full block at the end has no implied zero
    return bytes(out)


def cobs_decode(data: bytes) -> bytes | None:
    out = bytearray()
    at = 0
    while at < len(data):
        code = data[at]
        block = data[at + 1 : at + code]
        if code == 0 or len(block) != code - 1 or 0 in block:
            return None
        out += block
        at += code
        if code != 0xFF and at < len(data):
            out.append(0)
    return bytes(out)


def encode_frame(frame: Frame) -> bytes:
    """Return the stuffed frame with CRC-32, between zeros.

    The zeros end noise and expose damage.
    """
    fields = (frame.session, frame.sequence, frame.kind, frame.status)
    body = struct.pack("<HHBb", *fields) + frame.payload
    checksum = struct.pack("<I", zlib.crc32(body))
    return b"\0" + cobs_encode(body + checksum) + b"\0\0"


def decode_frame(block: bytes) -> Frame | None:
    """Decode the bytes between two zeros; return None if they are damaged."""
    body = cobs_decode(block)
    if body is None or len(body) < HEADER_BYTES + CRC_BYTES:
        return None
    content = body[:-CRC_BYTES]
    (crc,) = struct.unpack("<I", body[-CRC_BYTES:])
    if zlib.crc32(content) != crc:
        return None
    session, sequence, kind, status = struct.unpack_from("<HHBb", content)
    return Frame(session, sequence, kind, status, content[HEADER_BYTES:])


class FrameReader:
    """Splits a byte stream into frames; each damaged piece yields None."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Frame | None]:
        """Return the frames that the received bytes complete; a damaged one is None."""
        *ended, rest = (self._pending + data).split(b"\0")
        if len(rest) > _ENCODED_MAX_BYTES:
            # Too long for a frame: keep memory bounded.
            rest = rest[-_ENCODED_MAX_BYTES:]
        self._pending = bytearray(rest)
        return [decode_frame(bytes(block)) for block in ended if block]


# ---- Requests ------------------------------------------------------------------------


_REQUEST_LAYOUTS = {
    Command.TEXT: "<BHHH",  # TextKind, index, offset, size
    Command.TENSOR: "<BH",  # 1 for an output, index
    Command.WRITE_INPUT: "<HI",  # index, offset, then the data
    Command.WRITE_PARAMS: "<I",  # offset, then the data
    # number of runs, flags, then optionally the operator to pause after
    Command.RUN: "<IB",
    Command.READ_OUTPUT: "<HIH",  # index, offset, size
    Command.PROFILE_READ: "<HH",  # first operator, number of operators
    Command.BAUD: "<I",
    Command.TAP_READ: "<IH",  # offset, size; reads the paused operator's output
}


def pack_request(command: Command, *fields: int) -> bytes:
    """Return the payload of a request without the data that may follow the fields."""
    return struct.pack(_REQUEST_LAYOUTS.get(command, ""), *fields)


def run_request(count: int, *, checksums: bool, tap: int | None = None) -> bytes:
    """Return the payload that starts `count` runs, which pause after operator `tap`.

    With the `tap` None they do not pause.
    """
    plain = pack_request(Command.RUN, count, RUN_CHECKSUMS if checksums else 0)
    return plain if tap is None else plain + struct.pack("<H", tap)


# ---- Answers -------------------------------------------------------------------------


def _require_size(payload: bytes, size_bytes: int, what: str) -> None:
    if len(payload) != size_bytes:
        raise DeviceError(
            f"the firmware's {what} has {len(payload)} bytes instead of {size_bytes}.",
            hint="rebuild the firmware with this version of firmwright.",
        )


def unpack_payload(layout: str, payload: bytes, what: str) -> tuple[Any, ...]:
    """Unpack a payload; a DeviceError for a wrong size calls it `what`."""
    _require_size(payload, struct.calcsize(layout), what)
    return struct.unpack(layout, payload)


@dataclass(frozen=True, slots=True)
class Hello:
    """The firmware's description of itself, as in the payload; `profile` is 0 or 1.

    `params_address` is that of the parameter block for a debugger.
    """

    link_version: int
    abi: int
    model_id: bytes
    payload_max_bytes: int
    flags: int
    input_count: int
    output_count: int
    operator_count: int
    profile: int
    params_bytes: int
    counter_scale_num: int
    counter_scale_den: int
    run_cost_ticks: int
    stack_bytes: int
    receive_bytes: int
    params_address: int

    @classmethod
    def decode(cls, payload: bytes) -> Hello:
        """Decode an answer's payload; both versions are checked first."""
        if len(payload) >= 4:
            _check_versions(*struct.unpack_from("<HH", payload))
        return cls(*unpack_payload("<HH16sHHHHHHIIIIIHI", payload, "hello"))


def _check_versions(link_version: int, abi: int) -> None:
    if (link_version, abi) != (LINK_VERSION, ABI):
        found = f"link version {link_version} and ABI {abi}"
        needed = f"{LINK_VERSION} and {ABI}"
        what = f"the firmware has {found}; this firmwright requires {needed}."
        hint = "rebuild and flash the firmware with this version of firmwright."
        raise DeviceError(what, hint=hint)


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """Status and ticks of one request's runs; the measuring overhead is subtracted."""

    model_status: int
    runs: int
    total_ticks: int
    least_ticks: int

    @classmethod
    def decode(cls, payload: bytes) -> RunAnswer:
        return cls(*unpack_payload("<iIQQ", payload, "answer to run"))


def decode_operators(payload: bytes, count: int) -> list[tuple[int, int, int]]:
    """Return operators' ticks, calls and checksum over the last request's runs."""
    _require_size(payload, OPERATOR_BYTES * count, "profile")
    return list(struct.iter_unpack("<QII", payload))


def decode_tensor(payload: bytes) -> tuple[str, int, int]:
    """Return the numpy dtype name, size in bytes and address of a tensor.

    The address is 0 if a debugger cannot access the tensor.
    """
    code, size_bytes, address = unpack_payload("<BII", payload, "tensor description")
    if code not in DTYPE_NAMES:
        what = f"the firmware describes a tensor of unknown dtype code {code}."
        raise DeviceError(what)
    dtype = DTYPE_NAMES[code]
    if size_bytes % get_dtype(dtype).size_bytes:
        what = f"the firmware describes {size_bytes} bytes of {dtype} values."
        raise DeviceError(what)
    return dtype, size_bytes, address
