"""Sessions over bad lines, in virtual time: right results or clear errors, in time.

The firmware is the runtime's C; what goes wrong is drawn from the seed. --deep runs a
thousand.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.errors import DeviceError, DeviceTimeoutError
from firmwright.device.errors import SessionLostError, Timeouts
from firmwright.device.link_protocol import Command, Frame, encode_frame
from firmwright.device.session import Session
from firmwright.device.transport import Transport
from firmwright.device.transport_selection import ReconnectingTransport
from tests.runtime.simulated_line import BAUD, Line, SimulatedLine, build

pytestmark = pytest.mark.host_c

SIZE = 600
X = "serving_default_x:0"
SESSIONS, DEEP_SESSIONS = 40, 1000
RUNS = 2
TIMEOUTS = Timeouts(hello_s=20.0, answer_s=20.0, run_s=30.0)
OPTIONS = [
    (),
    ("TINY_IN_PLACE",),
    ("TINY_IN_PLACE", "FWR_LINK_PAYLOAD_MAX=64"),
    ("FWR_PROFILE=1",),
]
GREETINGS, PIECES = 12, 2 * SIZE // 26
"""Requests of a hello, and of a sample in the smallest pieces."""
LONGEST_S = (GREETINGS + RUNS * PIECES) * 20.0 + RUNS * 30.0


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], Path]:
    folder = tmp_path_factory.mktemp("simulated")
    return {options: build(folder, *options) for options in OPTIONS}


def ramp(first: int = 1) -> dict[str, NDArray[Any]]:
    values = (np.arange(SIZE) % 60).astype(np.int8)
    values[0] = first
    return {X: values}


def check_runs(session: Session, runs: int = RUNS) -> None:
    for number in range(1, runs + 1):
        outputs = session.run(ramp(number))
        assert np.array_equal(next(iter(outputs.values())), 2 * ramp(number)[X])
        assert outputs["runs"].tolist() == [number], "each run was carried out once"


def opened(line: SimulatedLine, transport: Transport | None = None) -> Session:
    return Session(transport or line, timeouts=TIMEOUTS, clock=line.clock)


def drawn_line(seed: int) -> Line:
    """One or two kinds of trouble, little or much of each."""
    chance = random.Random(seed)
    rate = 10 ** chance.uniform(-4, -1.7)
    trouble: dict[str, Any] = {}
    for kind in chance.sample(
        ["flip", "drop", "duplicate", "swap", "delay", "reset", "gone", "fifo", "baud"],
        2,
    ):
        match kind:
            case "delay":
                trouble |= {"delay": rate / 4, "delay_s": 10 ** chance.uniform(-2, 0.7)}
            case "reset":
                trouble["reset_after"] = chance.randrange(1, 2500)
            case "gone":
                trouble["gone_after"] = chance.randrange(1, 2500)
                trouble["comes_back"] = chance.random() < 0.7
            case "fifo":
                trouble |= {"kept_bytes": chance.choice([1, 2, 16]), "work_s": 0.02}
            case "baud":
                trouble |= {
                    "has_baud": True,
                    "device_baud_error": chance.choice([0.0, 0.02, 0.3]),
                }
            case _:
                trouble[kind] = rate
    if "kept_bytes" not in trouble:
        trouble["says_bytes"] = chance.choice([0, 300, 4096])
    return Line(**trouble)


@pytest.mark.parametrize("part", range(4))
def test_every_session_ends_right_or_with_a_clear_error_in_time(
    part: int, libraries: dict[tuple[str, ...], Path], deep: bool
) -> None:
    sessions = range(part, DEEP_SESSIONS if deep else SESSIONS, 4)
    failed = 0
    for seed in sessions:
        line = drawn_line(seed)
        simulated = SimulatedLine(
            libraries[OPTIONS[seed // 4 % len(OPTIONS)]], line, seed
        )
        error = end_of_session(simulated, line)
        if error is not None:
            assert str(error).startswith("the simulated line: "), f"seed {seed}"
            assert may_fail(line, error), f"seed {seed}, {line}: {error}"
        failed += error is not None
        assert simulated.now <= LONGEST_S, f"seed {seed} took {simulated.now} s"
    assert failed <= len(sessions) / 2


def end_of_session(simulated: SimulatedLine, line: Line) -> DeviceError | None:
    """The error that a session ends in; None if all of it was right."""
    transport = ReconnectingTransport(
        simulated.reopen, patience_s=1.0, clock=simulated.clock, sleep=simulated.sleep
    )
    try:
        with opened(simulated, transport) as session:
            if line.has_baud:
                session.set_baud(4 * BAUD)
            check_runs(session)
    except DeviceError as error:
        return error
    finally:
        simulated.end()
    return None


def may_fail(line: Line, error: DeviceError) -> bool:
    """Whether such a line excuses the error: bytes that are only damaged do not."""
    if isinstance(error, SessionLostError):
        return line.reset_after > 0
    if isinstance(error, DeviceTimeoutError):
        return max(line.flip, line.drop, line.duplicate, line.swap, line.delay) > 0.005
    return line.gone_after > 0


PLAIN = OPTIONS[0]
Libraries = dict[tuple[str, ...], Path]


def test_a_perfect_line_loses_nothing(libraries: Libraries) -> None:
    line = SimulatedLine(libraries[PLAIN], Line(), 0)
    with opened(line) as session:
        check_runs(session)
        assert session._line.losses == 0


def test_a_receiver_that_keeps_one_byte_is_never_sent_two_requests(
    libraries: Libraries,
) -> None:
    line = SimulatedLine(libraries[PLAIN], Line(kept_bytes=1, work_s=0.2), 0)
    with opened(line) as session:
        check_runs(session)
        assert session._line.losses <= 1, "no more than the hello, which met its start"


def test_a_receiver_that_keeps_bytes_gets_several_requests_and_is_faster(
    libraries: Libraries,
) -> None:
    took = []
    for says in (0, 2048):
        line = SimulatedLine(libraries[PLAIN], Line(says_bytes=says, work_s=0.02), 0)
        with opened(line) as session:
            begin = line.now
            session.write_inputs(ramp())
            took.append(line.now - begin)
            assert session._line.losses <= 1
    assert took[1] < 0.8 * took[0]


@pytest.mark.parametrize("error", [0.0, 0.3])
def test_a_rate_that_the_device_misses_is_left_again(
    error: float, libraries: Libraries
) -> None:
    line = SimulatedLine(
        libraries[PLAIN], Line(has_baud=True, device_baud_error=error), 0
    )
    with opened(line) as session:
        assert session.set_baud(8 * BAUD) == (error == 0.0)
        assert line.host_baud == (8 * BAUD if error == 0.0 else BAUD)
        check_runs(session)


def test_a_device_without_other_rates_stays_at_the_first(libraries: Libraries) -> None:
    line = SimulatedLine(libraries[PLAIN], Line(), 0)
    with opened(line) as session:
        assert not session.set_baud(8 * BAUD)
        check_runs(session)


def test_a_host_that_left_at_another_rate_leaves_the_device_ready(
    libraries: Libraries,
) -> None:
    line = SimulatedLine(libraries[PLAIN], Line(has_baud=True), 0)
    assert opened(line).set_baud(8 * BAUD)
    line.set_baud(0)
    with opened(line) as session:
        check_runs(session)


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_a_host_that_vanishes_leaves_the_device_ready(
    cut: int, libraries: Libraries
) -> None:
    line = SimulatedLine(libraries[PLAIN], Line(), 0)
    first = opened(line)
    first.write_inputs(ramp(50))
    frame = Frame(first._line._session, 900, Command.WRITE_INPUT, 0, bytes(6 + 200))
    line.write(encode_frame(frame)[:cut])
    with opened(line) as session:
        check_runs(session)


def test_a_restart_is_noticed_at_once(libraries: Libraries) -> None:
    """Also while an answer is waited for: the device says that it started."""
    line = SimulatedLine(libraries[PLAIN], Line(), 0)
    session = opened(line)
    session.write_inputs(ramp())
    line._start()
    before = line.now
    with pytest.raises(SessionLostError):
        session.execute()
    assert line.now - before < 0.1
    line.end()


def test_a_transfer_goes_on_where_a_line_was_cut(libraries: Libraries) -> None:
    line = SimulatedLine(libraries[PLAIN], Line(gone_after=700, comes_back=True), 0)
    transport = ReconnectingTransport(
        line.reopen, patience_s=1.0, clock=line.clock, sleep=line.sleep
    )
    with opened(line, transport) as session:
        check_runs(session)
    assert transport.reconnections == 1
    assert session._line.losses == 1


def test_a_line_that_does_not_come_back_is_a_clear_error(libraries: Libraries) -> None:
    line = SimulatedLine(libraries[PLAIN], Line(gone_after=700), 0)
    with (
        pytest.raises(DeviceError, match="the port failed: gone"),
        opened(line) as session,
    ):
        check_runs(session)


@pytest.mark.parametrize("ago", [1, 2, 40, 0x7FFF])
def test_a_request_of_long_ago_is_left_alone(ago: int, libraries: Libraries) -> None:
    line = SimulatedLine(libraries[PLAIN], Line(), 0)
    with opened(line) as session:
        check_runs(session, 1)
        numbers = session._line
        sequence = (numbers._sequence - ago) & 0xFFFF
        run = Frame(
            numbers._session,
            sequence,
            Command.RUN,
            0,
            (1).to_bytes(4, "little") + b"\0",
        )
        line.write(encode_frame(run))
        assert line.marks == 1
        assert session.run(ramp(2))["runs"].tolist() == [2]


def test_a_port_is_told_when_a_run_begins_and_ends(libraries: Libraries) -> None:
    """Of runs alone: what is measured to calibrate the counter is no inference."""
    line = SimulatedLine(libraries[PLAIN], Line(), 0)
    with opened(line) as session:
        session.write_inputs(ramp())
        assert line.marks == 0
        session.execute(3)
        assert line.marks == 3
