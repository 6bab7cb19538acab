"""A device that follows the link's rules but not its sense, in virtual time.

`HostileDevice` answers every request of a session. A seed decides where it lies: sizes,
counts, kinds, statuses and numbers, floods of frames or noise, bytes that dribble, or
silence.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from firmwright.device.link_protocol import (
    ABI,
    KIND_ANSWER,
    KIND_DAMAGED,
    KIND_FAULT,
    KIND_STARTED,
    LINK_VERSION,
    Command,
    Frame,
    FrameReader,
    Status,
    encode_frame,
)

TENSOR_BYTES = 600
SIZES = (0, 1, 2, 7, 255, 256, 65535, 1 << 16, 1 << 20, 1 << 30, (1 << 32) - 1)
LARGEST_ANSWER = 65_000
READ_S = 0.5

Lie = Callable[["HostileDevice", Frame, bytes], bytes]
"""What the device sends instead of the payload that a request should get."""


class HostileDevice:
    """A transport; the share `lies` of all answers is hostile, each by one of `LIES`.

    `lie` may say something else than these, by request.
    """

    name = "the hostile device"

    def __init__(self, seed: int, lies: float) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.lies = lies
        self.lie: Callable[[Frame], bytes | None] = lambda request: None
        self.flood = b""
        self.dribble_s = 0.0
        self._heard = FrameReader()
        self._waiting = bytearray()

    # ---- Transport -------------------------------------------------------------------

    def clock(self) -> float:
        return self.now

    def read(self, limit: int, timeout_s: float) -> bytes:
        if len(self._waiting) < limit:
            self._waiting += self.flood
        if not self._waiting:
            self.now += max(timeout_s, 0.05)
            return b""
        self.now += self.dribble_s or READ_S
        size = 1 if self.dribble_s else limit
        data = bytes(self._waiting[:size])
        del self._waiting[:size]
        return data

    def write(self, data: bytes) -> None:
        for request in self._heard.feed(data):
            if request is None:
                continue
            said = self.lie(request)
            if said is None:
                lie = self.rng.choice(LIES) if self.rng.random() < self.lies else honest
                said = lie(self, request, honest_payload(request))
            self._waiting += said

    def close(self) -> None:
        self._waiting.clear()


# ---- Answers -------------------------------------------------------------------------


def honest_payload(request: Frame) -> bytes:
    """Return what the firmware of a model with one input and one output answers."""
    data = request.payload
    match request.kind:
        case Command.HELLO:
            counts = (256, 0, 1, 1, 3, 1, 0, 1, 1, 0, 0, 300, 0)
            return struct.pack("<HH16sHHHHHHIIIIIHI", LINK_VERSION, ABI, b"", *counts)
        case Command.TEXT:
            return (
                struct.pack("<H", 4) + b"name"[struct.unpack_from("<H", data, 3)[0] :]
            )
        case Command.TENSOR:
            return struct.pack("<BII", 1, TENSOR_BYTES, 0)
        case Command.RUN if len(data) == 7:
            return struct.pack("<HII", 0, TENSOR_BYTES, 0)
        case Command.RUN | Command.STEP:
            return struct.pack("<iIQQ", 0, 1, 10, 10)
        case Command.READ_OUTPUT | Command.TAP_READ:
            return bytes(struct.unpack_from("<H", data, len(data) - 2)[0])
        case Command.PROFILE_READ:
            return bytes(16 * struct.unpack_from("<H", data, 2)[0])
        case Command.STACK | Command.IDENTITY:
            return bytes(4)
        case _:
            return b""


def frame(
    request: Frame, payload: bytes, status: int = Status.OK, kind: int = 0
) -> bytes:
    kind = kind or request.kind | KIND_ANSWER
    return encode_frame(Frame(request.session, request.sequence, kind, status, payload))


def honest(_: HostileDevice, request: Frame, payload: bytes) -> bytes:
    pauses = request.kind == Command.RUN and len(request.payload) == 7
    return frame(request, payload, Status.PAUSED if pauses else Status.OK)


# ---- Lies ----------------------------------------------------------------------------


def wrong_size(device: HostileDevice, request: Frame, payload: bytes) -> bytes:
    size = device.rng.choice(
        (0, 1, len(payload) + 1, max(len(payload) - 1, 0), LARGEST_ANSWER)
    )
    return frame(request, payload.ljust(size, b"\x7f")[:size])


def wrong_number(device: HostileDevice, request: Frame, payload: bytes) -> bytes:
    """Replace a field: counts, sizes, lengths, status of the model."""
    data = bytearray(payload)
    width = device.rng.choice((1, 2, 4))
    if len(data) >= width:
        at = device.rng.randrange(len(data) - width + 1)
        value = device.rng.choice(SIZES) & ((1 << 8 * width) - 1)
        data[at : at + width] = value.to_bytes(width, "little")
    return frame(request, bytes(data))


def wrong_status(device: HostileDevice, request: Frame, payload: bytes) -> bytes:
    return frame(request, payload, device.rng.randrange(-128, 128))


def paused_forever(_: HostileDevice, request: Frame, payload: bytes) -> bytes:
    return frame(request, struct.pack("<HI", 1, 40), Status.PAUSED)


def wrong_kind(device: HostileDevice, request: Frame, payload: bytes) -> bytes:
    kinds = (KIND_DAMAGED, KIND_STARTED, KIND_FAULT, request.kind, 0x85, 0x9F)
    return frame(request, payload, kind=device.rng.choice(kinds))


def fault(device: HostileDevice, request: Frame, _: bytes) -> bytes:
    words = [device.rng.getrandbits(32) for _ in range(12)]
    family = device.rng.choice((1, 2, 3, 4, 9, 0x101, 0x104))
    payload = struct.pack("<HHI12I", family, device.rng.randrange(4), 1 << 31, *words)
    return frame(request, payload, kind=KIND_FAULT)


def another_number(device: HostileDevice, request: Frame, payload: bytes) -> bytes:
    sequence = device.rng.randrange(1 << 16)
    session = device.rng.choice((0, request.session))
    return encode_frame(
        Frame(session, sequence, request.kind | KIND_ANSWER, 0, payload)
    )


def flood(device: HostileDevice, request: Frame, payload: bytes) -> bytes:
    """From now on, endless copies of a busy, stale or broken frame, or noise."""
    noise = device.rng.randbytes(3000)
    device.flood = device.rng.choice(
        (
            frame(request, b"", Status.BUSY) * 50,
            frame(request, payload) * 50,
            encode_frame(Frame(0, 0, KIND_DAMAGED)) * 50,
            encode_frame(Frame(0, 0, KIND_STARTED)) * 50,
            noise,
            noise.replace(b"\0", b"\1"),
            bytes(3000),
        )
    )
    return b""


def dribble(device: HostileDevice, request: Frame, payload: bytes) -> bytes:
    device.dribble_s = device.rng.choice((0.1, 0.5, 1.9, 19.0))
    return frame(request, payload)


def silence(_: HostileDevice, _request: Frame, _payload: bytes) -> bytes:
    return b""


LIES: tuple[Lie, ...] = (
    wrong_size,
    wrong_number,
    wrong_number,
    wrong_number,
    wrong_status,
    paused_forever,
    wrong_kind,
    fault,
    another_number,
    flood,
    dribble,
    silence,
)
