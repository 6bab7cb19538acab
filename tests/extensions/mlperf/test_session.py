"""The conversation with a benchmark's firmware: greeting, answers, errors."""

import pytest

from firmwright.base.errors import DeviceError, DeviceTimeoutError
from firmwright.extensions.mlperf.session import MlperfSession

NAMED = "m-name-dut-[it]\r\nm-ready\r\n"
INFERRED = "m-lap-us-10\r\nm-lap-us-25\r\nm-results-[0.25,0.750,]\r\nm-ready\r\n"


class Scripted:
    """Answers each command by a table; what is not in it is met with silence."""

    name = "scripted"

    def __init__(self, answers: dict[str, str], boot: str = "") -> None:
        self.answers, self.said, self.closed = answers, boot, False
        self.commands: list[str] = []

    def read(self, limit: int, timeout_s: float) -> bytes:
        # In small pieces, as lines come.
        found, self.said = (
            self.said[:7],
            self.said[7:],
        )
        return found.encode()

    def write(self, data: bytes) -> None:
        command = data.decode().rstrip("%")
        self.commands.append(command)
        self.said += self.answers.get(command, "")

    def close(self) -> None:
        self.closed = True


def test_boot_messages_are_skipped():
    line = Scripted(
        {"name": NAMED, "infer 3 1": INFERRED}, "m-init-done\r\nm-ready\r\n\0"
    )
    with MlperfSession(line) as session:
        found = session.infer(3, 1)
    assert (found.microseconds, found.results) == (15, (0.25, 0.75))
    assert line.closed


def test_a_sample_goes_in_commands_of_less_than_80_characters():
    line = Scripted(
        {
            "name": NAMED,
            "db load 40": "m-ready\r\n",
            f"db {'07' * 38}": "m-ready\r\n",
            "db 0707": "m-load-done\r\nm-ready\r\n",
        }
    )
    MlperfSession(line).load(bytes([7] * 40))
    assert max(map(len, line.commands)) == 79


def test_errors_and_timeouts_are_reported():
    answers = {
        "name": NAMED,
        "db load 1": "e-[no]\r\nm-ready\r\n",
        "infer 1 0": "m-ready\r\n",
    }
    session = MlperfSession(Scripted(answers), timeout_s=0.05)
    with pytest.raises(DeviceError, match=r"the firmware answers e-\[no\]"):
        session.load(b"1")
    with pytest.raises(DeviceError, match="0 time stamps"):
        session.infer(1, 0)
    with pytest.raises(DeviceTimeoutError, match="did not answer in time"):
        session.command("silence")


def test_a_silent_device_is_closed():
    line = Scripted({})
    with pytest.raises(
        DeviceTimeoutError, match="no answer in the benchmark's protocol"
    ):
        MlperfSession(line, timeout_s=0.01)
    assert line.closed
