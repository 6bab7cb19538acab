"""A firmware behind a pseudo terminal: other people's programs open it like a serial port.

In: a command whose stdin and stdout are the UART. Out: the terminal's name while the process runs.
This side keeps the terminal open too, so that a visitor who leaves does not end the firmware.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tty
from collections.abc import Sequence
from pathlib import Path

from firmwright.base.closing import Closing
from firmwright.base.errors import ToolMissingError


class PtyProcess(Closing):
    """A running child. A context manager; `name` is what a visitor opens."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)
        self.name = os.ttyname(self._theirs)
        try:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=self._ours,
                stdout=self._ours,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self._close_terminal()
            raise ToolMissingError(
                f"cannot start {command[0]}: {error.strerror}.", hint="build the firmware first."
            ) from error

    def wait(self) -> int:
        """Until the process ends; its exit code."""
        return self._process.wait()

    def close(self) -> None:
        """Ends the process and its group, and the terminal."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._close_terminal()

    def _close_terminal(self) -> None:
        for handle in (self._ours, self._theirs):
            with contextlib.suppress(OSError):
                os.close(handle)
