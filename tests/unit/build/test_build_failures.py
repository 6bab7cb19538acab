"""The cause of a failed build is named, also if it is a limit of this machine."""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.artifacts import SourceTree
from firmwright.boards import load_board
from firmwright.build.build_failures import explain_failure
from firmwright.build.project_files import project_files

Tree = Callable[..., SourceTree]


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (
            "gcc: internal compiler error: File size limit exceeded signal",
            "size of a file",
        ),
        (
            "/tmp/cc.s: Fatal error: can't write 16 bytes: No space left on device",
            "no space left",
        ),
        ("cc1: out of memory allocating 65536 bytes", "too little memory"),
        ("gcc: fatal error: Killed signal terminated program cc1", "too little memory"),
        ("model.c:3: error: expected ';'", "SCons could not build the firmware"),
    ],
)
def test_a_limit_of_the_machine_is_recognized(
    output: str, cause: str, tmp_path: Path
) -> None:
    assert cause in explain_failure(tmp_path, output).what


@pytest.mark.host_c
def test_the_message_of_a_compiler_at_the_limit_of_file_sizes_is_recognized(
    tmp_path: Path,
) -> None:
    (tmp_path / "large.c").write_text("int x[40000] = {1};")
    done = subprocess.run(
        ["gcc", "-c", "large.c"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)),
    )
    assert done.returncode != 0
    failure = explain_failure(tmp_path, done.stdout)
    assert failure.what == "the build reached this shell's limit on the size of a file."
    assert "ulimit" in failure.hint


@pytest.mark.host_c
def test_a_project_is_read_by_a_python_that_drops_docstrings(
    twice: Tree, tmp_path: Path
) -> None:
    twice().merged(project_files(load_board("host"))).write(tmp_path)
    command = [sys.executable, "-B", "-OO", "-m", "SCons", "-Q", "--dry-run"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
