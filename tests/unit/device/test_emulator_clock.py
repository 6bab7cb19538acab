"""The clock of time limits of an emulator."""

import subprocess
import sys
import time

import pytest

from firmwright.base.platform_compat import process_cpu_s
from firmwright.device.emulator_clock import SLOWEST, EmulatorClock
from firmwright.device.transport import clock_of


class Computer:
    """Real time, and the processor time of an emulator, which a test sets."""

    def __init__(self) -> None:
        self.real_s = 100.0
        self.used_s: float | None = 5.0

    def clock(self) -> EmulatorClock:
        return EmulatorClock(lambda: self.used_s, lambda: self.real_s)


def test_an_emulator_that_has_a_processor_has_the_real_time() -> None:
    computer = Computer()
    clock = computer.clock()
    for _ in range(4):
        computer.real_s += 0.5
        computer.used_s = (computer.used_s or 0) + 0.7  # two threads
        clock()
    assert clock() == 2.0


def test_an_emulator_that_waits_for_a_processor_has_more_time() -> None:
    computer = Computer()
    clock = computer.clock()
    computer.real_s += 3
    computer.used_s = 6.0
    assert clock() == 1.0


def test_the_time_of_an_emulator_that_hangs_ends() -> None:
    computer = Computer()
    clock = computer.clock()
    computer.real_s += 30
    assert clock() == 30 / SLOWEST


def test_without_a_processor_time_the_real_time_counts() -> None:
    computer = Computer()
    computer.used_s = None
    clock = computer.clock()
    computer.real_s += 7
    assert clock() == 7


class _Line:
    name = "a line"

    def read(self, limit: int, timeout_s: float) -> bytes:
        return b""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class _Emulator(_Line):
    def time_s(self) -> float:
        return 42.0


def test_the_time_of_a_transport_is_its_own_if_it_has_one() -> None:
    assert clock_of(_Emulator())() == 42.0
    assert clock_of(_Line()) is time.monotonic


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have real time")
def test_the_processor_time_of_a_child_is_what_it_computed() -> None:
    count = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)"
    wait = "input()"
    command = [sys.executable, "-S", "-c", f"{count}\n{wait}"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        used_s = process_cpu_s(child.pid)
        assert used_s is not None
        assert used_s >= 0.2
        time.sleep(0.05)
        assert process_cpu_s(child.pid) == pytest.approx(used_s, abs=0.04)
        child.stdin.close()
    assert process_cpu_s(child.pid) is None
