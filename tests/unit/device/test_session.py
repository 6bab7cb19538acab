"""Sessions with the tiny firmware as a host process: results, refusals, its death."""

import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.errors import DeviceError, DeviceTimeoutError, UsageError
from firmwright.device.errors import FaultError, RefusedError, Timeouts
from firmwright.device.link_protocol import (
    Command,
    Frame,
    FrameReader,
    encode_frame,
    run_request,
)
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.session import Session
from tests.runtime.tiny_sessions import (
    CRASH,
    FAIL,
    HANG,
    MODEL_ID,
    SIZE,
    Build,
    X,
    Y,
    doubled,
    open_session,
    ramp,
)

pytestmark = pytest.mark.host_c


def test_outputs_belong_to_inputs(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware(), model_id=MODEL_ID) as session:
        for first in (1, 5, 17):
            outputs = session.run(ramp(first))
            assert list(outputs) == [Y, "runs"]
            assert outputs[Y].dtype == np.int8
            assert outputs[Y].tolist() == doubled(ramp(first))
        assert outputs["runs"].tolist() == [3]


def test_info_is_complete(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware("TINY_IN_PLACE")) as session:
        info = session.info
    assert (info.model_name, info.model_id, info.board) == ("tiny", MODEL_ID, "host")
    assert [(t.name, t.dtype, t.size_bytes) for t in info.inputs] == [(X, "int8", SIZE)]
    assert [(t.name, t.dtype, t.size_bytes) for t in info.outputs] == [
        (Y, "int8", SIZE),
        ("runs", "int32", 4),
    ]
    assert (info.operator_count, info.profile, info.consumes_input) == (2, False, True)
    assert (info.counter_unit, info.counter_scale) == ("ns", Fraction(1))
    assert (info.params_bytes, info.payload_max_bytes) == (0, 256)


def test_firmware_of_another_model_is_refused(tiny_firmware: Build) -> None:
    transport = ProcessTransport([tiny_firmware()], name="the board")
    with pytest.raises(DeviceError) as caught:
        Session(transport, model_id=bytes(16))
    assert str(caught.value) == (
        f"the board: the firmware contains the model tiny with id {MODEL_ID.hex()}, "
        f"not the expected {bytes(16).hex()}. "
        "Try: build and flash the firmware of this model again."
    )
    with pytest.raises(ProcessLookupError):
        os.kill(transport.pid, 0)


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"x": np.zeros(SIZE, np.int8)},
        {X: np.zeros(SIZE, np.uint8)},
        {X: np.zeros(9, np.int8)},
    ],
)
def test_inputs_that_do_not_fit_are_usage_errors(
    tiny_firmware: Build, inputs: dict[str, NDArray[Any]]
) -> None:
    with open_session(tiny_firmware()) as session, pytest.raises(UsageError):
        session.run(inputs)


# ---- The output belongs to a run on the input as written -----------------------------


def test_output_before_any_run_is_refused(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware()) as session:
        with pytest.raises(DeviceError, match="no valid output"):
            session.read_outputs()
        session.write_inputs(ramp())
        with pytest.raises(DeviceError, match="no valid output"):
            session.read_outputs()


def test_output_of_a_run_on_a_consumed_input_is_refused(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware("TINY_IN_PLACE")) as session:
        session.write_inputs(ramp())
        session.execute()
        assert session.read_outputs()[Y].tolist() == doubled(ramp())
        session.execute()
        with pytest.raises(DeviceError, match="no valid output"):
            session.read_outputs()
        assert session.run(ramp(9))[Y].tolist() == doubled(ramp(9))
        session.write_inputs(ramp())
        session.execute(2)
        with pytest.raises(DeviceError, match="no valid output"):
            session.read_outputs()


def test_output_after_a_partly_rewritten_input_is_refused(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware("TINY_IN_PLACE")) as session:
        session.run(ramp())
        session._write(Command.WRITE_INPUT, bytes(SIZE - 1), 0, 0)
        session.execute()
        with pytest.raises(DeviceError, match="no valid output"):
            session.read_outputs()


def test_an_input_that_a_debugger_has_written_counts_as_written(
    tiny_firmware: Build,
) -> None:
    """The request reports that the bytes before its offset are in memory."""
    with open_session(tiny_firmware("TINY_IN_PLACE")) as session:
        session.run(ramp())
        session._line.request(Command.WRITE_INPUT, 0, SIZE - 1)
        session.execute()
        with pytest.raises(DeviceError, match="no valid output"):
            session.read_outputs()
        session._line.request(Command.WRITE_INPUT, 0, SIZE)
        session.execute()
        session._line.request(Command.READ_OUTPUT, 0, SIZE, 0)
        with pytest.raises(RefusedError):
            session._line.request(Command.WRITE_INPUT, 0, SIZE + 1)


class ObservedMemory(ProcessTransport):
    """The firmware's process; logs requests and writes to memory, which are lost."""

    def __init__(self, program: Path) -> None:
        super().__init__([program])
        self.events: list[tuple[int, int]] = []
        self._frames = FrameReader()

    def write(self, data: bytes) -> None:
        frames = filter(None, self._frames.feed(data))
        self.events += [(frame.kind, len(frame.payload)) for frame in frames]
        super().write(data)

    def write_memory(self, address: int, data: bytes) -> None:
        self.events.append((0, len(data)))

    def read_memory(self, address: int, size_bytes: int) -> bytes:
        return bytes(size_bytes)


def test_a_paused_run_ends_before_a_debugger_writes_inputs(
    tiny_firmware: Build,
) -> None:
    """The rest of the run may use the memory of the input."""
    line = ObservedMemory(tiny_firmware("FWR_PROFILE=1"))
    with Session(line) as session:
        session.write_inputs(ramp())
        next(session.taps())
        line.events.clear()
        session.write_inputs(ramp())
    empty = Command.WRITE_INPUT, 6
    assert line.events == [empty, (0, SIZE), empty]


def test_a_preserved_input_serves_many_runs(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware()) as session:
        session.write_inputs(ramp())
        assert session.execute(5).runs == 5
        outputs = session.read_outputs()
    assert outputs[Y].tolist() == doubled(ramp())
    assert outputs["runs"].tolist() == [5]


def test_a_failing_run_names_the_models_status_and_leaves_no_output(
    tiny_firmware: Build,
) -> None:
    with open_session(tiny_firmware()) as session:
        with pytest.raises(DeviceError, match="the model's run returned -7"):
            session.run(ramp(FAIL))
        with pytest.raises(RefusedError):
            session.read_outputs()
        assert session.run(ramp())[Y].tolist() == doubled(ramp())


# ---- Parameters, measuring, profile --------------------------------------------------


def test_parameters_are_demanded_then_used(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware("TINY_PARAMS")) as session:
        assert session.info.params_bytes == 100
        session.write_inputs(ramp())
        with pytest.raises(DeviceError, match="the parameter block is incomplete"):
            session.execute()
        with pytest.raises(UsageError, match="has 3 bytes; the firmware expects 100"):
            session.write_params(b"abc")
        session.write_params(bytes(99) + b"\1")
        assert session.run(ramp())[Y].tolist() == ramp()[X].tolist()


def test_parameters_for_firmware_without_are_refused(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware()) as session, pytest.raises(UsageError):
        session.write_params(b"abc")


def test_measure_counts_the_second_of_two_runs(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware("TINY_IN_PLACE")) as session:
        assert session.measure(ramp()) >= 0
        assert session.read_outputs()["runs"].tolist() == [2]


def test_profile_counts_calls_and_checksums(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware("FWR_PROFILE=1")) as session:
        session.write_inputs(ramp())
        session.execute(checksums=True)
        double, count = session.profile()
        assert (double.calls, count.calls) == (1, 1)
        assert double.checksum == zlib.crc32(bytes(doubled(ramp())))
        assert count.checksum == zlib.crc32((1).to_bytes(4, "little"))
        session.execute(3)
        assert [(one.calls, one.checksum) for one in session.profile()] == [
            (3, 0),
            (3, 0),
        ]


def test_taps_give_the_bytes_that_each_operator_wrote(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware("FWR_PROFILE=1")) as session:
        session.write_inputs(ramp())
        assert list(session.taps()) == [
            (0, bytes(doubled(ramp()))),
            (1, (1).to_bytes(4, "little")),
        ]
        assert session.read_outputs()[Y].tolist() == doubled(ramp())
        assert list(session.taps(1)) == [(1, (2).to_bytes(4, "little"))]
        assert list(session.taps(7)) == []


def test_another_request_ends_a_paused_run(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware("FWR_PROFILE=1")) as session:
        session.write_inputs(ramp())
        next(session.taps())
        with pytest.raises(RefusedError, match="no valid output"):
            session.read_outputs()
        assert session.run(ramp(3))["runs"].tolist() == [2]


def test_taps_of_an_image_without_probes_are_refused(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware()) as session:
        session.write_inputs(ramp())
        with pytest.raises(DeviceError, match="not supported by this image"):
            list(session.taps())


def test_a_hello_of_another_host_aborts_a_batch_of_runs(tiny_firmware: Build) -> None:
    """A vanished host's thousand years of runs do not block the next host."""
    transport = ProcessTransport([tiny_firmware()])
    left = Session(transport)
    request = run_request(0xFFFFFFFF, checksums=False)
    transport.write(
        encode_frame(Frame(left._line._session, 900, Command.RUN, 0, request))
    )
    with Session(transport, timeouts=Timeouts(hello_s=5.0)) as session:
        outputs = session.run(ramp())
        assert outputs[Y].tolist() == doubled(ramp())


def test_profile_without_probes_is_an_error(tiny_firmware: Build) -> None:
    with (
        open_session(tiny_firmware()) as session,
        pytest.raises(DeviceError, match="has no probes"),
    ):
        session.profile()


def test_stack_use_of_a_port_without_stack_is_unsupported(tiny_firmware: Build) -> None:
    with (
        open_session(tiny_firmware()) as session,
        pytest.raises(DeviceError, match="not supported by this image"),
    ):
        session.stack_bytes()


# ---- Faults and restarts -------------------------------------------------------------


def test_a_crash_is_reported_with_its_operator_and_reset_revives(
    tiny_firmware: Build,
) -> None:
    with open_session(tiny_firmware("FWR_PROFILE=1")) as session:
        for _ in range(2):
            with pytest.raises(FaultError) as caught:
                session.run(ramp(CRASH))
            assert caught.value.fault.operator == 0
            assert dict(caught.value.fault.registers)["signal"] == signal.SIGSEGV
            session.reset()
            assert session.run(ramp())["runs"].tolist() == [1]


def test_a_faulted_firmware_answers_everything_with_the_fault(
    tiny_firmware: Build,
) -> None:
    with open_session(tiny_firmware()) as session:
        with pytest.raises(FaultError):
            session.run(ramp(CRASH))
        with pytest.raises(FaultError) as caught:
            session.read_outputs()
        assert caught.value.fault.operator is None


def test_reset_forgets_the_run(tiny_firmware: Build) -> None:
    with open_session(tiny_firmware()) as session:
        session.run(ramp())
        session.reset()
        with pytest.raises(DeviceError, match="no valid output"):
            session.read_outputs()


def test_another_host_taking_over_is_a_clear_error(tiny_firmware: Build) -> None:
    transport = ProcessTransport([tiny_firmware()])
    with Session(transport) as session:
        transport.write(
            encode_frame(Frame(session._line._session ^ 1, 1, Command.HELLO))
        )
        with pytest.raises(DeviceError, match="lost this session"):
            session.run(ramp())


def test_killing_the_process_in_the_middle_of_a_run_is_a_clear_error(
    tiny_firmware: Build,
) -> None:
    transport = ProcessTransport([tiny_firmware()], name="tiny")
    with Session(transport) as session:
        session.write_inputs(ramp(HANG))
        timer = threading.Timer(0.3, os.kill, (transport.pid, signal.SIGKILL))
        timer.start()
        with pytest.raises(DeviceError) as caught:
            session.execute()
        timer.join()
    assert str(caught.value) == (
        "tiny: the process was killed by SIGKILL during a session. Try: start the session again."
    )


def test_a_run_that_never_ends_is_a_timeout_and_the_process_is_ended(
    tiny_firmware: Build,
) -> None:
    transport = ProcessTransport([tiny_firmware()])
    with (
        Session(transport, timeouts=Timeouts(run_s=0.3)) as session,
        pytest.raises(
            DeviceTimeoutError, match=r"accepted but did not end within 0\.3 s"
        ),
    ):
        session.run(ramp(HANG))
    with pytest.raises(ProcessLookupError):
        os.kill(transport.pid, 0)


def test_a_process_other_than_firmware_is_a_clear_error() -> None:
    transport = ProcessTransport(
        ["sh", "-c", "echo cannot start >&2; exit 4"], name="tool"
    )
    with pytest.raises(DeviceError) as caught:
        Session(transport)
    assert str(caught.value) == (
        "tool: the process ended with exit code 4 during a session. "
        "Its last output: cannot start Try: start the session again."
    )


def test_a_silent_process_is_a_timeout() -> None:
    with pytest.raises(DeviceTimeoutError, match=r"no firmware answered within 0\.2 s"):
        Session(ProcessTransport(["sleep", "60"]), timeouts=Timeouts(hello_s=0.2))


# ---- Processes -----------------------------------------------------------------------


ORPHAN_MAKER = """
import sys, time
from firmwright.device.process_transport import ProcessTransport
print(ProcessTransport([sys.argv[1]]).pid, flush=True)
time.sleep(60)
"""


def is_running(pid: int) -> bool:
    """Whether the process exists and is more than a zombie not reaped yet."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except FileNotFoundError:
        return False


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux ties a child to its parent"
)
def test_a_child_dies_with_its_parent(tiny_firmware: Build) -> None:
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN_MAKER, str(tiny_firmware())],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.kill()
    for _ in range(200):
        if not is_running(child):
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child outlived its parent")
