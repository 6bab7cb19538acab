"""Child processes end on every system; tests/security has the rest of this module."""

from __future__ import annotations

from typing import Any

import pytest

from firmwright.base.child_process import kill_process, popen_options


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
