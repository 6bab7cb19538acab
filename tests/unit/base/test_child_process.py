"""Child processes end on every system; tests/security has the rest of this module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firmwright.base.child_process import end_process, kill_process, popen_options


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


CLEANS_UP = """\
import pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
try:
    print(flush=True)
    signal.pause()
finally:
    pathlib.Path(sys.argv[1]).touch()
"""
IGNORES = """\
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
while True:
    signal.pause()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_process_ends_its_own_before_it_is_killed(tmp_path: Path) -> None:
    marker = tmp_path / "cleaned"
    for script in (CLEANS_UP, IGNORES):
        command = [sys.executable, "-c", script, str(marker)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, **popen_options())
        assert process.stdout is not None
        process.stdout.readline()  # the handler is set
        end_process(process, grace_s=60.0 if script is CLEANS_UP else 0.1)
        process.stdout.close()
        assert process.returncode == (1 if script is CLEANS_UP else -9)
    assert marker.exists()
