"""A session with a device whose frames are intact but whose payloads are mutated.

Each request is answered by the next recorded answer (kind, status, length, payload), in
virtual time.
"""

from __future__ import annotations

import struct
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from firmwright.base.errors import DeviceError
from firmwright.device.link_protocol import (
    KIND_ANSWER,
    Frame,
    FrameReader,
    encode_frame,
)
from firmwright.device.session import Session
from tests.runtime.simulated_line import Line, SimulatedLine, build

HEAD = "<BbH"
SIZE = 600


def _packed(frame: Frame) -> bytes:
    return (
        struct.pack(HEAD, frame.kind, frame.status, len(frame.payload)) + frame.payload
    )


def _unpacked(data: bytes) -> list[tuple[int, int, bytes]]:
    found, at = [], 0
    while at + 4 <= len(data):
        kind, status, size = struct.unpack_from(HEAD, data, at)
        found.append((kind, status, data[at + 4 : at + 4 + size]))
        at += 4 + size
    return found


@dataclass
class Replay:
    """A transport: request n gets answer n, under the numbers of the request."""

    answers: list[tuple[int, int, bytes]]

    name = "the replayed device"

    def __post_init__(self) -> None:
        self.now = 0.0
        self.heard = FrameReader()
        self.waiting = b""
        self.reads = 0

    def clock(self) -> float:
        return self.now

    def read(self, limit: int, timeout_s: float) -> bytes:
        self.reads += 1
        if not self.waiting:
            self.now += max(timeout_s, 0.05)
            return b""
        data, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return data

    def write(self, data: bytes) -> None:
        for request in self.heard.feed(data):
            if request is not None and self.answers:
                kind, status, payload = self.answers.pop(0)
                # The kind follows the request, unless the bent answer says otherwise.
                kind = request.kind | KIND_ANSWER if kind & KIND_ANSWER else kind
                frame = Frame(request.session, request.sequence, kind, status, payload)
                self.waiting += encode_frame(frame)

    def close(self) -> None:
        self.answers = []


def replay(data: bytes) -> object:
    """Connect, write, run and read; return a link error or results."""
    device = Replay(_unpacked(data))
    with Session(device, clock=device.clock) as session:
        inputs = {t.name: _zeros(t.dtype, t.size_bytes) for t in session.info.inputs}
        return session.run(inputs)


def _zeros(dtype: str, size_bytes: int) -> np.ndarray:
    each = np.dtype(dtype).itemsize
    if size_bytes > 1 << 20:
        raise DeviceError("the device names a larger input than this test has.")
    return np.zeros(size_bytes // each, np.dtype(dtype))


class _Recorded(SimulatedLine):
    """Records the answers of a device."""

    frames: list[Frame]

    def read(self, limit: int, timeout_s: float) -> bytes:
        data = super().read(limit, timeout_s)
        self.frames += [
            f for f in self.reader.feed(data) if f is not None and f.session
        ]
        return data


@cache
def answers_of_a_session() -> tuple[bytes, ...]:
    """Return the answers of the C runtime to a greeting, inputs and a run."""
    with tempfile.TemporaryDirectory(prefix="firmwright-replayed-") as folder:
        line = _Recorded(build(Path(folder)), Line(says_bytes=0), 0)
        line.frames, line.reader = [], FrameReader()
        with Session(line, clock=line.clock) as session:
            session.run(
                {t.name: _zeros(t.dtype, t.size_bytes) for t in session.info.inputs}
            )
        line.end()
    return (b"".join(_packed(frame) for frame in line.frames),)
