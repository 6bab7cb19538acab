"""Sessions with the tiny firmware over bad lines: no run is lost, repeated or wrong."""

from pathlib import Path

import pytest

from firmwright.base.errors import DeviceTimeoutError
from firmwright.device.errors import Timeouts
from firmwright.device.link_protocol import Command, Frame, encode_frame, run_request
from firmwright.device.process_transport import ProcessTransport, PtyProcess
from firmwright.device.serial_port import SerialTransport
from firmwright.device.session import Session
from tests.runtime.faulty_transport import FaultRates, FaultyTransport
from tests.runtime.tiny_sessions import Build, Y, doubled, ramp

pytestmark = pytest.mark.host_c


class CountingRuns:
    """Runs sessions over a bad line; checks that no run is lost, doubled or wrong."""

    def __init__(self, program: Path, rates: FaultRates, seed: int) -> None:
        self.line = FaultyTransport(ProcessTransport([program]), rates, seed)

    def check(self, runs: int) -> Session:
        with Session(self.line) as session:
            for number in range(1, runs + 1):
                outputs = session.run(ramp(number))
                assert outputs[Y].tolist() == doubled(ramp(number))
                assert outputs["runs"].tolist() == [number]
        assert self.line.damaged_bytes > 0
        return session


@pytest.mark.parametrize(
    "seed", [0]
)  # test_bad_lines.py has many more, in virtual time
@pytest.mark.parametrize("program", [(), ("TINY_IN_PLACE",)])
def test_one_percent_of_flipped_bytes_changes_no_result(
    tiny_firmware: Build, program: tuple[str, ...], seed: int
) -> None:
    check = CountingRuns(tiny_firmware(*program), FaultRates(flip=0.01), seed)
    session = check.check(runs=3)
    assert (
        session._payload_bytes < session.info.payload_max_bytes
    )  # it learned to be modest


def test_a_bad_line_over_a_terminal_changes_no_result(tiny_firmware: Build) -> None:
    with PtyProcess(lambda _: [tiny_firmware()]) as process:
        line = FaultyTransport(
            SerialTransport(process.name), FaultRates(flip=0.003), seed=5
        )
        with Session(line) as session:
            for number in (1, 2):
                assert session.run(ramp(number))[Y].tolist() == doubled(ramp(number))
        assert line.damaged_bytes > 0


@pytest.mark.parametrize("rates", [FaultRates(drop=0.005), FaultRates(duplicate=0.005)])
def test_lost_and_doubled_bytes_change_no_result(
    tiny_firmware: Build, rates: FaultRates
) -> None:
    CountingRuns(tiny_firmware(), rates, seed=7).check(runs=3)


def test_a_hopeless_line_is_a_timeout(tiny_firmware: Build) -> None:
    line = FaultyTransport(
        ProcessTransport([tiny_firmware()]), FaultRates(flip=0.5), seed=1
    )
    with pytest.raises(DeviceTimeoutError):
        Session(line, timeouts=Timeouts(hello_s=0.5))


class FrameRepeater:
    """Sends every frame three times, an old one in between, and garbage before all."""

    def __init__(self, inner: ProcessTransport) -> None:
        self._inner = inner
        self._old: list[bytes] = []
        inner.write(b"boot: \x00\x03ab\x00\xff\xff" + b"\x80" * 700)

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, limit: int, timeout_s: float) -> bytes:
        return self._inner.read(limit, timeout_s)

    def write(self, data: bytes) -> None:
        stale = self._old[len(self._old) // 2] if self._old else b""
        self._inner.write(data + data + stale + data)
        self._old.append(data)

    def close(self) -> None:
        self._inner.close()


@pytest.mark.parametrize("options", [(), ("TINY_IN_PLACE", "FWR_LINK_PAYLOAD_MAX=64")])
def test_garbage_and_repeated_and_stale_requests_change_nothing(
    options: tuple[str, ...], tiny_firmware: Build
) -> None:
    with Session(FrameRepeater(ProcessTransport([tiny_firmware(*options)]))) as session:
        for number in range(1, 6):
            outputs = session.run(ramp(number))
            assert outputs[Y].tolist() == doubled(ramp(number))
            assert outputs["runs"].tolist() == [number]


def test_a_run_repeated_on_the_wire_runs_once_and_answers_alike(
    tiny_firmware: Build,
) -> None:
    transport = ProcessTransport([tiny_firmware()])
    with Session(transport) as session:
        session.write_inputs(ramp())
        session.execute()
        line = session._line
        again = Frame(
            line._session,
            line._sequence,
            Command.RUN,
            0,
            run_request(1, checksums=False),
        )
        for _ in range(3):
            transport.write(encode_frame(again))
        assert session.read_outputs()["runs"].tolist() == [1]
