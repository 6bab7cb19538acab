"""A child process as a transport, by stdin and stdout or a pseudo terminal.

A transport is for one thread.
"""

import atexit
import contextlib
import importlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from firmwright.base.child_process import Word, kill_process, start_process
from firmwright.base.closeable import Closeable
from firmwright.base.errors import (
    DeviceError,
    DeviceTimeoutError,
    ToolMissingError,
    UsageError,
)
from firmwright.device.pipe_readers import make_pipe_reader
from firmwright.device.pipe_writers import make_pipe_writer

_STDERR_LINES = 20
_STOP_WAIT_S = 5.0
_WRITE_TIMEOUT_S = 20.0


class ProcessTransport:
    """A child process with additional variables in `environment`; errors say `name`."""

    def __init__(
        self,
        command: Sequence[Word],
        *,
        name: str = "",
        hint: str = "",
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.name = name or Path(command[0]).name
        self._hint = hint
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        try:
            self._process = start_process(
                command,
                hint or "build the firmware first, or install the program.",
                self.name,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                environment=environment,
                pass_fds=pass_fds,
            )
        except ToolMissingError:
            self._stderr.close()
            raise
        # Both are pipes, as requested above.
        assert self._process.stdout is not None
        self._reader = make_pipe_reader(self._process.stdout)
        assert self._process.stdin is not None
        self._writer = make_pipe_writer(self._process.stdin)
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        """Return the process id, even after the process has ended."""
        return self._process.pid

    def read(self, limit: int, timeout_s: float) -> bytes:
        stdout = self._process.stdout
        if stdout is None or stdout.closed:
            raise self._gone()
        data = self._reader.read(limit, timeout_s)
        if data is None:
            raise self._gone()
        return data

    def write(self, data: bytes) -> None:
        stdin = self._process.stdin
        if stdin is None or stdin.closed:
            raise self._gone()
        try:
            left = self._writer.write(data, _WRITE_TIMEOUT_S)
        except BrokenPipeError as error:
            raise self._gone() from error
        if left:
            what = f"the process has not read {left} bytes for {_WRITE_TIMEOUT_S:g} s."
            raise DeviceTimeoutError(what, where=self.name, hint=self._hint)

    def close(self) -> None:
        atexit.unregister(self.close)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._process.returncode is None:
            kill_process(self._process)
        self._stderr.close()

    def _gone(self) -> DeviceError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_WAIT_S)
        code = self._process.returncode
        if code is None:
            ending = "closed its end of the link but still runs"
        elif code < 0:
            ending = f"was killed by {signal.Signals(-code).name}"
        else:
            ending = f"ended with exit code {code}"
        what = f"the process {ending} during a session.{self._last_words()}"
        hint = self._hint or "start the session again."
        return DeviceError(what, where=self.name, hint=hint)

    def _last_words(self) -> str:
        if self._stderr.closed:
            return ""
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        tail = "\n".join(lines[-_STDERR_LINES:])
        return f" Its last output: {tail}" if tail else ""


class PtyProcess(Closeable):
    """Firmware with the pseudo terminal `name` as UART.

    The terminal stays open between clients. `command` gets its file descriptor, which
    the process inherits. It is also the standard input and, without `drops_output`, the
    standard output.
    """

    def __init__(
        self, command: Callable[[int], Sequence[Word]], *, drops_output: bool = False
    ) -> None:
        if not hasattr(os, "openpty"):
            hint = "use a board on a serial port, or Linux or macOS."
            what = "this system has no pseudo terminals."
            raise UsageError(what, where="openpty", hint=hint)
        self._ours, self._theirs = os.openpty()
        importlib.import_module("tty").setraw(self._theirs)
        self.name = os.ttyname(self._theirs)
        try:
            self._process = start_process(
                command(self._ours),
                "build the firmware first.",
                stdin=self._ours,
                stdout=subprocess.DEVNULL if drops_output else self._ours,
                stderr=subprocess.DEVNULL,
                pass_fds=(self._ours,),
            )
        except ToolMissingError:
            self._close_terminal()
            raise

    @property
    def pid(self) -> int:
        """Return the process id, even after the process has ended."""
        return self._process.pid

    def wait(self) -> int:
        return self._process.wait()

    def close(self) -> None:
        kill_process(self._process)
        self._close_terminal()

    def _close_terminal(self) -> None:
        for handle in (self._ours, self._theirs):
            with contextlib.suppress(OSError):
                os.close(handle)
