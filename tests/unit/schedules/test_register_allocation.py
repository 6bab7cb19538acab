"""gcc can allocate registers for every micro-kernel in the kernels of random layers."""

import subprocess
from itertools import islice
from pathlib import Path

import pytest

from firmwright.artifacts import SourceTree
from firmwright.boards import load_board
from firmwright.build.compiler_flags import WARNINGS, compile_flags, gnu_tool
from tests.conformance.candidate_counts import (
    KernelCandidate,
    compile_candidates,
    enumerate_candidates,
)
from tests.conformance.generated_layers import generate_layers

_TOGETHER = 64
_BLOCKS = ("dsp.conv2d", "dsp.fully_connected", "helium.")
"""Schedules with assembly that takes many registers."""


def _kernels(count: int, board: str) -> list[KernelCandidate]:
    """Return the kernels with assembly among those of `count` random layers."""
    drawn = enumerate_candidates(islice(generate_layers(11), count), board)
    return [item for item in drawn if item.schedule.startswith(_BLOCKS)]


def _complaints(folder: Path, tree: SourceTree, board_name: str, level: str) -> str:
    for name, content in tree.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    board = load_board(board_name)
    source = next((folder / "model").glob("*.c"))
    command = [
        gnu_tool(board, "gcc"),
        *compile_flags(board),
        *WARNINGS,
        level,
        "-c",
        str(source),
    ]
    done = subprocess.run(
        [*command, "-o", str(folder / "o")], capture_output=True, text=True
    )
    assert done.returncode == 0 or done.stderr, command
    return done.stderr if done.returncode else ""


def _check(folder: Path, count: int, board: str, levels: tuple[str, ...]) -> None:
    kernels = _kernels(count, board)
    assert len(kernels) > count // 2
    for start in range(0, len(kernels), _TOGETHER):
        tree = compile_candidates(kernels[start : start + _TOGETHER], board).tree
        for level in levels:
            assert not _complaints(folder / f"{start}", tree, board, level), (
                start,
                level,
            )


@pytest.mark.sampled(3)
@pytest.mark.qemu("arm")
@pytest.mark.parametrize(
    ("board", "level"), [("mps2-an386", "-Os"), ("mps3-an547", "-O2")]
)
def test_kernels_of_random_layers_compile(board: str, level: str, tmp_path: Path):
    _check(tmp_path, 10, board, (level,))


@pytest.mark.deep
@pytest.mark.qemu("arm")
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547"])
def test_kernels_of_many_random_layers_compile_at_every_level(
    board: str, tmp_path: Path
):
    _check(tmp_path, 2000, board, ("-O2", "-Os", "-O3"))
