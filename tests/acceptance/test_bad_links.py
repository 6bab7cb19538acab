"""Over a bad line or a killed emulator, `verify` is right or fails clearly."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from firmwright.artifacts import Image
from firmwright.base.errors import FirmwrightError
from firmwright.device.errors import Timeouts
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.session import Session
from firmwright.device.transport import Transport
from firmwright.device.transport_selection import open_transport
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import ModelSession, params_block
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import Compilation
from tests.runtime.faulty_transport import FaultRates, FaultyTransport

Compile = Callable[..., Compilation]
Opener = Callable[[Compilation], ModelSession]

BOARD = "mps2-an386"
SAMPLES = 6
KILLED_AT = {"hello": 1, "input": 10, "run": 11, "next_run": 14}
"""Frame numbers: nine frames greet the digits firmware, three are a sample."""

pytestmark = pytest.mark.qemu


class Killer:
    """A transport that kills the emulator as soon as the frame number `at` is sent."""

    def __init__(self, inner: ProcessTransport, at: int) -> None:
        self._inner = inner
        self._left = at
        self.name = inner.name
        self.read = inner.read
        self.close = inner.close

    def write(self, data: bytes) -> None:
        self._inner.write(data)
        self._left -= 1
        if self._left == 0:
            os.kill(self._inner.pid, signal.SIGKILL)


def opener(
    image: Image, line: Callable[[ProcessTransport], Transport]
) -> tuple[Opener, list[int]]:
    """Return a session opener for `verify` over `line`, and its emulators' pids."""
    pids: list[int] = []

    def opened(compiled: Compilation) -> ModelSession:
        transport = open_transport(compiled.board, image.elf)
        assert isinstance(transport, ProcessTransport)
        pids.append(transport.pid)
        identity = bytes.fromhex(compiled.model_id)
        session = Session(
            line(transport), model_id=identity, timeouts=Timeouts(run_s=30.0)
        )
        block = params_block(compiled)
        if block is not None:
            session.write_params(block)
        return ModelSession(compiled, session, image)

    return opened, pids


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("seed", "linked", "by_rows"),
    [
        (0, True, False),
        (0, True, True),
        *(
            pytest.param(seed, True, False, marks=pytest.mark.deep)
            for seed in range(1, 10)
        ),
        *(
            pytest.param(seed, True, True, marks=pytest.mark.deep)
            for seed in range(1, 10)
        ),
        *(
            pytest.param(seed, False, False, marks=pytest.mark.deep)
            for seed in range(3)
        ),
    ],
)
def test_flipped_bytes_on_the_link_never_change_results(
    seed: int, linked: bool, by_rows: bool, compiled: Compile
) -> None:
    """A row that is fed is fed once, however often its bytes are sent."""
    done = compiled(
        "digits", board=BOARD, link_params=linked, stream_input_rows=by_rows
    )
    lines: list[FaultyTransport] = []

    def bad_line(inner: ProcessTransport) -> Transport:
        lines.append(FaultyTransport(inner, FaultRates(flip=0.01), seed))
        return lines[-1]

    open_with, _ = opener(build_image(done), bad_line)
    found = verify(done, samples=SAMPLES, open_with=open_with)
    assert (found.samples, found.mismatches) == (SAMPLES, 0)
    assert lines[0].damaged_bytes >= (SAMPLES if linked else 100)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("frame", KILLED_AT.values(), ids=KILLED_AT)
def test_a_killed_emulator_is_a_clear_error(frame: int, compiled: Compile) -> None:
    done = compiled("digits", board=BOARD)
    open_with, pids = opener(build_image(done), lambda inner: Killer(inner, frame))
    with pytest.raises(FirmwrightError) as caught:
        verify(done, samples=SAMPLES, open_with=open_with)
    assert caught.value.code == "device"
    assert "was killed by SIGKILL during a session" in str(caught.value)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
