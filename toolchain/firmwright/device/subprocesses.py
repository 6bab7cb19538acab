"""Portable start, termination and output polling of child processes.

On POSIX, a child leads its own process group, which is killed with it. On Linux, the kernel also
kills the child when this process dies.
"""

import contextlib
import ctypes
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO, Any, Final, TypeAlias

from firmwright.base.errors import ToolMissingError

_PR_SET_PDEATHSIG: Final = 1
_PIECE_BYTES: Final = 65536


def start_process(
    command: Sequence[str], hint: str, where: str = "", **options: Any
) -> subprocess.Popen[bytes]:
    """Start a child with Popen and `options`; raise ToolMissingError if that is impossible."""
    try:
        return subprocess.Popen(command, **options, **popen_options())
    except OSError as error:
        what = f"cannot start {command[0]}: {error.strerror}."
        raise ToolMissingError(what, where=where, hint=hint) from error


def popen_options(platform: str = sys.platform) -> dict[str, Any]:
    """Return the keyword arguments of Popen for this platform, except command and pipes."""
    if platform == "win32":
        # CREATE_NEW_PROCESS_GROUP keeps interrupts away from the child.
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200)}
    dies = _die_with_parent() if platform.startswith("linux") else None
    return {"start_new_session": True, "preexec_fn": dies}


def kill_process(process: subprocess.Popen[bytes], system: str = os.name) -> None:
    if process.poll() is not None:
        return
    if system == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _die_with_parent() -> Callable[[], None]:
    """Return a `preexec_fn` that makes the kernel kill the child when its parent dies."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before the request took effect

    return before_exec


class SelectPipeReader:
    """A reader of a pipe that waits with `select`."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def read(self, limit: int, timeout_s: float) -> bytes | None:
        """Return up to `limit` bytes, b"" after the timeout, or None at the end of the stream."""
        ready, _, _ = select.select([self._pipe], [], [], timeout_s)
        return (os.read(self._pipe.fileno(), limit) or None) if ready else b""


class ThreadPipeReader:
    """A `SelectPipeReader` for Windows; its daemon thread ends when the child closes the pipe."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pieces: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._rest = b""
        self._ended = False
        threading.Thread(target=self._fill, args=(pipe.fileno(),), daemon=True).start()

    def read(self, limit: int, timeout_s: float) -> bytes | None:
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
                piece = b""  # closed concurrently
            self._pieces.put(piece)


PipeReader: TypeAlias = SelectPipeReader | ThreadPipeReader


def make_pipe_reader(pipe: IO[bytes], system: str = os.name) -> PipeReader:
    return SelectPipeReader(pipe) if system == "posix" else ThreadPipeReader(pipe)
