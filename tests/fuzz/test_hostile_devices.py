"""Every call to a hostile device ends in a value or a DeviceError, within bounds."""

from __future__ import annotations

import contextlib
import struct
import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from firmwright.base.errors import DeviceError, DeviceTimeoutError
from firmwright.device import process_transport
from firmwright.device.link_protocol import Command, Frame
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.session import Session
from firmwright.extensions.mlperf.session import MlperfSession
from tests.fuzz.hostile_device import TENSOR_BYTES, HostileDevice, frame, honest_payload

SEEDS, SEEDS_DEEP = 48, 10_000
MEMORY_BYTES = 24 << 20
LIMIT_S = 1000.0
"""In virtual time, for any call: greeting 200 s, run 300 s, and small tensors."""

INPUTS = {"name": np.zeros(TENSOR_BYTES, np.int8)}
CALLS: dict[str, Callable[[Session], object]] = {
    "run": lambda session: session.run(INPUTS),
    "write_params": lambda session: session.write_params(
        bytes(session.info.params_bytes)
    ),
    "profile": lambda session: session.profile(),
    "taps": lambda session: sum(len(data) for _, data in session.taps()),
    "measure": lambda session: session.measure(INPUTS),
    "stack": lambda session: session.stack_bytes(),
    "identity": lambda session: session.identity(),
    "baud": lambda session: session.set_baud(921600),
    "reset": lambda session: session.reset(),
}


def end_of(device: HostileDevice, call: Callable[[], object]) -> bool:
    """Run a call; return whether it had a value."""
    begin = device.now
    has_value = False
    with contextlib.suppress(DeviceError):
        call()
        has_value = True
    assert device.now - begin < LIMIT_S
    return has_value


def calls_of(seed: int) -> list[bool]:
    """Open a session and make all calls; return which had a value."""
    device = HostileDevice(seed, 0.02 if seed % 2 else 0.2)
    sessions: list[Session] = []
    ended = [
        end_of(device, lambda: sessions.append(Session(device, clock=device.clock)))
    ]
    for session in sessions:
        described = [(t.name, t.dtype, t.size_bytes) for t in session.info.inputs]
        for name, call in CALLS.items():
            if name in ("run", "measure") and described != [
                ("name", "int8", TENSOR_BYTES)
            ]:
                continue  # other tensors than the model has: open_session refuses these
            if name != "write_params" or session.info.params_bytes < 1 << 16:
                ended.append(
                    end_of(device, lambda call=call, session=session: call(session))
                )
    return ended


def test_a_call_ends_in_a_value_or_an_error(deep: bool) -> None:
    ended: list[bool] = []
    tracemalloc.start()
    try:
        for seed in range(SEEDS_DEEP if deep else SEEDS):
            ended += calls_of(seed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_BYTES
    assert 0.1 < sum(ended) / len(ended) < 0.9


@pytest.mark.parametrize("command", [Command.WRITE_INPUT, Command.READ_OUTPUT])
def test_an_answer_with_surplus_bytes_is_an_error_at_once(command: Command) -> None:
    device = HostileDevice(1, 0.0)
    device.lie = lambda request: (
        frame(request, bytes(60_000)) if request.kind == command else None
    )
    with (
        Session(device, clock=device.clock) as session,
        pytest.raises(DeviceError, match="60000 bytes"),
    ):
        session.run(INPUTS)


def test_names_without_an_end_are_an_error() -> None:
    def lie(request: Frame) -> bytes | None:
        match request.kind:
            case Command.HELLO:
                payload = honest_payload(request)
                return frame(request, payload[:24] + b"\xff\xff" + payload[26:])
            case Command.TEXT:
                return frame(request, struct.pack("<H", 65_000 - 2).ljust(65_000, b"x"))
        return None

    device = HostileDevice(1, 0.0)
    device.lie = lie
    with pytest.raises(DeviceError, match="more than a device has"):
        Session(device, clock=device.clock)


class Speaker:
    """Benchmark firmware that answers every command alike, once or endlessly."""

    name = "the speaker"

    def __init__(self, answer: bytes, *, forever: bool = False) -> None:
        self.answer, self.forever, self.waiting = answer, forever, b""

    def read(self, limit: int, timeout_s: float) -> bytes:
        if self.forever and not self.waiting:
            self.waiting = self.answer
        if not self.waiting:
            time.sleep(min(timeout_s, 0.01))
        data, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return data

    def write(self, data: bytes) -> None:
        greeting = b"m-name-dut-[x]\r\nm-ready\r\n"
        self.waiting = greeting if data == b"name%" else self.answer

    def close(self) -> None:
        self.waiting = b""


@pytest.mark.parametrize(
    "answer",
    [
        b"m-lap-us-1\r\nm-lap-us-x\r\nm-results-[0.1]\r\nm-ready\r\n",
        b"m-lap-us-1\r\nm-lap-us-"
        + b"9" * 5000
        + b"\r\nm-results-[0.1]\r\nm-ready\r\n",
        b"m-lap-us-1\r\nm-lap-us-2\r\nm-results-[0.1,,2]\r\nm-ready\r\n",
        b"m-lap-us-1\r\nm-lap-us-2\r\nm-results-[\xff]\r\nm-ready\r\n",
        b"x" * (2 << 20),
        b"x\r\n" * (1 << 20),
    ],
    ids=["time", "long time", "no value", "no number", "long line", "many lines"],
)
def test_an_answer_against_the_benchmarks_protocol_is_an_error(answer: bytes) -> None:
    with (
        MlperfSession(Speaker(answer), timeout_s=20.0) as session,
        pytest.raises(DeviceError, match=r"time stamps|number|more than"),
    ):
        session.infer(1, 0)


def test_a_benchmark_that_never_falls_silent_is_a_timeout() -> None:
    with pytest.raises(DeviceTimeoutError, match="without an end"):
        MlperfSession(Speaker(b"m-name-dut-[x]\r\n", forever=True), timeout_s=0.2)


@pytest.mark.skipif(
    sys.platform == "win32", reason="pipes of Windows have no time limit"
)
def test_a_process_that_never_reads_is_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_transport, "_WRITE_TIMEOUT_S", 0.2)
    transport = ProcessTransport([sys.executable, "-c", "import time; time.sleep(600)"])
    with pytest.raises(DeviceTimeoutError, match=r"has not read \d+ bytes"):
        transport.write(bytes(1 << 20))
    transport.close()
