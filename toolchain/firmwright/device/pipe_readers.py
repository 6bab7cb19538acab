"""Portable polling of a child's output."""

import os
import queue
import select
import threading
from typing import IO, Final, TypeAlias

_PIECE_BYTES: Final = 65536


class SelectPipeReader:
    """A reader of a pipe that waits with `select`."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def read(self, limit: int, timeout_s: float) -> bytes | None:
        """Return up to `limit` bytes, b"" after the timeout, or None at the end."""
        ready, _, _ = select.select([self._pipe], [], [], timeout_s)
        if not ready:
            return b""
        return os.read(self._pipe.fileno(), limit) or None


class ThreadPipeReader:
    """A `SelectPipeReader` for Windows; its daemon thread ends with the stream."""

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
