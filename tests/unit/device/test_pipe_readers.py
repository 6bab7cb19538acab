"""Readers of a child's output, those of every system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from firmwright.device.pipe_readers import (
    SelectPipeReader,
    ThreadPipeReader,
    make_pipe_reader,
)

SAYS = (
    "import sys, time; sys.stdout.write('hello'); sys.stdout.flush(); sys.stdin.read()"
)


def child() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", SAYS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )


@pytest.mark.parametrize("system", ["posix", "nt"])
def test_a_reader_waits_reads_and_sees_the_end(system: str) -> None:
    with child() as process:
        assert process.stdout is not None
        assert process.stdin is not None
        reader = make_pipe_reader(process.stdout, system)
        assert isinstance(
            reader, SelectPipeReader if system == "posix" else ThreadPipeReader
        )
        said = b""
        while len(said) < 5:
            said += reader.read(2, 10.0) or b""
        assert said == b"hello"
        assert reader.read(2, 0.01) == b""
        process.stdin.close()
        assert reader.read(2, 10.0) is None
        assert reader.read(2, 10.0) is None
