"""Child processes as every system has them: the readers are tried here, the rest by a stand-in."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from firmwright.device.subprocesses import (
    SelectPipeReader,
    ThreadPipeReader,
    kill_process,
    make_pipe_reader,
    popen_options,
)

SAYS = "import sys, time; sys.stdout.write('hello'); sys.stdout.flush(); sys.stdin.read()"


def child() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", SAYS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )


@pytest.mark.parametrize("system", ["posix", "nt"])
def test_a_reader_waits_reads_and_sees_the_end(system: str) -> None:
    with child() as process:
        assert process.stdout is not None
        assert process.stdin is not None
        reader = make_pipe_reader(process.stdout, system)
        assert isinstance(reader, SelectPipeReader if system == "posix" else ThreadPipeReader)
        said = b""
        while len(said) < 5:
            said += reader.read(2, 10.0) or b""
        assert said == b"hello"
        assert reader.read(2, 0.01) == b""
        process.stdin.close()
        assert reader.read(2, 10.0) is None
        assert reader.read(2, 10.0) is None


def test_on_windows_there_is_no_session_and_nothing_before_exec() -> None:
    assert popen_options("win32") == {"creationflags": 0x200}
    assert popen_options("darwin") == {"start_new_session": True, "preexec_fn": None}
    assert callable(popen_options("linux")["preexec_fn"])


class FakeProcess:
    """Records what was done to it."""

    pid = 0

    def __init__(self, code: int | None) -> None:
        self.code = code
        self.done: list[str] = []

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.done.append("kill")

    def wait(self) -> int:
        self.done.append("wait")
        return 0


def test_where_there_are_no_groups_the_child_itself_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("os.killpg")
    running: Any = FakeProcess(None)
    kill_process(running, "nt")
    assert running.done == ["kill", "wait"]
    over: Any = FakeProcess(0)
    kill_process(over, "nt")
    assert over.done == []
