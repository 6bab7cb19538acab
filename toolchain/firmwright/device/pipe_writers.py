"""Portable writing to a child's input."""

import os
import select
from typing import IO, TypeAlias


class SelectPipeWriter:
    """A writer to a pipe that waits with `select`: it notices a missing reader."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        os.set_blocking(pipe.fileno(), False)

    def write(self, data: bytes, timeout_s: float) -> int:
        """Write until nothing is taken for `timeout_s`; return the bytes left over."""
        view = memoryview(data)
        while view:
            _, ready, _ = select.select([], [self._pipe], [], timeout_s)
            if not ready:
                break
            view = view[os.write(self._pipe.fileno(), view) :]
        return len(view)


class BlockingPipeWriter:
    """A `SelectPipeWriter` for Windows, which waits for pipes without a time limit."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def write(self, data: bytes, _timeout_s: float) -> int:
        view = memoryview(data)
        while view:
            view = view[os.write(self._pipe.fileno(), view) :]
        return 0


PipeWriter: TypeAlias = SelectPipeWriter | BlockingPipeWriter


def make_pipe_writer(pipe: IO[bytes], system: str = os.name) -> PipeWriter:
    return SelectPipeWriter(pipe) if system == "posix" else BlockingPipeWriter(pipe)
