"""Child processes on every system: how they start and end, and how their output is waited for.

In: a system's name as Python has it (`os.name`, `sys.platform`). Out: arguments for Popen, and
readers of a pipe that wait for at most some time. On POSIX a child leads a group, so that what it
started ends with it, and on Linux the kernel ends it when this process dies; Windows has neither,
and no select on pipes: there a thread reads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any, Final, Protocol

_PR_SET_PDEATHSIG: Final = 1
_PIECE_BYTES: Final = 65536


def popen_options(platform: str = sys.platform) -> dict[str, Any]:
    """What Popen is told besides the command and its pipes."""
    if platform == "win32":
        # CREATE_NEW_PROCESS_GROUP: an interrupt is ours to handle, not the child's.
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200)}
    dies = _die_with_parent() if platform.startswith("linux") else None
    return {"start_new_session": True, "preexec_fn": dies}


def kill_process(process: subprocess.Popen[bytes], system: str = os.name) -> None:
    """Ends a child, and where the system has groups all that it started; reaps it."""
    if process.poll() is not None:
        return
    if system == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _die_with_parent() -> Callable[[], None]:
    """What a child does before exec so that the kernel kills it when its parent dies."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # it died before the request took hold

    return before_exec


class PipeReader(Protocol):
    """Waits for what comes out of a pipe."""

    def read(self, limit: int, timeout_s: float) -> bytes | None:
        """Up to `limit` bytes; b"" if nothing came in time, None at the end."""


def make_pipe_reader(pipe: IO[bytes], system: str = os.name) -> PipeReader:
    """The reader that works for pipes on this system."""
    return SelectPipeReader(pipe) if system == "posix" else ThreadPipeReader(pipe)


class SelectPipeReader:
    """Asks the system whether something is there."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def read(self, limit: int, timeout_s: float) -> bytes | None:
        """As `PipeReader` says."""
        ready, _, _ = select.select([self._pipe], [], [], timeout_s)
        return (os.read(self._pipe.fileno(), limit) or None) if ready else b""


class ThreadPipeReader:
    """A thread waits in the pipe; it ends with the pipe's other end."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pieces: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._rest = b""
        self._ended = False
        threading.Thread(target=self._fill, args=(pipe.fileno(),), daemon=True).start()

    def read(self, limit: int, timeout_s: float) -> bytes | None:
        """As `PipeReader` says."""
        if not self._rest and not self._ended:
            try:
                self._rest = self._pieces.get(timeout=timeout_s)
            except queue.Empty:
                return b""
            self._ended = not self._rest
        piece, self._rest = self._rest[:limit], self._rest[limit:]
        return piece or None

    def _fill(self, handle: int) -> None:
        piece = b"?"
        while piece:
            try:
                piece = os.read(handle, _PIECE_BYTES)
            except OSError:
                piece = b""  # closed under our hands
            self._pieces.put(piece)
