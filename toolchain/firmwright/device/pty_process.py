"""Firmware whose UART is a pseudo terminal, which other programs open like a serial port.

This process keeps the terminal open, so that the firmware continues when a client disconnects.
"""

import contextlib
import importlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from firmwright.base.closeable import Closeable
from firmwright.base.errors import ToolMissingError, UsageError
from firmwright.device.subprocesses import kill_process, start_process


class PtyProcess(Closeable):
    """A running child process; `name` is the terminal to open."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        if not hasattr(os, "openpty"):
            hint = "use a board on a serial port, or Linux or macOS."
            what = "this system has no pseudo terminals."
            raise UsageError(what, where=str(command[0]), hint=hint)
        self._ours, self._theirs = os.openpty()
        importlib.import_module("tty").setraw(self._theirs)
        self.name = os.ttyname(self._theirs)
        try:
            self._process = start_process(
                [str(part) for part in command],
                "build the firmware first.",
                stdin=self._ours,
                stdout=self._ours,
                stderr=subprocess.DEVNULL,
            )
        except ToolMissingError:
            self._close_terminal()
            raise

    def wait(self) -> int:
        return self._process.wait()

    def close(self) -> None:
        kill_process(self._process)
        self._close_terminal()

    def _close_terminal(self) -> None:
        for handle in (self._ours, self._theirs):
            with contextlib.suppress(OSError):
                os.close(handle)
